"""The schemas of a namespace's stores and its catalog in databases, looked at and put out of the way.

Other gateways may use them at the same time. What follows from what is found is told in `belonging`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.belonging import Look
from twinbus.broker.settings import SettingsError
from twinbus.model.errors import BusError
from twinbus.sql.postgres import connect
from twinbus.store.identity import NAMESPACE_KEY, KnownStore, Place, known_stores
from twinbus.store.postgres import identity
from twinbus.store.postgres.catalog import schema_of


def store_schema_of(namespace: str, index: int) -> str:
    """Where one of a namespace's messaging stores is in its database."""
    return f"{schema_of(namespace)}_{index}"


class StoreSchemas:
    """Places that are schemas; the first database has the catalog."""

    remedies = (
        "Give the right addresses, or put the right databases back; or say that this catalog is the right one:"
        " `twinbus catalog accept`; or have one made from what the stores remember: `twinbus catalog rebuild`."
    )

    def __init__(self, namespace: str, addresses: Sequence[DatabaseAddress]) -> None:
        self._namespace = namespace
        self._addresses = addresses

    def catalog_label(self) -> str:
        """The first database, without user and password."""
        return self._addresses[0].label

    def namespace_id(self) -> str | None:
        """As the catalog's schema says."""
        schema = schema_of(self._namespace)
        with connect(self._addresses[0].uri) as connection:
            if not identity.has_catalog(connection, schema):
                return None
            return identity.catalog_meta(connection, schema).get(NAMESPACE_KEY)

    def schema(self, index: int) -> str:
        """Where a store is in its database."""
        return store_schema_of(self._namespace, index)

    def place(self, index: int) -> Place:
        """The schema and its database."""
        return Place(index, f"The schema {self.schema(index)} at {self._addresses[index].label}")

    def look(self, index: int) -> Look:
        """Whether the schema has tables, and who it says that it is."""
        with connect(self._addresses[index].uri) as connection:
            schema = self.schema(index)
            return Look(identity.is_there(connection, schema), identity.read(connection, schema))

    def present(self) -> range:
        """One in each place."""
        return range(len(self._addresses))

    def known(self) -> Mapping[int, KnownStore]:
        """As the catalog has it now: an operator may have accepted or replaced a store through another gateway."""
        try:
            with connect(self._addresses[0].uri) as connection:
                return known_stores(identity.catalog_meta(connection, schema_of(self._namespace)))
        except BusError:
            return {}  # Out of reach; what was known before holds.

    def reached(self, index: int, store: str) -> int:
        """A gateway that is connected notices it by itself, and what a database has is nobody's copy of a file."""
        return 0

    def begin_anew(self, index: int) -> None:
        """There is nothing to forget."""

    def check_catalog_is_there(self) -> None:
        """Stores without a catalog are no new namespace."""
        name, first = schema_of(self._namespace), self._addresses[0]
        found = []
        for address in dict.fromkeys(self._addresses):
            try:
                with connect(address.uri) as connection:
                    if address is first and identity.has_catalog(connection, name):
                        return
                    found += [f"{schema} at {address.label}" for schema in identity.stores_of(connection, name)]
            except BusError:
                continue  # Who cannot be reached, or must not be used, is told of when it is opened.
        if found:
            raise SettingsError(
                f"There is no catalog of '{self._namespace}' at {first.label}, and messaging stores are there:"
                f" {', '.join(found)}. Give the addresses in the order in which they were given first, or put the"
                f" schema {name} back; or have it made anew from what the stores remember: `twinbus catalog rebuild`."
                " Nothing was changed."
            )

    def move_away(self, index: int) -> str:
        """Rename a store's schema."""
        schema = self.schema(index)
        with connect(self._addresses[index].uri) as connection:
            if not identity.is_there(connection, schema):
                return ""
            moved = f"{schema}_replaced_{datetime.now(UTC):%Y%m%d%H%M%S}"
            identity.rename(connection, schema, moved)
            return moved
