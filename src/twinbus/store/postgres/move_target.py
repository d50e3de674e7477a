"""The place that a namespace moves to: what is there already, and marks on catalog and stores until all of it is there.

A mark is a kind or a version that no Twinbus opens, of any release. It goes from the stores first and from the catalog
last, and until then the catalog says which stores are its own: so what an interrupted move left is always recognised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString, NamedTuple

from psycopg import sql

from twinbus.model.errors import BusError, Fault
from twinbus.sql.postgres import Connection
from twinbus.store.catalog import EntityRow
from twinbus.store.postgres import catalog, schema
from twinbus.store.postgres.catalog import CatalogDatabase, schema_of

MOVE_KEY = "move-id"  # Under this, catalog and stores keep the move that made them; the catalog until it is finished.


class Found(NamedTuple):
    """A schema of the namespace in a database."""

    schema: str
    is_unfinished: bool
    words: str


def claim_target(connection: Connection, namespace: str) -> None:
    """Be the only one that moves this namespace, until the connection ends."""
    held = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 3))", (schema_of(namespace),))
    if held.fetchone() != (True,):
        raise BusError(Fault.SERVER_BUSY, f"Another `twinbus store migrate` of '{namespace}' is running.")


def unfinished_move(connection: Connection, namespace: str) -> str | None:
    """The id of the move that made the catalog here and has not finished it."""
    name = schema_of(namespace)
    if "counter" not in _tables(connection, name) or _value(connection, name, _VERSION) != catalog.UNFINISHED_VERSION:
        return None
    row = connection.execute(_in(name, "SELECT value FROM {s}.meta WHERE key = %s"), (MOVE_KEY,)).fetchone()
    return None if row is None else str(row[0])


def look(connection: Connection, namespace: str, move: str | None) -> list[Found]:
    """What a database has of the namespace, the catalog last."""
    name = schema_of(namespace)
    rows = connection.execute(
        "SELECT nspname FROM pg_namespace WHERE nspname = %s OR nspname ~ %s", (name, f"^{name}_[0-9]+$")
    ).fetchall()
    schemas = sorted((row[0] for row in rows), reverse=True)
    return [_found(connection, each, each == name, move) for each in schemas if _tables(connection, each)]


def _found(connection: Connection, name: str, is_catalog: bool, move: str | None) -> Found:
    tables = _tables(connection, name)
    if is_catalog and "counter" in tables:
        version = _value(connection, name, _VERSION)
        entities = _value(connection, name, "SELECT count(*) FROM {s}.entity")
        return Found(name, version == catalog.UNFINISHED_VERSION, f"{name}: a catalog with {entities} entities")
    if not is_catalog and "meta" in tables:
        meta: dict[str, str] = dict(connection.execute(_in(name, "SELECT key, value FROM {s}.meta")).fetchall())
        ours = meta.get("kind") == schema.UNFINISHED_KIND or (move is not None and meta.get(MOVE_KEY) == move)
        messages = _value(connection, name, "SELECT count(*) FROM {s}.message") if "message" in tables else 0
        return Found(name, ours, f"{name}: a messaging store with {messages:,} messages")
    return Found(name, False, f"{name}: {len(tables)} tables")


def drop(connection: Connection, found: Sequence[Found]) -> None:
    """Remove what an interrupted move left."""
    for each in found:
        assert each.is_unfinished
        connection.execute(_in(each.schema, "DROP SCHEMA {s} CASCADE"))


def begin_catalog(connection: Connection, namespace: str, move: str) -> None:
    """Make an empty catalog that nobody serves."""
    with connection.transaction():
        made = CatalogDatabase(lambda: connection, namespace)
        made.set_meta(MOVE_KEY, move)
        _set_version(connection, namespace, catalog.UNFINISHED_VERSION)


def begin_store(connection: Connection, name: str, move: str, meta: Mapping[str, str]) -> None:
    """Make the tables of a store that nobody opens, and keep what is to be known of it beside its version."""
    with connection.transaction():
        schema.prepare(connection, name)
        for key, value in {**meta, MOVE_KEY: move, "kind": schema.UNFINISHED_KIND}.items():
            connection.execute(
                "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
            )


def finish_store(connection: Connection) -> None:
    """Make it a store like any other."""
    connection.execute("UPDATE meta SET value = %s WHERE key = 'kind'", (schema.KIND,))


def finish_catalog(
    connection: Connection,
    namespace: str,
    meta: Mapping[str, str],
    rows: Sequence[EntityRow],
    dropping: Mapping[int, int],
    next_id: int,
) -> None:
    """Fill the catalog and make it one like any other, in one transaction, if it is the same as what is given."""
    with connection.transaction():
        _set_version(connection, namespace, catalog.VERSION)
        made = CatalogDatabase(lambda: connection, namespace)
        for key, value in meta.items():
            made.set_meta(key, value)
        for row in rows:
            made.put(row)
        made.remove(0, dropping)
        name = schema_of(namespace)
        connection.execute(_in(name, "DELETE FROM {s}.meta WHERE key = %s"), (MOVE_KEY,))
        connection.execute(_in(name, "UPDATE {s}.counter SET next_id = %s"), (next_id,))
        there = connection.execute(_in(name, "SELECT id, name, kind, store, document FROM {s}.entity ORDER BY id"))
        settings = connection.execute(_in(name, "SELECT key, value FROM {s}.meta"))
        if dict(settings.fetchall()) != dict(meta) or there.fetchall() != [row[:5] for row in sorted(rows)]:
            raise BusError(Fault.INTERNAL, "The catalog in the database is not the same as the file's.")


_VERSION: LiteralString = "SELECT version FROM {s}.counter"


def _set_version(connection: Connection, namespace: str, version: int) -> None:
    connection.execute(_in(schema_of(namespace), "UPDATE {s}.counter SET version = %s"), (version,))


def _in(name: str, statement: LiteralString) -> sql.Composed:
    return sql.SQL(statement).format(s=sql.Identifier(name))


def _value(connection: Connection, name: str, statement: LiteralString) -> Any:
    row = connection.execute(_in(name, statement)).fetchone()
    return None if row is None else row[0]


def _tables(connection: Connection, name: str) -> set[str]:
    return {row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (name,))}
