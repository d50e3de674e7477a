"""Receives messages over one link and settles them, both in lots; credit is granted ahead or on demand.

Messages stay encoded. Renewing locks and receiving again after a failure are left to the caller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from twinbus.amqp.carrier import LinkRole
from twinbus.amqp.conditions import ILLEGAL_STATE
from twinbus.amqp.events import Delivery, Settlement
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import Error, Modified, Rejected, Source, Target
from twinbus.amqp.types import Symbol, UInt
from twinbus.client.endpoint import Endpoint, within
from twinbus.client.errors import ClientError
from twinbus.client.lots import Lot, Pending
from twinbus.client.stream import Stream
from twinbus.model.message import Outcome, ReceiveMode
from twinbus.wire import outcomes, sessions
from twinbus.wire.properties import DESCRIPTION_KEY, REASON_KEY

DEFAULT_CREDIT = 1000
_UNSETTLED, _SETTLED = 0, 1
_FIRST, _SECOND = 0, 1
_DEAD_LETTER = "com.microsoft:dead-letter"


class ReceivedMessage(NamedTuple):
    """A message as it came. The tag is the lock token, in the byte order of .NET; empty when nothing is locked."""

    delivery_id: int
    tag: bytes
    payload: bytes


class Receiver(Endpoint):
    """Our end of a receiving link.

    With credit, the peer sends ahead up to so many messages; without, it sends what a call of `receive` asks for
    and nothing more.
    """

    def __init__(
        self,
        stream: Stream,
        path: str,
        *,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        credit: int = DEFAULT_CREDIT,
        session: sessions.WantedSession | None = None,
        session_wait_s: float | None = None,
        settle_first: bool = False,
    ) -> None:
        super().__init__(stream, path)
        self.mode = mode
        self.session_id: str | None = None
        self.session_locked_until_ms: int | None = None
        self._credit = credit
        # A peer that settles first answers nothing to an outcome.
        self._answers = mode is ReceiveMode.PEEK_LOCK and not settle_first
        self._buffer: deque[ReceivedMessage] = deque()
        self._pending = Pending()
        self._waiters: set[asyncio.Future[None]] = set()
        self._asking = asyncio.Lock()
        source = Source(path)
        if session is not None:
            source.filter = {sessions.SESSION_FILTER: session.session_id}
        properties: dict[Symbol, object] | None = None
        if session_wait_s is not None:
            properties = {sessions.TIMEOUT: UInt(int(session_wait_s * 1000))}
        deleting = mode is ReceiveMode.RECEIVE_AND_DELETE
        self._link = self.attach(
            LinkRole.RECEIVER,
            source,
            Target(f"receiver-{self.session.channel}"),
            _SETTLED if deleting else _UNSETTLED,
            _SECOND if self._answers else _FIRST,
            properties,
        )

    # Receiving

    async def receive(self, max_count: int, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """At least one message if there is one within the time, and at most `max_count`; else an empty list."""
        if not self._buffer:
            self.check()
        if not self._credit and self.error is None:
            async with self._asking:
                return await self._receive_asked(max_count, timeout_s)
        if not self._buffer:
            await self._arrival(timeout_s)
        return self._take(max_count)

    async def _receive_asked(self, max_count: int, timeout_s: float | None) -> list[ReceivedMessage]:
        """Asks for so many; when the first have come, or the time is over, takes back what is left of the request."""
        missing = max_count - len(self._buffer)
        if missing > 0:
            self.check()
            self._link.grant(missing)
            self.stream.mark_dirty()
            if not self._buffer:
                await self._arrival(timeout_s)
            await self._drain()
        return self._take(max_count)

    async def _drain(self) -> None:
        """Waits until the peer has sent what it has and given up the rest of the credit."""
        if self._link.credit > 0 and self.error is None:
            self._link.grant(self._link.credit, drain=True)
            self.stream.mark_dirty()
            await within(self.stream.timeout_s, self._drained(), f"draining the link to '{self.path}'")

    async def _drained(self) -> None:
        while self._link.drain and self.error is None:
            await self._arrival(None)

    async def _arrival(self, timeout_s: float | None) -> None:
        """Waits for deliveries or for a flow, or until the time is over; raises if the link is lost meanwhile."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)
        if not self._buffer:
            self.check()

    def _take(self, max_count: int) -> list[ReceivedMessage]:
        buffer = self._buffer
        if len(buffer) <= max_count:
            taken = list(buffer)
            buffer.clear()
        else:
            taken = list(islice(buffer, max_count))
            for _ in taken:
                buffer.popleft()
        self._replenish()
        return taken

    def _replenish(self) -> None:
        """Grants credit in big steps: when half of it is used up and the messages are taken."""
        held = len(self._buffer)
        if self._credit and self.error is None and self._link.credit + held <= self._credit // 2:
            self._link.grant(self._credit - held)
            self.stream.mark_dirty()

    # Settling

    async def settle(
        self,
        messages: Sequence[ReceivedMessage],
        outcome: Outcome = Outcome.COMPLETE,
        *,
        reason: str | None = None,
        description: str | None = None,
        properties: dict[str, Any] | None = None,
    ) -> None:
        """Settles messages and returns when the peer has confirmed it; a ClientError knows which it did not.

        Reason and description belong to dead-lettering; properties are application properties to change.
        """
        await self.settle_nowait(messages, outcome, reason=reason, description=description, properties=properties)

    def settle_nowait(
        self,
        messages: Sequence[ReceivedMessage],
        outcome: Outcome = Outcome.COMPLETE,
        *,
        reason: str | None = None,
        description: str | None = None,
        properties: dict[str, Any] | None = None,
    ) -> asyncio.Future[None]:
        """Begins what `settle` does."""
        self.check()
        state = _state(outcome, reason, description, properties)
        lot = Lot(len(messages), type(state), self.loop)
        pending, incoming = self._pending, self.session.incoming
        known: list[int] = []
        for delivery_id, _, _ in messages:
            lot.ids.append(delivery_id)
            if delivery_id not in incoming or delivery_id in pending:
                text = "the message is settled already, or was not received here"
                lot.refuse(len(lot.ids) - 1, ClientError(ILLEGAL_STATE, text))
                continue
            known.append(delivery_id)
            if self._answers:
                pending[delivery_id] = lot
        self.session.settle(known, state, LinkRole.RECEIVER, settled=not self._answers)
        if not self._answers:
            lot.left -= len(known)
            if known and not lot.left:
                lot.finish()
        self.stream.mark_dirty()
        return lot.done

    # What the stream tells

    def attached(self, link: Link) -> None:
        """The peer answered: a session that was asked for is told in its answer."""
        super().attached(link)
        if link.refused or link.remote is None:
            return
        granted = (link.remote.source.filter or {}).get(sessions.SESSION_FILTER)
        self.session_id = None if granted is None else str(granted)
        ticks = (link.remote.properties or {}).get(sessions.LOCKED_UNTIL)
        self.session_locked_until_ms = None if ticks is None else sessions.from_ticks(ticks)
        self._replenish()

    def received(self, link: Link, items: list[Delivery]) -> None:
        """Messages came."""
        self._buffer.extend([ReceivedMessage(item[0], item[1], item[4]) for item in items])
        self._wake()

    def settled(self, link: Link, items: list[Settlement]) -> None:
        """The peer confirmed outcomes, or says why it did not."""
        self._pending.settled([item for item in items if item[3]])

    def flowed(self, link: Link) -> None:
        """The peer may have given up credit."""
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def lost(self, error: ClientError) -> None:
        """What was locked for this link can no longer be settled here; what was deleted for it is all there is."""
        super().lost(error)
        if self.mode is ReceiveMode.PEEK_LOCK:
            self._buffer.clear()
        self._pending.fail(error.but(definite=False))
        self._wake()

    async def close(self) -> None:
        """Detaches. Messages that were sent ahead and nobody took are given back first, so that nothing stays locked.

        Received and deleted ones cannot be given back: they can still be received from here afterwards.
        """
        if self.error is None:
            self._credit = 0
            if self._answers:
                await self._drain()
                unused = list(self._buffer)
                self._buffer.clear()
                releasing = self.settle_nowait(unused, Outcome.RELEASE)
                await within(self.stream.timeout_s, releasing, f"giving back messages of '{self.path}'")
            else:
                self._link.grant(0)
        await super().close()


def _state(outcome: Outcome, reason: str | None, description: str | None, properties: dict[str, Any] | None) -> Any:
    """The delivery state that tells a decision, as the official clients tell it."""
    if outcome is Outcome.DEAD_LETTER:
        info = {Symbol(key): value for key, value in (properties or {}).items()}
        info |= {Symbol(REASON_KEY): reason, Symbol(DESCRIPTION_KEY): description}
        return Rejected(Error(_DEAD_LETTER, description, info))
    state = outcomes.echo(outcome)
    if properties and isinstance(state, Modified):
        changes = {Symbol(key): value for key, value in properties.items()}
        return Modified(state.delivery_failed, state.undeliverable_here, changes)
    return state
