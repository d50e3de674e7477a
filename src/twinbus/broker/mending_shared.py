"""A namespace in PostgreSQL whose catalog is mended: where its stores are, and how a catalog takes another's place.

The flow is told in `mending`. No gateway starts meanwhile, and one that runs is a reason to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.mending import Catalog, Mended
from twinbus.broker.settings import SettingsError
from twinbus.model.errors import BusError, Fault
from twinbus.model.extras import needing
from twinbus.sql.postgres import Connection, connect
from twinbus.store.identity import Place, StoreIdentity
from twinbus.store.postgres import identity, recollection
from twinbus.store.postgres.catalog import CatalogDatabase, schema_of
from twinbus.store.postgres.move_target import unfinished_move
from twinbus.store.postgres.schema import unfinished
from twinbus.store.recollection import Remains

with needing("psycopg"):
    import psycopg


class MendedDatabases:
    """Databases of which the first has the catalog."""

    def __init__(self, connection: Connection, namespace: str, stores: dict[int, tuple[DatabaseAddress, str]]) -> None:
        """`connection` is one to the first database; `stores` are where each is."""
        self._connection = connection
        self._namespace = namespace
        self._stores = stores

    @property
    def label(self) -> str:
        """The namespace, because there may be others in the databases."""
        return f"The namespace '{self._namespace}'"

    def place(self, index: int) -> Place:
        """The schema and its database."""
        address, schema = self._stores[index]
        return Place(index, f"The schema {schema} at {address.label}")

    def stores(self) -> dict[int, Remains]:
        """What the schemas remember."""
        found = {}
        for index, (address, schema) in self._stores.items():
            with connect(address.uri, schema) as connection:
                found[index] = recollection.read(connection, schema)
        return found

    def identities(self) -> list[StoreIdentity]:
        """Those of the schemas."""
        found = []
        for address, schema in self._stores.values():
            with connect(address.uri) as connection:
                found.append(identity.read(connection, schema))
        return [each for each in found if each is not None]

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """The schema."""
        if not identity.has_catalog(self._connection, schema_of(self._namespace)):
            raise SettingsError(f"{self.label} has no catalog: `twinbus catalog rebuild` makes one.")
        yield CatalogDatabase(lambda: self._connection, self._namespace)

    def replace_catalog(self, fill: Callable[[Catalog], None]) -> str:
        """In one transaction: the old schema gets another name, and the new one its own."""
        schema, moved = schema_of(self._namespace), ""
        with self._connection.transaction():
            if identity.is_there(self._connection, schema):
                if unfinished_move(self._connection, self._namespace) is not None:
                    raise unfinished("The catalog in the database")
                moved = f"{schema}_replaced_{datetime.now(UTC):%Y%m%d%H%M%S}"
                identity.rename(self._connection, schema, moved)
            fill(CatalogDatabase(lambda: self._connection, self._namespace))
        return moved


@contextmanager
def mended_databases(addresses: Sequence[DatabaseAddress], namespace: str) -> Iterator[Mended]:
    """A namespace that no gateway uses, and that none begins to use."""
    with ExitStack() as opened:
        first = opened.enter_context(_reached(addresses[0]))
        starting = "SELECT pg_try_advisory_lock(hashtextextended(%s, 2))"  # As a gateway holds it while it starts.
        if first.execute(starting, (schema_of(namespace),)).fetchone() != (True,):
            raise SettingsError(f"A gateway of '{namespace}' is starting: stop all of them first.")
        try:
            yield MendedDatabases(first, namespace, _stores(addresses, namespace))
        except psycopg.Error as error:
            text = f"The databases cannot be used: {' '.join(str(error).split())}"
            raise BusError(Fault.STORE_UNAVAILABLE, text) from error


def _stores(addresses: Sequence[DatabaseAddress], namespace: str) -> dict[int, tuple[DatabaseAddress, str]]:
    """Where each store is; as with a gateway, they lie on the addresses in turn."""
    prefix = schema_of(namespace)
    found: dict[int, tuple[DatabaseAddress, str]] = {}
    for address in dict.fromkeys(addresses):
        with _reached(address) as connection:
            schemas = identity.stores_of(connection, prefix)
        for schema in schemas:
            index = int(schema.removeprefix(f"{prefix}_"))
            place = addresses[index % len(addresses)]
            if place != address:
                raise SettingsError(
                    f"The schema {schema} is at {address.label}, and with these addresses its place is {place.label}."
                    " Give all addresses in the order in which gateways are given them."
                )
            with connect(address.uri, schema) as connection:
                alive = recollection.gateways(connection)
            if alive:
                raise SettingsError(
                    f"{len(alive)} gateways use the schema {schema} at {address.label}, or were killed within the last"
                    " five seconds: stop them, and run the command again."
                )
            found[index] = address, schema
    return dict(sorted(found.items()))


@contextmanager
def _reached(address: DatabaseAddress) -> Iterator[Connection]:
    try:
        connection = connect(address.uri)
    except BusError as error:
        raise SettingsError(f"The database {address.label}: {error.text}") from None
    with connection:
        yield connection
