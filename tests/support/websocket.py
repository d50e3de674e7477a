"""A WebSocket to a broker: where it is, and our own client on it, with its bytes cut into messages as a test likes.

What must come of it is for the tests to say; the broker's own transport is not used here, so that it does not judge
itself.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import aiohttp

from support.broker import BrokerProcess
from twinbus.client import Connection, connect

PATH = "/$servicebus/websocket"
SUBPROTOCOLS = ("AMQPWSB10", "amqp")
BYTES_MAX = 1024 * 1024
GOODBYE_S = 30.0


def url(broker: BrokerProcess, path: str = PATH) -> str:
    return f"http://{broker.host}:{broker.http_port}{path}"


class Carrier(asyncio.Transport):
    """Our own client's bytes over a WebSocket, in pieces of a given size; it can be told not to read."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, piece_bytes: int) -> None:
        super().__init__()
        self.ws = ws
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._piece_bytes = piece_bytes
        self._written: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def dial(self, protocol: asyncio.Protocol) -> None:
        """What `connect` calls instead of opening a socket."""
        protocol.connection_made(self)
        self._tasks = [asyncio.create_task(self._read(protocol)), asyncio.create_task(self._write())]

    async def _read(self, protocol: asyncio.Protocol) -> None:
        async for message in self.ws:
            await self.may_read.wait()
            if message.type is aiohttp.WSMsgType.BINARY:
                protocol.data_received(message.data)
        protocol.connection_lost(None)

    async def _write(self) -> None:
        with suppress(ConnectionError):
            while (data := await self._written.get()) is not None:
                for start in range(0, len(data), self._piece_bytes):
                    await self.ws.send_bytes(data[start : start + self._piece_bytes])
        # A broker that was told goodbye closes by itself. To close while its close frame is being read would make the
        # library take the end for an abnormal one.
        await asyncio.wait(self._tasks[:1], timeout=GOODBYE_S)
        await self.ws.close()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written.put_nowait(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything is taken."""

    def close(self) -> None:
        self._written.put_nowait(None)

    def abort(self) -> None:
        self.ws.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async def finish(self) -> None:
        self.close()
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def over_websocket(
    broker: BrokerProcess, piece_bytes: int = BYTES_MAX, tls: ssl.SSLContext | None = None, address: str | None = None
) -> AsyncIterator[tuple[Connection, Carrier]]:
    """Our own client, connected through a WebSocket."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        carrier = Carrier(
            await http.ws_connect(address or url(broker), protocols=SUBPROTOCOLS, ssl=tls or True), piece_bytes
        )
        stack.push_async_callback(carrier.finish)
        connection = await stack.enter_async_context(connect(broker.connection_string(), dial=carrier.dial))
        stack.callback(carrier.may_read.set)
        yield connection, carrier
