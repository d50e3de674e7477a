"""What a store in PostgreSQL says of itself: read without changing anything, and written when a gateway opens it.

What follows from it is decided by `store.identity`.
"""

from __future__ import annotations

from psycopg import sql

from twinbus.sql.postgres import Connection
from twinbus.store.identity import Belonging, StoreIdentity

_NAMESPACE, _STORE, _NUMBER, _GENERATION = "namespace_id", "identity", "store_number", "catalog_generation"


def is_there(connection: Connection, schema: str) -> bool:
    """Whether the schema holds anything."""
    return connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = %s LIMIT 1", (schema,)).fetchone() is not None


def has_catalog(connection: Connection, schema: str) -> bool:
    """Whether a namespace's catalog is in the database."""
    return connection.execute("SELECT to_regclass(%s)", (f'"{schema}".counter',)).fetchone() != (None,)


def catalog_meta(connection: Connection, schema: str) -> dict[str, str]:
    """What a namespace's catalog keeps of the namespace itself."""
    statement = sql.SQL("SELECT key, value FROM {}.meta").format(sql.Identifier(schema))
    return dict(connection.execute(statement).fetchall())


def stores_of(connection: Connection, schema: str) -> list[str]:
    """The schemas of a namespace's stores in the database, whatever became of its catalog."""
    rows = connection.execute(
        "SELECT schemaname FROM pg_tables WHERE tablename = 'meta' AND schemaname ~ ('^' || %s || '_[0-9]+$')"
        " ORDER BY schemaname",
        (schema,),
    ).fetchall()
    return [row[0] for row in rows]


def read(connection: Connection, schema: str) -> StoreIdentity | None:
    """Who the schema says that it is; None if it does not say."""
    found = connection.execute("SELECT to_regclass(%s)", (f'"{schema}".meta',)).fetchone()
    if found == (None,):
        return None
    rows = connection.execute(sql.SQL("SELECT key, value FROM {}.meta").format(sql.Identifier(schema))).fetchall()
    meta: dict[str, str] = dict(rows)
    if _STORE not in meta:
        return None
    # Gateways are numbered by the store itself, and no number is used again.
    numbers = sql.SQL("SELECT last_value FROM {}.gateway_number_seq").format(sql.Identifier(schema))
    row = connection.execute(numbers).fetchone()
    openings = int(row[0]) if row is not None else 0
    return StoreIdentity(
        meta.get(_NAMESPACE, ""), meta[_STORE], int(meta.get(_NUMBER, -1)), int(meta.get(_GENERATION, 0)), openings
    )


def claim(connection: Connection, schema: str, belonging: Belonging, number: int) -> StoreIdentity:
    """Have a store that does not say who it is say so from now on; several gateways may do it at once."""
    values = {_STORE: belonging.store, _NAMESPACE: belonging.namespace, _NUMBER: str(number)}
    statement = sql.SQL("INSERT INTO {}.meta VALUES (%s, %s) ON CONFLICT (key) DO NOTHING")
    for key, value in values.items():
        connection.execute(statement.format(sql.Identifier(schema)), (key, value))
    found = read(connection, schema)
    assert found is not None
    return found


def rename(connection: Connection, schema: str, new_name: str) -> None:
    """Put a schema out of the way."""
    connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(schema), sql.Identifier(new_name)))
