"""The deliveries of a link that its client has not settled: how many there may be, and which of them can be forgotten.

A client may let locks expire, or settle through `$management`, and never speak of a delivery again. When the room is
used up, those whose lock has ended make way; whoever settles one of them after all has to ask through `$management`.
"""

from __future__ import annotations

from collections import deque

from twinbus.amqp.session import Session

UNSETTLED_MAX = 5000


class Unsettled:
    """Counts deliveries, and remembers when the lock of each ends, oldest first."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._count = 0
        self._ends: deque[tuple[int, int]] = deque()  # End of the lock and delivery id.

    def add(self, delivery_id: int, locked_until_ms: int) -> None:
        """A delivery left."""
        self._ends.append((locked_until_ms, delivery_id))
        self._count += 1

    def settled(self, count: int) -> None:
        """The client's decisions about deliveries were carried out."""
        self._count -= count

    def room(self, now_ms: int) -> int:
        """How many more deliveries may leave."""
        ends, outgoing = self._ends, self._session.outgoing
        while ends and ends[0][1] not in outgoing:
            ends.popleft()
        while self._count >= UNSETTLED_MAX and ends and ends[0][0] <= now_ms:
            if self._session.forget(ends.popleft()[1]):
                self._count -= 1
        return UNSETTLED_MAX - self._count

    @property
    def next_end_ms(self) -> int | None:
        """When the oldest lock ends; None if nothing is out."""
        return self._ends[0][0] if self._ends else None
