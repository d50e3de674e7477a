"""Bytes on a socket to the AMQP port, for tests.

Frames are written out by hand here, so that the broker's own encoder does not judge the broker.
"""

from __future__ import annotations

import socket
import struct

from support.broker import ROOT_POLICY, SOON_S, BrokerProcess

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


def uint(number: int) -> bytes:
    """A uint, encoded in full."""
    return b"\x70" + struct.pack(">I", number)


def receiving(link: int, address: str, *, settled: bool) -> bytes:
    """The attach of a receiver; settled means receive and delete."""
    source = performative(0x28, string(address))
    return frame(
        performative(
            0x12, string(f"link-{link}"), uint(link), b"\x41", b"\x50\x01" if settled else NULL, NULL, source,
            performative(0x29),
        )
    )  # fmt: skip


def flow(seen: int, window: int, link: int | None = None, credit: int = 0, *, drain: bool = False) -> bytes:
    """A flow that says how many frames were seen and may follow, and gives credit to a link; it asks for an answer."""
    session = (uint(seen), uint(window), uint(0), uint(100))
    given = (NULL, NULL, NULL) if link is None else (uint(link), uint(0), uint(credit))
    return frame(performative(0x13, *session, *given, NULL, b"\x41" if drain else b"\x42", b"\x41"))


class Receiver:
    """The session of a client that receives, as bytes; it tells its window by hand and sends nothing by itself."""

    def __init__(self, broker: BrokerProcess, *, window: int, max_frame_size: int = 65_536) -> None:
        answer = f"\0{ROOT_POLICY}\0{broker.key}".encode()
        plain = performative(0x41, symbol("PLAIN"), b"\xa0" + bytes([len(answer)]) + answer)
        self.hello = b"".join(
            (
                SASL_HEADER + frame(plain, kind=1) + AMQP_HEADER,
                frame(performative(0x10, string("raw"), NULL, uint(max_frame_size))),
                frame(performative(0x11, NULL, b"\x43", uint(window), uint(100))),
            )
        )
        self.codes: list[int] = []
        self.transfers = 0
        self.whole = 0  # Transfers that end a delivery.
        self._bytes = b""

    def put(self, data: bytes) -> None:
        """Read frames; the headers of both protocols are skipped."""
        self._bytes += data
        while len(self._bytes) >= 8:
            if self._bytes.startswith(b"AMQP"):
                self._bytes = self._bytes[8:]
                continue
            size = int.from_bytes(self._bytes[:4], "big")
            if len(self._bytes) < size:
                return
            body, is_amqp = self._bytes[8:size], self._bytes[5] == 0
            self._bytes = self._bytes[size:]
            if is_amqp and body:
                self._take(body)

    def _take(self, body: bytes) -> None:
        self.codes.append(body[2])
        if body[2] == 0x14:
            self.transfers += 1
            # `more` is the sixth field, behind the settled flag; what follows it is null.
            fields = body[6 : 5 + body[4]]
            said = fields.rstrip(NULL)
            has_more = body[5] - (len(fields) - len(said)) == 6 and said[-1] == 0x41
            self.whole += not has_more

    def answered(self) -> bool:
        """Whether the flow that was sent last has its answer; forgets it."""
        found = 0x13 in self.codes
        self.codes = [code for code in self.codes if code != 0x13]
        return found
