"""Who may do what: turns a token, or a policy's name and key, into a grant of rights on a path for a time.

The rules come from whoever keeps them, through a function; what to do on a lapse is the doors' affair.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.wire import sas

RulesFor = Callable[[str], Sequence[AuthorizationRule]]
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
    for rule in rules_for(_entity_path(sas.path_of(token.resource))):
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
