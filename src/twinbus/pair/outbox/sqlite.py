"""An outbox in SQLite: its tables in the application's database, or in a file of its own, and who works on that.

On the application's connection the application begins and ends transactions.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from twinbus.model.errors import BusError
from twinbus.pair.errors import OutboxError, OutboxFullError
from twinbus.pair.outbox.rows import VERSION, Counts, Entry, Row, Tables, Wanted, Work
from twinbus.sql import shared_sqlite
from twinbus.sql.group import Committer

CACHE_KIB = 16 * 1024
OWNER_ONLY = 0o600

# What is looked at stands before the body, so that looking does not read it. What was refused for good is listed
# apart, and marked, so that the index leads past it.
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS twinbus_outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, lane TEXT, message_id TEXT NOT NULL,
        bytes INTEGER NOT NULL, put_at_ms INTEGER NOT NULL, aside INTEGER NOT NULL DEFAULT 0, payload BLOB NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS twinbus_outbox_waiting ON twinbus_outbox (aside, number, path, lane)",
    "CREATE INDEX IF NOT EXISTS twinbus_outbox_lane ON twinbus_outbox (lane) WHERE lane IS NOT NULL",
    """CREATE TABLE IF NOT EXISTS twinbus_outbox_aside (
        number INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, reason TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS twinbus_outbox_state (
        only INTEGER PRIMARY KEY CHECK (only = 1), version INTEGER NOT NULL, messages INTEGER NOT NULL,
        bytes INTEGER NOT NULL, holder TEXT, until_ms INTEGER)""",
    f"INSERT OR IGNORE INTO twinbus_outbox_state (only, version, messages, bytes) VALUES (1, {VERSION}, 0, 0)",
)
# One statement for any number of messages, because the thread that runs it gets the interpreter back once a statement.
_PUT = """INSERT INTO twinbus_outbox (path, lane, message_id, bytes, put_at_ms, payload)
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
        json_extract(value, '$[4]'), ?, substr(?, json_extract(value, '$[3]'), json_extract(value, '$[4]'))
    FROM json_each(?) ORDER BY key"""
_COUNT = "UPDATE twinbus_outbox_state SET messages = messages + ?, bytes = bytes + ?"
_IN = "IN (SELECT value FROM json_each(?))"
_TAKE = f"""SELECT number, path, lane, message_id, put_at_ms, payload FROM twinbus_outbox
    WHERE aside = 0 AND number NOT {_IN} AND lower(path) NOT {_IN} AND (lane IS NULL OR lane NOT {_IN})
    ORDER BY number LIMIT ?"""
_LOOK = """SELECT o.number, path, lane, message_id, put_at_ms, payload, a.at_ms, a.reason
    FROM twinbus_outbox AS o LEFT JOIN twinbus_outbox_aside AS a ON a.number = o.number
    WHERE o.number >= ? {which} ORDER BY o.number LIMIT ?"""


class _Connection(Protocol):
    """What is needed of a connection."""

    def cursor(self) -> Any: ...


class SqliteTables(Tables):
    """The tables in SQLite."""

    schema = _SCHEMA

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def counts(self) -> Counts:
        """How full it is; kept, never counted."""
        messages, size = self._row("SELECT messages, bytes FROM twinbus_outbox_state")
        (aside,) = self._row("SELECT count(*) FROM twinbus_outbox_aside")
        oldest = self._first("SELECT put_at_ms FROM twinbus_outbox WHERE aside = 0 ORDER BY number LIMIT 1")
        return Counts(messages, size, aside, oldest[0] if oldest else None)

    def put(self, rows: Sequence[Row], now_ms: int) -> list[int]:
        told, position = [], 1
        for path, group, message_id, payload in rows:
            told.append((path, group, message_id, position, len(payload)))
            position += len(payload)
        bodies = b"".join([row.payload for row in rows])
        self._run(_PUT, (now_ms, bodies, json.dumps(told)))
        (last,) = self._row("SELECT last_insert_rowid()")
        self._run(_COUNT, (len(rows), position - 1))
        return list(range(last - len(rows) + 1, last + 1))

    def take(self, wanted: Wanted) -> list[Entry]:
        asked = (_list(wanted.known), _list(wanted.paused_paths), _list(wanted.busy_groups), wanted.limit)
        found: list[Entry] = []
        size = 0
        with self._rows(_TAKE, asked) as rows:
            for row in rows:
                entry = Entry(*row)
                size += len(entry.payload)
                if found and size > wanted.max_bytes:
                    break
                found.append(entry)
        return found

    def remove(self, numbers: Sequence[int]) -> int:
        asked = (_list(numbers),)
        count, size = self._row(f"SELECT count(*), total(bytes) FROM twinbus_outbox WHERE number {_IN}", asked)
        if count:
            self._run(f"DELETE FROM twinbus_outbox WHERE number {_IN}", asked)
            self._run(f"DELETE FROM twinbus_outbox_aside WHERE number {_IN}", asked)
            self._run(_COUNT, (-count, -int(size)))
        return int(count)

    def set_aside(self, refused: Sequence[tuple[int, str]], now_ms: int) -> None:
        for number, reason in refused:
            self._run(
                "INSERT OR REPLACE INTO twinbus_outbox_aside (number, at_ms, reason)"
                " SELECT number, ?, ? FROM twinbus_outbox WHERE number = ?",
                (now_ms, reason, number),
            )
        self._run(f"UPDATE twinbus_outbox SET aside = 1 WHERE number {_IN}", (_list([each[0] for each in refused]),))

    def bring_back(self, numbers: Sequence[int] | None) -> int:
        every = [row[0] for row in self._run("SELECT number FROM twinbus_outbox_aside")]
        chosen = every if numbers is None else [number for number in every if number in set(numbers)]
        self._run(f"UPDATE twinbus_outbox SET aside = 0 WHERE number {_IN}", (_list(chosen),))
        self._run(f"DELETE FROM twinbus_outbox_aside WHERE number {_IN}", (_list(chosen),))
        return len(chosen)

    def look(self, limit: int, from_number: int, aside: bool | None) -> list[Entry]:
        which = "" if aside is None else f"AND aside = {int(aside)}"
        return [Entry(*row) for row in self._run(_LOOK.format(which=which), (from_number, limit))]

    def holds(self, group: str) -> bool:
        return self._first("SELECT 1 FROM twinbus_outbox WHERE lane = ? AND aside = 0 LIMIT 1", (group,)) is not None

    @contextmanager
    def _rows(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Iterable[tuple[Any, ...]]]:
        """The rows of a statement, which is over at the end of the block: one that is not would hold a snapshot."""
        cursor = self._connection.cursor()
        if hasattr(cursor, "row_factory"):
            cursor.row_factory = None  # Whatever the application likes its rows to be.
        try:
            yield cursor.execute(statement, values)
        finally:
            cursor.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._rows(statement, values) as rows:
            return list(rows)


class SqliteHome(Committer[Work[Any], None]):
    """A SQLite file; the application's own database, or one for the outbox alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._closed: OutboxError | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, OWNER_ONLY))  # Messages are for their owner alone.
            self._database = shared_sqlite.connect(str(path), CACHE_KIB)
        except OSError as error:
            raise OutboxError(f"The outbox {path} cannot be opened: {error.strerror or error}.") from error
        except BusError as error:
            raise OutboxError(f"The outbox {path} cannot be opened: {error}.") from error
        tables = SqliteTables(self._database)
        try:
            self._database.execute("BEGIN IMMEDIATE")
            tables.create()
            self._database.execute("COMMIT")
        except BaseException as error:
            self._database.close()
            raise self._explain(error) if isinstance(error, sqlite3.Error) else error from error
        self._tables = tables

    def commit(self, group: list[Work[Any]], now_ms: int) -> None:
        """One transaction for all; one that only reads makes nobody wait for the disk."""
        database = self._database
        try:
            if self._closed is not None:
                raise self._closed
            database.execute("BEGIN" if all(work.reads for work in group) else "BEGIN IMMEDIATE")
            for work in group:
                work.attempt(self._tables, now_ms)
            database.execute("COMMIT")
        except Exception as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            problem = error if isinstance(error, OutboxError) else self._explain(error)
            for work in group:
                work.problem = problem
            if shared_sqlite.is_fatal(error):
                self._closed = problem  # Nobody knows what is on the disk: only a new start may judge.

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    def _explain(self, error: BaseException) -> OutboxError:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            return OutboxFullError(f"There is no room left on the disk of the outbox {self._path}.")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return OutboxError(f"Somebody else keeps the outbox {self._path} busy: {error}.")
        return OutboxError(f"The outbox {self._path} cannot be used: {error}.")


def _list(values: Sequence[int | str]) -> str:
    return json.dumps(list(values))
