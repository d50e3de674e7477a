"""Calls a service through one of two relays: the active one, and if that fails the other, which then is active.

When that may be done is decided by `roles`; here are the requests and sockets themselves.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp

from twinbus.model.logged import EventLog
from twinbus.relay.endpoint import RelayEndpoint, check_pair, warn_of_one_datacenter
from twinbus.relay.messages import RelayedResponse
from twinbus.relay.roles import Outcome, Roles, Tried, may_reissue, outcome_of

CONNECT_S = 5.0
TOTAL_S = 120.0  # More than a relay waits for a listener.
SOCKET_MESSAGE_BYTES_MAX = 100 * 1024 * 1024

log = EventLog("twinbus.relay.client")


class RelayError(Exception):
    """No relay brought the request to an answer; says of each that was tried why, and whether it may have arrived."""

    def __init__(self, tries: Sequence[_Try]) -> None:
        super().__init__("; ".join(f"{tried.host}: {tried.problem}" for tried in tries))
        self.is_definite = all(tried.outcome is Outcome.NOT_DELIVERED for tried in tries)
        self.statuses = [tried.status for tried in tries]  # None for a relay that was out of reach.


class _Try(NamedTuple):
    number: int
    outcome: Outcome
    host: str
    problem: str = ""
    status: int | None = None
    response: RelayedResponse | None = None


class RelayClient:
    """Calls through two endpoints of one service, or through the only one."""

    def __init__(
        self,
        primary: RelayEndpoint,
        secondary: RelayEndpoint | None = None,
        *,
        choose: Callable[[int], int] = random.randrange,
        connect_s: float = CONNECT_S,
        total_s: float = TOTAL_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`choose` picks the endpoint that is active at first, given how many there are."""
        self.endpoints = (primary,) if secondary is None else (primary, secondary)
        if secondary is not None:
            check_pair(primary, secondary)
            warn_of_one_datacenter(log, primary.datacenter, secondary.datacenter)
        self._roles = Roles(choose(len(self.endpoints)))
        self._timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=connect_s)
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the connections go."""
        if self._session is not None:
            await self._session.close()

    @property
    def active(self) -> RelayEndpoint:
        """Where the next call goes first."""
        return self.endpoints[self._roles.active]

    # Requests

    async def request(
        self,
        method: str,
        target: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        reissue: bool | None = None,
        total_s: float | None = None,
    ) -> RelayedResponse:
        """The service's answer; a RelayError if no relay brought one. `total_s` is for each of the two.

        A request that the service may have had is issued again only if its method is idempotent, or `reissue` says so.
        """
        timeout = self._timeout
        if total_s is not None:
            timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=timeout.sock_connect)
        with self._call() as (order, tries):
            for number in order:
                tried = await self._try(number, method, target, dict(headers or {}), body, timeout)
                tries.append(tried)
                if tried.response is not None and tried.outcome is Outcome.ANSWERED:
                    return tried.response
                if not may_reissue(tried.outcome, method, reissue):
                    break
        raise RelayError(tries)

    async def _try(
        self,
        number: int,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
        timeout: aiohttp.ClientTimeout,
    ) -> _Try:
        endpoint = self.endpoints[number]
        headers |= endpoint.headers(time.time())
        url = endpoint.request_url(target)
        data = BytesIO(body) if body else None
        try:
            async with self._opened().request(
                method, url, headers=headers, data=data, allow_redirects=False, timeout=timeout
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as problem:
            return _Try(number, Outcome.NOT_DELIVERED, endpoint.host, str(problem))
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            return _Try(number, Outcome.UNKNOWN, endpoint.host, str(problem) or type(problem).__name__)
        response = RelayedResponse(answer.status, content, list(answer.headers.items()), answer.reason or "", number)
        outcome = outcome_of(answer.status, "Via" in answer.headers)
        return _Try(number, outcome, endpoint.host, content.decode(errors="replace").strip(), answer.status, response)

    # Sockets

    async def connect(
        self, suffix: str = "", *, headers: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> aiohttp.ClientWebSocketResponse:
        """A socket with a listener of the service."""
        with self._call() as (order, tries):
            for number in order:
                endpoint = self.endpoints[number]
                try:
                    socket = await self._opened().ws_connect(
                        endpoint.socket_url("connect", suffix),
                        headers={**(headers or {}), **endpoint.headers(time.time())},
                        protocols=protocols,
                        max_msg_size=SOCKET_MESSAGE_BYTES_MAX,
                    )
                except aiohttp.WSServerHandshakeError as refused:
                    outcome = outcome_of(refused.status, refused.headers is not None and "Via" in refused.headers)
                    tries.append(_Try(number, outcome, endpoint.host, refused.message, refused.status))
                    if outcome is Outcome.ANSWERED:
                        break  # The service itself does not want it.
                except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                    text = str(problem) or type(problem).__name__
                    tries.append(_Try(number, Outcome.NOT_DELIVERED, endpoint.host, text))
                else:
                    tries.append(_Try(number, Outcome.ANSWERED, endpoint.host))
                    return socket
        raise RelayError(tries)

    @contextmanager
    def _call(self) -> Iterator[tuple[list[int], list[_Try]]]:
        """A call: the endpoints in their order, and a list for what came of each, from which the roles follow."""
        order = [self._roles.active] if len(self.endpoints) == 1 else [self._roles.active, self._roles.backup]
        tries: list[_Try] = []
        given_up: list[Tried] = []
        try:
            yield order, tries
        except asyncio.CancelledError:
            given_up = [Tried(number, Outcome.UNKNOWN) for number in order[len(tries) :][:1]]  # No answer came.
            raise
        finally:
            came = [*(Tried(tried.number, tried.outcome) for tried in tries), *given_up]
            if len(order) > 1 and came:
                self._roles = self._roles.after(came)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls or True, limit=0)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, auto_decompress=False)
        return self._session
