"""What can stand behind a listener: an ASGI application, an aiohttp application, an HTTP server, or a TCP port.

Each is made into the handler that a `RelayListener` takes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import aiohttp
from aiohttp import web

from twinbus.relay.headers import HOP_BY_HOP
from twinbus.relay.listening import SocketHandler
from twinbus.relay.messages import Handler, RelayedRequest, RelayedResponse

Event = MutableMapping[str, Any]
AsgiApp = Callable[[Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]]

CHUNK_BYTES = 64 * 1024


def without_name(target: str, path: str) -> str:
    """A request target as the service itself knows it: without the hybrid connection's name in front."""
    prefix = f"/{path.strip('/')}"
    below = target[len(prefix) :] if target.lower().startswith(prefix.lower()) else target
    return below if below.startswith("/") else f"/{below}"


def asgi(app: AsgiApp, path: str = "") -> Handler:
    """An ASGI application; `path` is taken away from the front of each request's target."""

    async def handle(request: RelayedRequest) -> RelayedResponse:
        raw_path, _, query = without_name(request.target, path).partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(raw_path),
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
                for name, value in request.headers.items()
            ],
            "client": None,
            "server": None,
        }
        told: list[Event] = []
        body = [request.body]

        async def receive() -> Event:
            if not body:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": body.pop(), "more_body": False}

        async def send(event: Event) -> None:
            told.append(event)

        await app(scope, receive, send)
        start = next(event for event in told if event["type"] == "http.response.start")
        content = b"".join(event.get("body", b"") for event in told if event["type"] == "http.response.body")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())]
        return RelayedResponse(start["status"], content, headers)

    return handle


@asynccontextmanager
async def http_server(url: str, path: str = "", *, unix_socket: str | None = None) -> AsyncIterator[Handler]:
    """An HTTP server, to which every request is passed on."""
    connector = None if unix_socket is None else aiohttp.UnixConnector(unix_socket)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def handle(request: RelayedRequest) -> RelayedResponse:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
            address = f"{url.rstrip('/')}{without_name(request.target, path)}"
            try:
                async with session.request(
                    request.method,
                    address,
                    headers=headers,
                    data=BytesIO(request.body) if request.body else None,
                    allow_redirects=False,
                ) as answer:
                    content = await answer.read()
            except aiohttp.ClientConnectorError as problem:
                # A relay keeps 502 and 504 for its own failures.
                return RelayedResponse(503, f"The service is out of reach: {problem}\n".encode())
            kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
            return RelayedResponse(answer.status, content, kept, answer.reason or "")

        yield handle


@asynccontextmanager
async def aiohttp_application(app: web.Application, path: str = "") -> AsyncIterator[Handler]:
    """An aiohttp application, served on a socket that nobody else sees."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    with tempfile.TemporaryDirectory(prefix="twinbus-relay-") as directory:
        socket = str(Path(directory) / "app.sock")
        try:
            await web.UnixSite(runner, socket).start()
            async with http_server("http://service", path, unix_socket=socket) as handle:
                yield handle
        finally:
            await runner.cleanup()


def tcp_port(host: str, port: int) -> SocketHandler:
    """A TCP server, to which each socket is a connection of its own."""

    async def carry(socket: aiohttp.ClientWebSocketResponse, headers: Mapping[str, str]) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        back = asyncio.ensure_future(_to_socket(reader, socket))
        try:
            async for message in socket:
                writer.write(message.data if isinstance(message.data, bytes) else str(message.data).encode())
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        finally:
            back.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await back
            writer.close()

    return carry


async def _to_socket(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await socket.send_bytes(data)
    await socket.close()
