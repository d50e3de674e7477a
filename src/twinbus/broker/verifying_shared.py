"""A namespace in PostgreSQL, opened for looking alone: its catalog and its stores, in one database or in several.

The databases cannot be stopped at one instant, so what looks as if catalog and stores disagree gets a second look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.settings import SettingsError
from twinbus.broker.verifying import Opened, Progress, Report, verify
from twinbus.model.errors import BusError
from twinbus.sql.postgres import Connection, connect
from twinbus.store.identity import STORE_KEY
from twinbus.store.postgres.catalog import schema_of
from twinbus.store.postgres.snapshot import PostgresSnapshot

CATALOG_STATEMENTS = {
    "meta": "SELECT key, value FROM meta",
    "rows": "SELECT id, name, kind, store, document FROM entity ORDER BY id",
    "next_id": "SELECT next_id FROM counter",
}
_NAMESPACES = """
SELECT schemaname FROM pg_tables AS t
 WHERE tablename = 'counter' AND EXISTS (
       SELECT 1 FROM pg_tables AS e WHERE e.schemaname = t.schemaname AND e.tablename = 'entity') ORDER BY 1"""
_PREFIX = schema_of("")


def verify_databases(urls: Sequence[str], namespace: str | None, progress: Progress) -> Report:
    """Check a namespace; without a name, the only one that is in the first database."""
    addresses = [DatabaseAddress(url) for url in urls]
    schema = _schema(addresses[0], namespace)
    opening = partial(opened_databases, addresses, schema)
    with opening() as opened:
        return verify(opened, progress, opening)


def _schema(address: DatabaseAddress, namespace: str | None) -> str:
    with _connected(address) as connection:
        found = [str(row[0]) for row in connection.execute(_NAMESPACES.encode())]
    known = [schema.removeprefix(_PREFIX) for schema in found if schema.startswith(_PREFIX)]
    if namespace is not None:
        if namespace.lower() not in known:
            raise SettingsError(f"There is no namespace '{namespace}' in {address.label}. {_told(known)}")
        return schema_of(namespace)
    if len(known) != 1:
        raise SettingsError(f"{_told(known)} Say which one with --namespace.")
    return schema_of(known[0])


def _told(known: list[str]) -> str:
    return f"The database has {', '.join(known)}." if known else "The database has no namespace of Twinbus."


@contextmanager
def _connected(address: DatabaseAddress) -> Iterator[Connection]:
    try:
        connection = connect(address.uri)
    except BusError as error:
        raise SettingsError(f"The database {address.label}: {error.text}") from error
    with connection:
        yield connection


@contextmanager
def opened_databases(addresses: Sequence[DatabaseAddress], schema: str) -> Iterator[Opened]:
    """Catalog and stores, each at one instant."""
    with ExitStack() as stack:

        def opened(address: DatabaseAddress, name: str) -> PostgresSnapshot:
            try:
                snapshot = PostgresSnapshot(address.uri, name)
            except BusError as error:
                raise SettingsError(f"The database {address.label}: {error.text}") from error
            stack.callback(snapshot.close)
            snapshot.begin()
            return snapshot

        catalog = opened(addresses[0], schema)
        keys = [key for key, _ in catalog.rows(CATALOG_STATEMENTS["meta"])]
        numbers = [int(found[1]) for key in keys if (found := re.fullmatch(STORE_KEY.format(r"(\d+)"), key))]
        count = max(numbers, default=-1) + 1
        if count and len(addresses) > count:
            raise SettingsError(
                f"The namespace has {count} messaging stores, and {len(addresses)} addresses were given."
            )
        # As a gateway does: beyond the first, stores lie on the addresses in turn.
        stores = {number: opened(addresses[number % len(addresses)], f"{schema}_{number}") for number in range(count)}
        yield Opened(catalog, CATALOG_STATEMENTS, stores)
