"""One client's connection: bytes to events, events to links, and the rights that its tokens grant.

The protocol is `amqp`'s; what happens on a link is up to `ingress`, `egress` and `requests`; which node an attach leads
to is decided in `attaching`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from twinbus.amqp import events
from twinbus.amqp.conditions import CONNECTION_FORCED
from twinbus.amqp.connection import Connection
from twinbus.amqp.handshake import Role
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import Error
from twinbus.gateway.attaching import attach
from twinbus.gateway.context import Context, log
from twinbus.gateway.node import Node
from twinbus.gateway.outlet import Outlet
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Origin
from twinbus.model.security import Rights
from twinbus.wire import access

if TYPE_CHECKING:
    from twinbus.gateway.server import Gateway

# A connection that leads nowhere is closed: new ones after a minute, others after five.
UNUSED_NEW_MS = 60_000
UNUSED_MS = 300_000
LINGER_S = 1.0
LAST_READS_MAX = 16
# Below this idle time-out the gateway's tick of a second is too slow; and a hostile peer must not make it spin.
IMPATIENT_MS = 4_000
HEARTBEAT_S_MIN = 0.05
_WITHOUT_CREDENTIALS = {"ANONYMOUS", "MSSBCBS"}  # They prove themselves on $cbs.


class ClientConnection(asyncio.Protocol):
    """The broker's end of a connection."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.clock = gateway.clock
        self.context = gateway.choice.entrance
        self.number = self.context.next_number()
        self.label = f"c{self.number}"
        self.origin = Origin(self.label)
        self.is_lost = False
        self._said_goodbye = False
        self._opened_at_ms: int | None = None
        self.nodes: dict[Link, Node] = {}
        self.outlet: Outlet = Outlet(self.nodes)
        self.tasks: set[asyncio.Task[None]] = set()
        self._grants: dict[str | None, access.Grant] = {}  # By audience; None for a name and key given by SASL.
        self._loop = asyncio.get_running_loop()
        self._core = Connection(
            role=Role.SERVER,
            container_id=gateway.container_id,
            settings=gateway.settings,
            now_ms=self.clock.now_ms(),
        )
        self._transport: asyncio.Transport | None = None
        self._is_hanging_up = False
        self._unheard: list[bytes] | None = None  # What came while nothing is to be heard or said.
        self._idle_since_ms = self.clock.now_ms()
        self._idle_limit_ms = UNUSED_NEW_MS
        if gateway.choice.only is not None:
            self.settle(gateway.choice.only)

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer connected."""
        self._transport = cast(asyncio.Transport, transport)
        self.outlet.opened(self._transport)
        self.gateway.joined(self)
        self.suffer()

    @property
    def peer(self) -> str:
        """Where it comes from."""
        found = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else ""

    @property
    def opened_at_ms(self) -> int | None:
        """When the client opened it; None before that."""
        return self._opened_at_ms

    @property
    def policies(self) -> list[str]:
        """The names of the policies by which its rights are granted."""
        return sorted({grant.policy for grant in self._grants.values()})

    def data_received(self, data: bytes) -> None:
        """Bytes came: handle everything in them, then write once."""
        if self._unheard is not None:
            self._unheard.append(data)
            return
        self._handle(self._core.receive(data, self.clock.now_ms()))
        self.flush()

    def connection_lost(self, problem: Exception | None) -> None:
        """The socket is gone. Without a polite close before it, the connection's locks fall."""
        self.is_lost = True
        if problem is not None and not self._said_goodbye:
            self._read_the_rest()
        self._leave_all()
        for task in self.tasks:
            task.cancel()
        if not self._said_goodbye:
            self.context.namespace.drop_locks(self.number, self.origin)
        if self._opened_at_ms is not None:
            lasted_ms = self.clock.now_ms() - self._opened_at_ms
            self.context.namespace.note_connection("disconnect", str(lasted_ms), self.origin)
        self.gateway.left(self)

    def _read_the_rest(self) -> None:
        """Hear a client's last words after a write has failed.

        The Python client closes its socket right behind its close, without waiting for our answers. An answer can fail
        before the close was read, and a transport that failed reads no more. Within TLS nothing can be done about it.
        """
        transport = self._transport
        if transport is None or transport.get_extra_info("ssl_object") is not None:
            return
        peer = transport.get_extra_info("socket")
        if peer is None or peer.fileno() < 0:
            return
        try:
            for _ in range(LAST_READS_MAX):
                if not (data := os.read(peer.fileno(), 65_536)):
                    break
                self._handle(self._core.receive(data, self.clock.now_ms()))
        except OSError:
            pass  # Nothing (more) is there.

    def pause_writing(self) -> None:
        """The peer reads too slowly: nothing new is fetched for it."""
        self.outlet.is_full = True

    def resume_writing(self) -> None:
        """The peer reads again."""
        self.outlet.emptied()

    def mark_dirty(self) -> None:
        """Something was queued outside of `data_received`: write it at the end of this turn."""
        self.gateway.mark_dirty(self)

    def flush(self) -> None:
        """Write what is queued, in one piece."""
        if self._transport is None or self.is_lost or self._is_hanging_up or self._unheard is not None:
            return
        if data := self._core.take():
            self._transport.write(data)
        if self._core.wants_close:
            self._hang_up()

    def _hang_up(self) -> None:
        """Close the socket behind what was written: with input unread, closing at once might swallow our last words."""
        transport = self._transport
        if self._is_hanging_up or transport is None:
            return
        self._is_hanging_up = True
        if transport.can_write_eof():
            transport.write_eof()
            self._loop.call_later(LINGER_S, transport.close)
        else:
            transport.close()

    @property
    def owes_answers(self) -> bool:
        """Whether something was taken whose outcome the client has not been told."""
        return any(node.owes_answers for node in self.nodes.values())

    def close(self, error: Error | None) -> None:
        """Say goodbye: to the connection alone, with which its links end. Clients that reconnect make those anew.

        A link that we ended by itself, before, they would take for gone for good, and not make it again.
        """
        for node in self.nodes.values():
            node.stopped()
        self.nodes.clear()
        self._core.close(error)
        self.flush()

    def abort(self) -> None:
        """Cut the socket."""
        if self._transport is not None:
            self._transport.abort()

    def suffer(self) -> None:
        """Do as the namespace is made to: be cut off, fall silent, or hear and speak again."""
        suffering = self.context.namespace.suffering
        if suffering.is_down:
            self.abort()
        elif suffering.is_blackholed:
            self._unheard = self._unheard or []
            self.outlet.is_stopped = True
        elif self._unheard is not None:
            unheard, self._unheard = self._unheard, None
            for data in unheard:
                self.data_received(data)
            self.outlet.restarted()
            self.flush()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that has to wait for the store."""
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call something after a while, if the connection is still there then."""
        self._loop.call_later(delay_s, lambda: None if self.is_lost else callback())

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("request.failed", "a request on {connection} failed", exc_info=problem, **self._named)

    # Events

    def _handle(self, happened: list[events.Event]) -> None:
        for event in happened:
            _HANDLERS[type(event)](self, event)

    def _on_sasl_init(self, event: events.SaslInit) -> None:
        accepted = event.mechanism in _WITHOUT_CREDENTIALS
        if event.mechanism == "PLAIN":
            try:
                _, policy, key = (event.response or b"").decode("utf-8").split("\0")
                self.listen_to_host(event.hostname)
                found = self.gateway.choice.by_key(self.context, policy, key)
                if len(found) == 1:  # Of several, the host name in the open tells.
                    self.settle(found[0][0])
                self._grants[None] = found[0][1]
                accepted = True
            except (BusError, ValueError):
                self.context.counters["refused_sasl"] += 1
                text = "SASL PLAIN on {connection} refused: the policy name or key is not valid"
                log.info("auth.refused", text, **self._named)
        self._handle(self._core.sasl_outcome(accepted))

    def listen_to_host(self, host: str | None) -> None:
        """The client named a host: if that is a namespace's, it is the one that it means."""
        named = self.gateway.choice.by_host(host)
        if named is not None and named is not self.context:
            self.settle(named)
            self.review_grants()

    def settle(self, context: Context) -> None:
        """The client's namespace is known: its host name or its key told."""
        if context is not self.context:
            context.counters["connections"] += 1
            self.context = context
            self.suffer()

    def _on_opened(self, event: events.Opened) -> None:
        self.listen_to_host(event.performative.hostname)
        if self.context is self.gateway.choice.entrance:
            self.review_grants()  # A key that is good in several namespaces is good in none without a host name.
        self.label = f"{event.performative.container_id[:64]}#{self.number}"
        self.origin = Origin(self.label)
        self._opened_at_ms = self.clock.now_ms()
        self.context.namespace.note_connection("connect", "", self.origin)
        idle_ms = event.performative.idle_time_out
        if idle_ms and idle_ms < IMPATIENT_MS:
            self._beat(max(idle_ms / 4000, HEARTBEAT_S_MIN))

    def _beat(self, interval_s: float) -> None:
        """Keep alive a peer that bears less silence than the gateway's own tick leaves."""
        if not self.is_lost:
            self.tick(self.clock.now_ms())
            self._loop.call_later(interval_s, self._beat, interval_s)

    def _on_attached(self, event: events.LinkAttached) -> None:
        attach(self, event.link)

    def _on_detached(self, event: events.LinkDetached) -> None:
        self._leave(event.link)

    def _on_session_ended(self, event: events.SessionEnded) -> None:
        for link in [link for link in self.nodes if link.session is event.session]:
            self._leave(link)

    def _on_flow(self, event: events.LinkFlow) -> None:
        if node := self.nodes.get(event.link):
            node.flow()

    def _on_deliveries(self, event: events.Deliveries) -> None:
        if node := self.nodes.get(event.link):
            node.received(event.items)

    def _on_oversized(self, event: events.Oversized) -> None:
        if node := self.nodes.get(event.link):
            node.oversized(event.delivery_id, event.settled, event.size)

    def _on_settlements(self, event: events.Settlements) -> None:
        if node := self.nodes.get(event.link):
            node.decided(event.items)

    def _on_ignored(self, event: events.Event) -> None:
        """Nothing to do: the core has answered."""

    def _on_closed(self, event: events.ConnectionClosed) -> None:
        self._said_goodbye = True
        self._leave_all()

    @property
    def _named(self) -> dict[str, str]:
        return {"namespace": self.context.namespace.name, "connection": self.label}

    def _on_failed(self, event: events.ConnectionFailed) -> None:
        self.context.counters["protocol_errors"] += 1
        text, error = "connection {connection} given up: {condition}: {reason}", event.error
        log.info("connection.given_up", text, condition=error.condition, reason=error.description, **self._named)
        self._leave_all()

    # Links

    def enter(self, link: Link, node: Node) -> None:
        """A link was accepted."""
        self.nodes[link] = node

    def _leave(self, link: Link) -> None:
        if node := self.nodes.pop(link, None):
            node.closed()
        if not self.nodes:
            self._idle_since_ms = self.clock.now_ms()
            self._idle_limit_ms = UNUSED_MS

    def _leave_all(self) -> None:
        for link in list(self.nodes):
            self._leave(link)

    def detach(self, link: Link, error: BusError, path: str) -> None:
        """End a link with a reason."""
        if link.attached:
            link.detach(self.context.refusal(error, path, "link"))
        self._leave(link)
        self.mark_dirty()

    # Rights

    def allows(self, path: str, right: Rights) -> bool:
        """Whether a grant that has not lapsed gives a right on a path."""
        now_ms = self.clock.now_ms()
        return any(g.expires_at_ms > now_ms and g.allows(path, right) for g in self._grants.values())

    def put_grant(self, audience: str, grant: access.Grant) -> None:
        """A token was accepted; a newer one for the same audience replaces it."""
        self._grants[audience] = grant

    def review_grants(self) -> None:
        """The rules changed: drop what they no longer back."""
        now_ms = self.clock.now_ms()
        for audience, grant in list(self._grants.items()):
            kept = access.renewed(grant, audience, self.context.namespace.rules_for, now_ms)
            if kept is None:
                del self._grants[audience]
            else:
                self._grants[audience] = kept
        self._drop_unauthorised()

    def _drop_unauthorised(self) -> None:
        for link, node in list(self.nodes.items()):
            if node.right is not None and not self.allows(node.path, node.right):
                lapsed = BusError(Fault.UNAUTHORIZED, "The token that allowed this link has expired or was revoked.")
                self.detach(link, lapsed, node.path)

    def tick(self, now_ms: int) -> None:
        """Heartbeats, time-outs, tokens that lapsed, connections that lead nowhere."""
        if self._unheard is not None:
            return
        self._handle(self._core.tick(now_ms))
        if any(grant.expires_at_ms <= now_ms for grant in self._grants.values()):
            self._grants = {a: g for a, g in self._grants.items() if g.expires_at_ms > now_ms}
            self._drop_unauthorised()
        if not self.nodes and now_ms - self._idle_since_ms > self._idle_limit_ms and not self._core.closed:
            self.close(
                Error(CONNECTION_FORCED, f"The connection had no link for {self._idle_limit_ms // 1000} s.", None)
            )
        self.flush()


_HANDLERS: dict[type, Callable[[ClientConnection, Any], None]] = {
    events.SaslInit: ClientConnection._on_sasl_init,
    events.Opened: ClientConnection._on_opened,
    events.SessionBegun: ClientConnection._on_ignored,
    events.SessionEnded: ClientConnection._on_session_ended,
    events.LinkAttached: ClientConnection._on_attached,
    events.LinkDetached: ClientConnection._on_detached,
    events.LinkFlow: ClientConnection._on_flow,
    events.WindowOpened: lambda connection, event: connection.outlet.resume(event.session),
    events.Deliveries: ClientConnection._on_deliveries,
    events.Oversized: ClientConnection._on_oversized,
    events.Settlements: ClientConnection._on_settlements,
    events.ConnectionClosed: ClientConnection._on_closed,
    events.ConnectionFailed: ClientConnection._on_failed,
}
