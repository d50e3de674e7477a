"""Calls a service through one of two relays: the active one, and if that fails the other, which then is active.

When that may be done is decided by `roles`; here are the requests and sockets themselves.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp

from twinbus.relay.endpoint import RelayEndpoint, check_pair
from twinbus.relay.messages import RelayedResponse
from twinbus.relay.roles import Outcome, Roles, may_reissue, outcome_of

CONNECT_S = 5.0
TOTAL_S = 120.0  # More than a relay waits for a listener.
SOCKET_MESSAGE_BYTES_MAX = 100 * 1024 * 1024


class RelayError(Exception):
    """No relay brought the request to an answer; says of each that was tried why, and whether it may have arrived."""

    def __init__(self, tries: Sequence[_Try]) -> None:
        super().__init__("; ".join(f"{tried.host}: {tried.problem}" for tried in tries))
        self.is_definite = all(tried.outcome is Outcome.NOT_DELIVERED for tried in tries)
        self.statuses = [tried.status for tried in tries]  # None for a relay that was out of reach.


class _Try(NamedTuple):
    host: str
    outcome: Outcome
    problem: str
    status: int | None
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

    def _order(self) -> list[int]:
        return [self._roles.active] if len(self.endpoints) == 1 else [self._roles.active, self._roles.backup]

    # Requests

    async def request(
        self,
        method: str,
        target: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        reissue: bool | None = None,
    ) -> RelayedResponse:
        """The service's answer; a RelayError if no relay brought one.

        A request that the service may have had is issued again only if its method is idempotent, or `reissue` says so.
        """
        tries: list[_Try] = []
        for number in self._order():
            tried = await self._try(number, method, target, dict(headers or {}), body)
            self._roles = self._roles.after(number, tried.outcome)
            if tried.response is not None and tried.outcome is Outcome.ANSWERED:
                return tried.response
            tries.append(tried)
            if not may_reissue(tried.outcome, method, reissue):
                break
        raise RelayError(tries)

    async def _try(self, number: int, method: str, target: str, headers: dict[str, str], body: bytes) -> _Try:
        endpoint = self.endpoints[number]
        headers |= endpoint.headers(time.time())
        url = endpoint.request_url(target)
        try:
            async with self._opened().request(
                method, url, headers=headers, data=BytesIO(body) if body else None, allow_redirects=False
            ) as answer:
                content = await answer.read()
        except aiohttp.ClientConnectorError as problem:
            return _Try(endpoint.host, Outcome.NOT_DELIVERED, str(problem), None)
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            return _Try(endpoint.host, Outcome.UNKNOWN, str(problem) or type(problem).__name__, None)
        response = RelayedResponse(answer.status, content, list(answer.headers.items()), answer.reason or "", number)
        outcome = outcome_of(answer.status, "Via" in answer.headers)
        return _Try(endpoint.host, outcome, content.decode(errors="replace").strip(), answer.status, response)

    # Sockets

    async def connect(
        self, suffix: str = "", *, headers: Mapping[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> aiohttp.ClientWebSocketResponse:
        """A socket with a listener of the service."""
        tries: list[_Try] = []
        for number in self._order():
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
                tries.append(_Try(endpoint.host, outcome, refused.message, refused.status))
                if outcome is Outcome.ANSWERED:
                    break  # The service itself does not want it.
            except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                tries.append(_Try(endpoint.host, Outcome.NOT_DELIVERED, str(problem) or type(problem).__name__, None))
            else:
                self._roles = self._roles.after(number, Outcome.ANSWERED)
                return socket
        raise RelayError(tries)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls or True, limit=0)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, auto_decompress=False)
        return self._session
