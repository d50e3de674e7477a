"""What a merge has seen of each message: which namespace's copy came first, and whose never came.

A small SQLite file beside the staged messages, so that the account outlives a restart. A batch that Spark runs again is
counted once. Time is an argument; removing the copies themselves is Spark's work.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PRIMARY, SECONDARY = "primary", "secondary"
SIDES = (PRIMARY, SECONDARY)
ALONE_KEPT = 1_000_000  # Rows of the list of those that stayed alone; the oldest go.

_TABLES = """
CREATE TABLE IF NOT EXISTS sighting (
    consumer TEXT, tag TEXT, side TEXT, first_ms INTEGER, both INTEGER, PRIMARY KEY (consumer, tag)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sighting_age ON sighting (first_ms);
CREATE TABLE IF NOT EXISTS alone (
    consumer TEXT, tag TEXT, side TEXT, first_ms INTEGER, PRIMARY KEY (consumer, tag)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS total (name TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch (source TEXT PRIMARY KEY, number INTEGER) WITHOUT ROWID;
"""


class Sighting(NamedTuple):
    """A copy of a message that arrived."""

    consumer: str  # The queue or subscription, by the primary's name for it.
    tag: str
    side: str
    received_ms: int


class Alone(NamedTuple):
    """A message of which one copy came, and the other did not within the window."""

    consumer: str
    tag: str
    side: str  # Whose copy came.
    received_ms: int


@dataclass(slots=True)
class Totals:
    """The account so far. Messages are counted when their window is over, copies at once."""

    copies: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    first: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))  # Of those whose both copies came.
    alone: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))  # By the side whose copy came.
    late: int = 0  # Second copies that came after the window: they were not recognised.
    untagged: int = 0  # Copies of which nothing can be said.
    dropped: int = 0  # Rows that Spark's watermark dropped: there should be none.
    open: int = 0  # Messages whose window is not over.


class Sightings:
    """The account of one merge, kept in a file."""

    def __init__(self, path: Path, window_s: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Spark calls from threads of its own, one at a time.
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.executescript(f"PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL; {_TABLES}")
        self._window_ms = int(window_s * 1000)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def record(self, source: str, number: int, copies: Iterable[Sighting], untagged: int = 0) -> bool:
        """Count the copies of a batch; whether it was new."""
        with _Transaction(self._database) as database:
            known = database.execute("SELECT number FROM batch WHERE source = ?", (source,)).fetchone()
            if known is not None and number <= known[0]:
                return False
            database.execute("INSERT OR REPLACE INTO batch VALUES (?, ?)", (source, number))
            self._add("untagged", untagged)
            # In the order of their arrival; whoever cannot be told apart is the primary's.
            for copy in sorted(copies, key=lambda each: (each.received_ms, each.side)):
                self._see(copy)
        return True

    def _see(self, copy: Sighting) -> None:
        database, key = self._database, (copy.consumer, copy.tag)
        self._add(f"copies/{copy.side}")
        known = database.execute("SELECT side, both FROM sighting WHERE consumer = ? AND tag = ?", key).fetchone()
        if known is not None:
            if known[0] != copy.side and not known[1]:
                database.execute("UPDATE sighting SET both = 1 WHERE consumer = ? AND tag = ?", key)
            return
        alone = database.execute("SELECT side FROM alone WHERE consumer = ? AND tag = ?", key).fetchone()
        if alone is not None and alone[0] != copy.side:
            self._add("late")
            self._add(f"alone/{alone[0]}", -1)
            database.execute("DELETE FROM alone WHERE consumer = ? AND tag = ?", key)
            return
        database.execute("INSERT INTO sighting VALUES (?, ?, ?, ?, 0)", (*key, copy.side, copy.received_ms))

    def settle(self, now_ms: int) -> list[Alone]:
        """Close the account of messages whose window is over; those that stayed alone, for an alarm."""
        over = now_ms - self._window_ms
        with _Transaction(self._database) as database:
            for side, count in database.execute(
                "SELECT side, count(*) FROM sighting WHERE first_ms < ? AND both GROUP BY side", (over,)
            ).fetchall():
                self._add(f"first/{side}", count)
            query = "SELECT consumer, tag, side, first_ms FROM sighting WHERE first_ms < ? AND NOT both"
            found = [Alone(*row) for row in database.execute(f"{query} ORDER BY first_ms", (over,)).fetchall()]
            for each in found:
                self._add(f"alone/{each.side}")
            database.executemany("INSERT OR REPLACE INTO alone VALUES (?, ?, ?, ?)", found)
            database.execute("DELETE FROM sighting WHERE first_ms < ?", (over,))
            self._trim()
        return found

    def dropped(self, count: int) -> None:
        """Spark says that its watermark dropped rows."""
        with _Transaction(self._database):
            self._add("dropped", count)

    def totals(self) -> Totals:
        """The account so far."""
        found = dict(self._database.execute("SELECT name, count FROM total").fetchall())
        (waiting,) = self._database.execute("SELECT count(*) FROM sighting").fetchone()
        return Totals(
            copies={side: found.get(f"copies/{side}", 0) for side in SIDES},
            first={side: found.get(f"first/{side}", 0) for side in SIDES},
            alone={side: found.get(f"alone/{side}", 0) for side in SIDES},
            late=found.get("late", 0),
            untagged=found.get("untagged", 0),
            dropped=found.get("dropped", 0),
            open=waiting,
        )

    def alone(self, limit: int = 1000) -> list[Alone]:
        """Messages that stayed alone, the latest first."""
        query = "SELECT consumer, tag, side, first_ms FROM alone ORDER BY first_ms DESC LIMIT ?"
        return [Alone(*row) for row in self._database.execute(query, (limit,)).fetchall()]

    def _add(self, name: str, count: int = 1) -> None:
        if count:
            change = "INSERT INTO total VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET count = count + ?2"
            self._database.execute(change, (name, count))

    def _trim(self) -> None:
        (count,) = self._database.execute("SELECT count(*) FROM alone").fetchone()
        if count > ALONE_KEPT:
            oldest = "SELECT consumer, tag FROM alone ORDER BY first_ms LIMIT ?"
            self._database.execute(f"DELETE FROM alone WHERE (consumer, tag) IN ({oldest})", (count - ALONE_KEPT,))


class _Transaction:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        self._database.execute("BEGIN IMMEDIATE")
        return self._database

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")
