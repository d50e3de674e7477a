"""Two ends of a connection in one process: what one takes, the other receives, whole or in small pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from twinbus.amqp import Connection, Link, LinkRole, Role, Session, Settings
from twinbus.amqp.composite import decode_composite, encode_composite
from twinbus.amqp.events import Event, LinkAttached, SaslInit
from twinbus.amqp.frames import AMQP_HEADER, amqp_frame
from twinbus.amqp.performatives import Attach, Begin, Open, Source, Target

E = TypeVar("E")


class Pair:
    """A client and a server; `step` carries what is there to carry, `run` goes on until nothing is."""

    def __init__(self, piece: int | None, server: Settings | None = None, client: Settings | None = None) -> None:
        self.piece = piece
        self.now_ms = 0
        self.server = Connection(Role.SERVER, "server", server or Settings())
        self.client = Connection(Role.CLIENT, "client", client or Settings())
        self.server_events: list[Event] = []
        self.client_events: list[Event] = []
        self.sent_by_server = b""
        self.sent_by_client = b""
        self.accepts = True

    def step(self) -> bool:
        there, back = self.client.take(), self.server.take()
        self.sent_by_client += there
        self.sent_by_server += back
        for piece in self._pieces(there):
            self._at_server(self.server.receive(piece, self.now_ms))
        for piece in self._pieces(back):
            self.client_events += self.client.receive(piece, self.now_ms)
        return bool(there or back)

    def run(self) -> None:
        while self.step():
            pass

    def _pieces(self, data: bytes) -> list[bytes]:
        size = self.piece or len(data) or 1
        return [data[start : start + size] for start in range(0, len(data), size)]

    def _at_server(self, events: list[Event]) -> None:
        for event in events:
            self.server_events.append(event)
            if isinstance(event, SaslInit):
                self._at_server(self.server.sasl_outcome(True))
            elif isinstance(event, LinkAttached) and self.accepts:
                event.link.accept()

    def tick(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.server_events += self.server.tick(now_ms)
        self.client_events += self.client.tick(now_ms)

    def open(self) -> None:
        self.client.start("ANONYMOUS", b"", "host")
        self.run()
        assert self.client.opened
        assert self.server.opened

    def session(self) -> tuple[Session, Session]:
        """A session, as both ends see it."""
        if not self.client.opened:
            self.open()
        session = self.client.begin()
        self.run()
        return session, self.server.sessions[-1]

    def link(
        self, role: LinkRole, session: Session | None = None, credit: int = 0, name: str = "link", **fields: Any
    ) -> tuple[Link, Link]:
        """A link, as client and server see it; `role` is the client's. The receiving end grants credit."""
        session = session or self.session()[0]
        link = session.attach(name, role, Source("queue"), Target("queue"), **fields)
        self.run()
        other = self.all(LinkAttached)[-1].link
        receiver = link if role is LinkRole.RECEIVER else other
        if credit:
            receiver.grant(credit)
            self.run()
        return link, other

    def all(self, kind: type[E]) -> list[E]:
        """The events of a kind at the server."""
        return [event for event in self.server_events if isinstance(event, kind)]

    def at_client(self, kind: type[E]) -> list[E]:
        """The events of a kind at the client."""
        return [event for event in self.client_events if isinstance(event, kind)]


MakePair = Callable[..., Pair]


@pytest.fixture(params=[None, 1, 13], ids=["whole", "byte-by-byte", "pieces-of-13"])
def make_pair(request: pytest.FixtureRequest) -> MakePair:
    """Makes pairs with given settings; every test runs with bytes whole and in pieces."""

    def make(server: Settings | None = None, client: Settings | None = None) -> Pair:
        return Pair(request.param, server, client)

    return make


@pytest.fixture
def pair(make_pair: MakePair) -> Pair:
    return make_pair()


class Peer:
    """A client that says what it likes to a server, frame by frame, and reads what comes back."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.server = Connection(Role.SERVER, "server", settings or Settings(sasl_required=False))
        self.events: list[Event] = []

    def send(self, data: bytes) -> list[Event]:
        events = self.server.receive(data, 0)
        self.events += events
        return events

    def say(self, *performatives: object, channel: int = 0, payload: bytes = b"") -> list[Event]:
        return self.send(b"".join(amqp_frame(channel, encode_composite(item) + payload) for item in performatives))

    def heard(self) -> list[tuple[int, Any, bytes]]:
        """(channel, performative, payload) of each frame; headers and heartbeats are left out."""
        data, position, frames = self.server.take(), 0, []
        while position < len(data):
            if data[position : position + 4] == b"AMQP":
                position += 8
                continue
            size = int.from_bytes(data[position : position + 4], "big")
            frame = data[position : position + size]
            position += size
            if size > 8:
                performative, after = decode_composite(frame, 8)
                frames.append((int.from_bytes(frame[6:8], "big"), performative, frame[after:]))
        assert position == len(data)
        return frames

    def performatives(self) -> list[Any]:
        return [frame[1] for frame in self.heard()]

    def open(self, **fields: Any) -> None:
        self.send(AMQP_HEADER)
        self.say(Open("peer", **fields))
        self.heard()

    def begin(self, channel: int = 0, incoming_window: int = 1000) -> None:
        self.say(Begin(next_outgoing_id=0, incoming_window=incoming_window, outgoing_window=1000), channel=channel)
        self.heard()

    def attach(self, role: LinkRole, handle: int = 0, channel: int = 0, **fields: Any) -> Link:
        """Attaches a link; `role` is this peer's. The server accepts it."""
        fields = {"source": Source("q"), "target": Target("q")} | fields
        if role is LinkRole.SENDER:
            fields = {"initial_delivery_count": 0} | fields
        events = self.say(Attach(f"link-{handle}", handle, bool(role), **fields), channel=channel)
        link = next(event.link for event in events if isinstance(event, LinkAttached))
        link.accept()
        self.heard()
        return link


@pytest.fixture
def make_peer() -> Callable[..., Peer]:
    return Peer


@pytest.fixture
def peer() -> Peer:
    """A peer that has opened its connection and begun a session on channel 0."""
    peer = Peer()
    peer.open()
    peer.begin()
    return peer
