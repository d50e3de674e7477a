"""Sends encoded messages over one link, as many at a time as window and credit allow, and waits for their outcomes.

Building messages is left to `wire.outgoing`, sending again to the caller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from twinbus.amqp.carrier import LinkRole
from twinbus.amqp.events import Settlement
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import Accepted, Source, Target
from twinbus.client.endpoint import Endpoint
from twinbus.client.errors import ClientError
from twinbus.client.lots import Lot, Pending
from twinbus.client.stream import Stream

DEFAULT_WINDOW = 500
_UNSETTLED, _FIRST = 0, 0


class Sender(Endpoint):
    """Our end of a sending link. At most `window` deliveries wait for their outcome at any time."""

    def __init__(self, stream: Stream, path: str, window: int) -> None:
        super().__init__(stream, path)
        self.window = window
        self._queue: deque[tuple[Lot, Sequence[bytes], int]] = deque()
        self._pending = Pending()
        self._number = 0
        source = Source(f"sender-{self.session.channel}")
        self._link = self.attach(LinkRole.SENDER, source, Target(path), _UNSETTLED, _FIRST)

    @property
    def under_way(self) -> int:
        """Messages that were handed in and have no outcome yet."""
        return len(self._pending) + sum(lot.size - len(lot.ids) for lot, _, _ in self._queue)

    @property
    def message_bytes_max(self) -> int | None:
        """The largest message that the peer takes; None if it does not say."""
        remote = self._link.remote
        return (remote.max_message_size or None) if remote is not None else None

    async def send(self, payloads: Sequence[bytes], message_format: int = 0) -> None:
        """Sends messages and returns when all are accepted; otherwise raises a ClientError that knows which are not.

        When the caller stops waiting, what was not sent yet is not sent; the rest may have been.
        """
        await self.send_nowait(payloads, message_format)

    def send_nowait(self, payloads: Sequence[bytes], message_format: int = 0) -> asyncio.Future[None]:
        """Begins what `send` does. The caller bounds how much it hands in; `under_way` tells."""
        self.check()
        lot = Lot(len(payloads), Accepted, self.loop)
        if payloads:
            self._queue.append((lot, payloads, message_format))
            self._pump()
        return lot.done

    def _pump(self) -> None:
        """Transfers what window, credit and socket take."""
        queue, pending, transfer = self._queue, self._pending, self._link.transfer
        room = 0 if self.stream.is_paused else min(self.window - len(pending), self._link.sendable)
        number = self._number
        while queue and room > 0:
            lot, payloads, message_format = queue[0]
            if lot.done.done():  # The caller gave up.
                queue.popleft()
                continue
            ids = lot.ids
            start = len(ids)
            for payload in payloads[start : start + room]:
                number = number + 1 & 0xFFFFFFFF
                delivery_id = transfer(number.to_bytes(4, "big"), payload, False, message_format)
                pending[delivery_id] = lot
                ids.append(delivery_id)
            room -= len(ids) - start
            if len(ids) == lot.size:
                queue.popleft()
        self._number = number
        self.stream.mark_dirty()

    def flowed(self, link: Link) -> None:
        """Credit came."""
        if link.drain:
            link.drained()
        if self._queue:
            self._pump()

    def settled(self, link: Link, items: list[Settlement]) -> None:
        """Outcomes came: there is room for more."""
        self._pending.settled(items)
        unanswered = [delivery_id for delivery_id, _, state, settled in items if not settled and state is not None]
        if unanswered:
            # A peer that settles second waits for us to forget the delivery, too.
            self.session.settle(unanswered, None, LinkRole.SENDER)
        if self._queue:
            self._pump()

    def resumed(self) -> None:
        """The connection can be written to again."""
        if self._queue:
            self._pump()

    def lost(self, error: ClientError) -> None:
        """What is on its way may have arrived; what was not sent has not."""
        super().lost(error)
        self._pending.fail(error.but(definite=False))
        queued = list(self._queue)
        self._queue.clear()
        for lot, _, _ in queued:
            lot.refuse_rest(error.but(definite=True))
