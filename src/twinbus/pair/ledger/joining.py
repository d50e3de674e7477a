"""A mark inside a transaction of the application's, on its own connection: work and mark are kept together, or neither.

It neither begins nor ends a transaction, and it works only where the ledger is in the database that the connection is
connected to.
"""

from __future__ import annotations

from typing import Any

from twinbus.pair.ledger.decisions import Copy, Key, State
from twinbus.pair.ledger.storage import FIND_NAME, MARK


class Joining:
    """Marks on other people's connections."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._names: dict[str, int] = {}

    def mark(self, connection: Any, key: Key, copy: Copy, now_ms: int) -> bool:
        """Mark as done; False where it was before."""
        engine = _engine(connection)
        for text in (key.scope, copy.namespace):
            if text not in self._names:
                found = connection.execute(_spelt(FIND_NAME, engine), (text,)).fetchone()
                self._names[text] = self._number(text, found)
        cursor = connection.execute(_spelt(MARK, engine), self._values(key, copy, now_ms))
        return bool(cursor.rowcount)

    async def mark_async(self, connection: Any, key: Key, copy: Copy, now_ms: int) -> bool:
        """The same on a connection whose calls are awaited; others are called as they are."""
        if not type(connection).__name__.startswith("Async"):
            return self.mark(connection, key, copy, now_ms)
        engine = _engine(connection)
        for text in (key.scope, copy.namespace):
            if text not in self._names:
                cursor = await connection.execute(_spelt(FIND_NAME, engine), (text,))
                self._names[text] = self._number(text, await cursor.fetchone())
        cursor = await connection.execute(_spelt(MARK, engine), self._values(key, copy, now_ms))
        return bool(cursor.rowcount)

    def _values(self, key: Key, copy: Copy, now_ms: int) -> tuple[Any, ...]:
        names = self._names
        return names[key.scope], key.tag, int(State.DONE), names[copy.namespace], copy.sequence_number, now_ms

    def _number(self, text: str, found: Any) -> int:
        if found is None:
            raise ValueError(f"The connection is not to the database of the ledger ({text!r} is not known there).")
        return int(found[0] if not hasattr(found, "keys") else next(iter(dict(found).values())))


def _engine(connection: Any) -> str:
    for name in ("psycopg", "sqlite3"):
        if any(parent.__module__.split(".")[0] == name for parent in type(connection).__mro__):
            return name
    # A second SQLite library in the process, such as apsw brings, would drop the locks of the first.
    raise TypeError(f"A connection of sqlite3 or psycopg is needed, not {type(connection)}.")


def _spelt(statement: str, engine: str) -> str:
    return statement.replace("?", "%s") if engine == "psycopg" else statement
