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

from twinbus.model.logged import EventLog
from twinbus.relay.headers import HOP_BY_HOP
from twinbus.relay.listening import SocketHandler
from twinbus.relay.messages import Handler, RelayedRequest, RelayedResponse

Event = MutableMapping[str, Any]
AsgiApp = Callable[[Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]]

CHUNK_BYTES = 64 * 1024
CONNECT_S = 30.0

log = EventLog("twinbus.relay.listener")


def asgi(app: AsgiApp) -> Handler:
    """An ASGI application; the hybrid connection's name is no part of the paths that it sees."""

    async def handle(request: RelayedRequest) -> RelayedResponse:
        raw_path, _, query = request.below.partition("?")
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
        run = _Run(app, scope, request.content)
        running.add(run)
        run.task.add_done_callback(lambda _: running.discard(run))
        return await run.response()

    running: set[_Run] = set()  # An application may go on after its response.
    return handle


class _Run:
    """One request to an ASGI application: it waits until what it told of its response is taken."""

    def __init__(self, app: AsgiApp, scope: Event, content: AsyncIterator[bytes]) -> None:
        self._content = content
        self._is_read = False
        self._told: asyncio.Queue[Event | None] = asyncio.Queue(1)
        self._has_told_all = False
        self._problem: BaseException | None = None
        self._is_over = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(app, scope))

    async def _run(self, app: AsgiApp, scope: Event) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as problem:
            self._problem = problem
            if self._has_told_all:
                log.exception("relay.handler.failed", "an application failed after its response")
        if not self._has_told_all:
            await self._told.put(None)

    async def _receive(self) -> Event:
        with suppress(ConnectionError):
            if not self._is_read:
                part = await anext(self._content, None)
                self._is_read = part is None
                return {"type": "http.request", "body": part or b"", "more_body": part is not None}
            await self._is_over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Event) -> None:
        if not self._has_told_all:
            self._has_told_all = event["type"] == "http.response.body" and not event.get("more_body", False)
            await self._told.put(event)

    async def response(self) -> RelayedResponse:
        """The response as soon as it begins; the rest of it is this."""
        try:
            start = await self._told.get()
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        if start is None:
            raise self._problem or RuntimeError("The application told no response.")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())]
        return RelayedResponse(start["status"], headers=headers, more=self)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._parts()

    async def _parts(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            event = await self._told.get()
            if event is None:
                raise self._problem or RuntimeError("The application did not finish its response.")
            more = event.get("more_body", False)
            yield event.get("body", b"")

    async def aclose(self) -> None:
        """The response was taken, or nobody wants it any more."""
        self._is_over.set()
        if not self._has_told_all:
            self.task.cancel()


@asynccontextmanager
async def http_server(url: str, *, unix_socket: str | None = None) -> AsyncIterator[Handler]:
    """An HTTP server, to which every request is passed on."""
    connector = aiohttp.TCPConnector(limit=0) if unix_socket is None else aiohttp.UnixConnector(unix_socket, limit=0)
    timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S)  # A relay says how long it waits.
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=timeout) as session:

        async def handle(request: RelayedRequest) -> RelayedResponse:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
            address = f"{url.rstrip('/')}{request.below}"
            data = request.content if request.size is None else BytesIO(await request.read()) if request.size else None
            try:
                answer = await session.request(
                    request.method, address, headers=headers, data=data, allow_redirects=False
                )
            except aiohttp.ClientConnectorError as problem:
                # A relay keeps 502 and 504 for its own failures.
                return RelayedResponse(503, f"The service is out of reach: {problem}\n".encode())
            kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
            return RelayedResponse(answer.status, b"", kept, answer.reason or "", more=_Content(answer))

        yield handle


class _Content:
    """What an HTTP server answers, as it comes."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._answer.content.iter_any()

    async def aclose(self) -> None:
        """The answer was taken, or nobody wants it any more."""
        if self._answer.content.at_eof():
            self._answer.release()
        else:
            self._answer.close()


@asynccontextmanager
async def aiohttp_application(app: web.Application) -> AsyncIterator[Handler]:
    """An aiohttp application, served on a socket that nobody else sees."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    with tempfile.TemporaryDirectory(prefix="twinbus-relay-") as directory:
        socket = str(Path(directory) / "app.sock")
        try:
            await web.UnixSite(runner, socket).start()
            async with http_server("http://service", unix_socket=socket) as handle:
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
