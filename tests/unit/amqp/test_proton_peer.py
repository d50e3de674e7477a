"""Conversations with an independent engine in memory: proton as the client, and proton as the server."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Connection as ProtonConnection
from proton import Delivery, Endpoint, Link, Transport
from proton import Disposition as ProtonDisposition

from twinbus.amqp import Connection, LinkRole, Role, Settings
from twinbus.amqp.events import (
    ConnectionClosed,
    Deliveries,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    Opened,
    SaslInit,
    SessionEnded,
    Settlements,
)
from twinbus.amqp.performatives import ACCEPTED, RELEASED, Error, Modified, Rejected, Source, Target


class Engine:
    """Proton's engine, connected to ours."""

    def __init__(self, role: Role, settings: Settings | None = None, max_frame_size: int = 4096) -> None:
        self.ours = Connection(role, "twinbus", settings or Settings(max_frame_size=4096))
        self.theirs = ProtonConnection()
        self.theirs.container = "proton"
        self.theirs.hostname = "host"
        self.transport = Transport(Transport.SERVER if role is Role.CLIENT else Transport.CLIENT)
        self.transport.max_frame_size = max_frame_size
        sasl = self.transport.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        if role is Role.CLIENT:
            sasl.done(sasl.OK)
        self.transport.bind(self.theirs)
        self.events: list[Event] = []

    def run(self) -> None:
        while True:
            moved = False
            data = self.transport.peek(1 << 20) if self.transport.pending() > 0 else None
            if data:
                self.transport.pop(len(data))
                self._handle(self.ours.receive(data, 0))
                moved = True
            data = self.ours.take()
            while data:
                room = self.transport.capacity()
                self.transport.push(data[:room])
                data = data[room:]
                moved = True
            if not moved:
                return

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            self.events.append(event)
            if isinstance(event, SaslInit):
                self._handle(self.ours.sasl_outcome(True))
            elif isinstance(event, LinkAttached) and self.ours.role is Role.SERVER:
                event.link.accept()

    def last(self, kind: type) -> Any:
        return [event for event in self.events if isinstance(event, kind)][-1]


@pytest.fixture
def client() -> Engine:
    """Proton as a client that has opened its connection and begun a session."""
    engine = Engine(Role.SERVER)
    engine.theirs.open()
    engine.session = engine.theirs.session()  # type: ignore[attr-defined]
    engine.session.open()  # type: ignore[attr-defined]
    engine.run()
    assert engine.ours.opened
    assert engine.theirs.state & Endpoint.REMOTE_ACTIVE
    assert engine.last(Opened).performative.container_id == "proton"
    return engine


@pytest.fixture
def server() -> Engine:
    """Proton as a server, with our client connected to it."""
    engine = Engine(Role.CLIENT)
    engine.ours.start("ANONYMOUS", None, "host")
    engine.theirs.open()
    engine.run()
    assert engine.ours.opened
    return engine


@pytest.mark.parametrize("size", [5, 100_000])
def test_proton_sends_and_learns_the_outcomes(client: Any, size: int) -> None:
    sender = client.session.sender("s")
    sender.target.address = "queue"
    sender.open()
    client.run()
    link = client.last(LinkAttached).link
    assert link.remote.target.address == "queue"
    assert sender.remote_max_message_size == client.ours.settings.max_message_size
    link.grant(10)
    client.run()
    assert sender.credit == 10
    payload = bytes(range(256)) * (size // 256 + 1)
    outcomes = [ACCEPTED, RELEASED, Rejected(Error("amqp:not-allowed", "no")), Modified(True, True)]
    deliveries = []
    for number in range(4):
        deliveries.append(sender.delivery(f"tag-{number}"))
        sender.send(payload)
        sender.advance()
    client.run()
    items = [item for event in client.events if isinstance(event, Deliveries) for item in event.items]
    assert [(item[1], item[3], item[4]) for item in items] == [(b"tag-%d" % n, False, payload) for n in range(4)]
    for item, outcome in zip(items, outcomes, strict=True):
        link.session.settle([item[0]], outcome, LinkRole.RECEIVER)
    client.run()
    assert all(delivery.settled for delivery in deliveries)
    assert [delivery.remote_state for delivery in deliveries] == [
        Delivery.ACCEPTED,
        Delivery.RELEASED,
        Delivery.REJECTED,
        Delivery.MODIFIED,
    ]
    condition = deliveries[2].remote.condition
    assert (condition.name, condition.description) == ("amqp:not-allowed", "no")


@pytest.mark.parametrize("mode", [Link.RCV_FIRST, Link.RCV_SECOND])
def test_proton_receives_and_settles(client: Any, mode: int) -> None:
    receiver = client.session.receiver("r")
    receiver.source.address = "queue"
    receiver.rcv_settle_mode = mode
    receiver.open()
    receiver.flow(10)
    client.run()
    link = client.last(LinkAttached).link
    assert client.last(LinkFlow).link is link
    assert (link.sendable, link.rcv_settle_mode) == (10, mode)
    payload = bytes(50_000)
    for number in range(3):
        link.transfer(b"tag-%d" % number, payload, False)
    client.run()
    for number in range(3):
        delivery = receiver.current
        assert (delivery.tag, delivery.partial) == (f"tag-{number}", False)
        assert receiver.recv(100_000) == payload
        receiver.advance()
        delivery.update(Delivery.ACCEPTED)
        if mode == Link.RCV_FIRST:
            delivery.settle()
        client.run()
        [item] = client.last(Settlements).items
        assert item == (number, b"tag-%d" % number, ACCEPTED, mode == Link.RCV_FIRST)
        if mode == Link.RCV_SECOND:
            link.session.settle([number], ACCEPTED, LinkRole.SENDER)
            client.run()
            assert delivery.settled
            assert delivery.remote_state == Delivery.ACCEPTED
    assert not link.session.outgoing


def test_proton_drains(client: Any) -> None:
    receiver = client.session.receiver("r")
    receiver.open()
    receiver.drain(5)
    client.run()
    link = client.last(LinkFlow).link
    assert (link.drain, link.credit) == (True, 5)
    link.transfer(b"t", b"x", True)
    link.drained()
    client.run()
    assert receiver.drained() == 4
    assert receiver.recv(10) == b"x"
    receiver.advance()
    assert receiver.credit == 0


def test_proton_is_refused_a_link_and_ends_in_order(client: Any) -> None:
    receiver = client.session.receiver("r")
    receiver.source.address = "queue"
    receiver.open()
    client.run()
    link = client.last(LinkAttached).link
    link.detach(Error("amqp:not-found", "gone", {}))
    client.run()
    assert receiver.state & Endpoint.REMOTE_CLOSED
    assert (receiver.remote_condition.name, receiver.remote_condition.description) == ("amqp:not-found", "gone")
    receiver.close()
    client.run()
    assert client.last(LinkDetached).link is link
    client.session.close()
    client.run()
    assert isinstance(client.events[-1], SessionEnded)
    assert client.session.state & Endpoint.REMOTE_CLOSED
    client.theirs.close()
    client.run()
    assert client.events[-1] == ConnectionClosed(None)
    assert client.theirs.state & Endpoint.REMOTE_CLOSED
    assert client.ours.closed


def test_our_client_talks_to_proton(server: Any) -> None:
    session = server.ours.begin()
    sender = session.attach("s", LinkRole.SENDER, Source("me"), Target("queue"))
    receiver = session.attach("r", LinkRole.RECEIVER, Source("queue"), Target("me"), rcv_settle_mode=1)
    server.run()
    their_session = server.theirs.session_head(Endpoint.REMOTE_ACTIVE)
    their_session.open()
    their_receiver = server.theirs.link_head(Endpoint.REMOTE_ACTIVE)
    their_sender = their_receiver.next(Endpoint.REMOTE_ACTIVE)
    if not their_receiver.is_receiver:
        their_receiver, their_sender = their_sender, their_receiver
    for link in (their_receiver, their_sender):
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.open()
    their_receiver.flow(3)
    server.run()
    receiver.grant(5)
    server.run()
    assert sender.attached
    assert receiver.attached
    assert sender.sendable == 3
    payload = bytes(20_000)
    delivery_id = sender.transfer(b"tag", payload, False)
    server.run()
    assert their_receiver.current.tag == "tag"
    assert their_receiver.recv(30_000) == payload
    their_receiver.current.update(ProtonDisposition.ACCEPTED)
    their_receiver.current.settle()
    server.run()
    assert server.last(Settlements) == Settlements(sender, [(delivery_id, b"tag", ACCEPTED, True)])
    assert their_sender.credit == 5
    delivery = their_sender.delivery("back")
    their_sender.send(b"hello")
    their_sender.advance()
    server.run()
    [item] = server.last(Deliveries).items
    assert item == (0, b"back", 0, False, b"hello")
    session.settle([0], ACCEPTED, LinkRole.RECEIVER, settled=False)
    server.run()
    assert (delivery.remote_state, delivery.settled) == (Delivery.ACCEPTED, False)
    delivery.update(Delivery.ACCEPTED)
    delivery.settle()
    server.run()
    assert server.last(Settlements) == Settlements(receiver, [(0, b"back", ACCEPTED, True)])
    assert not session.incoming
