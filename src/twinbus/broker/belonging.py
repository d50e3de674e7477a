"""Whether what lies in a namespace's places belongs together, asked before any of it is changed.

One flow for files and databases: they differ in how a place is looked at (`Places`). What is in doubt is decided by
`store.identity`; what an operator says is written down in the catalog by whoever asked for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from twinbus.broker.opened import SetAsideError
from twinbus.broker.settings import SettingsError
from twinbus.entities.quarantine import placed
from twinbus.model.errors import BusError, Fault
from twinbus.store.catalog import EntityRow
from twinbus.store.identity import (
    NAMESPACE_KEY,
    STORE_KEY,
    Belonging,
    Doubt,
    KnownStore,
    Place,
    StoreDoubt,
    StoreIdentity,
    judge_catalog,
    judge_missing,
    judge_store,
    known_stores,
)


def new_id() -> str:
    """An id that nobody else has."""
    return os.urandom(16).hex()


def placed_on(rows: Iterable[EntityRow]) -> dict[int, dict[int, str]]:
    """What the catalog has on each store, by number."""
    found: dict[int, dict[int, str]] = {}
    for row in rows:
        if row.kind in ("queue", "topic", "subscription"):
            for number, index in placed(row).items():
                found.setdefault(index, {})[number] = row.name
    return found


class Look(NamedTuple):
    """What lies in a store's place."""

    is_there: bool
    identity: StoreIdentity | None = None  # None: it does not say.


class Places(Protocol):
    """Where the stores of a namespace are, looked at without changing anything."""

    remedies: str  # What an operator can do about a catalog in doubt.

    def catalog_label(self) -> str:
        """Where the catalog is, for people."""
        ...

    def namespace_id(self) -> str | None:
        """Who the catalog says that the namespace is; None if there is none, or it does not say."""
        ...

    def place(self, index: int) -> Place:
        """Where a store is, for people."""
        ...

    def look(self, index: int) -> Look:
        """What is there; raises why it cannot be looked at."""
        ...

    def present(self) -> Iterable[int]:
        """The stores that may be there."""
        ...

    def known(self) -> Mapping[int, KnownStore]:
        """What the catalog has learned of the stores since it was loaded, through somebody else."""
        ...

    def reached(self, index: int, store: str) -> int:
        """How far the journal of the store with this id was, as far as its place remembers; 0 if it does not."""
        ...

    def begin_anew(self, index: int) -> None:
        """Forget how far the store in this place was: an operator has said that what lies there is right."""
        ...

    def move_away(self, index: int) -> str:
        """Put what lies in a store's place out of the way; what it is called now, empty if there was nothing."""
        ...


def check_namespace(places: Places, expected: str | None) -> None:
    """Refuse to serve, or to make, any other namespace than the one that the settings name."""
    found = places.namespace_id() if expected is not None else None
    if found == expected:
        return
    what = f"has the id {found}" if found is not None else "is not there, or has no id yet"
    raise SettingsError(
        f"The namespace at {places.catalog_label()} {what}; --namespace-id or the configuration file says {expected}."
        " Give the right directory or address; or leave the id out, if this is the one. Nothing was changed."
    )


def identities(places: Places) -> list[StoreIdentity]:
    """Who the stores say that they are, those that can be looked at; the others are judged when they are opened."""
    found = []
    for index in places.present():
        with suppress(BusError):
            found.append(places.look(index).identity)
    return [each for each in found if each is not None]


class Belongings:
    """What the catalog knows of the stores, and what they say."""

    def __init__(self, places: Places, meta: Mapping[str, str], rows: Iterable[EntityRow]) -> None:
        self._places = places
        self.known = known_stores(meta)
        self._noted = dict(self.known)
        self.is_new = NAMESPACE_KEY not in meta  # Or from before namespaces had ids; stores that have one are others'.
        self.namespace = meta.get(NAMESPACE_KEY) or new_id()
        self.doubts: dict[int, StoreDoubt] = {}
        on_stores = placed_on(rows)
        # What a store must hold; the namespace knows better once it is there.
        self.expected: Callable[[int], Mapping[int, str]] = lambda index: on_stores.get(index, {})

    def check_catalog(self, generation: int) -> None:
        """Refuse a catalog that does not fit the stores."""
        problem = judge_catalog(self.namespace, generation, identities(self._places))
        if problem is not None:
            raise SettingsError(f"{problem} {self._places.remedies} Nothing was changed.")

    def check_store(self, index: int) -> Belonging:
        """Whether the store in this place may be opened; SetAsideError if not, and nothing was changed."""
        self.doubts.pop(index, None)
        self.known.update(self._places.known())
        known, found = self.known.get(index), self._places.look(index)
        if known is not None:
            known = known._replace(journal=max(known.journal, self._places.reached(index, known.store)))
        if found.identity is not None or not (known is not None and known.is_new):
            place = self._places.place(index)
            self._refuse(index, judge_store(place, self.namespace, known, found.identity, is_there=found.is_there))
        return Belonging(self.namespace, known.store if known is not None else new_id())

    def check_held(self, index: int, held: Iterable[int]) -> None:
        """Whether a store holds what the catalog has on it."""
        known = self.known.get(index)
        if known is not None and not known.is_incomplete:
            there = set(held)
            lacking = {path for number, path in self.expected(index).items() if number not in there}
            self._refuse(index, judge_missing(self._places.place(index), lacking))

    def _refuse(self, index: int, doubt: StoreDoubt | None) -> None:
        if doubt is not None:
            self.doubts[index] = doubt
            raise SetAsideError(doubt.text)

    # What is noted in the catalog

    def opened(self, identity: StoreIdentity) -> None:
        """A store is served."""
        known = self.known.get(identity.number, KnownStore(identity.store))
        self.known[identity.number] = known._replace(
            store=identity.store, openings=identity.openings, journal=identity.journal
        )

    def reached(self, index: int, journal: int) -> None:
        """A store is up to there, with everything that the catalog has on it."""
        self.known[index] = self.known[index]._replace(journal=journal, is_incomplete=False)

    def news(self) -> dict[str, str]:
        """What the catalog does not know yet."""
        changed = {index: known for index, known in self.known.items() if self._noted.get(index) != known}
        self._noted.update(changed)
        return {STORE_KEY.format(index): known.to_text() for index, known in changed.items()}

    def accept(self, index: int) -> dict[str, str]:
        """The store in this place is the right one, whatever the catalog knew; it may lack entities."""
        doubt, found = self.doubts.get(index), self._places.look(index)
        if not found.is_there or (doubt is not None and doubt.kind in (Doubt.FOREIGN, Doubt.SWAPPED)):
            text = "there is none" if doubt is None else f"it is {doubt.kind.value}"
            raise BusError(Fault.NOT_ALLOWED, f"Messaging store {index} cannot be accepted: {text}.")
        if found.identity is None:
            self.known[index] = KnownStore(new_id(), is_incomplete=True)
        else:
            _, store, _, _, openings, journal = found.identity
            self.known[index] = KnownStore(store, openings, journal, is_incomplete=True)
        self._places.begin_anew(index)
        return self.news()

    def replace(self, index: int) -> tuple[str, dict[str, str]]:
        """An empty store in this place is the right one; where the one went that lay there."""
        moved = self._places.move_away(index)
        self.known[index] = KnownStore(new_id(), is_incomplete=True)
        return moved, self.news()
