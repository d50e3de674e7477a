"""An outbox's tables within a transaction of the application's: which connection is of which kind.

The application begins and commits; order holds where it serialises its key.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from twinbus.pair.outbox.sqlite import SqliteTables

if TYPE_CHECKING:
    from twinbus.pair.outbox.postgres import PostgresTables


def tables_of(connection: Any) -> SqliteTables | PostgresTables:
    """The tables as the application's connection sees them; a TypeError for anything else."""
    if isinstance(connection, sqlite3.Connection):
        return SqliteTables(connection)
    if type(connection).__module__.partition(".")[0] == "psycopg" or hasattr(connection, "pgconn"):
        from twinbus.pair.outbox.postgres import PostgresTables

        return PostgresTables(connection)
    raise TypeError(
        f"An outbox can join the transactions of sqlite3 and psycopg, not of a {type(connection).__module__}"
        f".{type(connection).__qualname__}; a file must not be open through two SQLite libraries in one process."
    )
