"""WebSocket frames (RFC 6455) without I/O: a client's bytes in, pieces of messages out; pieces in, frames out.

A message is never put together here, so that one of any size passes in bounded memory. What it says is the caller's.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

CONTROL_BYTES_MAX = 125
_XOR = [bytes(value ^ mask for value in range(256)) for mask in range(256)]


def mask_in_place_slowly(mask: bytes, data: bytearray) -> None:
    """Each of the mask's four bytes belongs to every fourth byte of the data."""
    for offset in range(min(4, len(data))):
        data[offset::4] = data[offset::4].translate(_XOR[mask[offset]])


try:
    # aiohttp's own, which is compiled. It is no part of what aiohttp promises, hence the other one.
    from aiohttp._websocket.helpers import websocket_mask as mask_in_place
except ImportError:
    mask_in_place = mask_in_place_slowly


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Close(IntEnum):
    """Why a socket is closed."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NO_CODE = 1005  # Never on the wire: a close frame without a code.
    POLICY = 1008
    TOO_LARGE = 1009
    INTERNAL = 1011


class Piece(NamedTuple):
    """A part of a message, which may be all of it; of close, ping and pong always all."""

    opcode: Opcode
    data: bytes | bytearray
    begins: bool = True
    ends: bool = True


class FramingError(Exception):
    """The peer broke the protocol; the code is what its socket is closed with."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = Close.PROTOCOL_ERROR


class FrameReader:
    """Reads what one client sends."""

    def __init__(self) -> None:
        self._held = b""  # An incomplete header, or an incomplete control frame.
        self._message = Opcode.CONTINUATION  # The data message that is under way; CONTINUATION for none.
        self._fresh = False  # Whether nothing of it was handed out yet.
        self._key = b""
        self._position = 0  # In the payload of the frame that is being read.
        self._left: int | None = None  # Bytes of that payload which have not come; None between frames.
        self._final = False

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that the bytes complete or carry."""
        data = self._held + data if self._held else data
        self._held = b""
        pieces: list[Piece] = []
        at = 0
        while at < len(data):
            if self._left is None:
                start = at
                begun = _head(data, at)
                if begun is None:
                    self._held = data[start:]
                    break
                at = begun.end
                if begun.opcode >= Opcode.CLOSE:
                    if len(data) - at < begun.length:
                        self._held = data[start:]
                        break
                    pieces.append(Piece(begun.opcode, _unmasked(data, at, at + begun.length, begun.key, 0)))
                    at += begun.length
                    continue
                self._begin(begun)
                if begun.length:
                    continue
            at += self._take(data, at, pieces)
        return pieces

    def _begin(self, head: _Head) -> None:
        if head.opcode is not Opcode.CONTINUATION:
            if self._message is not Opcode.CONTINUATION:
                raise FramingError("A message began before the last one had ended.")
            self._message, self._fresh = head.opcode, True
        elif self._message is Opcode.CONTINUATION:
            raise FramingError("There is no message that could be continued.")
        self._key, self._position, self._left, self._final = head.key, 0, head.length, head.final

    def _take(self, data: bytes, at: int, pieces: list[Piece]) -> int:
        assert self._left is not None
        payload = _unmasked(data, at, min(at + self._left, len(data)), self._key, self._position)
        self._left -= len(payload)
        ends = self._final and not self._left
        if payload or self._fresh or ends:
            pieces.append(Piece(self._message, payload, self._fresh, ends))
            self._fresh = False
        self._position += len(payload)
        if not self._left:
            self._left = None
        if ends:
            self._message = Opcode.CONTINUATION
        return len(payload)


class _Head(NamedTuple):
    opcode: Opcode
    final: bool
    length: int
    key: bytes
    end: int  # Where the payload begins.


_KNOWN = {int(opcode): opcode for opcode in Opcode}


def _head(data: bytes, at: int) -> _Head | None:
    """The head of the frame that begins here (RFC 6455, 5.2); None if it is not all there."""
    if len(data) - at < 2:
        return None
    first, second = data[at], data[at + 1]
    opcode = _KNOWN.get(first & 0x0F)
    if opcode is None or first & 0x70:
        raise FramingError("The frame is of an unknown kind, or of an extension that was not agreed on.")
    if not second & 0x80:
        raise FramingError("A client masks its frames.")
    length, end = second & 0x7F, at + 2
    if opcode >= Opcode.CLOSE and (length > CONTROL_BYTES_MAX or not first & 0x80):
        raise FramingError("Close, ping and pong are short and whole.")
    if length >= 126:
        form = ">H" if length == 126 else ">Q"
        size = struct.calcsize(form)
        if len(data) - end < size:
            return None
        (length,) = struct.unpack_from(form, data, end)
        end += size
    if len(data) - end < 4:
        return None
    if length >= 1 << 63:
        raise FramingError("No frame is so long.")
    return _Head(opcode, bool(first & 0x80), length, data[end : end + 4], end + 4)


def _unmasked(data: bytes, start: int, end: int, key: bytes, position: int) -> bytearray:
    """RFC 6455, 5.3. A payload may be cut anywhere, so that the key begins with the byte of its position."""
    unmasked = bytearray(memoryview(data)[start:end])
    turn = position % 4
    mask_in_place(key[turn:] + key[:turn], unmasked)
    return unmasked


def head(piece: Piece) -> bytes:
    """What stands before a piece's data in a frame of a server, which does not mask."""
    first = (piece.opcode if piece.begins else Opcode.CONTINUATION) | (0x80 if piece.ends else 0)
    length = len(piece.data)
    if length < 126:
        return bytes((first, length))
    if length < 1 << 16:
        return struct.pack(">BBH", first, 126, length)
    return struct.pack(">BBQ", first, 127, length)


def frame(piece: Piece) -> bytes:
    """A piece as a frame."""
    return head(piece) + piece.data


def close_piece(code: int, reason: str = "") -> Piece:
    """A close frame; the reason is cut to what fits."""
    if code == Close.NO_CODE:
        return Piece(Opcode.CLOSE, b"")
    told = reason.encode()[: CONTROL_BYTES_MAX - 2].decode(errors="ignore").encode()
    return Piece(Opcode.CLOSE, struct.pack(">H", code) + told)


def read_close(data: bytes | bytearray) -> tuple[int, str]:
    """The code and reason of a close frame."""
    if not data:
        return Close.NO_CODE, ""
    if len(data) == 1:
        raise FramingError("A close frame's code has two bytes.")
    (code,) = struct.unpack_from(">H", data)
    # RFC 6455, 7.4: these are never sent, or not given out yet.
    if not 1000 <= code < 5000 or code in (1004, 1005, 1006, 1015) or 1016 <= code < 3000:
        raise FramingError("This is not a code to close with.")
    return code, data[2:].decode(errors="replace")
