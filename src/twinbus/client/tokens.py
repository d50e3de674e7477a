"""Where tokens come from: signed here with a key, given ready-made, or fetched from a credential of the SDK's kind.

Who signs for itself depends on no token service. Putting tokens in time is `authorisation`'s work.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, NamedTuple, Protocol

from twinbus.client.connection_string import ConnectionString
from twinbus.client.errors import NO_TOKEN, ClientError
from twinbus.wire import sas

SAS = "servicebus.windows.net:sastoken"
JWT = "jwt"
# What a credential of Microsoft Entra is asked for.
SCOPE = "https://servicebus.azure.net//.default"


class Token(NamedTuple):
    """A token, its type on `$cbs`, and when it ends; None for one that nobody can renew."""

    text: str
    type: str
    expires_at_ms: int | None


class TokenSource(Protocol):
    """Makes or fetches tokens."""

    async def token(self, audience: str, now_ms: int) -> Token:
        """A token for an address; a ClientError if none can be had."""
        ...


class OwnTokens:
    """Signs with a policy's key."""

    def __init__(self, policy: str, key: str, lifetime_ms: int) -> None:
        self._policy = policy
        self._key = key
        self._lifetime_ms = lifetime_ms

    async def token(self, audience: str, now_ms: int) -> Token:
        """A token that lives as long as the source says."""
        expires_at_ms = now_ms + self._lifetime_ms
        # Seconds count in a token: rounded up, so that it does not end before we think.
        expires_at_s = -(-expires_at_ms // 1000)
        return Token(sas.make_token(audience, self._policy, self._key, expires_at_s), SAS, expires_at_ms)


class ReadyToken:
    """One that somebody else signed."""

    def __init__(self, signature: str) -> None:
        self._signature = signature

    async def token(self, audience: str, now_ms: int) -> Token:
        """Always the same."""
        return Token(self._signature, SAS, None)


class CredentialTokens:
    """Asks a credential with `get_token`, blocking or not, as azure-identity and the SDK have them."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential
        told = getattr(credential, "token_type", JWT)
        self._type = told.decode() if isinstance(told, bytes) else str(told)

    async def token(self, audience: str, now_ms: int) -> Token:
        """What the credential gives; it may ask a service, which may be down."""
        scope = SCOPE if self._type == JWT else audience
        try:
            if inspect.iscoroutinefunction(self._credential.get_token):
                given = await self._credential.get_token(scope)
            else:
                given = await asyncio.to_thread(self._credential.get_token, scope)
        except Exception as problem:
            raise ClientError(NO_TOKEN, f"no token for '{audience}': {problem}") from problem
        text = given.token.decode() if isinstance(given.token, bytes) else str(given.token)
        return Token(text, self._type, int(given.expires_on) * 1000)


def tokens_of(target: ConnectionString, lifetime_ms: int) -> TokenSource:
    """The source that a connection string or a credential stands for."""
    if target.credential is not None:
        return CredentialTokens(target.credential)
    if target.signature is not None:
        return ReadyToken(target.signature)
    return OwnTokens(target.policy or "", target.key or "", lifetime_ms)
