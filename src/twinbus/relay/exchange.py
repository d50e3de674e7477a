"""One relayed request whose response is awaited: whoever hears the listener fills it, the sender's handler empties it.

A response goes where its request's number says, and nowhere else: a second one for the same request is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from twinbus.relay.commands import Response
from twinbus.relay.hearing import BodyPart
from twinbus.relay.socket import Socket


class ListenerLostError(Exception):
    """The listener went away before it had answered in full."""


class Exchange:
    """A request that was handed to a listener."""

    def __init__(self, number: str, buffer_bytes: int) -> None:
        self.number = number
        self._buffer_bytes = buffer_bytes
        loop = asyncio.get_running_loop()
        self.head: asyncio.Future[Response] = loop.create_future()
        self.rendezvous: asyncio.Future[Socket] = loop.create_future()  # If the listener opens one.
        self._parts: deque[bytes | bytearray] = deque()
        self._waiting_bytes = 0
        self._is_complete = False
        self._loss: ListenerLostError | None = None
        self._news = asyncio.Event()

    # What a listener's socket tells

    @property
    def is_at_rendezvous(self) -> bool:
        """Whether the listener has opened a socket for this request."""
        return self.rendezvous.done() and not self.rendezvous.cancelled()

    @property
    def is_answered(self) -> bool:
        """Whether a response has begun."""
        return self.head.done()

    @property
    def is_complete(self) -> bool:
        """Whether all of the response is there."""
        return self._is_complete

    def answer(self, response: Response) -> None:
        """The response begins."""
        if not self.head.done():
            self._is_complete = not response.has_body
            self.head.set_result(response)

    def add(self, part: BodyPart) -> None:
        """A part of the response's body."""
        if part.data:
            self._parts.append(part.data)
            self._waiting_bytes += len(part.data)
        self._is_complete = part.ends
        self._news.set()
        if self._waiting_bytes > self._buffer_bytes and self.is_at_rendezvous:
            self.rendezvous.result().pause()

    def lost(self) -> None:
        """Nothing more will come."""
        if self._is_complete:
            return
        self._loss = ListenerLostError("The listener went away before it had answered.")
        if not self.head.done():
            self.head.set_exception(self._loss)
            self.head.exception()  # Nobody may wait for it any more, which is no defect.
        self._news.set()

    # What the sender's handler asks for

    async def parts(self, idle_s: float) -> AsyncIterator[bytes | bytearray]:
        """The body as it comes; TimeoutError if nothing comes for so long, ListenerLostError if it stays incomplete."""
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._waiting_bytes -= len(part)
                yield part
            if self._is_complete:
                return
            if self._loss is not None:
                raise self._loss
            if self.is_at_rendezvous:
                self.rendezvous.result().resume()
            self._news.clear()
            async with asyncio.timeout(idle_s):
                await self._news.wait()

    def close(self) -> None:
        """The sender has what it gets, or is gone: a rendezvous that was made for it is closed."""
        if self.is_at_rendezvous:
            self.rendezvous.result().close(1000 if self._is_complete else 1001)
        self.rendezvous.cancel()
