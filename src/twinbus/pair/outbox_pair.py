"""An outbox behind a pair: what neither primary nor backlog takes is kept on disk, and leaves by the pair's own way.

When a message comes here is decided by `sending`; the application is told. The dispatcher runs on the companion's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twinbus.client import messages
from twinbus.client.errors import ClientError
from twinbus.pair.dispatch import Dispatcher
from twinbus.pair.dispatch_lanes import Fate, Lot, Outcome
from twinbus.pair.dispatch_routes import SENT, fate_of, outcomes_of, send_within
from twinbus.pair.errors import BacklogError, RefusedError
from twinbus.pair.failures import kind_of
from twinbus.pair.health import Event, Route
from twinbus.pair.outbox import Outbox
from twinbus.pair.outbox_rows import Entry, Queued

if TYPE_CHECKING:
    from twinbus.pair.sending import Pairing


class PairOutbox:
    """One outbox of a paired client."""

    def __init__(
        self,
        outbox: Outbox,
        pairing: Pairing,
        *,
        owned: bool,
        on_queued: Callable[[Queued], None] | None = None,
        on_refused: Callable[[Entry, str], None] | None = None,
    ) -> None:
        self.outbox = outbox
        self._pairing = pairing
        self._owned = owned
        self._on_queued = on_queued
        self.dispatcher = through(pairing, outbox, on_refused)
        self.may_hold = True  # False when it is known to be empty, so that most sends need not ask.
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to dispatch, on this loop; what an earlier process left is dispatched, too."""
        if self._task is None:
            self._task = asyncio.create_task(self.dispatcher.run(), name="outbox")
            self._pairing.board.listen(lambda change: self.dispatcher.resume())

    async def stop(self) -> None:
        """End; what is in the outbox stays there."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._owned:
            await asyncio.to_thread(self.outbox.close)

    def status(self) -> dict[str, Any]:
        """What the dispatcher has done; asks nobody, so that it costs nothing."""
        progress = self.dispatcher.progress
        return {"sent": progress.sent, "set_aside": progress.refused, "problem": progress.problem}

    async def put(self, payloads: Sequence[bytes], path: str) -> Queued:
        """Keep messages; they are safe when this returns."""
        self.may_hold = True
        queued = await self.outbox.put_async(payloads, path, encoded=True)
        if self._on_queued is not None:
            self._on_queued(queued)
        return queued

    async def must_wait(self, payloads: Sequence[bytes], path: str) -> bool:
        """Whether one of the messages would overtake an earlier one of its session or key that waits here."""
        if not self.may_hold:
            return False
        for key in {found.session_id or found.partition_key for found in map(messages.read, payloads)}:
            if key is not None and await self.outbox.holds(path, key):
                return True
        counts = await asyncio.wrap_future(self.outbox.use(lambda tables, _: tables.counts(), reads=True))
        self.may_hold = counts.messages > counts.aside
        return False


def through(pairing: Pairing, outbox: Outbox, on_refused: Callable[[Entry, str], None] | None = None) -> Dispatcher:
    """A dispatcher whose way leads through a pair."""
    return Dispatcher(outbox, Way(pairing).deliver, on_refused=on_refused)


class Way:
    """Messages go where the health of their entity says, and in order where the pair keeps it."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing

    async def deliver(self, lot: Lot) -> list[Outcome]:
        """The way of a lot through the pair."""
        companion = self._pairing.companion
        if companion.paired is None:
            return [Outcome(Fate.LATER, "the pair is not made yet")] * len(lot.entries)
        payloads = [entry.payload for entry in lot.entries]
        if lot.key is not None and companion.ordered is not None:
            return await self._in_order(payloads[0], lot.path, lot.key)
        return await self.send(payloads, lot.path)

    async def send(self, payloads: list[bytes], path: str) -> list[Outcome]:
        """The way of messages whose order does not matter; the pair is made."""
        if path.lower() not in self._pairing.partitioned:
            return await self._send(payloads, path, None)
        outcomes = []
        for payload in payloads:  # Each may lead to another fragment, with a health of its own.
            outcomes += await self._send([payload], path, self._fragment_key(path, payload))
        return outcomes

    def _fragment_key(self, path: str, payload: bytes) -> str | None:
        found = messages.read(payload)
        key = found.session_id or found.partition_key
        if key is None and path.lower() in self._pairing.companion.partitions.by_id:
            return found.message_id
        return key

    async def _in_order(self, payload: bytes, path: str, key: str) -> list[Outcome]:
        route = self._pairing.companion.ordered
        assert route is not None
        try:
            await route.send(payload, path, key)
        except ClientError as error:
            return [fate_of(error)]
        except (BacklogError, RefusedError) as error:
            return [Outcome(Fate.LATER, str(error))]
        return [SENT]

    async def _send(self, payloads: list[bytes], path: str, key: str | None) -> list[Outcome]:
        """To the primary while it is healthy, else to the backlog, as a paired sender does."""
        pairing = self._pairing
        scope = pairing.scope(path, key)
        route = pairing.board.route(scope)
        outcomes = [Outcome(Fate.LATER, f"the primary refuses: {pairing.board.health(scope).reason}")] * len(payloads)
        if route is Route.PRIMARY:
            try:
                timeout_s = pairing.companion.options.seconds("attempt_timeout")
                await send_within(pairing.companion.primary, path, payloads, timeout_s)
            except ClientError as error:
                outcomes = outcomes_of(error, len(payloads))
                if kind_of(error) in pairing.counting:
                    pairing.board.tell(scope, Event.FAILED, error.text, key)
                    route = pairing.board.route(scope)
            else:
                pairing.board.sent(scope)
                return [SENT] * len(payloads)
        if route is not Route.BACKLOG:
            return outcomes
        left = [position for position, outcome in enumerate(outcomes) if outcome.fate is Fate.LATER]
        try:
            await pairing.companion.divert([payloads[position] for position in left], path, None, None)
        except BacklogError as error:
            return [Outcome(Fate.LATER, str(error)) if at in left else each for at, each in enumerate(outcomes)]
        return [SENT if at in left else each for at, each in enumerate(outcomes)]
