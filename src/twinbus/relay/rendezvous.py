"""A listener's end of a rendezvous: one request comes in and one response goes out, each while it is being made.

A body is one message, however long. aiohttp holds messages whole, hence another library here, which takes and sends
them in parts and makes the other side wait.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, NamedTuple

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from twinbus.relay.messages import whole
from twinbus.relay.outgoing import Outgoing

FRAMES_AHEAD = 4  # Of a request's body, beyond what its handler has taken.
OPENING_S, GOODBYE_S = 30.0, 5.0

RENDEZVOUS_ERRORS = (WebSocketException, OSError, TimeoutError)  # What may come of an address that was handed out.


class Told(NamedTuple):
    """A request as it was told, and its body as it comes."""

    command: dict[str, Any]
    content: AsyncIterator[bytes]


class SenderLostError(ConnectionResetError):
    """The relay went away, or its sender did, before all of a request had come."""


class Rendezvous:
    """One of them, open."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._content = whole(b"")

    async def request(self) -> Told:
        """The request that is told here."""
        command = json.loads(await self._connection.recv())["request"]
        if command.get("body"):
            self._content = self._message()
        return Told(command, self._content)

    async def _message(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._connection.recv_streaming(decode=False):
                yield part
        except ConnectionClosed:
            raise SenderLostError("The request ended before all of it had come.") from None

    async def respond(self, number: str, outgoing: Outgoing) -> None:
        """Send a response; it is given up when the relay says that nobody waits for it any more."""
        sending = asyncio.ensure_future(self._send(number, outgoing))
        closed = asyncio.ensure_future(self._connection.wait_closed())
        try:
            await asyncio.wait({sending, closed}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
                await self._let_go()
        finally:
            for task in (sending, closed):
                task.cancel()
            await asyncio.wait({sending, closed})

    async def _send(self, number: str, outgoing: Outgoing) -> None:
        has_body = outgoing.may_have_body
        await self._connection.send(outgoing.head(number, has_body=has_body).decode())
        if has_body:
            async with aclosing(outgoing.chunks()) as chunks:
                await self._connection.send(chunks)

    async def _let_go(self) -> None:
        """The relay closes when its sender has everything. What is left of a request until then interests nobody."""
        with suppress(WebSocketException, SenderLostError):
            async for _ in self._content:
                pass
            await self._connection.recv()


@asynccontextmanager
async def opened(address: str, tls: ssl.SSLContext | None) -> AsyncIterator[Rendezvous]:
    """A rendezvous at the address that a relay named; one of RENDEZVOUS_ERRORS if that cannot be."""
    async with connect(
        address,
        ssl=tls if address.startswith("wss:") else None,
        compression=None,
        proxy=None,
        max_size=None,
        max_queue=FRAMES_AHEAD,
        open_timeout=OPENING_S,
        close_timeout=GOODBYE_S,
        ping_interval=None,  # The relay says how long it waits.
    ) as connection:
        yield Rendezvous(connection)
