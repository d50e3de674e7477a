"""Where a message is that nobody took yet: what an application learns instead of an error.

Putting it there is the outbox's work.
"""

from __future__ import annotations

from typing import NamedTuple


class Queued(NamedTuple):
    """Messages that are safe in an outbox and on their way from there: what an application gets."""

    path: str
    message_ids: list[str]
    numbers: list[int]
