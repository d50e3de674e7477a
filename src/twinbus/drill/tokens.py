"""Tokens with a short life: signed by whoever has a key, or fetched from a little token service that can be away.

The credentials are of the kind that the SDK takes. What a client does when there are no tokens is its own business.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from twinbus.client import ConnectionString
from twinbus.client.tokens import SAS, OwnTokens
from twinbus.model.extras import needing
from twinbus.pair.aio import PairedServiceBusClient
from twinbus.pair.description import NamespaceDescription, PairDescription

with needing("azure.servicebus"):
    from azure.core.credentials import AccessToken
    from azure.core.exceptions import ClientAuthenticationError
    from azure.servicebus.aio import ServiceBusClient

LOOPBACK = "127.0.0.1"
ASK_S = 2.0
FRESH = 0.3  # A token of which less than this part is left is fetched anew, if that is possible.


class Signer:
    """Signs with the key of a connection string; as a credential it depends on nobody."""

    token_type = SAS.encode()

    def __init__(self, connection_string: str, life_s: float) -> None:
        target = ConnectionString.parse(connection_string)
        self._tokens = OwnTokens(target.policy or "", target.key or "", int(life_s * 1000))
        self.signed = 0

    async def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        """A new one each time."""
        token = await self._tokens.token(scopes[0], time.time_ns() // 1_000_000)
        assert token.expires_at_ms is not None
        self.signed += 1
        return AccessToken(token.text, token.expires_at_ms // 1000)

    async def close(self) -> None:
        """Nothing is open."""


class TokenService:
    """Signs for whoever asks over HTTP, while it is there."""

    def __init__(self, signers: dict[str, Signer]) -> None:
        """`signers` by the namespaces that they have the keys of."""
        self._signers = signers
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """Where it is asked; the same after it was away."""
        return f"http://{LOOPBACK}:{self._port}"

    async def come(self) -> None:
        """Be there."""
        app = web.Application()
        app.router.add_get("/{namespace}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self._port).start()
        self._port = int(self._runner.addresses[0][1])

    async def go(self) -> None:
        """Be away: nobody answers at its port."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def _answer(self, request: web.Request) -> web.Response:
        token = await self._signers[request.match_info["namespace"]].get_token(request.query["resource"])
        return web.json_response({"token": token.token, "expires_on": token.expires_on})


class ServiceCredential:
    """Asks a token service, as an application that has no key must; keeps what it was given until that ends.

    As the credentials of azure-identity do, it asks early, and goes on with what it has while nobody answers.
    """

    token_type = SAS.encode()

    def __init__(self, service: TokenService, namespace: str) -> None:
        self._service = service
        self._namespace = namespace
        self._kept: dict[str, tuple[AccessToken, float]] = {}  # By what it is for; the last is when it was given.
        self.refused = 0

    async def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        """One that is good, or a ClientAuthenticationError."""
        kept = self._kept.get(scopes[0])
        now = time.time()
        if kept is not None and kept[0].expires_on - now > FRESH * (kept[0].expires_on - kept[1]):
            return kept[0]
        try:
            return await self._fetch(scopes[0], now)
        except (aiohttp.ClientError, TimeoutError) as problem:
            if kept is not None and kept[0].expires_on > now:
                return kept[0]
            self.refused += 1
            raise ClientAuthenticationError(f"the token service does not answer: {problem}") from problem

    async def _fetch(self, resource: str, now: float) -> AccessToken:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_S)) as session,
            session.get(f"{self._service.address}/{self._namespace}", params={"resource": resource}) as answer,
        ):
            given = await answer.json()
        token = AccessToken(given["token"], int(given["expires_on"]))
        self._kept[resource] = token, now
        return token

    async def close(self) -> None:
        """Nothing is open."""


def client_with(namespace: NamespaceDescription, credential: Any, **settings: Any) -> ServiceBusClient:
    """The SDK's client of one namespace."""
    target = ConnectionString.parse(namespace.connection_string)
    return ServiceBusClient(f"{target.host}:{target.port}", credential, use_tls=target.tls, **settings)


def paired_with(pair: PairDescription, credentials: tuple[Any, Any], **told: Any) -> PairedServiceBusClient:
    """A paired client whose halves get their tokens from credentials."""
    settings = {"retry_total": pair.options.attempts - 1, "try_timeout": pair.options.seconds("attempt_timeout")}
    primary, secondary = [
        client_with(namespace, credential, **settings)
        for namespace, credential in zip((pair.primary, pair.secondary), credentials, strict=True)
    ]
    return PairedServiceBusClient(primary, secondary, pair.options, primary_name=pair.primary.name, **told)


@asynccontextmanager
async def token_service(signers: dict[str, Signer]) -> AsyncIterator[TokenService]:
    """One for the time of a block."""
    service = TokenService(signers)
    await service.come()
    try:
        yield service
    finally:
        await service.go()
