"""Serves a handler behind one or two relays at once: a control channel to each, opened again whenever it ends.

What does not fit into the control channel is told and answered at a rendezvous (`rendezvous`). What the handler does
is its own business.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp

from twinbus.model.logged import EventLog
from twinbus.relay import commands
from twinbus.relay.endpoint import DATACENTER, RelayEndpoint, check_pair, warn_of_one_datacenter
from twinbus.relay.messages import Handler, RelayedRequest, RelayedResponse, whole
from twinbus.relay.outgoing import Outgoing
from twinbus.relay.rendezvous import RENDEZVOUS_ERRORS, SenderLostError, opened

MESSAGE_BYTES_MAX = 100 * 1024 * 1024
HEARTBEAT_S = 20.0
RETRY_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FAILED = RelayedResponse(500, b"The service failed.\n", [("Content-Type", "text/plain")])

SocketHandler = Callable[[aiohttp.ClientWebSocketResponse, Mapping[str, str]], Awaitable[None]]

log = EventLog("twinbus.relay.listener")


class RelayListener:
    """A service at two relays, or at one. Use it as a context, or `start` and `close` it."""

    def __init__(
        self,
        endpoints: Sequence[RelayEndpoint],
        handler: Handler | None = None,
        *,
        on_socket: SocketHandler | None = None,
        retry_s: Sequence[float] = RETRY_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`handler` answers requests, `on_socket` has the senders' sockets; without one, they are rejected."""
        if len(endpoints) == 2:
            check_pair(*endpoints)
        elif len(endpoints) != 1:
            raise ValueError("A listener has one endpoint or two.")
        self._handler = handler
        self._on_socket = on_socket
        self._tls = tls
        self._retry_s = retry_s
        self._endpoints = endpoints
        self._listening = [asyncio.Event() for _ in endpoints]
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession
        self._channels: dict[int, aiohttp.ClientWebSocketResponse] = {}
        self._datacenters = {number: endpoint.datacenter for number, endpoint in enumerate(endpoints)}
        self._has_warned = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to listen; `listening` waits until it is so."""
        connector = aiohttp.TCPConnector(ssl=self._tls or True, limit=0)
        self._session = aiohttp.ClientSession(connector=connector)
        for number in range(len(self._endpoints)):
            self._spawn(self._listen_on(number))

    async def listening(self, number: int | None = None) -> None:
        """Wait until one endpoint, or each, is listened at."""
        for event in self._listening if number is None else [self._listening[number]]:
            await event.wait()

    async def close(self) -> None:
        """Listen no more; what is being answered is given up."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def close_endpoint(self, number: int) -> None:
        """End the control channel of one endpoint; it is opened again, as after any other loss."""
        if number in self._channels:
            await self._channels.pop(number).close()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The control channel

    async def _listen_on(self, number: int) -> None:
        endpoint = self._endpoints[number]
        failures = 0
        while True:
            await asyncio.sleep(self._retry_s[min(failures, len(self._retry_s) - 1)])
            failures += 1
            made_at_s = time.monotonic()
            try:
                async with self._session.ws_connect(
                    endpoint.socket_url("listen"),
                    headers=endpoint.headers(time.time()),
                    heartbeat=HEARTBEAT_S,
                    max_msg_size=MESSAGE_BYTES_MAX,
                ) as socket:
                    failures = 0
                    self._learn_datacenter(number, socket)
                    self._channels[number] = socket
                    self._listening[number].set()
                    await self._serve(number, _Control(socket), made_at_s)
                    log.info(
                        "relay.channel.ended",
                        "the relay at {host} ended the control channel: {code}",
                        host=endpoint.host,
                        code=socket.close_code,
                    )
            except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                log.info(
                    "relay.unreachable",
                    "the relay at {host} cannot be listened at: {error}",
                    host=endpoint.host,
                    error=problem,
                )
            except ValueError:
                log.exception(
                    "relay.not_understood", "the relay at {host} said what is not understood", host=endpoint.host
                )
            finally:
                self._listening[number].clear()

    def _learn_datacenter(self, number: int, socket: aiohttp.ClientWebSocketResponse) -> None:
        """A relay of ours says where it is; both in one place is worth a word, once."""
        told = socket._response.headers.get(DATACENTER, "")  # aiohttp shows a handshake's headers nowhere else.
        self._datacenters[number] = told or self._datacenters[number]
        if len(self._datacenters) == 2 and not self._has_warned:
            self._has_warned = warn_of_one_datacenter(log, *self._datacenters.values())

    async def _serve(self, number: int, control: _Control, made_at_s: float) -> None:
        renewals = asyncio.ensure_future(self._renew_on(self._endpoints[number], control, made_at_s))
        try:
            while (text := await control.text()) is not None:
                command = json.loads(text)
                if "accept" in command:
                    self._spawn(self._accept(command["accept"]))
                elif "request" in command and "method" in command["request"]:
                    told = command["request"]
                    body = await control.binary() if told.get("body") else b""
                    self._spawn(self._answer(number, told, body, control))
                elif "request" in command:
                    self._spawn(self._answer_elsewhere(number, command["request"]["address"]))
        finally:
            renewals.cancel()

    async def _renew_on(self, endpoint: RelayEndpoint, control: _Control, made_at_s: float) -> None:
        """After half of each token's life, counted from its making: connecting may have taken a part of it."""
        while endpoint.policy:
            await asyncio.sleep(made_at_s + endpoint.token_lifetime_s / 2 - time.monotonic())
            made_at_s = time.monotonic()
            await control.say(commands.renew_token(endpoint.token(time.time())))

    # Requests

    async def _answer(self, number: int, told: dict[str, Any], body: bytes, control: _Control) -> None:
        outgoing = await self._handle(number, told, whole(body), len(body))
        try:
            try:
                short = await outgoing.short_body()
            except Exception:  # Nothing has left yet.
                log.exception("relay.handler.failed", "a handler failed")
                await outgoing.close()
                outgoing, short = Outgoing(FAILED), FAILED.body
            if short is not None:
                await control.say(outgoing.head(told["id"], has_body=bool(short)), short)
                return
            async with opened(told["address"], self._tls) as rendezvous:
                await rendezvous.respond(told["id"], outgoing)
        except (*RENDEZVOUS_ERRORS, aiohttp.ClientError) as problem:
            log.info("relay.response.failed", "a response could not be given: {error}", error=problem)
        except Exception:
            log.exception("relay.handler.failed", "a handler failed while its response was under way")
        finally:
            await outgoing.close()

    async def _answer_elsewhere(self, number: int, address: str) -> None:
        try:
            async with opened(address, self._tls) as rendezvous:
                told, content = await rendezvous.request()
                outgoing = await self._handle(number, told, content, None if told.get("body") else 0)
                try:
                    await rendezvous.respond(told["id"], outgoing)
                finally:
                    await outgoing.close()
        except RENDEZVOUS_ERRORS as problem:
            log.info("relay.response.failed", "a request could not be fetched or answered: {error}", error=problem)
        except Exception:
            log.exception("relay.handler.failed", "a handler failed while its response was under way")

    async def _handle(
        self, number: int, told: dict[str, Any], content: AsyncIterator[bytes], size: int | None
    ) -> Outgoing:
        if self._handler is None:
            return Outgoing(RelayedResponse(501, b"This service takes sockets only.\n"))
        name = self._endpoints[number].path
        target, headers = told["requestTarget"], told["requestHeaders"]
        request = RelayedRequest(told["method"], target, headers, content, number, size, name)
        try:
            return Outgoing(await self._handler(request))
        except SenderLostError:
            raise
        except Exception:
            log.exception("relay.handler.failed", "a handler failed")
            return Outgoing(FAILED)

    # Sockets

    async def _accept(self, told: dict[str, Any]) -> None:
        address, headers = told["address"], told["connectHeaders"]
        if self._on_socket is None:
            address += "&sb-hc-statusCode=501&sb-hc-statusDescription=This%20service%20takes%20no%20sockets."
        offered = next((value for name, value in headers.items() if name.lower() == "sec-websocket-protocol"), "")
        protocols = [word.strip() for word in offered.split(",") if word.strip()][:1]
        try:
            async with self._session.ws_connect(address, protocols=protocols, max_msg_size=MESSAGE_BYTES_MAX) as socket:
                assert self._on_socket is not None
                await self._on_socket(socket, headers)
        except aiohttp.WSServerHandshakeError as refused:
            if refused.status != 410:  # So a rejection is confirmed.
                log.info("relay.socket.refused", "a socket could not be had: {error}", error=refused)
        except (aiohttp.ClientError, ConnectionError) as problem:
            log.info("relay.socket.broken", "a socket broke off: {error}", error=problem)


class _Control:
    """A WebSocket on which commands and bodies come one after the other."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._speaking = asyncio.Lock()  # A response and its body stay together.

    async def text(self) -> str | None:
        """The next command; None when the socket has ended."""
        message = await self._socket.receive()
        return str(message.data) if message.type is aiohttp.WSMsgType.TEXT else None

    async def binary(self) -> bytes:
        """The body that must come now."""
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise ConnectionResetError("the relay went away before the body had come")
        return bytes(message.data)

    async def say(self, command: bytes, body: bytes = b"") -> None:
        """Send a command, and its body if it has one."""
        async with self._speaking:
            await self._socket.send_str(command.decode())
            if body:
                await self._socket.send_bytes(body)
