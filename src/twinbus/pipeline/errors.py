"""What goes wrong with a pipeline, in a sentence for whoever started it.

Errors of a namespace are the client's; here is what a job itself cannot do.
"""

from __future__ import annotations


class PipelineError(Exception):
    """A pipeline cannot start or go on; the text says why and what to do."""
