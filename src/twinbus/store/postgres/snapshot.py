"""A schema in PostgreSQL at one instant, read without changing anything, beside the gateways that use it.

What is asked is told in `store.verification.questions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import psycopg

from twinbus.sql import postgres
from twinbus.store.postgres.text import from_text
from twinbus.store.verification.questions import Dialect

PATIENCE_S = 3600.0  # One look at millions of rows may take a while, and nobody else waits for it.
# A transaction's instant is read before its row is locked, so the order of commits can differ by so much.
DISORDER_MS = 10_000

# Unlike operations, these statements read whole tables.
_SETTINGS = {
    "lock_timeout": "60s",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "enable_seqscan": "on",
    "enable_hashjoin": "on",
    "enable_mergejoin": "on",
    "enable_bitmapscan": "on",
    "enable_sort": "on",
    "plan_cache_mode": "auto",
}

# The counters are those of `schema.COUNTERS`, seven for each sub-queue.
_QUEUES = """(
SELECT e.id * 4 + s AS id, CASE WHEN s = 0 THEN e.settings END AS settings, e.dropped::int AS dropped,
       e.counts[s * 7 + 1] AS next_seq, e.counts[s * 7 + 2] AS active, e.counts[s * 7 + 3] AS deferred,
       e.counts[s * 7 + 4] AS scheduled, e.counts[s * 7 + 5] AS damaged, e.counts[s * 7 + 6] AS bytes
  FROM entity AS e CROSS JOIN generate_series(0, 2) AS s)"""
DIALECT = Dialect(
    queues=_QUEUES,
    journal="journal",
    size="m.size",
    lasting=("message", "duplicate", "session_state"),
    volatile=("lock", "hold"),
    wrong_size="m.size <> length(b.data) - 4",
)

# A writer's rows are trimmed in their order up to the first that is young enough, but a live writer's newest one stays;
# ranges that are in files are trimmed each by itself.
TRIMMED_TO = """
SELECT greatest(
  (SELECT min(j.at_ms) FROM journal AS j
    WHERE EXISTS (SELECT 1 FROM journal AS n WHERE n.writer = j.writer AND n.id > j.id)
      AND NOT EXISTS (SELECT 1 FROM journal AS n WHERE n.writer = j.writer AND n.id < j.id)),
  (SELECT max(e.to_ms) FROM export AS e
    WHERE e.state = 2 OR e.state = 1 AND NOT EXISTS (
      SELECT 1 FROM journal AS j WHERE j.writer = e.writer AND j.id = e.first)),
  (SELECT max(j.at_ms) FROM journal AS j
    WHERE NOT EXISTS (SELECT 1 FROM journal AS n WHERE n.writer = j.writer AND n.id <> j.id)
      AND NOT EXISTS (SELECT 1 FROM journal AS o WHERE EXISTS (
        SELECT 1 FROM journal AS n WHERE n.writer = o.writer AND n.id > o.id))))"""

_COLUMNS = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"


class PostgresSnapshot:
    """One schema; a messaging store's or the catalog's."""

    dialect = DIALECT
    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, url: str, schema: str, disorder_ms: int = DISORDER_MS) -> None:
        self._connection = postgres.connect(url, schema, _SETTINGS)
        self._connection.patience_s = PATIENCE_S
        self._cursors = count(1)
        self._disorder_ms = disorder_ms

    def begin(self) -> None:
        """From here on, what is read is what is there now."""
        self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._connection.execute("SELECT 1 FROM pg_class LIMIT 1")

    def integrity(self) -> Iterable[str]:
        """The server looks after its own pages."""
        return []

    def unchecked(self) -> str:
        """Whether the server would notice a page that its disk has changed."""
        row = self._connection.execute("SHOW data_checksums").fetchone()
        if row == ("on",):
            return ""
        return "PostgreSQL keeps no checksums of its pages here (data_checksums is off)"

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The answer to a statement; one that fails does not spoil the others."""
        with self._connection.transaction():
            return self._connection.execute(statement.encode(), prepare=False).fetchall()

    def stream(self, statement: str, at_once: int) -> Iterator[tuple[Any, ...]]:
        """A long answer, through a cursor of the server."""
        with self._connection.cursor(f"verify_{next(self._cursors)}", binary=True) as cursor:
            cursor.itersize = at_once
            cursor.execute(statement.encode())
            yield from cursor

    def tables(self) -> dict[str, set[str]]:
        """The tables with their columns."""
        found: dict[str, set[str]] = {}
        for table, column in self.rows(_COLUMNS):
            found.setdefault(table, set()).add(column)
        return found

    def since_ms(self) -> int | None:
        """What the journal tells up to here may have ended in rows that are trimmed."""
        [(trimmed_to,)] = self.rows(TRIMMED_TO)
        return None if trimmed_to is None else int(trimmed_to) + self._disorder_ms

    def is_complete(self, first_row: int) -> bool:
        """Streams of gateways that are gone may be gone, too."""
        return False

    def text(self, value: str) -> str:
        """A text as clients gave it."""
        return from_text(value)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()
