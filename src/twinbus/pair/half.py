"""One namespace of a pair as the work beside an application sees it, over our own client: opened when needed, reopened
when lost.

What is sent where is told by `diversion`, `ping` and `syphon`.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from enum import Enum
from ipaddress import ip_address
from typing import TYPE_CHECKING

from twinbus.client import Connection, ConnectionString, Receiver, Sender, connect
from twinbus.client.doors import http_address, is_usual
from twinbus.client.errors import ClientError

if TYPE_CHECKING:
    from twinbus.client.atom import Administration

WINDOW = 500


class HalfState(Enum):
    """Whether a half of the pair can be used."""

    OPEN = "open"
    CLOSED = "closed"
    FAULTED = "faulted"


class Half:
    """A namespace of the pair."""

    def __init__(
        self,
        role: str,
        target: ConnectionString,
        *,
        tls: ssl.SSLContext | None = None,
        http_address: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self.role = role
        self.target = target
        self.state = HalfState.OPEN
        self.reason: Exception | None = None
        self._tls = tls
        self._http_address = http_address
        self._timeout_s = timeout_s
        self._lock: asyncio.Lock | None = None
        self._stack: AsyncExitStack | None = None
        self._connection: Connection | None = None
        self._senders: dict[str, Sender] = {}
        self._asking: asyncio.Lock | None = None
        self._is_twinbus: bool | None = None
        self._http_port: int | None = None

    def __repr__(self) -> str:
        return f"<{self.role} {self.target.host}:{self.target.port} {self.state.value}>"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.target.host, self.target.port

    # Messages

    async def connection(self) -> Connection:
        """The connection that everything here shares."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._connection is None or self._connection.error is not None:
                await self._drop()
                stack = AsyncExitStack()
                self._connection = await stack.enter_async_context(self.fresh())
                self._stack = stack
            return self._connection

    def fresh(self) -> AbstractAsyncContextManager[Connection]:
        """A connection of one's own, for the time of a block."""
        return connect(self.target, tls=self._tls, timeout_s=self._timeout_s)

    async def sender(self, path: str) -> Sender:
        """A sender to an entity, kept for the next one who asks."""
        sender = self._senders.get(path)
        if sender is None or sender.error is not None:
            connection = await self.connection()
            sender = self._senders[path] = await connection.sender(path, window=WINDOW)
        return sender

    async def receiver(self, path: str) -> Receiver:
        """A receiver that gets what it asks for and nothing more."""
        return await (await self.connection()).receiver(path, credit=0)

    # Administration

    async def administer(self) -> AbstractAsyncContextManager[Administration]:
        """The administration, at the address that was given, that the broker tells, or that is usual."""
        from twinbus.client.atom import administer  # aiohttp takes a while, and a sender never needs it.

        return administer(self.target, await self.http_address(), tls=self._tls, timeout_s=self._timeout_s)

    async def is_twinbus(self) -> bool:
        """Whether the namespace is a broker of ours, which has extensions that the service has not."""
        if self._asking is None:
            self._asking = asyncio.Lock()
        async with self._asking:
            if self._is_twinbus is None:
                if self._connection is not None and self._connection.error is None:
                    self._is_twinbus = self._connection.is_twinbus
                else:
                    async with self.fresh() as connection:
                        self._is_twinbus, self._http_port = connection.is_twinbus, connection.http_port
            return self._is_twinbus

    async def http_address(self) -> str:
        """Where the namespace is administered."""
        if self._http_address is None:
            told = None
            if not is_usual(self.target):
                told = self._http_port or (await self.connection()).http_port
            self._http_address = http_address(self.target, told)
        return self._http_address

    async def name(self) -> str:
        """The namespace's name: the host's first label, or asked of the broker where the host does not tell it."""
        label, _, rest = self.target.host.partition(".")
        if rest.endswith("servicebus.windows.net") and not _is_address(self.target.host):
            return label
        async with await self.administer() as administration:
            return (await administration.namespace()).name

    # The end

    def fault(self, reason: Exception) -> None:
        """The half cannot be used any more."""
        if self.state is HalfState.OPEN:
            self.state, self.reason = HalfState.FAULTED, reason

    def mark_closed(self) -> None:
        """The half was closed."""
        if self.state is HalfState.OPEN:
            self.state = HalfState.CLOSED

    async def close(self) -> None:
        """Let go of the connection; the half may be opened again by whoever asks for it."""
        await self._drop()

    async def _drop(self) -> None:
        stack, self._stack, self._connection = self._stack, None, None
        self._senders.clear()
        if stack is not None:
            try:
                await stack.aclose()
            except ClientError:
                return


async def answers(half: Half) -> None:
    """Have a look, before messages are fetched in vain, for which there is a bill; a ClientError if nobody answers."""
    async with half.fresh():
        pass


def refuse_same(first: ConnectionString, second: ConnectionString) -> None:
    """A namespace cannot be paired with itself; behind one port a key tells which namespace is meant."""
    if (first.host, first.port, first.policy, first.key) == (second.host, second.port, second.policy, second.key):
        raise ValueError("The primary and the secondary are the same namespace.")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
