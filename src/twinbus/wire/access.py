"""Who may do what: turns a token, or a policy's name and key, into a grant of rights on a path for a time.

The rules come from whoever keeps them, through a function; what to do on a lapse is the doors' affair.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.wire import sas

RulesFor = Callable[[str], Sequence[AuthorizationRule]]


class Guarded(Protocol):
    """Something with policies: a namespace."""

    def rules_for(self, path: str) -> Sequence[AuthorizationRule]:
        """The policies that can grant something on a path."""
        ...


G = TypeVar("G", bound=Guarded)
NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on a path and everything below it. `renewed` tells whether they still hold after a change of rules."""

    scope: tuple[str, ...]  # Path segments in lower case; empty for the whole namespace.
    rights: Rights
    expires_at_ms: int
    policy: str
    credential: str = field(repr=False)

    def allows(self, path: str, right: Rights) -> bool:
        """Whether this grant gives a right on a path."""
        return right in self.rights and _segments(path)[: len(self.scope)] == self.scope


def by_token(text: str, audience: str, rules_for: RulesFor, now_ms: int) -> Grant:
    """Check a shared access signature for an audience; AUTHENTICATION_FAILED in one sentence that tells no secret."""
    token = sas.parse(text)
    if token.expired(now_ms):
        raise BusError(Fault.AUTHENTICATION_FAILED, "The token has expired.")
    if not sas.covers(token.resource, audience):
        raise BusError(Fault.AUTHENTICATION_FAILED, "The token is for another resource.")
    # A rule must sit on the token's own resource or above it: an entity's rule cannot sign for the namespace.
    path = _entity_path(sas.path_of(token.resource))
    # Whoever signs the address of an entity's messages over HTTP signs for something below the entity.
    above = [path[: found.start()] for found in re.finditer(r"/messages(?=/|$)", path, re.IGNORECASE)][-1:]
    for rule in [rule for part in (path, *above) for rule in rules_for(part)]:
        if rule.name == token.policy and sas.verify(token, rule.keys):
            scope = _segments(sas.path_of(audience))
            return Grant(scope, rule.rights, token.expires_at_s * 1000, rule.name, text)
    raise BusError(Fault.AUTHENTICATION_FAILED, "The token's policy or signature is not valid here.")


def by_key(policy: str, key: str, rules_for: RulesFor) -> Grant:
    """Check a namespace policy's name and key (SASL PLAIN); the grant is for the whole namespace and does not lapse."""
    for rule in rules_for(""):
        if rule.name == policy and _is_one_of(key, rule.keys):
            return Grant((), rule.rights, NEVER_MS, policy, key)
    raise BusError(Fault.AUTHENTICATION_FAILED, "The policy name or key is not valid here.")


def everywhere(places: Sequence[G], check: Callable[[RulesFor], Grant]) -> list[tuple[G, Grant]]:
    """The places in which a credential is good, at least one; AUTHENTICATION_FAILED if it is good in none."""
    found: list[tuple[G, Grant]] = []
    refusal = BusError(Fault.AUTHENTICATION_FAILED, "There is no namespace here.")
    for place in places:
        try:
            found.append((place, check(place.rules_for)))
        except BusError as error:
            refusal = error
    if not found:
        raise refusal
    return found


def where(places: Sequence[G], check: Callable[[RulesFor], Grant]) -> tuple[G, Grant]:
    """The place in which a credential is good. One that is good in several does not tell, and is refused."""
    found = everywhere(places, check)
    if len(found) > 1:
        raise BusError(
            Fault.AUTHENTICATION_FAILED,
            "The key is good in several namespaces, and the host name does not tell which one is meant.",
        )
    return found[0]


def _is_one_of(key: str, known: Sequence[str]) -> bool:
    """Compares with every key, in constant time."""
    matched = False
    for candidate in known:
        matched |= hmac.compare_digest(key.encode("utf-8", "surrogatepass"), candidate.encode())
    return matched


def renewed(grant: Grant, audience: str | None, rules_for: RulesFor, now_ms: int) -> Grant | None:
    """The grant as it is after the rules changed; None if its key is gone or its time is over."""
    try:
        if audience is None:
            return by_key(grant.policy, grant.credential, rules_for)
        return by_token(grant.credential, audience, rules_for, now_ms)
    except BusError:
        return None


def _segments(path: str) -> tuple[str, ...]:
    return tuple(segment for segment in path.lower().split("/") if segment)


def _entity_path(path: str) -> str:
    """The path of the entity itself, without a sub-queue, management node or subscription below it."""
    kept = []
    for segment in path.split("/"):
        if segment.startswith("$") or segment.lower() == "subscriptions":
            break
        kept.append(segment)
    return "/".join(kept)
