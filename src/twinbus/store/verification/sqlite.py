"""A SQLite file at one instant, read without changing a byte of it: stopped, or beside a broker that goes on.

What is asked is told in `questions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.sql import sqlite
from twinbus.store.verification.questions import Dialect

CACHE_KIB = 64 * 1024

DIALECT = Dialect(
    queues="queue",
    journal="(SELECT 0 AS writer, id, at_ms, ops FROM journal)",
    size="length(b.data) - 4",
    lasting=("message", "duplicate", "session_state"),
    volatile=("claim",),
    wrong_size="false",
)

_COLUMNS = """
SELECT t.name, c.name FROM sqlite_schema AS t CROSS JOIN pragma_table_info(t.name) AS c WHERE t.type = 'table'"""


class SqliteSnapshot:
    """One file; a messaging store's or the catalog's."""

    dialect = DIALECT
    # Rows of a damaged page may hold anything: texts that are none, and nothing where there must be something.
    errors: tuple[type[Exception], ...] = (apsw.Error, ValueError, TypeError, LookupError)

    def __init__(self, path: Path, *, is_in_use: bool) -> None:
        """`is_in_use`: a broker has it open, so that its log is read where the broker keeps it."""
        try:
            self.database = _open(path, is_in_use)
            self.database.execute("PRAGMA query_only=1")
        except apsw.Error as error:
            raise BusError(Fault.STORE_UNAVAILABLE, f"The file {path} cannot be opened: {error}") from error

    def begin(self) -> None:
        """From here on, what is read is what is there now."""
        self.database.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        self.database.execute("BEGIN")
        self.database.execute("SELECT count(*) FROM sqlite_schema").fetchall()

    def integrity(self) -> Iterable[str]:
        """What SQLite's own check finds."""
        return [text for (text,) in self.database.execute("PRAGMA integrity_check(100)") if text != "ok"]

    def unchecked(self) -> str:
        """It is always asked."""
        return ""

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The answer to a statement."""
        return self.database.execute(statement).fetchall()

    def stream(self, statement: str, at_once: int) -> Iterator[tuple[Any, ...]]:
        """A long answer; rows are read one by one."""
        return self.database.execute(statement)

    def tables(self) -> dict[str, set[str]]:
        """The tables with their columns."""
        found: dict[str, set[str]] = {}
        for table, column in self.database.execute(_COLUMNS):
            found.setdefault(table, set()).add(column)
        return found

    def since_ms(self) -> int | None:
        """Rows of the one writer are trimmed in their order."""
        return None

    def is_complete(self, first_row: int) -> bool:
        """The first row that a store ever writes has the number 1."""
        return first_row == 1

    def text(self, value: str) -> str:
        """Texts are kept as they are."""
        return value

    def close(self) -> None:
        """Let go of the file, and leave its log alone."""
        self.database.close()


def _open(path: Path, is_in_use: bool) -> apsw.Connection:
    if not is_in_use:
        return sqlite.unread(path)
    path = path.resolve()  # The log lies beside the file itself, not beside a link to it.
    if not path.exists():
        raise apsw.CantOpenError("it is not there")
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    sqlite.leave_log(database)
    database.set_busy_timeout(10_000)
    return database
