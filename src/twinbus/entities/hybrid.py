"""The hybrid connections of a namespace: made, changed, removed and found, durable before they are visible.

They hold no messages and are on no store; one store's journal is told what is done with them. Listeners and senders
are `relay`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

from twinbus.entities.ports import CatalogPort
from twinbus.model import limits
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.hybrid import (
    HybridConnectionDescription,
    check_hybrid,
    hybrid_from_document,
    hybrid_to_document,
)
from twinbus.store.catalog import EntityRow

KIND = "hybrid-connection"


class HybridConnection:
    """One hybrid connection; its number is its own among all entities of the namespace."""

    def __init__(self, number: int, store_index: int, description: HybridConnectionDescription) -> None:
        self.id = number
        self.store_index = store_index  # Whose journal has what is done with it.
        self.description = description

    @property
    def path(self) -> str:
        """The address below the namespace."""
        return self.description.name

    def row(self, description: HybridConnectionDescription) -> EntityRow:
        """The catalog's row of it, with this description."""
        document = json.dumps(hybrid_to_document(description))
        return EntityRow(self.id, description.name, KIND, self.store_index, document)


class HybridConnections:
    """All of them. Names are shared with queues and topics, whom `other_names` tells."""

    def __init__(
        self, catalog: CatalogPort, clock: Clock, store_count: int, other_names: Callable[[], Iterable[str]]
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._store_count = store_count
        self._other_names = other_names
        self._by_name: dict[str, HybridConnection] = {}
        self._making: set[str] = set()
        self.on_deleted: list[Callable[[HybridConnection], None]] = []

    # Looking up

    def find(self, path: str) -> HybridConnection | None:
        """The one of that name, whatever its case."""
        return self._by_name.get(path.lower())

    def above(self, path: str) -> HybridConnection | None:
        """The one that a path belongs to: of that name, or of the longest name above it."""
        if not self._by_name:
            return None
        key = path.lower().strip("/")
        while key:
            found = self._by_name.get(key)
            if found is not None:
                return found
            key = key.rpartition("/")[0]
        return None

    def get(self, path: str) -> HybridConnection:
        """The one of that name, or the fault that it does not exist."""
        found = self.find(path)
        if found is None:
            raise BusError(Fault.ENTITY_NOT_FOUND, f"The hybrid connection '{path}' could not be found.")
        return found

    def all(self) -> list[HybridConnection]:
        """All of them, by name."""
        return [hybrid for _, hybrid in sorted(self._by_name.items())]

    def check_free(self, path: str) -> None:
        """Refuse a queue's or topic's name that a hybrid connection has, or that lies above or below one."""
        for name in (*self._by_name, *self._making):
            if overlap(path.lower(), name):
                raise BusError(Fault.ENTITY_EXISTS, f"'{path}' lies where the hybrid connection '{name}' is.")

    # Changing

    def adopt(self, row: EntityRow) -> HybridConnection:
        """Take over what the catalog holds: new, or with another description."""
        description = hybrid_from_document(json.loads(row.document))
        known = self._by_name.get(row.name.lower())
        if known is not None and known.id == row.id:
            known.description = description
            return known
        made = self._by_name[row.name.lower()] = HybridConnection(row.id, row.store, description)
        return made

    def keep_only(self, ids: set[int]) -> None:
        """Forget those that are no longer in the catalog."""
        for hybrid in self.all():
            if hybrid.id not in ids:
                self._forget(hybrid)

    async def create(self, description: HybridConnectionDescription) -> HybridConnection:
        """Make one: durable in the catalog, then visible."""
        check_hybrid(description)
        key = description.name.lower()
        if key in self._by_name or key in self._making:
            raise BusError(Fault.ENTITY_EXISTS, f"The hybrid connection '{description.name}' already exists.")
        taken = next((name for name in self._other_names() if overlap(key, name)), None)
        if taken is not None:
            raise BusError(Fault.ENTITY_EXISTS, f"'{description.name}' lies where '{taken}' is.")
        if len(self._by_name) >= limits.ENTITIES_MAX:
            raise BusError(Fault.QUOTA_EXCEEDED, f"A namespace has at most {limits.ENTITIES_MAX} hybrid connections.")
        self._making.add(key)
        try:
            number = await self._catalog.take_ids(1)
            now_ms = self._clock.now_ms()
            dated = replace(description, created_at_ms=now_ms, updated_at_ms=now_ms)
            made = HybridConnection(number, number % self._store_count, dated)
            await self._catalog.put(made.row(dated))
            self._by_name[key] = made
            return made
        finally:
            self._making.discard(key)

    async def update(self, description: HybridConnectionDescription) -> HybridConnection:
        """Replace a description; whoever listens or sends goes on as far as the new one lets them."""
        check_hybrid(description)
        hybrid = self.get(description.name)
        old = hybrid.description
        dated = replace(description, name=old.name, created_at_ms=old.created_at_ms, updated_at_ms=self._clock.now_ms())
        await self._catalog.put(hybrid.row(dated))
        hybrid.description = dated
        return hybrid

    async def delete(self, path: str) -> None:
        """Remove one; its listeners and senders are told."""
        hybrid = self.get(path)
        await self._catalog.remove(hybrid.id)
        self._forget(hybrid)

    def _forget(self, hybrid: HybridConnection) -> None:
        if self._by_name.pop(hybrid.path.lower(), None) is not None:
            for tell in self.on_deleted:
                tell(hybrid)


def overlap(one: str, other: str) -> bool:
    """Whether two names are the same, or one lies below the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
