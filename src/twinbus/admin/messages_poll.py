"""One request that waits for a message: a receiver of its queue's feed until a message, the time-out or the end comes.

Its lock belongs to no connection, so that time alone ends it. What an answer looks like is `messages`' business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twinbus.entities.feed import UNBOUNDED, Feed
from twinbus.model.errors import BusError
from twinbus.model.message import Delivered, Origin, ReceiveMode

# How often a request that waits looks whether its client is still there. Nothing is locked for one that is not, so
# that this only bounds how long its place is kept.
CLIENT_CHECK_S = 2.0


class Poll:
    """A `Receiver` of one message."""

    owner = 0  # Nobody's: connections are numbered from one.
    holder = 0
    session: str | None = None
    bounds = UNBOUNDED

    def __init__(self, feed: Feed, mode: ReceiveMode, origin: Origin, is_gone: Callable[[], bool]) -> None:
        self.mode = mode
        self.origin = origin
        self.is_gone = is_gone  # Whether the client has hung up.
        self._feed = feed
        self._is_ending = False
        self._end: BusError | None = None
        self._answer: asyncio.Future[Delivered | None] = asyncio.get_running_loop().create_future()
        self._looked = asyncio.Event()  # The store was asked once, all of it.

    def demand(self) -> int:
        """One message, as long as somebody waits for it."""
        return 0 if self._is_ending or self._answer.done() or self.is_gone() else 1

    def deliver(self, messages: list[Delivered]) -> None:
        """The store was asked: with what it gave, or with nothing if this is to end, the request is answered."""
        self._looked.set()
        if self._answer.done():
            self._feed.give_back(messages, self.origin)
        elif messages:
            self._answer.set_result(messages[0])
        elif self._is_ending:
            self._resolve()

    def failed(self, error: BusError) -> None:
        """The queue cannot serve it."""
        self._is_ending, self._end = True, error
        self._resolve()

    def end(self, error: BusError | None = None) -> None:
        """Wait no longer. While the store is being asked its answer decides: what it removes must not be lost."""
        self._is_ending, self._end = True, error
        if not self._feed.is_busy(self):
            self._resolve()

    def _resolve(self) -> None:
        self._looked.set()
        if self._answer.done():
            return
        if self._end is None:
            self._answer.set_result(None)
        else:
            self._answer.set_exception(self._end)

    async def wait(self, timeout_s: float) -> Delivered | None:
        """The next message, or None when none came in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        self._feed.pull(self)
        try:
            await self._looked.wait()  # Whatever the time-out.
            while not self._answer.done():
                left_s = deadline - loop.time()
                if left_s <= 0 or self.is_gone():
                    self.end()
                    return await self._answer
                await asyncio.wait({self._answer}, timeout=min(left_s, CLIENT_CHECK_S))
            return await self._answer
        finally:
            self._feed.leave(self)
            self._answer.cancel()

    def give_back(self, message: Delivered) -> None:
        """The answer could not be handed over; no delivery is counted."""
        self._feed.give_back([message], self.origin)
