"""Where the contract of the namespace port is tried: a broker with clock and faults, a proxy before it, adapters to it.

A test asks for queues, faults and namespaces, and does not know what is behind them; what a simulated network would
have to offer is what `Place` offers.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from support.broker import BrokerProcess
from support.ports import free_ports
from support.queues import contents
from twinbus.client import ConnectionString
from twinbus.client.messages import Message
from twinbus.faults.frames import Says
from twinbus.faults.proxy import FaultProxy, Mode, Toward
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.sdk.namespace import SdkNamespace

Adapter = Callable[..., RemoteNamespace]

ADAPTERS: dict[str, Adapter] = {"own client": OwnClientNamespace, "official SDK": SdkNamespace}

_numbers = count(1)


class Place:
    """One test's namespace as an adapter sees it, through a proxy that belongs to the test."""

    def __init__(self, broker: BrokerProcess, proxy: FaultProxy, adapter: Adapter) -> None:
        self.broker = broker
        self.proxy = proxy
        self._adapter = adapter
        self._made: list[RemoteNamespace] = []

    # The namespace

    def namespace(self, adapter: Adapter | None = None, *, key: str | None = None, **settings: Any) -> RemoteNamespace:
        """The namespace through the adapter and the proxy."""
        return self._namespace(self.proxy.port, adapter or self._adapter, settings, key)

    def gone(self) -> RemoteNamespace:
        """One that nobody listens for."""
        return self._namespace(free_ports(1)[0], self._adapter, {})

    def _namespace(
        self, port: int, adapter: Adapter, settings: dict[str, Any], key: str | None = None
    ) -> RemoteNamespace:
        address = self.broker.connection_string(key=key).replace(f":{self.broker.amqp_port};", f":{port};")
        made = adapter("namespace", ConnectionString.parse(address), **settings)
        self._made.append(made)
        return made

    def queue(self, **settings: Any) -> str:
        """A queue that no other test has."""
        return self.broker.create_queue(f"queue-{next(_numbers)}", **settings)

    def contents(self, path: str) -> list[Message]:
        """What is in it, looked at past the proxy."""
        return contents(self.broker, path)

    def bodies(self, path: str) -> list[bytes]:
        """The same, bodies only."""
        return [message.body for message in self.contents(path)]

    # Faults

    def lose_connections(self) -> None:
        """Cut off who is connected; the next one gets through."""
        self.proxy.reset()

    def refuse_connections(self) -> None:
        """Cut off who is connected and who connects."""
        self.proxy.set(Mode.REFUSE)

    def be_silent(self) -> None:
        """Connections stay, and no byte gets through."""
        self.proxy.set(Mode.BLACKHOLE)

    def heal(self) -> None:
        """Let bytes through again."""
        self.proxy.set(Mode.PASS)

    def lose_next_answer(self) -> None:
        """What comes next is done, and the connection is cut instead of saying so."""
        self.proxy.cut(Says.DISPOSITION, Toward.CLIENT)

    def suffer(self, fault: str, store: int | None = None) -> None:
        """Begin a fault of the broker itself."""
        self._api("PUT", f"faults/{fault}", {} if store is None else {"store": store})

    def recover(self) -> None:
        """End all faults of the broker."""
        self._api("DELETE", "faults")

    def _api(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        status, text = self.broker.request(method, f"/$api/{path}", None if body is None else json.dumps(body))
        assert status < 300, f"{status}: {text}"

    async def close(self) -> None:
        """Let go of every namespace that was made here."""
        for made in self._made:
            await made.close()


@asynccontextmanager
async def place(broker: BrokerProcess, adapter: Adapter) -> AsyncIterator[Place]:
    """A place for the time of a test; what it broke is whole again afterwards."""
    async with FaultProxy(broker.amqp_port) as proxy:
        made = Place(broker, proxy, adapter)
        try:
            yield made
        finally:
            made.recover()
            made.heal()
            await made.close()
