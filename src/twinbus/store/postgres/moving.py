"""One store's rows from a SQLite file that nobody uses into an empty schema of PostgreSQL, table by table.

What each table of the one is in the other stands here once, in MOVED; both sides are then read and compared with it.
When a store is moved, and what is done with one that is half moved, is not decided here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, LiteralString, NamedTuple, TypeAlias
from zlib import crc32

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.sql.copy_rows import HEADER, TRAILER, Kind, Tally, packer, rows_in
from twinbus.sql.postgres import Connection, Row
from twinbus.store.postgres.text import to_text
from twinbus.store.statements import SEQ_BITS

BLOCK_BYTES = 256 * 1024
TOLD_ROWS = 1_000

Told: TypeAlias = Callable[[int], None]  # Hears of rows, so many since the last time.


class Moved(NamedTuple):
    """A table, its columns in PostgreSQL, and what selects its rows in SQLite."""

    table: LiteralString
    columns: tuple[tuple[LiteralString, Kind], ...]
    select: str
    by_queue: bool = True  # Its first column is a queue, or another number of which there are few.


_INT, _TEXT, _BYTES = Kind.INT8, Kind.TEXT, Kind.BYTES

# Entities have one row here and one for each queue there. Nobody has read in a queue: all of it is in front.
_COUNTS = "json_array({})".format(
    ", ".join(
        f"{sub}.{name}"
        for sub in ("main", "dead", "transfer")
        for name in ("next_seq", "active", "deferred", "scheduled", "damaged", "bytes", "head")
    )
)
_QUEUE = "(SELECT *, 1 AS head FROM queue)"
ENTITIES = f"""
SELECT main.id / 4, main.settings, main.dropped = 1, {_COUNTS}, 0, main.dropped = 2
  FROM {_QUEUE} AS main
  JOIN {_QUEUE} AS dead ON dead.id = main.id + 1
  JOIN {_QUEUE} AS transfer ON transfer.id = main.id + 2
 WHERE main.id % 4 = 0 ORDER BY main.id"""
MESSAGES = """
SELECT m.queue, m.seq, m.body, coalesce(length(b.data) - 4, 0), m.state, m.delivery_count, m.enqueued_at, m.expires_at,
       m.due_at, m.session, m.message_id, m.overlay, m.reason, m.description
  FROM message AS m LEFT JOIN body AS b ON b.id = m.body ORDER BY m.queue, m.seq"""
# What was locked is locked here too, by nobody and until long ago, so that a sweep counts the deliveries by the store's
# own rules. Which claims still count is decided as in `store.recovery`.
LOCKS = """
SELECT m.queue, m.seq, 0, 0, 0, NULL
  FROM (SELECT claim.queue, held.value ->> 0 AS seq, max(held.value ->> 1) AS delivery_count
          FROM claim, json_each(claim.held) AS held GROUP BY 1, 2) AS c
  JOIN message AS m ON m.queue = c.queue AND m.seq = c.seq
  JOIN body AS b ON b.id = m.body
  JOIN queue AS q ON q.id = m.queue AND q.dropped <> 1
 WHERE m.state < 2 AND m.delivery_count <= c.delivery_count ORDER BY 1, 2"""

MOVED = (
    Moved(
        "entity",
        (
            *(("id", _INT), ("settings", _TEXT), ("dropped", Kind.BOOL), ("counts", Kind.INT8S), ("changes", _INT)),
            ("aside", Kind.BOOL),
        ),
        ENTITIES,
    ),
    Moved("body", (("id", _INT), ("data", _BYTES)), "SELECT id, data FROM body ORDER BY id", by_queue=False),
    Moved(
        "message",
        (
            *(("queue", _INT), ("seq", _INT), ("body", _INT), ("size", Kind.INT4), ("state", Kind.INT2)),
            *(("delivery_count", Kind.INT4), ("enqueued_at", _INT), ("expires_at", _INT), ("due_at", _INT)),
            *(("session", _TEXT), ("message_id", _TEXT), ("overlay", _BYTES)),
            *(("reason", _TEXT), ("description", _TEXT)),
        ),
        MESSAGES,
    ),
    Moved(
        "lock",
        (("queue", _INT), ("seq", _INT), ("id", _INT), ("until", _INT), ("owner", _INT), ("session", _TEXT)),
        LOCKS,
    ),
    Moved(
        "duplicate",
        (("queue", _INT), ("message_id", _TEXT), ("at_ms", _INT)),
        "SELECT queue, message_id, at_ms FROM duplicate ORDER BY queue, message_id",
    ),
    Moved(
        "transfer",
        (("queue", _INT), ("seq", _INT), ("at_ms", _INT)),
        "SELECT queue, seq, at_ms FROM transfer ORDER BY queue, seq",
    ),
    Moved(
        "session_state",
        (("queue", _INT), ("session", _TEXT), ("state", _BYTES), ("updated_at", _INT)),
        "SELECT queue, session, state, updated_at FROM session_state ORDER BY queue, session",
    ),
    # Gateways have numbers from 1 on: what was written before there were any is the stream of writer 0. Likewise the
    # numbers of bodies, which begin with the gateway's.
    Moved(
        "journal",
        (("writer", _INT), ("id", _INT), ("at_ms", _INT), ("ops", _BYTES)),
        "SELECT 0, id, at_ms, ops FROM journal ORDER BY id",
    ),
    Moved(
        "name",
        (
            *(("entity", _INT), ("path", _TEXT), ("kind", _TEXT), ("fragment", Kind.INT4), ("gone_at", _INT)),
            ("document", _TEXT),
        ),
        "SELECT entity, path, kind, fragment, gone_at, document FROM name ORDER BY entity",
    ),
    Moved(
        "export",
        (
            *(("writer", _INT), ("first", _INT), ("last", _INT), ("from_ms", _INT), ("to_ms", _INT)),
            *(("bytes", _INT), ("state", Kind.INT4)),
        ),
        "SELECT writer, first, last, from_ms, to_ms, bytes, state FROM export ORDER BY writer, first",
    ),
)

_BYTES_HERE = """
SELECT m.queue, m.state, count(*), sum(length(b.data) - 4)
  FROM message AS m JOIN body AS b ON b.id = m.body GROUP BY 1, 2"""
_BYTES_THERE: LiteralString = """
SELECT m.queue, m.state::bigint, count(*), sum(octet_length(b.data) - 4)::bigint
  FROM message AS m JOIN body AS b ON b.id = m.body AND octet_length(b.data) - 4 = m.size GROUP BY 1, 2"""


class Damage(NamedTuple):
    """What was wrong before; it moves as it is, and the store treats it as it would have done."""

    bodies: int = 0  # That do not match their checksum.
    messages: int = 0  # Without a body.


def check_source(database: apsw.Connection) -> None:
    """Refuse a file whose rows cannot be moved as they are."""
    queues, entities = _row(database, "SELECT count(*), count(CASE WHEN id % 4 = 0 THEN 1 END) FROM queue")
    if queues != 3 * entities:
        raise BusError(Fault.NOT_ALLOWED, f"The store has {queues} queues for {entities} entities, not three for each.")
    if _row(database, "SELECT count(*) FROM queue WHERE dropped NOT IN (0, 1, 2)")[0]:
        raise BusError(Fault.NOT_ALLOWED, "The store has entities in a state that is not known here.")
    first, last = _row(database, "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM body")
    if max(last, -first) >> SEQ_BITS:
        raise BusError(Fault.NOT_ALLOWED, "The store's bodies have numbers that belong to gateways in PostgreSQL.")


def count_rows(database: apsw.Connection) -> int:
    """How many rows there are to be moved, about."""
    return sum(
        _row(database, f"SELECT count(*) FROM {'claim' if each.table == 'lock' else each.table}")[0]
        for each in MOVED
        if each.table != "entity"
    )


def copy_store(database: apsw.Connection, connection: Connection, told: Told) -> tuple[dict[str, Tally], Damage]:
    """Copy all rows, each table in a transaction; what was sent, to be compared with what is there then."""
    tallies, damaged = {}, 0

    def looked_at(row: Row) -> None:
        nonlocal damaged
        damaged += crc32(memoryview(row[1])[4:]) != int.from_bytes(row[1][:4], "big")

    for each in MOVED:
        tally = tallies[each.table] = Tally(by_first=each.by_queue)
        look = looked_at if each.table == "body" else None
        with connection.cursor() as cursor, cursor.copy(_copy(each, "FROM STDIN")) as copy:
            copy.write(HEADER)
            for block in _blocks(_rows(database, each, look), tally, told):
                copy.write(block)
            copy.write(TRAILER)
        connection.execute(f"ANALYZE {each.table}")
    without = "SELECT count(*) FROM message WHERE body NOT IN (SELECT id FROM body)"
    return tallies, Damage(damaged, _row(database, without)[0])


def _copy(moved: Moved, direction: LiteralString) -> LiteralString:
    columns: LiteralString = ", ".join([name for name, _ in moved.columns])
    return f"COPY {moved.table} ({columns}) {direction} (FORMAT BINARY)"


def _rows(database: apsw.Connection, moved: Moved, look: Callable[[Row], None] | None) -> Iterator[bytes]:
    """The rows of a table as they are sent."""
    pack = packer([kind for _, kind in moved.columns])
    texts = [place for place, (_, kind) in enumerate(moved.columns) if kind is Kind.TEXT]
    lists = [place for place, (_, kind) in enumerate(moved.columns) if kind is Kind.INT8S]
    for found in database.execute(moved.select):
        if look is not None:
            look(found)
        row: list[Any] = list(found)
        for place in texts:
            if row[place] is not None:
                row[place] = to_text(row[place])
        for place in lists:
            row[place] = json.loads(row[place])
        yield pack(row)


def _blocks(rows: Iterator[bytes], tally: Tally, told: Told) -> Iterator[bytes]:
    block: list[bytes] = []
    size = untold = 0
    for row in rows:
        tally.add(row)
        block.append(row)
        size += len(row)
        untold += 1
        if size >= BLOCK_BYTES or untold >= TOLD_ROWS:
            yield b"".join(block)
            told(untold)
            block, size, untold = [], 0, 0
    yield b"".join(block)
    told(untold)


def compare(database: apsw.Connection, connection: Connection, sent: dict[str, Tally], told: Told) -> list[str]:
    """What is not there as it was sent, in words: rows by their digests, then messages and their bytes by state."""
    problems = []
    for each in MOVED:
        tally = Tally(by_first=each.by_queue)
        untold = 0
        with connection.cursor() as cursor, cursor.copy(_copy(each, "TO STDOUT")) as copy:
            for row in rows_in(copy):
                tally.add(row)
                untold += 1
                if untold == TOLD_ROWS:
                    told(untold)
                    untold = 0
        told(untold)
        for key in sent[each.table].differences(tally):
            what = f" of {each.columns[0][0]} {key}" if each.by_queue else ""
            counts = f"{sent[each.table].count(key)} were sent, {tally.count(key)} are there"
            problems.append(f"the rows in {each.table}{what} are not the same ({counts})")
    here = sorted(tuple(row) for row in database.execute(_BYTES_HERE))
    there = sorted(tuple(row) for row in connection.execute(_BYTES_THERE).fetchall())
    if here != there:
        queues = sorted({row[0] for row in set(here) ^ set(there)})
        problems.append(f"messages or bytes by state differ in {len(queues)} queues, the first is {queues[0]}")
    return problems


def _row(database: apsw.Connection, statement: str, values: Sequence[int] = ()) -> tuple[Any, ...]:
    row: Any = database.execute(statement, values).fetchone()
    return tuple(row)
