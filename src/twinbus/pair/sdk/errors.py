"""The SDK's error, which every error of a pair is too: an application that handles the one handles the other.

Which errors there are is in `pair/errors.py`.
"""

from __future__ import annotations

from azure.servicebus.exceptions import ServiceBusError

__all__ = ["ServiceBusError"]
