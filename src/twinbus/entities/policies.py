"""The policies of a namespace, kept in its catalog: replaced whole, durable first, and then everyone is told.

What becomes of them is decided in `model.policies`. Origins are written apart from the policies themselves, so that a
gateway of a version that does not know of them still reads its policies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from twinbus.entities.ports import CatalogPort, StorePort
from twinbus.entities.registry import Registry
from twinbus.model.clock import Clock
from twinbus.model.entity import check_rules
from twinbus.model.errors import BusError, Fault
from twinbus.model.policies import Decision, Origins, Rules, read_origins, write_origins
from twinbus.model.security import AuthorizationRule

RULES_KEY = "authorization-rules"
ORIGINS_KEY = "policy-origins"

Change = Callable[[Rules, Origins | None], Rules]
Decide = Callable[[Rules, Origins | None], Decision]


class Guarded(Registry):
    """A registry whose policies can be changed."""

    def __init__(self, name: str, clock: Clock, stores: Sequence[StorePort], catalog: CatalogPort) -> None:
        super().__init__(name, clock, stores)
        self._catalog = catalog
        self.origins: Origins | None = None  # None: the catalog is of before they were kept.
        self._is_changing = False

    def take_policies(self, meta: Mapping[str, str]) -> bool:
        """Take over what the catalog holds; whether there were policies in it."""
        if ORIGINS_KEY in meta:
            self.origins = read_origins(meta[ORIGINS_KEY])
        if RULES_KEY in meta:
            self.rules = tuple(AuthorizationRule.from_document(each) for each in json.loads(meta[RULES_KEY]))
        return RULES_KEY in meta

    async def set_rules(self, rules: Sequence[AuthorizationRule]) -> None:
        """Replace the namespace's policies; whoever used a key that is gone loses access at once."""
        await self._replace_rules(self.rules, tuple(rules))

    async def change_policies(self, change: Change) -> None:
        """Make others of the present policies. SERVER_BUSY if somebody else changes them at the same time."""
        with self._alone():
            before = self.rules
            after = change(before, self.origins)
            # First what is removed loses its origin: another policy of its name will have been made through the API.
            await self._set_origins(_of_those(self.origins, after))
            await self._replace_rules(before, after)

    async def follow_settings(self, decide: Decide) -> Decision:
        """Make the policies what the settings say, at a start. SERVER_BUSY as in `change_policies`."""
        with self._alone():
            before, origins = self.rules, self.origins
            decision = decide(before, origins)
            # Origins are written before and after: whatever a crash leaves, no policy of a file passes for another's.
            await self._set_origins({**(origins or {}), **decision.origins})
            if decision.rules != before:
                await self._replace_rules(before, decision.rules)
            await self._set_origins(decision.origins)
            return decision

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Two changes that are made from the same policies would lose one of them."""
        if self._is_changing:
            raise _changed_meanwhile()
        self._is_changing = True
        try:
            yield
        finally:
            self._is_changing = False

    async def _replace_rules(self, before: Rules, after: Rules) -> None:
        check_rules(after)
        if self.rules is not before:  # Another gateway's change was taken over while the origins were written.
            raise _changed_meanwhile()
        await self._catalog.set_meta(RULES_KEY, json.dumps([rule.to_document() for rule in after]))
        self.rules = after
        for tell in self.on_rules_changed:
            tell()

    async def _set_origins(self, origins: Origins) -> None:
        if origins != self.origins:
            await self._catalog.set_meta(ORIGINS_KEY, write_origins(origins))
            self.origins = origins


def _of_those(origins: Origins | None, rules: Rules) -> Origins:
    names = {rule.name.lower() for rule in rules}
    return {name: each for name, each in (origins or {}).items() if name in names}


def _changed_meanwhile() -> BusError:
    return BusError(Fault.SERVER_BUSY, "The policies of the namespace are being changed by somebody else; retry.")
