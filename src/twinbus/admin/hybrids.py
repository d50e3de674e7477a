"""Hybrid connections in the JSON API: `/$api/hybrid-connections` lists them, and below it each is made, shown, removed.

What is relayed through them is the relay's business, of which only this much is known here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web

from twinbus.admin.asked import Asked, Document
from twinbus.entities.hybrid import HybridConnection
from twinbus.entities.namespace import Namespace
from twinbus.model.errors import BusError, Fault
from twinbus.model.hybrid import HybridConnectionDescription
from twinbus.model.security import NAMED_RIGHTS, AuthorizationRule, Rights

_LIST, _ONE = "hybrid-connections", r"hybrid-connections/(.+)"


class Relay(Protocol):
    """The relay as the HTTP door sees it."""

    def answering(self, request: web.Request, /) -> Awaitable[web.StreamResponse] | None:
        """The answer to a request that is for a hybrid connection; None for any other."""
        ...

    def listener_count(self, hybrid: HybridConnection, /) -> int:
        """How many listen at it."""
        ...


class HybridRoutes:
    """The routes about hybrid connections."""

    def __init__(self, namespace: Namespace, relay: Relay | None) -> None:
        self._namespace = namespace
        self._relay = relay
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document]]] = {
            ("GET", _LIST): self._list,
            ("GET", _ONE): self._get,
            ("PUT", _ONE): self._put,
            ("DELETE", _ONE): self._delete,
        }

    async def _list(self, asked: Asked) -> Document:
        return {"hybrid_connections": [self._document(hybrid) for hybrid in self._namespace.hybrids.all()]}

    async def _get(self, asked: Asked) -> Document:
        return self._document(self._namespace.hybrids.get(asked.open[0]))

    async def _put(self, asked: Asked) -> Document:
        """Make one, or replace the description of the one that is there."""
        hybrids = self._namespace.hybrids
        description = _description(asked.open[0], asked.body)
        known = hybrids.find(description.name)
        made = await (hybrids.create(description) if known is None else hybrids.update(description))
        for tell in self._namespace.on_rules_changed if known is not None else ():
            tell()
        return self._document(made)

    async def _delete(self, asked: Asked) -> Document:
        hybrid = self._namespace.hybrids.get(asked.open[0])
        await self._namespace.hybrids.delete(hybrid.path)
        return {"deleted": hybrid.path}

    def _document(self, hybrid: HybridConnection) -> Document:
        description = hybrid.description
        return {
            "name": hybrid.path,
            "requires_client_authorization": description.requires_client_authorization,
            "user_metadata": description.user_metadata,
            "listeners": 0 if self._relay is None else self._relay.listener_count(hybrid),
            "policies": [_policy(rule) for rule in description.authorization_rules],
        }


def _policy(rule: AuthorizationRule) -> Document:
    rights = (
        ["Manage"]
        if rule.rights == Rights.ALL
        else [name for name, right in NAMED_RIGHTS.items() if right & rule.rights and right != Rights.ALL]
    )
    return {
        "name": rule.name,
        "rights": rights,
        "primary_key": rule.primary_key,
        "secondary_key": rule.secondary_key,
    }


def _description(name: str, body: Document) -> HybridConnectionDescription:
    """What a body asks for; keys that are not given are what a new hybrid connection has."""
    given = dict(body)
    requires = given.pop("requires_client_authorization", True)
    metadata = given.pop("user_metadata", None)
    policies = given.pop("policies", [])
    if given:
        raise BusError(Fault.ARGUMENT, f"'{next(iter(given))[:40]}' is not known here.")
    if not isinstance(requires, bool) or not isinstance(metadata, str | None) or not isinstance(policies, list):
        raise BusError(
            Fault.ARGUMENT,
            "'requires_client_authorization' is true or false, 'user_metadata' a text, and 'policies' a list.",
        )
    return HybridConnectionDescription(
        name=name,
        requires_client_authorization=requires,
        user_metadata=metadata,
        authorization_rules=tuple(_rule(policy) for policy in policies),
    )


def _rule(policy: Any) -> AuthorizationRule:
    match policy:
        case {"name": str(name), "rights": [*rights], "primary_key": str(primary)} if (
            set(rights) <= NAMED_RIGHTS.keys()
        ):
            granted = Rights(0)
            for right in rights:
                granted |= NAMED_RIGHTS[right]
            secondary = policy.get("secondary_key", primary)
            if isinstance(secondary, str):
                return AuthorizationRule(name, primary, secondary, granted)
    raise BusError(
        Fault.ARGUMENT,
        "A policy has a 'name', 'rights' out of Listen, Send and Manage, a 'primary_key', maybe a 'secondary_key'.",
    )
