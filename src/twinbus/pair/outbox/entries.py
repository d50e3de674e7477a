"""A message as it waits in an outbox, and which ones a dispatcher wants: plain words, for those who decide.

How they are stored is in `rows`, in which order they leave in `plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """A message that waits, or that was refused for good and set aside."""

    number: int
    path: str
    order_group: str | None
    message_id: str
    put_at_ms: int
    payload: bytes
    aside_at_ms: int | None = None
    reason: str | None = None

    @property
    def key(self) -> str | None:
        """The session or key that the message is kept in order by."""
        return None if self.order_group is None else self.order_group.split("\n", 1)[1]


class Wanted(NamedTuple):
    """Which messages a dispatcher has room for: the first so many, apart from those that it knows or cannot send."""

    limit: int
    max_bytes: int
    known: Sequence[int] = ()
    busy_groups: Sequence[str] = ()
    paused_paths: Sequence[str] = ()
