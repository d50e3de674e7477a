"""AMQP over WebSocket: upgrades an HTTP request, and carries a client's bytes in binary messages.

What the bytes mean is `connection`'s business; the port, TLS and the rest of HTTP belong to whoever serves the paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import WebSocketError, WSCloseCode, WSMsgType, hdrs, web

from twinbus.gateway.connection import ClientConnection
from twinbus.gateway.context import log
from twinbus.gateway.server import Gateway

# The official clients of some languages end the path with a slash.
PATHS = ("/$servicebus/websocket", "/$servicebus/websocket/")
# The service's own name, and the one of the OASIS binding of AMQP to WebSocket.
SUBPROTOCOLS = ("AMQPWSB10", "amqp")
WEBSOCKET_VERSION = "13"

INCOMING_MESSAGE_BYTES_MAX = 1024 * 1024
OUTGOING_MESSAGE_BYTES_MAX = 64 * 1024
WRITE_BUFFER_BYTES = 64 * 1024
# A peer that leaves so much unread, though nothing new is fetched for it, is cut off.
UNSENT_BYTES_MAX = 64 * 1024 * 1024
GOODBYE_S = 1.0  # For the peer's close frame, after ours.
CLOSE_S = 5.0  # For what is still to be written, and the goodbyes.


class WebSocketDoor:
    """Answers requests for the WebSocket paths."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Upgrade, and serve the client until it is gone; or say why not."""
        refusal = self._refusal(request)
        if refusal is not None:
            reason = (refusal.text or "").strip()
            log.info(
                "connection.refused",
                "a WebSocket from {peer} was refused with {status}: {reason}",
                peer=request.remote,
                status=refusal.status,
                reason=reason,
            )
            return refusal
        socket = web.WebSocketResponse(
            protocols=SUBPROTOCOLS,
            compress=False,
            autoping=False,
            decode_text=False,
            max_msg_size=INCOMING_MESSAGE_BYTES_MAX + 1,  # What reaches it is refused.
            timeout=GOODBYE_S,
            writer_limit=0,  # So that every message waits while the peer does not read.
        )
        await socket.prepare(request)
        wire = request.transport
        if wire is None:
            return socket
        connection = ClientConnection(self._gateway)
        try:
            await WebSocketTransport(socket, wire, connection).carry()
        except Exception:
            log.exception("connection.failed", "connection {connection} failed", connection=connection.label)
            wire.abort()
        return socket

    def _refusal(self, request: web.Request) -> web.Response | None:
        headers = request.headers
        if request.method != hdrs.METH_GET:
            return _answer(405, "A WebSocket is opened with GET.", {hdrs.ALLOW: hdrs.METH_GET})
        upgrades = {word.strip().lower() for word in headers.get(hdrs.CONNECTION, "").split(",")}
        if "upgrade" not in upgrades or headers.get(hdrs.UPGRADE, "").strip().lower() != "websocket":
            return _answer(426, "This is the address of AMQP over WebSocket: the request must ask for an upgrade.")
        if headers.get(hdrs.SEC_WEBSOCKET_VERSION) != WEBSOCKET_VERSION:
            return _answer(426, f"Only version {WEBSOCKET_VERSION} of the WebSocket protocol is spoken here.")
        offered = {word.strip() for word in headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "").split(",")}
        if offered.isdisjoint(SUBPROTOCOLS):
            return _answer(400, f"The WebSocket must offer the subprotocol {' or '.join(SUBPROTOCOLS)}.")
        if not self._gateway.accepts:
            return _answer(503, "The broker is stopping, or has as many connections as it takes.")
        return None


_UPGRADE = {
    hdrs.UPGRADE: "websocket",
    hdrs.CONNECTION: "Upgrade",
    hdrs.SEC_WEBSOCKET_VERSION: WEBSOCKET_VERSION,
}


def _answer(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> web.Response:
    # RFC 9110, 15.5.22: whoever asks for an upgrade says to what.
    return web.Response(status=status, text=f"{sentence}\n", headers=_UPGRADE if status == 426 else headers)


class WebSocketTransport(asyncio.Transport):
    """What a socket is to a protocol, made of a WebSocket. Only one task writes, so that reading never waits for it."""

    def __init__(self, socket: web.WebSocketResponse, wire: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._socket = socket
        self._wire = wire
        self._protocol = protocol
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._pong: bytes | None = None
        self._has_work = asyncio.Event()
        self._is_closing = False
        self._is_paused = False
        self._cut_off: asyncio.TimerHandle | None = None
        self.set_write_buffer_limits()

    async def carry(self) -> None:
        """Carry bytes both ways until the connection is over."""
        self._protocol.connection_made(self)
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self._write_on())
                await self._read_on()
                if not self._is_closing:
                    writing.cancel()
        finally:
            self._is_closing = True
            if self._cut_off is not None:
                self._cut_off.cancel()
            self._protocol.connection_lost(None)

    async def _read_on(self) -> None:
        async for message in self._socket:
            if message.type is WSMsgType.BINARY:
                self._protocol.data_received(message.data)
            elif message.type is WSMsgType.PING:
                # RFC 6455, 5.5.3: of several pings that wait for their answer, the last one's is enough.
                self._pong = bytes(message.data)
                self._has_work.set()
            elif message.type is WSMsgType.TEXT:
                self._log_end("AMQP comes in binary messages, and this one was text")
                await self._socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"AMQP comes in binary messages.")
            elif isinstance(message.data, WebSocketError):
                self._log_end(str(message.data))

    async def _write_on(self) -> None:
        # A broken wire is noticed by the reader too, and is not worth a word here.
        with suppress(ConnectionError):
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                await self._write_all()
                if self._is_closing:
                    break
        await self._socket.close()

    async def _write_all(self) -> None:
        while self._unsent or self._pong is not None:
            if self._pong is not None:
                pong, self._pong = self._pong, None
                await self._socket.pong(pong)
            data = b"".join(self._unsent)
            self._unsent.clear()
            for start in range(0, len(data), OUTGOING_MESSAGE_BYTES_MAX):
                piece = data[start : start + OUTGOING_MESSAGE_BYTES_MAX]
                await self._socket.send_bytes(piece)
                self._unsent_bytes -= len(piece)
                if self._is_paused and self._unsent_bytes <= self._low:
                    self._is_paused = False
                    self._protocol.resume_writing()

    def _log_end(self, reason: str) -> None:
        log.info(
            "connection.given_up",
            "the WebSocket from {peer} was given up: {reason}",
            peer=self._wire.get_extra_info("peername"),
            reason=reason,
        )

    # What a protocol asks of its transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes as soon as the peer takes them; after `close` they are dropped."""
        if self._is_closing or not data:
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self._has_work.set()
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            self._log_end(f"{self._unsent_bytes} bytes were left unread")
            self.abort()
        elif not self._is_paused and self._unsent_bytes > self._high:
            self._is_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """A WebSocket closes in both directions at once."""
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """How many unsent bytes pause the protocol, and how few let it go on."""
        self._high = WRITE_BUFFER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """How many bytes are unsent."""
        return self._unsent_bytes

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._is_closing

    def close(self) -> None:
        """Write what is left, then close the WebSocket; a peer that does not take part is cut off."""
        if not self._is_closing:
            self._is_closing = True
            self._has_work.set()
            self._cut_off = asyncio.get_running_loop().call_later(CLOSE_S, self._wire.abort)

    def abort(self) -> None:
        """Cut the connection."""
        self._is_closing = True
        self._unsent.clear()
        self._has_work.set()
        self._wire.abort()
