"""Where somebody who looks through a queue has got to: what he has seen stays in the queue, and is not shown again.

Goes by sequence number, in each fragment of a partitioned entity by its own: what is given back behind the place where
he has got to was shown to him before.
"""

from __future__ import annotations

from collections.abc import Iterable

from twinbus.entities.mailbox import PEEK_BYTES_MAX, Mailbox
from twinbus.entities.partitions import NUMBER_BITS
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin


class Cursor:
    """One way through the active messages of a queue, or of one session in it."""

    def __init__(self, mailbox: Mailbox, session: str | None = None) -> None:
        self._mailbox = mailbox
        self._session = session
        self._next: dict[int, int] = {}  # By fragment; a plain queue has one.

    async def look(self, limit: int, origin: Origin) -> list[Delivered]:
        """The next messages, none if there are no more for now; they count as seen when `passed` is told of them.

        A fragment whose store is away is left out, unless all are.
        """
        found: list[Delivered] = []
        room = PEEK_BYTES_MAX
        places = self._mailbox.places(self._session)
        away: list[BusError] = []
        for index, place in places:
            start, rest = self._next.get(index, 0), limit - len(found)
            try:
                page = await place.peek(start, rest, self._session, origin, room, active_only=True)
            except BusError as error:
                away.append(error)
                if error.fault is not Fault.STORE_UNAVAILABLE or len(away) == len(places):
                    raise
                continue
            found += page
            room -= sum(len(message.record) for message in page)
            if len(found) >= limit or room <= 0:
                break
        return found

    def passed(self, messages: Iterable[Delivered]) -> None:
        """Messages were shown."""
        for message in messages:
            self._next[message.sequence_number >> NUMBER_BITS] = message.sequence_number + 1
