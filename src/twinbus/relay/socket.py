"""The relay's end of a WebSocket: takes a connection over from aiohttp after the handshake, with back-pressure.

Frames are `framing`'s; what pieces mean is told by whoever set `on_piece` and `on_ended`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import hdrs, web

from twinbus.relay.framing import (
    Close,
    FrameReader,
    FramingError,
    Opcode,
    Piece,
    close_piece,
    frame,
    head,
    read_close,
)

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3.
VERSION = "13"
COPIED_BYTES_MAX = 16 * 1024  # Beyond that, a second call costs less than a copy.


class Ended:
    """How a socket ended: with the peer's close frame, or without one."""

    __slots__ = ("code", "is_clean", "reason")

    def __init__(self, is_clean: bool, code: int = Close.NO_CODE, reason: str = "") -> None:
        self.is_clean = is_clean
        self.code = code
        self.reason = reason


def upgrade_problem(request: web.Request) -> str | None:
    """Why a request cannot become a WebSocket; None if it can."""
    headers = request.headers
    words = {word.strip().lower() for word in headers.get(hdrs.CONNECTION, "").split(",")}
    if request.method != hdrs.METH_GET or "upgrade" not in words:
        return "A WebSocket is opened here: the request must be a GET that asks for an upgrade."
    if headers.get(hdrs.UPGRADE, "").strip().lower() != "websocket":
        return "A WebSocket is opened here: the request must ask for an upgrade to it."
    if headers.get(hdrs.SEC_WEBSOCKET_VERSION) != VERSION:
        return f"Only version {VERSION} of the WebSocket protocol is spoken here."
    try:
        is_key = len(base64.b64decode(headers.get(hdrs.SEC_WEBSOCKET_KEY, ""), validate=True)) == 16
    except binascii.Error:
        is_key = False
    return None if is_key else "The Sec-WebSocket-Key is missing, or is not one."


class Socket(asyncio.Protocol):
    """One WebSocket with a client. It is read from `begin` on; close frames and pings are answered here."""

    def __init__(self, goodbye_s: float) -> None:
        self._goodbye_s = goodbye_s
        self._reader = FrameReader()
        self._transport: asyncio.Transport
        self._former: asyncio.BaseProtocol
        self._cut_off: asyncio.TimerHandle | None = None
        self._is_closing = False  # Our close frame has left.
        self._is_over = False
        self._is_paused = False
        self.is_full = False  # Whether the peer takes less than it is sent.
        self._drained: asyncio.Future[None] | None = None
        self.heard_at = 0.0
        self.on_piece: Callable[[Piece], None] = lambda _: None
        self.on_ended: Callable[[Ended], None] = lambda _: None
        self.on_drained: Callable[[], None] = lambda: None
        self.is_gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def accept(
        self, request: web.Request, protocol: str | None = None, told: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        """Answer the handshake and take the connection over; nothing is read from it before `begin`.

        `told` are further headers of the answer.
        """
        key = request.headers[hdrs.SEC_WEBSOCKET_KEY].encode()
        headers = {
            hdrs.UPGRADE: "websocket",
            hdrs.CONNECTION: "Upgrade",
            hdrs.SEC_WEBSOCKET_ACCEPT: base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode(),
            **(told or {}),
        }
        if protocol:
            headers[hdrs.SEC_WEBSOCKET_PROTOCOL] = protocol
        response = web.StreamResponse(status=101, headers=headers)
        response.force_close()
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client went away during the handshake")
        transport.pause_reading()
        self._is_paused = True
        await response.prepare(request)
        self._transport = transport
        self._former = transport.get_protocol()
        transport.set_protocol(self)
        if transport.is_closing():
            self.connection_lost(None)
        return response

    def begin(self) -> None:
        """Read from now on."""
        self.heard_at = asyncio.get_running_loop().time()
        self.resume()

    # What asyncio tells

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.heard_at = asyncio.get_running_loop().time()
        try:
            for piece in self._reader.feed(data):
                self._heard(piece)
        except FramingError as error:
            self.close(error.code, str(error))
            self._end(Ended(False))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; whoever had it before must know too."""
        if self._cut_off is not None:
            self._cut_off.cancel()
        self._end(Ended(False))
        self._release()
        if not self.is_gone.done():
            self.is_gone.set_result(None)
        self._former.connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not take what was written."""
        self.is_full = True

    def resume_writing(self) -> None:
        """The peer has taken it."""
        self._release()
        self.on_drained()

    def _release(self) -> None:
        self.is_full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _heard(self, piece: Piece) -> None:
        if self._is_over:
            if piece.opcode is Opcode.CLOSE and self._is_closing:
                self._transport.close()
        elif piece.opcode is Opcode.PING:
            self._transport.write(frame(Piece(Opcode.PONG, piece.data)))
        elif piece.opcode is Opcode.CLOSE:
            code, reason = read_close(piece.data)
            self._end(Ended(True, code, reason))
            if self._is_closing:
                self._transport.close()
            else:
                self.close(code)
                self._transport.close()  # What is still to be written is written first.
        elif piece.opcode is not Opcode.PONG:
            self.on_piece(piece)

    def _end(self, how: Ended) -> None:
        if not self._is_over:
            self._is_over = True
            self.on_ended(how)

    # What can be asked of it

    @property
    def is_open(self) -> bool:
        """Whether what is sent may still arrive."""
        return not self._is_closing and not self._is_over and not self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """What the peer has not taken."""
        return self._transport.get_write_buffer_size()

    def send(self, *pieces: Piece) -> None:
        """Write pieces, which stay together; dropped if the socket is closing."""
        if self.is_open:
            for piece in pieces:
                if len(piece.data) < COPIED_BYTES_MAX:
                    self._transport.write(frame(piece))
                else:
                    self._transport.write(head(piece))
                    self._transport.write(piece.data)

    async def drained(self) -> None:
        """Wait until the peer takes more, or is gone."""
        if self.is_full and self.is_open:
            if self._drained is None or self._drained.done():
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)  # Others may wait for it too.

    def pause(self) -> None:
        """Read nothing more, so that the peer has to wait."""
        if not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.send(Piece(Opcode.PING, b""))

    def close(self, code: int, reason: str = "") -> None:
        """Say goodbye; a peer that does not answer in time is cut off."""
        if self._is_closing or self._transport.is_closing():
            return
        self._transport.write(frame(close_piece(code, reason)))
        self._is_closing = True
        self.resume()  # For the peer's own close frame.
        self._cut_off = asyncio.get_running_loop().call_later(self._goodbye_s, self._transport.abort)

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()
