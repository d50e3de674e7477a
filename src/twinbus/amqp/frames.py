"""Frames and protocol headers (Part 2, sections 2.2 and 2.3): building them, and keeping bytes until they are whole.

What a frame carries is left to `performatives`, and the order of frames to `connection`.
"""

from __future__ import annotations

import struct

from twinbus.amqp.conditions import FRAMING_ERROR, ViolationError

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
HEADER_SIZE = 8
MIN_MAX_FRAME_SIZE = 512
AMQP_FRAME = 0
SASL_FRAME = 1
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"

_frame_header = struct.Struct(">IBBH")


def amqp_frame(channel: int, body: bytes) -> bytes:
    """An AMQP frame around one performative and its payload."""
    return _frame_header.pack(len(body) + 8, 2, AMQP_FRAME, channel) + body


def sasl_frame(body: bytes) -> bytes:
    """A SASL frame around one SASL performative."""
    return _frame_header.pack(len(body) + 8, 2, SASL_FRAME, 0) + body


def frame_header(data: bytes, pos: int, max_frame_size: int) -> tuple[int, int, int, int]:
    """Size, start of the body, type and channel of the frame at `pos`, of which eight bytes are there."""
    size, offset, kind, channel = _frame_header.unpack_from(data, pos)
    if size > max_frame_size:
        raise ViolationError(FRAMING_ERROR, f"a frame of {size} bytes exceeds the maximum of {max_frame_size}")
    if offset < 2 or offset * 4 > size:
        raise ViolationError(FRAMING_ERROR, f"the data offset {offset} does not fit a frame of {size} bytes")
    return size, pos + offset * 4, kind, channel


class Inbox:
    """Received bytes that are not yet a whole frame.

    A frame that comes in many small pieces is joined once, when all of it is there.
    """

    __slots__ = ("_pieces", "needed", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0
        self.needed = 0

    def put(self, data: bytes) -> None:
        """Adds bytes behind those that are kept."""
        self._pieces.append(data)
        self.size += len(data)

    def keep(self, rest: bytes, needed: int) -> None:
        """Keeps what could not be handled; handling it makes sense from `needed` bytes on."""
        self._pieces = [rest] if rest else []
        self.size = len(rest)
        self.needed = needed

    def ready(self) -> bool:
        """True when there is enough to go on."""
        return self.size >= self.needed and self.size > 0

    def take(self) -> bytes:
        """All bytes; the inbox is empty afterwards."""
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self.size = self.needed = 0
        return data
