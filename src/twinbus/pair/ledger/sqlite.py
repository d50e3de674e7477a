"""A ledger in a SQLite file: the application's own database, or one of its own.

Rows are appended, found by one index, and forgotten from the oldest end; a group of commands is one transaction of
three statements. Decisions are made by `decisions`, threads belong to `ledger`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from twinbus.model.errors import BusError, Fault
from twinbus.pair.ledger.decisions import Key, State
from twinbus.pair.ledger.storage import (
    COLUMNS,
    MARK,
    NAMES,
    TABLE,
    Command,
    Group,
    Mark,
    Record,
    Row,
    Storage,
    Trim,
    keys_of,
    needs_sync,
    read_records,
)
from twinbus.sql import shared_sqlite

CACHE_KIB = 64 * 1024

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS {NAMES} (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS {TABLE} (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    tag TEXT NOT NULL,
    state INTEGER NOT NULL,
    namespace INTEGER NOT NULL,
    sequence_number INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    suppressed INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX IF NOT EXISTS {TABLE}_tag ON {TABLE} (scope, tag);
"""
_FIND_ONE = f"SELECT {COLUMNS} FROM {TABLE} WHERE scope = ? AND tag = ?"
_FIND = f"""
SELECT asked.key, {", ".join("known." + name for name in COLUMNS.split(", "))}
FROM json_each(?) AS asked CROSS JOIN {TABLE} AS known
WHERE known.scope = asked.value ->> 0 AND known.tag = asked.value ->> 1
"""
_ADD_ONE = f"""
INSERT INTO {TABLE} (scope, tag, state, namespace, sequence_number, until_ms, at_ms, suppressed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD = f"""
INSERT INTO {TABLE} (scope, tag, state, namespace, sequence_number, until_ms, at_ms, suppressed)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
FROM json_each(?)
"""
_CHANGE_ONE = f"""
UPDATE {TABLE} SET state = ?, namespace = ?, sequence_number = ?, until_ms = ?, at_ms = ?, suppressed = ? WHERE id = ?
"""
_CHANGE = f"""
UPDATE {TABLE} SET (state, namespace, sequence_number, until_ms, at_ms, suppressed)
    = (new.value ->> 0, new.value ->> 1, new.value ->> 2, new.value ->> 3, new.value ->> 4, new.value ->> 5)
FROM json_each(?) AS new WHERE {TABLE}.id = new.value ->> 6
"""
_FORGET = f"DELETE FROM {TABLE} WHERE id IN (SELECT value FROM json_each(?))"


class SqliteStorage(Storage):
    """A ledger's rows in a file; others who write there are waited for."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self._failure: BusError | None = None
        self._synced = True
        self._database = shared_sqlite.connect(path, cache_kib=CACHE_KIB)
        try:
            self._database.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            self._database.close()
            raise BusError(Fault.STORE_UNAVAILABLE, f"The ledger {path} cannot be used: {error}") from error

    def commit(self, group: list[Command], now_ms: int) -> None:
        """Execute the commands in one transaction."""
        if self._failure is not None:
            _refuse(group, self._failure)
            return
        database = self._database
        try:
            self._set_synced(any(needs_sync(command) for command in group))
            if len(group) == 1 and isinstance(group[0], Mark) and self._mark_alone(group[0], now_ms):
                return
            database.execute("BEGIN IMMEDIATE")
            try:
                self._execute(group, now_ms)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                self._names.clear()  # Nobody knows which of them are in the database.
                self._texts.clear()
                raise
        except sqlite3.Error as error:
            problem = BusError(Fault.STORE_UNAVAILABLE, f"The ledger {self.path}: {error}")
            if shared_sqlite.is_fatal(error):
                # What is on the disk is not known any more, and only a new start may judge it.
                self._failure = problem
            _refuse(group, problem)

    def _execute(self, group: list[Command], now_ms: int) -> None:
        for command in group:
            if isinstance(command, Trim):
                self._trim(command, now_ms)
        keys = keys_of(group)
        if not keys:
            return
        work = Group(now_ms, self._load(keys))
        work.execute(group)
        self._write(work)

    def _mark_alone(self, command: Mark, now_ms: int) -> bool:
        """What most workers do, one statement that is its own transaction; False where a name is new."""
        scope, namespace = self._names.get(command.key.scope), self._names.get(command.copy.namespace)
        if scope is None or namespace is None or command.state is State.DEFERRED:
            return False
        values = (scope, command.key.tag, int(command.state), namespace, command.copy.sequence_number, now_ms)
        command.changed = bool(self._database.execute(MARK, values).rowcount)
        return True

    def _load(self, keys: Sequence[Key]) -> dict[Key, Row]:
        rows = {key: Row(None, None) for key in keys}
        asked = [(self._name(key.scope), key.tag) for key in keys]
        if len(asked) == 1:
            found = self._database.execute(_FIND_ONE, asked[0]).fetchone()
            if found is not None:
                rows[keys[0]] = self._row(found)
            return rows
        for position, *values in self._database.execute(_FIND, (json.dumps(asked),)):
            rows[keys[position]] = self._row(values)
        return rows

    def _write(self, work: Group) -> None:
        new, changed = self._to_write(work)
        for rows, one, several in ((new, _ADD_ONE, _ADD), (changed, _CHANGE_ONE, _CHANGE)):
            if len(rows) == 1:
                self._database.execute(one, rows[0])
            elif rows:
                self._database.execute(several, (json.dumps(rows),))

    def _forget(self, ids: list[int]) -> int:
        self._read(_FORGET, (json.dumps(ids),))
        return len(ids)

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._database.execute(statement, values).fetchall()

    def close(self) -> None:
        """Release the file; after a failed sync its log is left alone, for only a new start may judge it."""
        if self._failure is None:
            self._database.close()
        self._failure = self._failure or BusError(Fault.STORE_UNAVAILABLE, f"The ledger {self.path} is closed.")

    def _set_synced(self, synced: bool) -> None:
        if synced is not self._synced:
            shared_sqlite.set_synced(self._database, synced)
            self._synced = synced


def records(path: str, scope: str | None = None) -> Iterator[Record]:
    """Every row of a ledger in a file, read while others write."""
    database = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
    try:
        yield from read_records(lambda statement, values: database.execute(statement, values).fetchall(), scope)
    except sqlite3.Error as error:
        raise BusError(Fault.STORE_UNAVAILABLE, f"The ledger {path} cannot be read: {error}") from error
    finally:
        database.close()


def _refuse(group: Sequence[Command], problem: BusError) -> None:
    for command in group:
        command.error = problem
