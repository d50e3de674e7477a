"""A namespace whose catalog is lost or in doubt, mended by an operator's word while nobody serves it.

A catalog is made anew from what the stores remember, or one that is older than its stores is declared to be right. One
flow for files and databases: they differ in where the stores are and how a catalog takes another's place (`Mended`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from twinbus.broker.belonging import identities, new_id, placed_on
from twinbus.broker.datadir import DataDirectory
from twinbus.broker.settings import SettingsError
from twinbus.broker.store_files import StoreFiles
from twinbus.model.errors import BusError
from twinbus.store import recollection
from twinbus.store.catalog import CatalogFile, EntityRow
from twinbus.store.identity import NAMESPACE_KEY, STORE_KEY, KnownStore, Place, StoreIdentity
from twinbus.store.recollection import Remains

# Nobody knows which numbers the entities of a missing store have, so that as many are passed over.
NUMBERS_PASSED = 65_536


class Catalog(Protocol):
    """What is written of a catalog."""

    def note(self, values: Mapping[str, str]) -> None:
        """Keep what is known of the namespace and its stores."""
        ...

    def put(self, row: EntityRow) -> object:
        """Add an entity."""
        ...

    def keep_ids_above(self, number: int) -> None:
        """Give out no number up to this one."""
        ...

    def raise_generation(self, least: int) -> None:
        """Go on counting changes from there at least."""
        ...


class Mended(Protocol):
    """Where a namespace is that nobody serves meanwhile."""

    @property
    def label(self) -> str:
        """Where that is, for people."""
        ...

    def place(self, index: int) -> Place:
        """Where a store is, for people."""
        ...

    def stores(self) -> dict[int, Remains]:
        """What each store says of itself and remembers; raises if one that is there cannot be read."""
        ...

    def identities(self) -> list[StoreIdentity]:
        """Who the stores say that they are, those that can be read."""
        ...

    def catalog(self) -> AbstractContextManager[Catalog]:
        """The catalog that is there; raises if there is none."""
        ...

    def replace_catalog(self, fill: Callable[[Catalog], None]) -> str:
        """Make a new one; once it is filled, it takes the place of what was there. Where that went, or nothing."""
        ...


class Rebuilt(NamedTuple):
    """What a catalog that was made anew has."""

    entities: list[str]
    unknown: int  # Entities that their stores hold without a description, or had set aside: they will be set aside.
    missing: list[int]  # Stores that there were, and that are not there now.
    moved_to: str  # Where the catalog went that was there, if one was.


def rebuild(mended: Mended) -> Rebuilt:
    """Make the catalog anew. Policies and hybrid connections are not in the stores: keys will be new."""
    found = mended.stores()
    if not found:
        raise SettingsError(f"{mended.label} holds no messaging stores.")
    namespace = _one_namespace(found)
    for index, (identity, _) in found.items():
        if identity is not None and identity.number not in (index, -1):
            raise SettingsError(
                f"{mended.place(index).where} is messaging store {identity.number}: put it in its place first."
            )
    rows, unknown = _rows(found)
    missing = sorted({*range(max(found)), *placed_on(rows)} - found.keys())
    known = dict.fromkeys(missing, KnownStore(""))
    for index, (identity, _) in found.items():
        if identity is not None:
            known[index] = KnownStore(identity.store, identity.openings, identity.journal)

    def fill(catalog: Catalog) -> None:
        values = {STORE_KEY.format(index): store.to_text() for index, store in sorted(known.items())}
        catalog.note({NAMESPACE_KEY: namespace, **values})
        for row in rows:
            catalog.put(row)
        highest = max((each.entity for remains in found.values() for each in remains.entities), default=0)
        catalog.keep_ids_above(highest + (NUMBERS_PASSED if missing else 0))
        catalog.raise_generation(_behind(identity for identity, _ in found.values()))

    moved = mended.replace_catalog(fill)
    return Rebuilt([row.name for row in rows], unknown, missing, moved)


def accept(mended: Mended) -> None:
    """Declare the catalog to be right: it counts its changes from where the stores are."""
    with mended.catalog() as catalog:
        catalog.raise_generation(_behind(mended.identities()))


def _behind(stores: Iterable[StoreIdentity | None]) -> int:
    """The first change of the catalog that no store has heard of."""
    return max((identity.generation for identity in stores if identity is not None), default=0) + 1


def _one_namespace(found: Mapping[int, Remains]) -> str:
    namespaces = {identity.namespace for identity, _ in found.values() if identity is not None} - {""}
    if len(namespaces) > 1:
        raise SettingsError(
            f"The messaging stores are of {len(namespaces)} namespaces, with the ids {', '.join(sorted(namespaces))}:"
            " leave those of one."
        )
    return namespaces.pop() if namespaces else new_id()


def _rows(found: Mapping[int, Remains]) -> tuple[list[EntityRow], int]:
    """The entities that are described, in the order of their numbers, and how many others there are."""
    names: dict[str, EntityRow] = {}
    unknown = 0
    for index, remains in sorted(found.items()):
        for each in remains.entities:
            if each.document is None or each.is_aside:
                unknown += 1
            elif each.fragment == 0 and each.path.lower() not in names:
                names[each.path.lower()] = EntityRow(each.entity, each.path, each.kind, index, each.document)
            elif each.fragment == 0:
                unknown += 1
    return sorted(names.values()), unknown


# Files


class MendedFiles:
    """A directory that this process holds."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._files = StoreFiles(directory)

    @property
    def label(self) -> str:
        """The directory."""
        return str(self._directory.path)

    def place(self, index: int) -> Place:
        """The file's name."""
        return self._files.place(index)

    def stores(self) -> dict[int, Remains]:
        """What the files remember."""
        found = {}
        for index in self._files.present():
            try:
                found[index] = recollection.read(str(self._directory.store(index)))
            except BusError as error:
                raise SettingsError(
                    f"{error.text}. Put the right file there, or move this one out of the directory: the catalog is"
                    " then made from the others, and what belongs to this store waits for it."
                ) from None
        return found

    def identities(self) -> list[StoreIdentity]:
        """Those of the files."""
        return identities(self._files)

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """The file."""
        if not self._files.has_catalog():
            raise SettingsError(
                f"{self._directory.catalog} is missing or empty: `twinbus catalog rebuild {self.label}` makes one."
            )
        with closing(CatalogFile(str(self._directory.catalog))) as catalog:
            yield catalog

    def replace_catalog(self, fill: Callable[[Catalog], None]) -> str:
        """Filled under another name, so that a kill leaves the old one, or none, and never half of the new one."""
        path = self._directory.catalog
        new = path.with_name(f"{path.name}.new")
        _remove(new)
        try:
            with closing(CatalogFile(str(new))) as catalog:
                fill(catalog)
            moved = self._files.move_catalog_away()
            new.rename(path)
        finally:
            _remove(new)
        return moved


def _remove(path: Path) -> None:
    """A database with what lies beside it."""
    for beside in ("", "-wal", "-shm", ".reserve"):
        with suppress(FileNotFoundError):
            Path(f"{path}{beside}").unlink()


@contextmanager
def mended_files(path: Path) -> Iterator[Mended]:
    """A directory, which must be there and which no broker uses."""
    if not path.is_dir():
        raise SettingsError(f"There is no directory {path}.")
    directory = DataDirectory(path)
    try:
        yield MendedFiles(directory)
    finally:
        directory.release()
