"""Whether the files of a namespace belong together, asked before any of them is changed.

What is in doubt is decided by `store.identity`; here files are looked at, and what an operator says is written down.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from twinbus.broker.datadir import DataDirectory
from twinbus.broker.opened import SetAsideError
from twinbus.broker.settings import SettingsError
from twinbus.entities.quarantine import placed
from twinbus.model.errors import BusError, Fault
from twinbus.store import identity_file
from twinbus.store.catalog import CatalogFile, EntityRow
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

_BESIDE = ("", "-wal", "-shm")  # A database is these files, and none of them without the others.


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


class StoreFiles:
    """The files of the stores in a directory."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory

    def place(self, index: int) -> Place:
        """Where a store is."""
        return Place(index, self._directory.store(index).name)

    def is_there(self, index: int) -> bool:
        """Whether there is a file with something in it."""
        return identity_file.is_there(str(self._directory.store(index)))

    def identity(self, index: int) -> StoreIdentity | None:
        """Who the file says that it is; None if there is none, or if it does not say."""
        return identity_file.read(str(self._directory.store(index))) if self.is_there(index) else None

    def identities(self) -> list[StoreIdentity]:
        """Of all files that can be read; the others are judged when they are opened."""
        found = []
        for index in self._directory.present():
            try:
                identity = self.identity(index)
            except BusError:
                continue
            if identity is not None:
                found.append(identity)
        return found

    def check_catalog_is_there(self, wanted: int | None) -> None:
        """Stores without a catalog are no new namespace."""
        catalog = self._directory.catalog
        log = Path(f"{catalog}-wal")
        if catalog.exists() and (catalog.stat().st_size or (log.exists() and log.stat().st_size)):
            return
        present = [index for index in self._directory.present() if self.is_there(index)]
        if not present:
            return
        names = ", ".join(self._directory.store(index).name for index in present)
        raise SettingsError(
            f"{catalog} is missing or empty, and messaging stores are there: {names}. Without the catalog nobody knows"
            " their entities and keys. Put catalog.db back, or have it made anew from what the stores remember:"
            f" twinbus catalog rebuild {self._directory.path}. Nothing was changed."
        )

    def move_away(self, index: int) -> str:
        """Put what lies in a store's place out of the way; what it is called now, empty if there was nothing."""
        return self._move(self._directory.store(index))

    def move_catalog_away(self) -> str:
        """The same for the catalog."""
        return self._move(self._directory.catalog)

    def _move(self, path: Path) -> str:
        suffix = f".replaced-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
        moved = ""
        for beside in _BESIDE:
            file = Path(f"{path}{beside}")
            if file.exists():
                # The log goes with its database, whose name it must begin with.
                target = Path(f"{path}{suffix}{beside}")
                file.rename(target)
                moved = moved or target.name
        return moved


class Belongings:
    """What the catalog knows of the stores, and what they say."""

    def __init__(self, files: StoreFiles, catalog: CatalogFile, meta: Mapping[str, str]) -> None:
        self._files = files
        self._generation = catalog.generation
        self.known = known_stores(meta)
        self.namespace = meta.get(NAMESPACE_KEY, "")
        self._found = files.identities()
        if not self.namespace:
            # Made before namespaces had ids. Stores that have one are not its own.
            self.namespace = new_id()
            if not self._found:
                catalog.note({NAMESPACE_KEY: self.namespace})
        self._noted = dict(self.known)
        self.doubts: dict[int, StoreDoubt] = {}

    def check_catalog(self) -> None:
        """Refuse a catalog that does not fit the stores."""
        problem = judge_catalog(self.namespace, self._generation, self._found)
        if problem is not None:
            raise SettingsError(
                f"{problem} Put the right files back; or say that this catalog is the right one: `twinbus catalog"
                " accept`; or have one made from what the stores remember: `twinbus catalog rebuild`. Nothing was"
                " changed."
            )

    def check_store(self, index: int) -> Belonging:
        """Whether the store in this place may be opened; SetAsideError if not, and nothing was changed."""
        self.doubts.pop(index, None)
        known, found = self.known.get(index), self._files.identity(index)
        if found is not None or not (known is not None and known.is_new):
            place, is_there = self._files.place(index), self._files.is_there(index)
            self._refuse(index, judge_store(place, self.namespace, known, found, is_there=is_there))
        return Belonging(self.namespace, known.store if known is not None else new_id())

    def check_held(self, index: int, expected: Mapping[int, str], held: Iterable[int]) -> None:
        """Whether a store holds what the catalog has on it."""
        known = self.known.get(index)
        if known is not None and not known.is_incomplete:
            lacking = {path for number, path in expected.items() if number not in set(held)}
            self._refuse(index, judge_missing(self._files.place(index), lacking))

    def _refuse(self, index: int, doubt: StoreDoubt | None) -> None:
        if doubt is not None:
            self.doubts[index] = doubt
            raise SetAsideError(doubt.text)

    # What is noted in the catalog

    def opened(self, identity: StoreIdentity) -> None:
        """A store is served."""
        known = self.known.get(identity.number, KnownStore(identity.store))
        self.known[identity.number] = known._replace(openings=identity.openings, journal=identity.journal)

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
        doubt = self.doubts.get(index)
        found = self._files.identity(index)
        if not self._files.is_there(index) or (doubt is not None and doubt.kind in (Doubt.FOREIGN, Doubt.SWAPPED)):
            text = "there is none" if doubt is None else f"it is {doubt.kind.value}"
            raise BusError(Fault.NOT_ALLOWED, f"Messaging store {index} cannot be accepted: {text}.")
        if found is None:
            return self._say(index, KnownStore(new_id(), is_incomplete=True))
        return self._say(index, KnownStore(found.store, found.openings, found.journal, is_incomplete=True))

    def replace(self, index: int) -> dict[str, str]:
        """An empty store in this place is the right one."""
        return self._say(index, KnownStore(new_id(), is_incomplete=True))

    def _say(self, index: int, known: KnownStore) -> dict[str, str]:
        self.known[index] = known
        return self.news()
