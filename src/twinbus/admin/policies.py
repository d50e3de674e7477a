"""Policies of the namespace in the JSON API: `/$api/policies` lists them, and there they are made, changed and removed.

The list has no keys; one that is asked for by name has. What may be done to which is decided in `model.policies`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial

from twinbus.admin.asked import Asked, Document, nothing_else, text_in
from twinbus.admin.faults import HttpError
from twinbus.entities.namespace import Namespace
from twinbus.entities.policies import Change
from twinbus.model import policies
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.model.policies import PRIMARY, SECONDARY, Rotation, origin_of
from twinbus.model.security import NAMED_RIGHTS, AuthorizationRule, Rights
from twinbus.wire.policies import new_key, rights_named

_LIST, _ONE, _ROTATE = "policies", r"policies/(.+)", r"policies/(.+)/rotate"
_TRIES = 40
_PAUSE_S = 0.05

log = EventLog("twinbus.admin")


class PolicyRoutes:
    """The routes about policies of the namespace."""

    def __init__(self, namespace: Namespace, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._namespace = namespace
        self._new_key = partial(new_key, random_bytes)
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document]]] = {
            ("GET", _LIST): self._list,
            ("POST", _LIST): self._add,
            ("POST", _ROTATE): self._rotate,
            ("GET", _ONE): self._get,
            ("PUT", _ONE): self._set_rights,
            ("DELETE", _ONE): self._remove,
        }

    async def _list(self, asked: Asked) -> Document:
        return {"policies": [self._document(rule) for rule in self._namespace.rules]}

    async def _get(self, asked: Asked) -> Document:
        return self._whole(asked.open[0])

    async def _add(self, asked: Asked) -> Document:
        """One more; keys that are not given are made."""
        name, rights = text_in(asked.body, "name"), _rights(asked.body)
        primary = text_in(asked.body, PRIMARY, self._new_key())
        secondary = text_in(asked.body, SECONDARY, self._new_key())
        nothing_else(asked.body)
        new = AuthorizationRule(name, primary, secondary, rights)
        await self._change("was made", name, lambda rules, _: policies.added(rules, new))
        return self._whole(name)

    async def _set_rights(self, asked: Asked) -> Document:
        (name,), rights = asked.open, _rights(asked.body)
        nothing_else(asked.body)
        await self._change(
            "has other rights",
            name,
            lambda rules, origins: policies.with_rights(rules, origins, name, rights),
        )
        return self._whole(name)

    async def _rotate(self, asked: Asked) -> Document:
        (name,), word = asked.open, text_in(asked.body, "key", Rotation.SHIFT.value)
        nothing_else(asked.body)
        try:
            rotation = Rotation(word)
        except ValueError:
            words = " or ".join(each.value for each in Rotation if each is not Rotation.SHIFT)
            raise BusError(Fault.ARGUMENT, f"'key' is {words}, or not given.") from None
        await self._change(
            "has new keys",
            name,
            lambda rules, origins: policies.rotated(rules, origins, name, rotation, self._new_key),
        )
        return self._whole(name)

    async def _remove(self, asked: Asked) -> Document:
        (name,) = asked.open
        gone = policies.named(self._namespace.rules, name).name
        await self._change("was removed", name, lambda rules, origins: policies.removed(rules, origins, name))
        return {"removed": gone}

    async def _change(self, what: str, name: str, change: Change) -> None:
        """Do it, again if somebody else was quicker: each time with the policies as they are then."""
        for left in reversed(range(_TRIES)):
            try:
                await self._namespace.change_policies(change)
                break
            except BusError as error:
                if error.fault is Fault.NOT_ALLOWED:
                    raise HttpError(409, error.text) from None
                if error.fault is not Fault.SERVER_BUSY or not left:
                    raise
                await asyncio.sleep(_PAUSE_S)
                await self._namespace.look_again()
        log.info(
            "policy.changed",
            "the policy {policy!a} of '{namespace}' {what}, through the API",
            namespace=self._namespace.name,
            policy=name[:100],
            what=what,
        )

    def _whole(self, name: str) -> Document:
        rule = policies.named(self._namespace.rules, name)
        return {**self._document(rule), PRIMARY: rule.primary_key, SECONDARY: rule.secondary_key}

    def _document(self, rule: AuthorizationRule) -> Document:
        origin = origin_of(self._namespace.origins, rule.name)
        return {
            "name": rule.name,
            "rights": rights_named(rule.rights),
            "came_from": origin.came_from.value,
            "given": list(origin.given),
        }


def _rights(body: Document) -> Rights:
    found = body.pop("rights", None)
    if not isinstance(found, list) or not found or not set(map(str, found)) <= NAMED_RIGHTS.keys():
        raise BusError(Fault.ARGUMENT, f"'rights' must be a list out of {', '.join(NAMED_RIGHTS)}.")
    granted = Rights(0)
    for right in found:
        granted |= NAMED_RIGHTS[right]
    return granted
