"""A namespace whose catalog is lost or in doubt, mended by an operator's word while no broker uses its directory.

A catalog is made anew from what the stores remember, or one that is older than its stores is declared to be right.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from twinbus.broker.belonging import identities, new_id
from twinbus.broker.datadir import DataDirectory
from twinbus.broker.settings import SettingsError
from twinbus.broker.store_files import StoreFiles
from twinbus.store import recollection
from twinbus.store.catalog import CatalogFile, EntityRow
from twinbus.store.identity import NAMESPACE_KEY, STORE_KEY, KnownStore, StoreIdentity
from twinbus.store.recollection import Recollection


class Rebuilt(NamedTuple):
    """What a catalog that was made anew has."""

    entities: list[str]
    unknown: int  # Entities that their stores hold without a description: they will be set aside.
    moved_to: str  # Where the catalog went that was there, if one was.


def rebuild(path: Path) -> Rebuilt:
    """Make the catalog anew. Policies and hybrid connections are not in the stores: keys will be new."""
    directory = _held(path)
    try:
        found = {index: recollection.read(str(directory.store(index))) for index in directory.present()}
        if not found:
            raise SettingsError(f"{path} holds no messaging stores.")
        namespace = _one_namespace([identity for identity, _ in found.values() if identity is not None])
        moved = StoreFiles(directory).move_catalog_away()
        catalog = CatalogFile(str(directory.catalog))
        try:
            return _fill(catalog, namespace, found)._replace(moved_to=moved)
        finally:
            catalog.close()
    finally:
        directory.release()


def accept(path: Path) -> None:
    """Declare the catalog to be right: it counts its changes from where the stores are."""
    directory = _held(path)
    try:
        if not directory.catalog.exists():
            raise SettingsError(f"{directory.catalog} is not there: `twinbus catalog rebuild {path}` makes one.")
        newest = max((identity.generation for identity in identities(StoreFiles(directory))), default=0)
        catalog = CatalogFile(str(directory.catalog))
        try:
            catalog.raise_generation(newest + 1)
        finally:
            catalog.close()
    finally:
        directory.release()


def _held(path: Path) -> DataDirectory:
    """The directory, which must be there and which no broker uses."""
    if not path.is_dir():
        raise SettingsError(f"There is no directory {path}.")
    return DataDirectory(path)


def _one_namespace(identities: list[StoreIdentity]) -> str:
    namespaces = {identity.namespace for identity in identities}
    if len(namespaces) > 1:
        raise SettingsError(
            f"The messaging stores are of {len(namespaces)} namespaces, with the ids {', '.join(sorted(namespaces))}:"
            " leave those of one."
        )
    return namespaces.pop() if namespaces else new_id()


def _fill(
    catalog: CatalogFile, namespace: str, found: dict[int, tuple[StoreIdentity | None, list[Recollection]]]
) -> Rebuilt:
    identities = {index: identity for index, (identity, _) in found.items() if identity is not None}
    for index, identity in identities.items():
        if identity.number != index:
            raise SettingsError(f"store-{index}.db is messaging store {identity.number}: put it in its place first.")
    known = {
        STORE_KEY.format(index): KnownStore(identity.store, identity.openings, identity.journal).to_text()
        for index, identity in identities.items()
    }
    catalog.note({NAMESPACE_KEY: namespace, **known})
    names: dict[str, EntityRow] = {}
    unknown = 0
    for index, (_, entities) in found.items():
        for each in entities:
            if each.document is None:
                unknown += 1
            elif each.fragment == 0 and each.path.lower() not in names:
                names[each.path.lower()] = EntityRow(each.entity, each.path, each.kind, index, each.document)
            elif each.fragment == 0:
                unknown += 1
    for row in sorted(names.values()):
        catalog.put(row)
    catalog.keep_ids_above(max((each.entity for _, entities in found.values() for each in entities), default=0))
    catalog.raise_generation(max((identity.generation for identity in identities.values()), default=0) + 1)
    return Rebuilt([row.name for row in sorted(names.values())], unknown, "")
