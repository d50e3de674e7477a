"""Twinbus: a Service Bus that survives the loss of its datacenter.

This module holds the version and nothing else; each subpackage is imported by its own name.
"""

__version__ = "0.1.0"
