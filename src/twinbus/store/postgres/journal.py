"""The journal of a store in PostgreSQL as its exporter reads it: streams of all gateways, also of those that are gone.

One gateway at a time exports a store: the one that holds a lock of the database, which falls with its connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg

from twinbus.model.errors import BusError, Fault
from twinbus.sql import postgres
from twinbus.sql.postgres import integers
from twinbus.store.commands import EntityName
from twinbus.store.export import DAY_MS, Limits, Stream
from twinbus.store.journal import JournalRow
from twinbus.store.journal_source import ROWS_AT_ONCE
from twinbus.store.range_commands import Range

MAY_EXPORT: LiteralString = "SELECT pg_try_advisory_lock(hashtextextended(%s, 2))"
STREAMS: LiteralString = """
WITH RECURSIVE named AS (
  SELECT min(writer) AS writer FROM journal
   UNION ALL
  SELECT (SELECT min(j.writer) FROM journal AS j WHERE j.writer > n.writer) FROM named AS n WHERE n.writer IS NOT NULL)
SELECT n.writer,
       coalesce((SELECT e.last FROM export AS e
                  WHERE e.writer = n.writer AND e.state > 0 ORDER BY e.first DESC LIMIT 1), 0),
       (SELECT max(j.id) FROM journal AS j WHERE j.writer = n.writer),
       (SELECT j.at_ms FROM journal AS j
         WHERE j.writer = n.writer
           AND j.id > coalesce((SELECT e.last FROM export AS e
                                 WHERE e.writer = n.writer ORDER BY e.first DESC LIMIT 1), 0)
         ORDER BY j.id LIMIT 1),
       o.first, o.last, o.from_ms, o.to_ms, o.bytes
  FROM named AS n LEFT JOIN export AS o ON o.writer = n.writer AND o.state = 0
 WHERE n.writer IS NOT NULL ORDER BY n.writer"""
FIRST_AFTER: LiteralString = """
SELECT id, at_ms FROM journal WHERE writer = %(writer)s AND id > %(after)s ORDER BY id LIMIT 1"""
_NEXT: LiteralString = """
SELECT id, at_ms, octet_length(ops) AS size FROM journal
 WHERE writer = %(writer)s AND id > %(after)s ORDER BY id LIMIT %(rows)s"""
NEXT_RANGE: LiteralString = f"""
WITH next AS MATERIALIZED ({_NEXT})
SELECT min(id), max(id), sum(size)::bigint, min(at_ms), max(at_ms)
  FROM (SELECT id, at_ms, size, sum(size) OVER (ORDER BY id) AS total FROM next) AS j
 WHERE (total <= %(bytes)s OR id = %(first)s)
   AND id < coalesce((SELECT min(id) FROM next WHERE at_ms / 86400000 <> %(day)s), id + 1)"""
RANGE_ROWS: LiteralString = """
SELECT id, at_ms, ops
  FROM (SELECT id, at_ms, ops, sum(octet_length(ops)) OVER (ORDER BY id) - octet_length(ops) AS before
          FROM (SELECT id, at_ms, ops FROM journal
                 WHERE writer = %(writer)s AND id > %(after)s AND id <= %(last)s ORDER BY id LIMIT %(rows)s) AS j) AS j
 WHERE before < %(bytes)s ORDER BY id"""
NAMES: LiteralString = "SELECT entity, path, kind, fragment FROM name WHERE entity = ANY(%s::bigint[])"
HAS_DROPPED: LiteralString = "SELECT EXISTS (SELECT 1 FROM entity WHERE dropped)"
JOURNAL_BYTES: LiteralString = "SELECT coalesce(sum(octet_length(ops)), 0)::bigint FROM journal"


class PostgresJournal:
    """One store's journal, on a connection of its own."""

    def __init__(self, url: str, schema: str) -> None:
        self._schema = schema
        self._is_held = False
        self._connection = postgres.connect(url, schema)

    def hold(self) -> bool:
        """Whether this is the gateway that exports the store; asks again while it is not."""
        if not self._is_held:
            self._is_held = bool(self._rows(MAY_EXPORT, (self._schema,))[0][0])
        return self._is_held

    def streams(self) -> list[Stream]:
        """Those of all gateways that have rows here."""
        return [
            Stream(
                writer,
                exported,
                None if part[0] is None else Range(writer, *part),
                max(newest - (exported if part[1] is None else part[1]), 0),
                newest,
                oldest_ms,
            )
            for writer, exported, newest, oldest_ms, *part in self._rows(STREAMS)
        ]

    def next_range(self, stream: Stream, limits: Limits) -> Range | None:
        """The next rows that can be one file."""
        values: dict[str, int] = {"writer": stream.writer, "after": stream.exported}
        start = self._rows(FIRST_AFTER, values)
        if not start:
            return None
        [(first, at_ms)] = start
        values |= {"first": first, "day": at_ms // DAY_MS, **limits._asdict()}
        [(found, last, size, from_ms, to_ms)] = self._rows(NEXT_RANGE, values)
        return Range(stream.writer, found, last, from_ms, to_ms, size)

    def rows(self, part: Range, after: int, most_bytes: int) -> list[JournalRow]:
        """The next rows of a range."""
        values = {
            "writer": part.writer,
            "after": max(after, part.first - 1),
            "last": part.last,
            "bytes": most_bytes,
            "rows": ROWS_AT_ONCE,
        }
        return [JournalRow(*row) for row in self._rows(RANGE_ROWS, values)]

    def names(self, entities: Sequence[int]) -> dict[int, EntityName]:
        """What entities are called."""
        found = self._rows(NAMES, (integers(list(entities)),))
        return {entity: EntityName(path, kind, fragment) for entity, path, kind, fragment in found}

    def waits_for_drops(self) -> bool:
        """Whether a dropped entity is still being freed, by whichever gateway."""
        return bool(self._rows(HAS_DROPPED)[0][0])

    def stored_bytes(self) -> int:
        """What the rows of all gateways take up."""
        return int(self._rows(JOURNAL_BYTES)[0][0])

    def close(self) -> None:
        """Let another gateway export."""
        self._connection.close()

    def _rows(self, statement: LiteralString, values: Any = ()) -> list[postgres.Row]:
        try:
            return self._connection.execute(statement, values, binary=True).fetchall()
        except psycopg.Error as error:
            self._connection.close()
            text = f"The journal cannot be read: {' '.join(str(error).split())}"
            raise BusError(Fault.STORE_UNAVAILABLE, text) from error
