"""AMQP frames in a stream of bytes, as far as a fault needs to know them: where each ends, and what it says.

Nothing is decoded but the descriptor; frames of SASL and protocol headers pass as they are.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

_HEADER = b"AMQP"
_HEADER_BYTES = 8
_AMQP_TYPE = 0


class Says(IntEnum):
    """What a frame says, by the code of its performative; 0 for a heartbeat, a header or SASL."""

    NOTHING = 0
    OPEN = 0x10
    BEGIN = 0x11
    ATTACH = 0x12
    FLOW = 0x13
    TRANSFER = 0x14
    DISPOSITION = 0x15
    DETACH = 0x16
    END = 0x17
    CLOSE = 0x18


class Frame(NamedTuple):
    """One frame with its bytes."""

    says: Says
    data: bytes


class FrameCutter:
    """Cuts one direction of a connection into frames."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now."""
        held = self._held + data
        frames: list[Frame] = []
        position = 0
        while len(held) - position >= _HEADER_BYTES:
            if held[position : position + 4] == _HEADER:
                end = position + _HEADER_BYTES
            else:
                end = position + int.from_bytes(held[position : position + 4], "big")
            if end <= position or end > len(held):
                break
            frames.append(Frame(_says(held[position:end]), held[position:end]))
            position = end
        self._held = held[position:]
        return frames


def _says(frame: bytes) -> Says:
    if frame[:4] == _HEADER or frame[5] != _AMQP_TYPE:
        return Says.NOTHING
    body = 4 * frame[4]
    if frame[body : body + 2] != b"\x00\x53" or len(frame) < body + 3:
        return Says.NOTHING
    try:
        return Says(frame[body + 2])
    except ValueError:
        return Says.NOTHING
