"""Entities that the primary does not have: each is waited for, up to a limit, as somebody may be making it. Pure.

A primary that comes back empty has its entities made again a while later; what was diverted to them is not dead
meanwhile. Who waits is `home`'s part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

# An entity that is not there, and one that went away under its senders.
CONDITIONS = frozenset({"amqp:not-found", "amqp:resource-deleted"})
LONG_S = 60.0
Seen = Mapping[str, tuple[float, float]]  # When each entity was first and last found missing.


class MissingEntities:
    """Those that were found missing. `clock` is in seconds since the epoch, as people read when the wait ends."""

    def __init__(self, wait_s: float, clock: Callable[[], float], seen: Seen | None = None) -> None:
        self.wait_s = wait_s
        self._clock = clock
        self._seen = dict(seen or {})

    @property
    def seen(self) -> Seen:
        """For one who goes on with it elsewhere."""
        return dict(self._seen)

    def waits_until(self, path: str) -> float | None:
        """An entity is missing now: until when it is waited for, or None if that is over.

        For one that was not tried for a long time, the wait begins anew: these are other messages.
        """
        now = self._clock()
        first, last = self._seen.get(path, (now, now))
        if now - last > max(self.wait_s, LONG_S):
            first = now
        self._seen[path] = (first, now)
        return first + self.wait_s if now < first + self.wait_s else None

    def found(self, path: str) -> None:
        """It is there."""
        self._seen.pop(path, None)

    def begin_anew(self) -> None:
        """The primary went away; it may come back without any entity."""
        self._seen.clear()
