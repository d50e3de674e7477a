"""Bytes on a socket to the AMQP port, for tests.

Frames are written out by hand here, so that the broker's own encoder does not judge the broker.
"""

from __future__ import annotations

import socket
import struct

from support.broker import SOON_S, BrokerProcess

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
TIMEOUT_S = SOON_S


def frame(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    """A frame around a performative."""
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def performative(code: int, *fields: bytes) -> bytes:
    """A performative from fields that are encoded already."""
    content = b"".join(fields)
    return bytes([0x00, 0x53, code, 0xC0, len(content) + 1, len(fields)]) + content


def string(text: str) -> bytes:
    """A short string, encoded."""
    return b"\xa1" + bytes([len(text)]) + text.encode()


def symbol(text: str) -> bytes:
    """A short symbol, encoded."""
    return b"\xa3" + bytes([len(text)]) + text.encode()


NULL = b"\x40"
SASL_INIT = frame(performative(0x41, symbol("ANONYMOUS")), kind=1)
OPEN = frame(performative(0x10, string("raw")))
# remote-channel, next-outgoing-id, incoming-window, outgoing-window
BEGIN = frame(performative(0x11, NULL, b"\x43", b"\x52\x64", b"\x52\x64"))


class RawConnection:
    """A socket to the AMQP port, on which any bytes can be written."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = socket.create_connection((broker.host, broker.amqp_port), timeout=TIMEOUT_S)
        self.received = b""

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *problem: object) -> None:
        self.socket.close()

    def open(self, open_frame: bytes = OPEN) -> None:
        """SASL ANONYMOUS and the open, up to the broker's own open."""
        self.write(SASL_HEADER + SASL_INIT + AMQP_HEADER + open_frame)
        self.read_until(b"\x00\x53\x10")

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def read_until(self, marker: bytes) -> None:
        """Read up to bytes that must come."""
        while marker not in self.received:
            data = self.socket.recv(65536)
            assert data, f"the broker closed the connection after {self.received!r}"
            self.received += data

    def read_to_end(self) -> bytes:
        """Everything up to the end of the connection; a TimeoutError if the broker leaves it open."""
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return self.received
            self.received += data
