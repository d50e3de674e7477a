"""An AMQP 1.0 client that knows nothing of Service Bus: python-qpid-proton, and bytes on a socket.

Frames are written out by hand here, so that the broker's own encoder does not judge the broker.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from proton import Delivery, Link, Message, ProtonException
from proton.handlers import IncomingMessageHandler
from proton.reactor import LinkOption
from proton.utils import BlockingConnection

from support.broker import ROOT_POLICY, BrokerProcess

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
TIMEOUT_S = 10.0


@contextmanager
def connected(
    broker: BrokerProcess, user: str | None = ROOT_POLICY, password: str | None = None, **options: Any
) -> Iterator[BlockingConnection]:
    """A connection with SASL PLAIN, or with ANONYMOUS when there is no user."""
    plain = {"user": user, "password": password or broker.key, "allowed_mechs": "PLAIN"}
    credentials = plain if user else {"allowed_mechs": "ANONYMOUS"}
    connection = BlockingConnection(
        f"amqp://{broker.host}:{broker.amqp_port}",
        timeout=TIMEOUT_S,
        allow_insecure_mechs=True,
        **credentials,
        **options,
    )
    try:
        yield connection
    finally:
        with suppress(ProtonException):
            connection.close()


class Modes(LinkOption):
    """The settlement modes of a link."""

    def __init__(self, snd: int | None = None, rcv: int | None = None) -> None:
        self.snd = snd
        self.rcv = rcv

    def apply(self, link: Link) -> None:
        """Called by proton before the attach goes out."""
        if self.snd is not None:
            link.snd_settle_mode = self.snd
        if self.rcv is not None:
            link.rcv_settle_mode = self.rcv


class Receiver(IncomingMessageHandler):
    """A receiving link that settles nothing by itself."""

    def __init__(self, connection: BlockingConnection, address: str, credit: int = 0, options: Any = None) -> None:
        super().__init__(auto_accept=False)
        self.connection = connection
        self.arrived: deque[tuple[Message, Delivery]] = deque()
        # Proton takes the handler away again when its own object goes.
        self._kept = connection.create_receiver(
            address, credit=credit, handler=self, name=f"{address}-{uuid4()}", options=options
        )
        self.link: Link = self._kept.link

    def on_message(self, event: Any) -> None:
        """Called by proton."""
        self.arrived.append((event.message, event.delivery))

    def take(self) -> tuple[Message, Delivery]:
        """The next message; credit for it must have been given."""
        self.connection.wait(lambda: bool(self.arrived), timeout=TIMEOUT_S, msg="a message")
        return self.arrived.popleft()

    def take_bytes(self) -> bytes:
        """The data of the next message; copied here, because proton's view of it ends with the message."""
        message, _ = self.take()
        body: Any = message.body
        return bytes(body)

    def decide(self, delivery: Delivery, outcome: int) -> None:
        """The second mode: state an outcome, wait until the broker has settled, then settle too."""
        delivery.update(outcome)
        self.connection.wait(lambda: delivery.settled, timeout=TIMEOUT_S, msg="the broker's settlement")
        delivery.settle()


def put(broker: BrokerProcess, queue: str, bodies: Iterable[str], session_id: str | None = None) -> None:
    """Put messages into a queue, each with one data section."""
    with connected(broker) as connection:
        sender = connection.create_sender(queue)
        for body in bodies:
            sender.send(Message(body=body.encode(), inferred=True, group_id=session_id))


def pump(connection: BlockingConnection, seconds: float) -> None:
    """Let proton do what it does for a while."""
    with suppress(ProtonException):
        connection.wait(lambda: False, timeout=seconds)


def pump_until(connection: BlockingConnection, condition: Callable[[], bool], what: str) -> None:
    """Let proton work until something is so."""
    connection.wait(condition, timeout=TIMEOUT_S, msg=what)


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
