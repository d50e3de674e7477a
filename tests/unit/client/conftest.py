"""A broker's end of a connection in memory: the core in its server role, told by each test what to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import pytest

from twinbus.amqp import Connection as Core
from twinbus.amqp import Link, LinkRole, Role, Settings, events
from twinbus.amqp.performatives import ACCEPTED, Error, Source
from twinbus.client import Authentication, Connection, ConnectionString, connect
from twinbus.wire import management, sessions

TARGET = ConnectionString("broker.test", 5672, tls=False, policy="root", key="secret", entity_path="orders")
Connect = Callable[..., AbstractAsyncContextManager[Connection]]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.at_ms


class MemoryTransport:
    """Carries bytes to the peer in the next turn of the loop, and back."""

    def __init__(self, peer: Peer, protocol: asyncio.Protocol) -> None:
        self.loop = asyncio.get_running_loop()
        self.peer = peer
        self.protocol = protocol
        self.is_open = True
        self.writes: list[bytes] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.loop.call_soon(self.peer.receive, data)

    def deliver(self, data: bytes) -> None:
        if self.is_open:
            self.loop.call_soon(self.protocol.data_received, data)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.loop.call_soon(self.protocol.connection_lost, None)

    abort = close


class Peer:
    """The server's end. It takes logins, links, tokens and sends and confirms outcomes, unless told otherwise."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.core = Core(Role.SERVER, "peer", Settings(), clock.now_ms())
        self.transport: MemoryTransport | None = None
        self.logins: list[tuple[str, bytes | None]] = []
        self.tokens: list[management.TokenRequest] = []
        self.requests: list[management.Request] = []
        self.links: dict[str, Link] = {}
        self.sent: list[bytes] = []
        self.unsettled: list[int] = []
        self.decisions: list[events.Settlement] = []
        self.flows: list[tuple[int, bool]] = []
        # What to answer
        self.takes_login = True
        self.token_status = 202
        self.credit = 1000
        self.refusals: dict[str, Error] = {}
        self.grants_session: str | None = None
        self.outcome: Any = ACCEPTED
        self.echo: Any = "the same"
        # Status, body and condition for each request to a management node, in turn; without any, silence.
        self.responses: list[tuple[int, dict[str, Any], str | None]] = []

    async def dial(self, protocol: asyncio.Protocol) -> None:
        self.transport = MemoryTransport(self, protocol)
        protocol.connection_made(cast(asyncio.Transport, self.transport))

    def receive(self, data: bytes) -> None:
        self.handle(self.core.receive(data, self.clock.now_ms()))
        self.flush()

    def flush(self) -> None:
        data = self.core.take()
        if data and self.transport is not None:
            self.transport.deliver(data)

    def hang_up(self) -> None:
        assert self.transport is not None
        self.transport.close()

    def handle(self, happened: list[events.Event]) -> None:
        for event in happened:
            match event:
                case events.SaslInit(mechanism, response, _):
                    self.logins.append((mechanism, response))
                    self.handle(self.core.sasl_outcome(self.takes_login))
                case events.LinkAttached(link):
                    self.attach(link)
                case events.Deliveries(link, items):
                    self.take(link, items)
                case events.Settlements(link, items):
                    self.confirm(link, items)
                case events.LinkFlow(link):
                    self.flows.append((link.credit, link.drain))
                    if link.drain:
                        link.drained()

    def attach(self, link: Link) -> None:
        assert link.remote is not None
        terminus = link.remote.source if link.role is LinkRole.SENDER else link.remote.target
        path = terminus.address
        if path in self.refusals:
            link.refuse(self.refusals[path])
            return
        if link.role is LinkRole.SENDER:
            self.links[f"{path} out"] = link
            if self.grants_session is not None:
                source = Source(path, filter=sessions.granted_filter(self.grants_session))
                link.accept(source=source, properties=dict(sessions.granted_properties(self.clock.now_ms())))
            else:
                link.accept()
        else:
            self.links[f"{path} in"] = link
            link.accept()
            link.grant(self.credit)

    def take(self, link: Link, items: list[events.Delivery]) -> None:
        assert link.remote is not None
        for delivery_id, _, _, _, payload in items:
            if link is self.links.get("$cbs in"):
                request = management.read_token_request(payload)
                self.tokens.append(request)
                link.session.settle([delivery_id], ACCEPTED, LinkRole.RECEIVER)
                answer = management.cbs_response(request.message_id, self.token_status, "as the test says")
                self.links["$cbs out"].transfer(b"answer", answer, True)
                continue
            if link.remote.target.address.endswith("/$management"):
                self.requested(link, delivery_id, payload)
                continue
            self.sent.append(payload)
            if self.outcome is None:
                self.unsettled.append(delivery_id)
            else:
                link.session.settle([delivery_id], self.outcome, LinkRole.RECEIVER)

    def requested(self, link: Link, delivery_id: int, payload: bytes) -> None:
        assert link.remote is not None
        request = management.read_request(payload)
        self.requests.append(request)
        link.session.settle([delivery_id], self.outcome, LinkRole.RECEIVER)
        if self.responses:
            status, body, condition = self.responses.pop(0)
            answer = management.response(request.message_id, status, "as the test says", body, condition)
            self.links[f"{link.remote.target.address} out"].transfer(b"answer", answer, True)

    def confirm(self, link: Link, items: list[events.Settlement]) -> None:
        self.decisions += items
        for delivery_id, _, state, settled in items:
            if not settled and self.echo is not None:
                answer = state if self.echo == "the same" else self.echo
                link.session.settle([delivery_id], answer, LinkRole.SENDER)

    def answer(self, path: str, delivery_ids: list[int], state: Any) -> None:
        self.links[f"{path} in"].session.settle(delivery_ids, state, LinkRole.RECEIVER)
        self.flush()

    def deliver(self, path: str, *payloads: bytes) -> None:
        link = self.links[f"{path} out"]
        assert link.remote is not None
        for payload in payloads:
            settled = link.remote.snd_settle_mode == 1
            link.transfer(b"" if settled else b"tag of 16 bytes.", payload, settled)
        self.flush()


async def turns(count: int = 10) -> None:
    """Lets the loop run on, to see what does not happen."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def peer(clock: Clock) -> Peer:
    return Peer(clock)


@pytest.fixture
def open_connection(peer: Peer, clock: Clock) -> Connect:
    """Connects to the peer."""

    def opening(
        authentication: Authentication = Authentication.PLAIN, **options: Any
    ) -> AbstractAsyncContextManager[Connection]:
        return connect(TARGET, authentication=authentication, clock=clock, dial=peer.dial, timeout_s=1.0, **options)

    return opening


@pytest.fixture
def let_turns_pass() -> Callable[[], Any]:
    return turns
