"""Listens for AMQP clients, plain and with TLS, and keeps the list of all connections, those of `websocket` included.

Starting and stopping the process is the broker's affair; a single connection's is `connection`'s.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import Callable

from twinbus.amqp.conditions import CONNECTION_FORCED
from twinbus.amqp.performatives import Error
from twinbus.amqp.settings import Settings
from twinbus.amqp.types import Symbol, UInt
from twinbus.entities.entity import AnyEntity
from twinbus.entities.hosting import Hosting
from twinbus.entities.namespace import Namespace
from twinbus.gateway.browsing import Browsing
from twinbus.gateway.choosing import Choice
from twinbus.gateway.connection import ClientConnection
from twinbus.gateway.context import Context
from twinbus.gateway.egress import Egress
from twinbus.gateway.ingress import Ingress
from twinbus.model import limits
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.wire.address import NAMESPACE_ID_KEY, NAMESPACE_KEY, http_port_key

TICK_S = 1.0
ANSWERS_S = 2.0  # At a stop: for commits that are under way.
# The best first: some clients take the first that they can. EXTERNAL would be for a certificate that was verified.
MECHANISMS = ("MSSBCBS", "PLAIN", "ANONYMOUS")


class Gateway:
    """The AMQP door of all namespaces of the process."""

    def __init__(self, hosting: Hosting, clock: Clock, new_id: Callable[[], str], product: str) -> None:
        """`clock` is the one that clients share: heartbeats and tokens go by it, whatever a namespace's own says."""
        self.clock = clock
        numbers = itertools.count(1)
        self.choice = Choice(hosting, lambda namespace: Context(namespace, new_id, numbers))
        self.container_id = f"{hosting.label}-{new_id()[:8]}"
        self._told: dict[Symbol, object] = {Symbol("product"): product}
        self.settings = Settings(
            max_message_size=limits.MESSAGE_BYTES_MAX,
            mechanisms=MECHANISMS,
            properties=self._told,
        )
        self.connections: set[ClientConnection] = set()
        self._servers: list[asyncio.Server] = []
        self._ticker: asyncio.TimerHandle | None = None
        self.is_closing = False
        self._dirty: set[ClientConnection] = set()
        for namespace in hosting.namespaces:
            namespace.on_deleted.append(self._entity_deleted)
            namespace.on_changed.append(self._entity_changed)
            namespace.on_rules_changed.append(self._rules_changed)
            namespace.on_disturbed.append(self._disturbed)

    def announce(self, scheme: str, port: int) -> None:
        """Tell whoever connects from now on where HTTP is served, so that one address leads to the other."""
        self._told[http_port_key(scheme)] = UInt(port)

    def announce_namespace(self, name: str, namespace_id: str) -> None:
        """Say to clients that connect from now on whom they have reached: a paired client must know, with any key."""
        self._told[NAMESPACE_KEY] = name
        self._told[NAMESPACE_ID_KEY] = namespace_id

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Open a port; returns the one that was bound."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: ClientConnection(self), host, port, ssl=tls, backlog=512)
        self._servers.append(server)
        if self._ticker is None:
            self._tick()
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    @property
    def accepts(self) -> bool:
        """Whether one more client may connect."""
        return not self.is_closing and len(self.connections) < limits.CONNECTIONS_MAX

    def counters(self, namespace: Namespace) -> Counter[str]:
        """Where what happens to a namespace's messages is counted, by whatever door they come."""
        return self.choice.contexts.get(namespace.name, self.choice.entrance).counters

    def joined(self, connection: ClientConnection) -> None:
        """A client connected; beyond the limit, or after the end has begun, it is cut off."""
        self.connections.add(connection)
        if self.is_closing or len(self.connections) > limits.CONNECTIONS_MAX:
            connection.abort()

    def mark_dirty(self, connection: ClientConnection) -> None:
        """A connection has something to write: with the end of the commit, or else of this turn of the loop."""
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self.flush)
        self._dirty.add(connection)

    def flush(self) -> None:
        """Write what the connections have queued, once for each."""
        dirty, self._dirty = self._dirty, set()
        for connection in dirty:
            connection.flush()

    def left(self, connection: ClientConnection) -> None:
        """A client's socket is gone."""
        self.connections.discard(connection)

    def _tick(self) -> None:
        now_ms = self.clock.now_ms()
        for connection in list(self.connections):
            connection.tick(now_ms)
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    # Changes of the catalog

    def _entity_deleted(self, entity: AnyEntity) -> None:
        gone = BusError(Fault.ENTITY_DELETED, f"The messaging entity '{entity.path}' was deleted.")
        self._end_links(entity, gone, (Ingress, Egress, Browsing))

    def _entity_changed(self, entity: AnyEntity) -> None:
        """Receivers of an entity that no longer serves them are told; senders learn it with their next message."""
        for connection in list(self.connections):
            for link, node in list(connection.nodes.items()):
                if isinstance(node, Egress | Browsing) and node.entity is entity:
                    try:
                        node.check_may_stay()
                    except BusError as error:
                        connection.detach(link, error, node.path)

    def _end_links(self, entity: AnyEntity, error: BusError, kinds: tuple[type, ...]) -> None:
        for connection in list(self.connections):
            for link, node in list(connection.nodes.items()):
                if isinstance(node, kinds) and getattr(node, "entity", None) is entity:
                    connection.detach(link, error, node.path)

    def _rules_changed(self) -> None:
        for connection in list(self.connections):
            connection.review_grants()

    def _disturbed(self) -> None:
        for connection in list(self.connections):
            connection.suffer()

    # The end

    async def close(self, grace_s: float = 1.0) -> None:
        """Stop accepting, tell every client, and wait a little for their goodbyes.

        What was taken is answered first: a client that was told goodbye goes to another gateway at once, where its next
        message could be stored before the one of which it knows nothing.
        """
        self.is_closing = True
        for server in self._servers:
            server.close()
        if self._ticker is not None:
            self._ticker.cancel()
        await _until(lambda: not any(connection.owes_answers for connection in self.connections), ANSWERS_S)
        goodbye = Error(CONNECTION_FORCED, "The broker is shutting down.", None)
        for connection in list(self.connections):
            connection.close(goodbye)
        await _until(lambda: not self.connections, grace_s)
        for connection in list(self.connections):
            connection.abort()


async def _until(condition: Callable[[], bool], patience_s: float) -> None:
    """Wait until it is so, or for so long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while not condition() and loop.time() < deadline:
        await asyncio.sleep(0.02)
