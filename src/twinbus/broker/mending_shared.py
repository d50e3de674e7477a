"""The same for a namespace in PostgreSQL: a catalog that is older than its stores is declared to be the right one.

No gateway serves it meanwhile, because none starts with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.settings import SettingsError
from twinbus.sql.postgres import connect
from twinbus.store.postgres import identity
from twinbus.store.postgres.catalog import CatalogDatabase, schema_of


def accept(addresses: Sequence[DatabaseAddress], namespace: str) -> None:
    """Have the catalog in the first database count its changes from where the stores in all of them are."""
    name = schema_of(namespace)
    newest = 0
    for address in dict.fromkeys(addresses):
        with connect(address.uri) as connection:
            if address == addresses[0] and not identity.has_catalog(connection, name):
                raise SettingsError(f"There is no catalog of '{namespace}' at {address.label}.")
            for schema in identity.stores_of(connection, name):
                found = identity.read(connection, schema)
                newest = max(newest, found.generation if found is not None else 0)
    catalog = CatalogDatabase(partial(connect, addresses[0].uri), namespace)
    try:
        catalog.raise_change(newest + 1)
    finally:
        catalog.close()
