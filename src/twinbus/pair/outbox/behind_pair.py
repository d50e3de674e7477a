"""An outbox behind a pair: what neither primary nor backlog takes is kept on disk, and leaves by the pair's own way.

When a message comes here is decided by `route`; the application learns of it. The dispatcher runs on the pair's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from twinbus.client import messages
from twinbus.client.errors import NOT_TAKEN, ClientError, of_several
from twinbus.pair import listeners
from twinbus.pair.outbox.dispatcher import Dispatcher
from twinbus.pair.outbox.outbox import Outbox
from twinbus.pair.outbox.rows import Entry, Queued
from twinbus.pair.route.carrier import Carried, Carrier, Sending
from twinbus.pair.route.health_board import HealthBoard


class PairOutbox:
    """One outbox of a paired client."""

    def __init__(
        self,
        outbox: Outbox,
        carrier: Carrier,
        health_board: HealthBoard,
        *,
        owned: bool,
        on_queued: Callable[[Queued], None] | None = None,
        on_refused: Callable[[Entry, str], None] | None = None,
    ) -> None:
        self.outbox = outbox
        self._health_board = health_board
        self._owned = owned
        self._on_queued = on_queued
        self.dispatcher = through(carrier, outbox, on_refused)
        self._last_put = object()  # Another one with each put, in whatever thread.
        self._empty_after: object | None = None  # The put after which it was seen to be empty.
        outbox.listen(self._was_put)

    async def start(self) -> None:
        """Begin to dispatch, on this loop; what an earlier process left is dispatched, too."""
        if self.dispatcher.start():
            self._health_board.listen(lambda change: self.dispatcher.resume())

    async def stop(self) -> None:
        """End; what is in the outbox stays there."""
        await self.dispatcher.stop()
        if self._owned:
            await asyncio.to_thread(self.outbox.close)

    def status(self) -> dict[str, Any]:
        """What the dispatcher has done; asks nobody, so that it costs nothing."""
        progress = self.dispatcher.progress
        return {"sent": progress.sent, "set_aside": progress.refused, "problem": progress.problem}

    @property
    def may_hold(self) -> bool:
        """False while it is known to be empty, so that most sends need not ask."""
        return self._last_put is not self._empty_after

    def _was_put(self) -> None:
        self._last_put = object()

    async def put(self, payloads: Sequence[bytes], path: str) -> Queued:
        """Keep messages; they are safe when this returns."""
        self._was_put()  # Before the row is there: who counts meanwhile has not counted it.
        queued = await self.outbox.put_async(payloads, path, encoded=True)
        listeners.call(self._on_queued, queued)
        return queued

    async def must_wait(self, payloads: Sequence[bytes], path: str) -> bool:
        """Whether one of the messages would overtake an earlier one of its session or key that waits here."""
        if not self.may_hold:
            return False
        for key in {found.session_id or found.partition_key for found in map(messages.read, payloads)}:
            if key is not None and await self.outbox.holds(path, key):
                return True
        last_put = self._last_put
        counts = await asyncio.wrap_future(self.outbox.use(lambda tables, _: tables.counts(), reads=True))
        if counts.messages == counts.aside:
            self._empty_after = last_put  # What was put since then is not among them.
        return False


def through(carrier: Carrier, outbox: Outbox, on_refused: Callable[[Entry, str], None] | None = None) -> Dispatcher:
    """A dispatcher whose way leads through a pair."""
    return Dispatcher(outbox, Way(carrier).send, on_refused=on_refused)


class Way:
    """Messages go where the router says, and in order where the pair keeps it."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    async def send(self, path: str, payloads: Sequence[bytes], key: str | None = None) -> None:
        """Once; a ClientError says what nobody took. The key keeps the messages in order, if the pair does."""
        carrier, sending = self._carrier, Sending(path)
        failed: dict[int, ClientError] = {}
        if not carrier.is_partitioned(path):
            failed = _failed(await carrier.carry(sending, payloads, order_key=key), len(payloads))
        else:
            for at, payload in enumerate(payloads):  # Each may lead to another fragment, with a health of its own.
                found = messages.read(payload)
                fragment = carrier.fragment_key(path, found.session_id or found.partition_key, found.message_id)
                carried = await carrier.carry(sending, [payload], key=fragment, order_key=key)
                if error := _failed(carried, 1).get(0):
                    failed[at] = error
        if failed:
            raise of_several(failed, len(payloads))


def _failed(carried: Carried, count: int) -> dict[int, ClientError]:
    """What nobody took, by position; what no broker has refused can wait."""
    if carried.error is None or carried.failed:
        return carried.failed if carried.error is not None else {}
    return dict.fromkeys(range(count), ClientError(NOT_TAKEN, str(carried.error), definite=False))
