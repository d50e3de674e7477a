"""The port over our own client: one connection for all links, opened when needed, reopened when lost.

Links to send over are kept by path. Pings and questions get connections of their own. What is sent where is decided by
`route`, `backlog` and `syphon`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any

from twinbus.client import Connection, Receiver, Sender, WantedSession, connect, messages
from twinbus.client.endpoint import within
from twinbus.client.errors import TIMED_OUT, ClientError, of_each
from twinbus.client.hearing import Heard, What
from twinbus.client.management import Management
from twinbus.pair.namespace.open_links import OpenLinks
from twinbus.pair.namespace.port import BrokerFacts, RemoteNamespace
from twinbus.pair.namespace.port import Receiver as AnyReceiver
from twinbus.pair.namespace.soundness import Sign

WINDOW = 500
SURE_S = 1.0  # Who said something so lately is there.
SLOW_S = 30.0  # How long an answer is waited for that is only slow.
# So much of an attempt's time passes without an answer before it is asked whether anybody is there; the rest is for
# that. Who is not there is noticed with the attempt's end.
WAITED = 0.5
_SIGNS = {
    What.TOKEN_TAKEN: Sign.TAKEN,
    What.TOKEN_REFUSED: Sign.REFUSED,
    What.PROTOCOL_BROKEN: Sign.GARBLED,
}


class OwnClientNamespace(RemoteNamespace):
    """A namespace over our own client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connecting = asyncio.Lock()
        self._failed: tuple[float, ClientError] | None = None  # When it could last not be opened, and why.
        self._stack: AsyncExitStack | None = None
        self._connection: Connection | None = None
        self._senders = OpenLinks(self._open_sender)
        self._waiting = 0  # Sends that wait for an answer.
        self._checking: asyncio.Task[None] | None = None
        self._management: dict[str, Management] = {}

    async def connection(self) -> Connection:
        """The connection that all links share; one that could not be opened counts for all who waited for it."""
        clock = asyncio.get_running_loop().time
        since = clock()
        async with self._connecting:
            if self._connection is None or self._connection.error is not None:
                if self._failed is not None and self._failed[0] > since:
                    raise self._failed[1].but(definite=self._failed[1].definite)
                await self._disconnect()
                stack = AsyncExitStack()
                try:
                    self._connection = await stack.enter_async_context(self.fresh())
                except ClientError as error:
                    self._failed = clock(), error
                    raise
                self._stack = stack
            return self._connection

    def fresh(self) -> AbstractAsyncContextManager[Connection]:
        """A connection of one's own, for the time of a block."""
        self.check_open()
        return connect(self.target, tls=self._tls, timeout_s=self.timeout_s, listener=self.hear)

    async def sender(self, path: str) -> Sender:
        """A link to an entity, kept for the next one who asks; those who ask at once wait for the same one."""
        self.check_open()
        return await self._senders.get(path)

    async def _open_sender(self, path: str) -> Sender:
        return await (await self.connection()).sender(path, window=WINDOW)

    async def send(
        self, path: str, payloads: Sequence[bytes], *, timeout_s: float | None = None, together: bool = False
    ) -> None:
        """Over the kept link. A namespace that is silent is a ClientError like any other."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        doubt = asyncio.get_running_loop().call_later(self.timeout_s * WAITED, self._doubt)
        self._waiting += 1
        is_answered = False
        try:
            await within(timeout_s, self._send(path, payloads, together), f"sending to '{path}'")
            is_answered = True
        except ClientError as error:
            is_answered = error.condition != TIMED_OUT
            raise
        finally:
            self._waiting -= 1
            doubt.cancel()
            if not is_answered:
                self._doubt()  # It had less time, or was given up.

    @property
    def slow_s(self) -> float:
        """A connection that is dead is noticed much sooner."""
        return max(self.timeout_s, SLOW_S)

    async def be_there(self) -> None:
        """One that was silent for a while is asked, over the connection that there is."""
        connection = self._connection
        if connection is None or connection.error is not None or connection.silent_s < SURE_S:
            return
        await connection.check(self.timeout_s * (1 - WAITED))
        if connection.error is not None:
            raise connection.error.but(definite=True)

    def _doubt(self) -> None:
        """An answer is late: is it slow, or is nobody there? Then the connection is not used again."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())

    async def _check(self) -> None:
        while True:
            if self._connection is not None:
                await self._connection.check(self.timeout_s * (1 - WAITED))
            if not self._waiting:
                return
            await asyncio.sleep(self.timeout_s * WAITED)

    async def _send(self, path: str, payloads: Sequence[bytes], together: bool) -> None:
        sender = await self.sender(path)
        if not together or len(payloads) < 2:
            await sender.send(payloads)
            return
        try:
            await sender.send([messages.batch(payloads)], messages.BATCH_FORMAT)
        except ClientError as error:
            raise of_each(error, len(payloads)) from error

    async def message_bytes_max(self, path: str) -> int | None:
        """As the broker said when the link was attached."""
        return (await self.sender(path)).message_bytes_max

    async def receiver(self, path: str) -> Receiver:
        """A receiver without credit in advance."""
        return await (await self.connection()).receiver(path, credit=0)

    async def session_receiver(self, path: str, wait_s: float) -> Receiver:
        """The broker waits so long for a session to become free."""
        connection = await self.connection()
        return await connection.receiver(path, credit=0, session=WantedSession(None), session_wait_s=wait_s)

    async def renew_session(self, receiver: AnyReceiver) -> None:
        """Over the entity's management node."""
        management = await (await self.connection()).management(receiver.path)
        try:
            await management.renew_session_lock(receiver.session_id or "")
        finally:
            with suppress(ClientError):
                await management.close()

    async def peek(self, path: str, session_id: str) -> bool:
        """Over the entity's management node, which is kept."""
        what = f"peeking into '{path}'"
        known = self._management.pop(path, None)
        if known is not None:
            with suppress(ClientError):  # The connection may have been lost since; another one may do.
                found = await within(self.timeout_s, known.peek(0, 1, session_id), what)
                self._management[path] = known
                return bool(found)
        management = await (await self.connection()).management(path)
        found = await within(self.timeout_s, management.peek(0, 1, session_id), what)
        self._management[path] = management
        return bool(found)

    async def ping(self, path: str, payload: bytes) -> None:
        """A new connection shows that the namespace can be reached now."""
        async with self.fresh() as connection:
            sender = await connection.sender(path)
            await within(self.timeout_s, sender.send([payload]), f"sending to '{path}'")

    async def probe(self, path: str, payload: bytes) -> None:
        """Nothing of it is left when this returns."""
        async with self.fresh() as connection:
            management = await connection.management(path)
            await management.cancel(await management.schedule([payload]))

    async def ask(self) -> BrokerFacts:
        """The properties of a connection."""
        async with self.fresh() as connection:
            return BrokerFacts(connection.is_twinbus, connection.http_port, *connection.namespace)

    async def show_token(self, path: str) -> tuple[Sign, str]:
        """Nothing is attached."""
        heard = [Heard(What.RIGHT_REFUSED)]
        with suppress(ClientError):
            async with connect(
                self.target, tls=self._tls, timeout_s=self.timeout_s, listener=heard.append
            ) as connection:
                await connection.authorise(path)
        return _SIGNS.get(heard[-1].what, Sign.SILENT), heard[-1].namespace_id

    async def close(self) -> None:
        """Let go of the connection and of its links."""
        self._asking.cancel()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        self._senders.clear()
        self._management.clear()
        await self._disconnect()

    async def _disconnect(self) -> None:
        """The links stay listed: one that was lost with its connection says so, and one may be waiting for the next."""
        stack, self._stack, self._connection = self._stack, None, None
        if stack is not None:
            with suppress(ClientError):
                await stack.aclose()
