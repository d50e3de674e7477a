"""What a store in PostgreSQL remembers of its entities, read without changing anything, and who uses it.

What is done with it is the same as for files; see `store.recollection`.
"""

from __future__ import annotations

from typing import LiteralString

from twinbus.sql.postgres import Connection
from twinbus.store.postgres import identity, schema
from twinbus.store.recollection import Recollection, Remains

# Stores of older versions have no descriptions, and nothing is set aside in them.
_DESCRIBED = 3
_ENTITIES: LiteralString = """
SELECT e.id, coalesce(n.path, ''), coalesce(n.kind, ''), coalesce(n.fragment, 0), n.document, e.aside
  FROM entity AS e LEFT JOIN name AS n ON n.entity = e.id WHERE NOT e.dropped ORDER BY e.id"""
_NUMBERS: LiteralString = "SELECT id, '', '', 0, NULL, false FROM entity WHERE NOT dropped ORDER BY id"


def read(connection: Connection, name: str) -> Remains:
    """What is in the schema, on a connection that looks there; raises if it is no whole store."""
    version = schema.version_of(connection, name) or 0
    rows = connection.execute(_ENTITIES if version >= _DESCRIBED else _NUMBERS).fetchall()
    return Remains(identity.read(connection, name), [Recollection(*row) for row in rows])


# Whoever uses a store says so each second; see `postgres.store`.
_ALIVE: LiteralString = "SELECT number FROM gateway WHERE seen_at > clock_timestamp() - interval '5 seconds'"


def gateways(connection: Connection) -> list[int]:
    """Those that use the store, or were killed a moment ago."""
    return [row[0] for row in connection.execute(_ALIVE).fetchall()]
