"""How the client proves who it is: the SASL choice, and tokens put on `$cbs` for each entity, renewed in time.

Signing is left to `wire.sas`; what a token allows is for the broker to say.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Any

from twinbus.amqp.types import Timestamp
from twinbus.client.connection_string import ConnectionString
from twinbus.client.errors import ClientError
from twinbus.client.hearing import What
from twinbus.client.requests import RequestLinks, refusal
from twinbus.client.stream import Stream
from twinbus.client.tokens import Token, tokens_of
from twinbus.model.logged import EventLog

log = EventLog(__name__)

CBS = "$cbs"
TOKEN_LIFETIME_MS = 3_600_000
# A token is renewed when less than this part of its life is left, and again so soon when that failed.
RENEW_PART = 10
RETRY_MS = 10_000
UNAUTHORIZED = 401


class Authentication(Enum):
    """CBS works everywhere that is a Service Bus; the others serve brokers that know nothing of `$cbs`."""

    CBS = "anonymous, then a token for each entity"
    PLAIN = "policy and key"
    ANONYMOUS = "nothing"


def sasl_choice(authentication: Authentication, target: ConnectionString) -> tuple[str, bytes]:
    """The SASL mechanism and the initial response."""
    if authentication is not Authentication.PLAIN:
        return "ANONYMOUS", b""
    if target.policy is None or target.key is None:
        raise ValueError("SASL PLAIN needs a policy and its key")
    return "PLAIN", b"\0%b\0%b" % (target.policy.encode(), target.key.encode())


@dataclass(slots=True)
class _Token:
    """A token that the peer took, and when to put the next one."""

    renew_at_ms: int


class TokenLinks(RequestLinks):
    """The pair of links to `$cbs`."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, CBS)

    async def put(self, audience: str, token: Token, path: str = "") -> None:
        """Puts a token for an entity and waits for the verdict."""
        application: dict[str, Any] = {"operation": "put-token", "type": token.type, "name": audience}
        if token.expires_at_ms is not None:
            application["expiration"] = Timestamp(token.expires_at_ms)
        told = (await self.ask(application, token.text, f"putting a token for '{audience}'")).application
        code = told.get("status-code")
        if not isinstance(code, int) or not 200 <= code < 300:
            if code == UNAUTHORIZED:
                self.stream.hear(What.TOKEN_REFUSED, path)
            text = str(told.get("status-description") or f"the token was refused with status {code}")
            raise refusal(code, text, told.get("error-condition")).but(definite=True)
        self.stream.hear(What.TOKEN_TAKEN, path)


class Authorisation:
    """The tokens of one connection."""

    def __init__(self, stream: Stream, target: ConnectionString, lifetime_ms: int = TOKEN_LIFETIME_MS) -> None:
        self._stream = stream
        self._target = target
        self._source = tokens_of(target, lifetime_ms)
        self._links: TokenLinks | None = None
        self._tokens: dict[str, _Token] = {}
        self._one_by_one = asyncio.Lock()
        self.renewal: asyncio.Task[None] | None = None

    async def authorise(self, path: str) -> None:
        """Makes sure that a token for the entity is there."""
        async with self._one_by_one:
            if path not in self._tokens:
                await self._put(path)

    async def _put(self, path: str) -> None:
        if self._links is None or self._links.error is not None:
            self._links = TokenLinks(self._stream)
            await self._links.ready(self._stream.timeout_s)
        now_ms = self._stream.clock.now_ms()
        audience = self._target.audience(path)
        token = await self._source.token(audience, now_ms)
        await self._links.put(audience, token, path)
        # Early, and at the latest when a tenth of its life is left. A ready-made token cannot be renewed.
        expires_at_ms = token.expires_at_ms
        renew_at_ms = 1 << 62 if expires_at_ms is None else expires_at_ms - (expires_at_ms - now_ms) // RENEW_PART
        self._tokens[path] = _Token(renew_at_ms)

    def tick(self) -> None:
        """Begins to renew what is about to expire."""
        now_ms = self._stream.clock.now_ms()
        due = [path for path, token in self._tokens.items() if token.renew_at_ms <= now_ms]
        if due and (self.renewal is None or self.renewal.done()):
            self.renewal = asyncio.get_running_loop().create_task(self._renew(due))

    async def _renew(self, paths: list[str]) -> None:
        async with self._one_by_one:
            for path in paths:
                try:
                    await self._put(path)
                except ClientError as error:
                    # The peer will detach the links when the token lapses, and says why; until then there is time.
                    log.warning(
                        "token.renewal.failed",
                        "the token for '{entity}' could not be renewed: {error}",
                        entity=path,
                        error=error,
                    )
                    self._tokens[path].renew_at_ms = self._stream.clock.now_ms() + RETRY_MS
