"""Whose hybrid connection a request is about, and whether its token lets it listen or send there.

Tokens are looked for in three places. What a signature is worth is `wire.access`' business.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from aiohttp import web

from twinbus.entities.hosting import Hosting
from twinbus.entities.hybrid import HybridConnection
from twinbus.entities.namespace import Namespace
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.security import Rights
from twinbus.relay.headers import TOKEN_HEADER, TOKEN_PARAMETER
from twinbus.wire import access, sas

SOCKET_PREFIX = "/$hc/"


class RefusedError(Exception):
    """A request that the relay itself answers, with a status and a sentence."""

    def __init__(self, status: int, text: str, *, is_listeners: bool = False) -> None:
        """`is_listeners`: a listener decided so, and the answer says it."""
        super().__init__(text)
        self.status = status
        self.text = text
        self.is_listeners = is_listeners


class Target(NamedTuple):
    """What a request is about."""

    namespace: Namespace
    hybrid: HybridConnection
    path: str  # As it was asked for, perhaps with more behind the hybrid connection's own.


def path_in(request: web.Request) -> str:
    """The path that is meant, without the relay's prefix and outer slashes."""
    raw = request.rel_url.raw_path
    raw = raw[len(SOCKET_PREFIX) :] if raw.lower().startswith(SOCKET_PREFIX) else raw
    return unquote(raw).strip("/")


def _tokens(request: web.Request) -> list[str]:
    """What may prove a right, the relay's own places first."""
    found = [request.query.get(TOKEN_PARAMETER), request.headers.get(TOKEN_HEADER)]
    authorization = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if authorization.startswith(sas.PREFIX):
        found.append(authorization)
    return [token for token in found if token]


def asks_relay(request: web.Request) -> bool:
    """Whether a request brings a token where only a relay looks for it."""
    return TOKEN_PARAMETER in request.query or TOKEN_HEADER in request.headers


def strips_authorization(request: web.Request, hybrid: HybridConnection) -> bool:
    """Whether the Authorization header was for the relay: it asks for a token, and found none elsewhere."""
    if not hybrid.description.requires_client_authorization:
        return False
    return not asks_relay(request)


class Gatekeeper:
    """Answers both questions."""

    def __init__(self, hosting: Hosting, clock: Clock) -> None:
        """`clock` is the one that tokens are made by."""
        self._hosting = hosting
        self._clock = clock

    def find(self, request: web.Request) -> Target | None:
        """The hybrid connection at a request's path; None if it is about something else."""
        path = path_in(request)
        named = self._hosting.by_host(request.host)
        places = self._hosting.namespaces if named is None else (named,)
        found = [
            Target(namespace, hybrid, path)
            for namespace in places
            if (hybrid := namespace.hybrids.above(path)) is not None
        ]
        tokens = _tokens(request)
        if named is not None or not found or not tokens:
            return found[0] if len(found) == 1 else None
        # The host name does not tell, but the key may.
        for target in found:
            if any(self._grant(target, request, token) for token in tokens):
                return target
        return found[0] if len(found) == 1 and len(self._hosting.namespaces) == 1 else None

    def _grant(self, target: Target, request: web.Request, token: str) -> access.Grant | None:
        try:
            return self.check(target, self.audience(target, request), token)
        except BusError:
            return None

    @staticmethod
    def audience(target: Target, request: web.Request) -> str:
        """What a token must be for."""
        return f"http://{request.host}/{target.path}"

    def check(self, target: Target, audience: str, token: str) -> access.Grant:
        """What a token grants."""
        return access.by_token(token, audience, target.namespace.rules_for, self._clock.now_ms())

    def admit(self, request: web.Request, target: Target, right: Rights) -> access.Grant | None:
        """The grant under which a request goes on; None for a sender who needs none."""
        if right is Rights.SEND and not target.hybrid.description.requires_client_authorization:
            return None
        tokens = _tokens(request)
        if not tokens:
            raise RefusedError(401, "The request has no token: neither sb-hc-token nor ServiceBusAuthorization.")
        try:
            return self.granted(target, self.audience(target, request), tokens[0], right)
        except BusError as error:
            status = 403 if error.fault is Fault.UNAUTHORIZED else 401
            raise RefusedError(status, error.text) from None

    def granted(self, target: Target, audience: str, token: str, right: Rights) -> access.Grant:
        """The grant of a token that must give a right."""
        grant = self.check(target, audience, token)
        if not grant.allows(sas.path_of(audience), right):
            raise BusError(Fault.UNAUTHORIZED, f"The {str(right.name).capitalize()} right is required here.")
        return grant

    def now_ms(self) -> int:
        """By the clock that tokens are made by."""
        return self._clock.now_ms()

    def seconds_left(self, grant: access.Grant) -> float:
        """How long a grant lasts."""
        return max(grant.expires_at_ms - self._clock.now_ms(), 0) / 1000
