"""A connection to a namespace, as its user sees it: opened by `connect`, it hands out senders, receivers and more.

Bytes are left to `stream`, proof of identity to `authorisation`. A connection that is lost stays lost: making a new
one is for the caller, who knows what was under way.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from uuid import uuid4

from twinbus.amqp.conditions import NotAttachedError
from twinbus.amqp.connection import Connection as Core
from twinbus.amqp.handshake import Role
from twinbus.amqp.settings import Settings
from twinbus.amqp.types import Symbol
from twinbus.client.authorisation import TOKEN_LIFETIME_MS, Authentication, Authorisation, sasl_choice
from twinbus.client.connection_string import ConnectionString
from twinbus.client.doors import http_port_in, namespace_in
from twinbus.client.endpoint import Endpoint, within
from twinbus.client.errors import CONNECTION_LOST, NO_TLS, UNREACHABLE, WRONG_DOOR, ClientError
from twinbus.client.hearing import Listener
from twinbus.client.management import NODE, Management
from twinbus.client.receiver import DEFAULT_CREDIT, Receiver
from twinbus.client.requests import RequestLinks
from twinbus.client.sender import DEFAULT_WINDOW, Sender
from twinbus.client.stream import Stream
from twinbus.model.clock import Clock
from twinbus.model.message import ReceiveMode
from twinbus.wire.sessions import WantedSession

TICK_S = 1.0
TIMEOUT_S = 10.0
# A peer is asked to say something every ten seconds, and given up after 40 s of silence: a connection whose peer, or
# whose way there, went away without a word is not waited for.
IDLE_MS = 20_000
SILENT = "the peer does not answer any more"
# The largest message of the service's largest tier.
MAX_MESSAGE_BYTES = 104_857_600

# Connects a protocol to something that carries bytes.
Dial = Callable[[asyncio.Protocol], Awaitable[object]]
E = TypeVar("E", bound=Endpoint)


class _WallClock:
    """The time, which does not go backwards."""

    def __init__(self) -> None:
        self._start_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._start_ms + time.monotonic_ns() // 1_000_000


@asynccontextmanager
async def connect(
    target: str | ConnectionString,
    *,
    authentication: Authentication = Authentication.CBS,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
    token_lifetime_ms: int = TOKEN_LIFETIME_MS,
    clock: Clock | None = None,
    dial: Dial | None = None,
    listener: Listener | None = None,
) -> AsyncIterator[Connection]:
    """A connection for the time of an `async with` block; links and connection are closed politely at its end.

    `listener` hears what the peer says of tokens and rights, and when it breaks the protocol.
    """
    if isinstance(target, str):
        target = ConnectionString.parse(target)
    mechanism, response = sasl_choice(authentication, target)
    clock = clock or _WallClock()
    settings = Settings(
        max_message_size=MAX_MESSAGE_BYTES,
        incoming_window=8192,
        idle_timeout_ms=IDLE_MS,
        properties={Symbol("product"): "Twinbus client"},
    )
    core = Core(Role.CLIENT, f"twinbus-{uuid4().hex}", settings, clock.now_ms())
    core.start(mechanism, response, target.host)
    stream = Stream(core, clock, timeout_s, listener)
    await _dial(stream, target, tls, dial)
    try:
        await within(timeout_s, stream.opened, f"opening the connection to {target.host}:{target.port}")
    except BaseException as problem:
        stream.abort()
        if isinstance(problem, ClientError) and problem.condition == CONNECTION_LOST:
            text = f"{target.host}:{target.port} does not answer as a broker: {problem.text}"
            raise ClientError(WRONG_DOOR, text, transient=True) from None
        raise
    authorisation = None
    if authentication is Authentication.CBS:
        authorisation = Authorisation(stream, target, token_lifetime_ms)
    connection = Connection(stream, target, authorisation)
    try:
        yield connection
    finally:
        await connection.close()


async def _dial(stream: Stream, target: ConnectionString, tls: ssl.SSLContext | None, dial: Dial | None) -> None:
    if target.tls and tls is None:
        tls = ssl.create_default_context()
    where = f"{target.host}:{target.port}"
    try:
        async with asyncio.timeout(stream.timeout_s):
            if dial is not None:
                await dial(stream)
            else:
                loop = asyncio.get_running_loop()
                secure = tls if target.tls else None
                await loop.create_connection(lambda: stream, target.host, target.port, ssl=secure)
    except TimeoutError:
        text = f"no connection to {where} within {stream.timeout_s:g} s"
        raise ClientError(UNREACHABLE, text) from None
    except ssl.SSLCertVerificationError as problem:
        raise ClientError(UNREACHABLE, f"{where} is not trusted: {problem}", transient=False) from problem
    except ssl.SSLError as problem:
        raise ClientError(NO_TLS, f"{where} does not speak TLS: {problem}") from problem
    except OSError as problem:
        raise ClientError(UNREACHABLE, f"no connection to {where}: {problem}") from problem


class Connection:
    """An open connection. Use `connect` to get one."""

    def __init__(self, stream: Stream, target: ConnectionString, authorisation: Authorisation | None) -> None:
        self._stream = stream
        self._target = target
        self._authorisation = authorisation
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(TICK_S, self._on_timer)

    @property
    def error(self) -> ClientError | None:
        """Why the connection is lost, if it is."""
        return self._stream.error

    @property
    def is_twinbus(self) -> bool:
        """Whether the peer is a broker of ours, which has extensions that the service has not."""
        return str(self._told.get(Symbol("product"), "")).startswith("Twinbus")

    @property
    def http_port(self) -> int | None:
        """Where a broker of ours says that it can be administered."""
        return http_port_in(self._told, self._target.tls)

    @property
    def namespace(self) -> tuple[str, str]:
        """The name and the id of the namespace, as a broker of ours says them; empty where it does not."""
        return namespace_in(self._told)

    @property
    def _told(self) -> dict[Any, Any]:
        remote = self._stream.core.remote
        return dict(remote.properties or {}) if remote is not None else {}

    async def sender(self, path: str | None = None, *, window: int = DEFAULT_WINDOW) -> Sender:
        """A sender to an entity; without a path, to the one that the connection string names."""
        path = await self._authorised(path)
        return await self._ready(Sender(self._stream, path, window))

    async def receiver(
        self,
        path: str | None = None,
        *,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        credit: int = DEFAULT_CREDIT,
        session: WantedSession | None = None,
        session_wait_s: float | None = None,
        settle_first: bool = False,
    ) -> Receiver:
        """A receiver from an entity, or from one of its sessions: a named one, or with None the next that is free.

        `settle_first` is for brokers that do not confirm outcomes; `settle` then waits for nothing.
        """
        path = await self._authorised(path)
        receiver = Receiver(
            self._stream,
            path,
            mode=mode,
            credit=credit,
            session=session,
            session_wait_s=session_wait_s,
            settle_first=settle_first,
        )
        return await self._ready(receiver, session_wait_s or 0)

    async def management(self, path: str | None = None) -> Management:
        """The management node of an entity."""
        path = await self._authorised(path)
        return Management(await self._ready(RequestLinks(self._stream, f"{path}/{NODE}")))

    async def authorise(self, path: str) -> None:
        """Put a token for an entity, and open nothing; a ClientError if it is refused."""
        await self._authorised(path)

    async def _authorised(self, path: str | None) -> str:
        path = path or self._target.entity_path
        if not path:
            raise ValueError("neither the call nor the connection string names an entity")
        if self._stream.error is not None:
            raise self._stream.error.but(definite=True)
        if self._authorisation is not None:
            await self._authorisation.authorise(path)
        return path

    async def _ready(self, endpoint: E, extra_s: float = 0) -> E:
        await endpoint.ready(self._stream.timeout_s + extra_s)
        return endpoint

    @property
    def silent_s(self) -> float:
        """For how long the peer has said nothing."""
        return self._loop.time() - self._stream.heard_at

    async def check(self, timeout_s: float) -> None:
        """Tells a connection that is dead from a peer that is slow: one that is silent for so long is lost.

        A session is begun and ended, which any peer answers, however long its work takes.
        """
        stream = self._stream
        if stream.error is not None:
            return
        with suppress(NotAttachedError):  # It has as many as it may have: then others say something.
            stream.core.begin().end()
        stream.mark_dirty()
        if not await stream.hears_something(timeout_s):
            stream.lost(ClientError(CONNECTION_LOST, SILENT))
            stream.abort()

    def tick(self) -> None:
        """Lets time pass; a timer does this every second."""
        self._stream.tick()
        if self._authorisation is not None and self._stream.error is None:
            self._authorisation.tick()

    def _on_timer(self) -> None:
        self.tick()
        self._timer = self._loop.call_later(TICK_S, self._on_timer)

    async def close(self) -> None:
        """Closes links and connection. Nothing that fails on the way matters any more."""
        self._timer.cancel()
        if self._authorisation is not None and self._authorisation.renewal is not None:
            self._authorisation.renewal.cancel()
        try:
            closing = [endpoint.close() for endpoint in list(self._stream.endpoints)]
            await asyncio.gather(*closing, return_exceptions=True)
            await self._stream.close()
        finally:
            self._stream.abort()  # A peer that did not answer in time; or this was cancelled, and nobody comes back.
