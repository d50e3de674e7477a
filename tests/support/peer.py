"""An AMQP 1.0 client that knows nothing of Service Bus: python-qpid-proton.

A test that imports this is skipped where proton is not installed; bytes on a socket are in `support.frames`.
"""

from __future__ import annotations

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
from support.frames import TIMEOUT_S


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


class Cbs:
    """Puts tokens on `$cbs`."""

    def __init__(self, connection: BlockingConnection, broker: BrokerProcess) -> None:
        self.broker = broker
        self.replies = Receiver(connection, "$cbs", credit=10)
        self.requests = connection.create_sender("$cbs")

    def put(self, queue: str, token: str) -> int:
        """The status of the answer."""
        audience = f"sb://{self.broker.host}:{self.broker.amqp_port}/{queue}"
        properties = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
        }
        self.requests.send(Message(id="the request", reply_to="$cbs", properties=properties, body=token))
        reply, _ = self.replies.take()
        assert reply.correlation_id == "the request"
        return int(reply.properties["status-code"])


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
