"""The journal of an embedded store as its exporter reads it: on a connection of its own, beside the commits.

It only reads, in short steps, because a long one would keep the log from starting anew; what is written about ranges
goes through the store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.sql import sqlite
from twinbus.store import statements
from twinbus.store.commands import EntityName
from twinbus.store.export import DAY_MS, Limits, Stream
from twinbus.store.journal import JournalRow
from twinbus.store.range_commands import Range

ROWS_AT_ONCE = 2_000


class SqliteJournal:
    """One file's journal. Its process has the file to itself, so there is one writer, with the number 0."""

    def __init__(self, path: str) -> None:
        try:
            self._database = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
            self._database.set_busy_timeout(10_000)
            self._database.execute("PRAGMA query_only=1")
            sqlite.leave_log(self._database)
        except apsw.Error as error:
            raise BusError(Fault.STORE_UNAVAILABLE, f"The journal of {path} cannot be read: {error}") from error

    def hold(self) -> bool:
        """Nobody else could."""
        return True

    def streams(self) -> list[Stream]:
        """The one of writer 0."""
        exported, unfinished, newest = self._row(statements.STREAM)
        part = None if unfinished is None else Range(*json.loads(unfinished))
        last = exported if part is None else part.last
        oldest_ms = self._database.execute(statements.OLDEST_WAITING, (last,)).get
        return [Stream(0, exported, part, max(newest - last, 0), newest, oldest_ms)]

    def next_range(self, stream: Stream, limits: Limits) -> Range | None:
        """The next rows that can be one file."""
        after = stream.exported
        start = self._database.execute(statements.FIRST_AFTER, {"after": after}).fetchone()
        if start is None:
            return None
        first, at_ms = start
        values = {"after": after, "first": first, "day": at_ms // DAY_MS, **limits._asdict()}
        found, last, size, from_ms, to_ms = self._row(statements.NEXT_RANGE, values)
        return Range(stream.writer, found, last, from_ms, to_ms, size)

    def rows(self, part: Range, after: int, most_bytes: int) -> list[JournalRow]:
        """The next rows of a range."""
        values = {"after": max(after, part.first - 1), "last": part.last, "bytes": most_bytes, "rows": ROWS_AT_ONCE}
        return [JournalRow(*row) for row in self._database.execute(statements.RANGE_ROWS, values)]

    def names(self, entities: Sequence[int]) -> dict[int, EntityName]:
        """What entities are called."""
        found = self._database.execute(statements.NAMES, (json.dumps(list(entities)),))
        return {entity: EntityName(path, kind, fragment) for entity, path, kind, fragment in found}

    def waits_for_drops(self) -> bool:
        """Whether a dropped entity is still being freed."""
        return bool(self._database.execute(statements.HAS_DROPPED).get)

    def stored_bytes(self) -> int:
        """What the rows take up."""
        return int(self._database.execute(statements.JOURNAL_BYTES).get)

    def close(self) -> None:
        """Release the file, and leave its log to the store."""
        self._database.close()

    def _row(self, statement: str, values: object = ()) -> tuple[Any, ...]:
        row = self._database.execute(statement, values).fetchone()  # type: ignore[arg-type]
        assert isinstance(row, tuple)
        return row
