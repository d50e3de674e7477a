"""A ledger in a PostgreSQL database, for receivers on several machines: rows are locked while a group decides.

The tables are where the address's search path leads, so that the application's own connections find them. The time is
the database's, because leases are compared across machines. Decisions are made by `ledger`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, LiteralString

from twinbus.model.errors import BusError, Fault
from twinbus.model.extras import needing
from twinbus.pair.ledger.decisions import Key
from twinbus.pair.ledger.storage import (
    COLUMNS,
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
    read_records,
)
from twinbus.sql import postgres

with needing("psycopg"):
    import psycopg

ATTEMPTS = 8
# One who creates the tables keeps others from doing so at the same time.
_LOCK = 7_745_001
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS {NAMES} (id bigserial PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS {TABLE} (
    id bigserial PRIMARY KEY,
    scope bigint NOT NULL,
    tag text NOT NULL,
    state smallint NOT NULL,
    namespace bigint NOT NULL,
    sequence_number bigint NOT NULL,
    until_ms bigint NOT NULL,
    at_ms bigint NOT NULL,
    suppressed bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX IF NOT EXISTS {TABLE}_tag ON {TABLE} (scope, tag);
"""
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
# A row that somebody's transaction has in hand is left out by the first and found by the second.
_FIND_FREE = f"""
SELECT scope, tag, {COLUMNS} FROM {TABLE}
WHERE (scope, tag) IN (SELECT * FROM unnest(%s::bigint[], %s::text[])) ORDER BY id FOR UPDATE SKIP LOCKED
"""
_FIND_WAITING = _FIND_FREE.replace(" SKIP LOCKED", "")
_FIND_ANY = f"SELECT scope, tag FROM {TABLE} WHERE (scope, tag) IN (SELECT * FROM unnest(%s::bigint[], %s::text[]))"
_ADD = f"""
INSERT INTO {TABLE} (scope, tag, state, namespace, sequence_number, until_ms, at_ms, suppressed)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::smallint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[]) ON CONFLICT DO NOTHING
"""
_CHANGE = f"""
UPDATE {TABLE} AS known SET state = new.state, namespace = new.namespace, sequence_number = new.sequence_number,
    until_ms = new.until_ms, at_ms = new.at_ms, suppressed = new.suppressed
FROM unnest(%s::smallint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS new (state, namespace, sequence_number, until_ms, at_ms, suppressed, id)
WHERE known.id = new.id
"""
_FORGET = f"""
DELETE FROM {TABLE} WHERE id IN (
    SELECT id FROM {TABLE} WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
)
"""


class _TryAgain(Exception):  # noqa: N818
    """Somebody else added a row that this group wanted to add."""


class PostgresStorage(Storage):
    """A ledger's rows in a database that others use too."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.offset_ms = 0  # Moves the clock, for tests.
        self._connection: postgres.Connection | None = None
        connection = self._connected()
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                connection.execute(_sql(_SCHEMA), prepare=False)
        except psycopg.Error as error:
            self._drop()
            raise BusError(Fault.STORE_UNAVAILABLE, f"The ledger's database cannot be used: {error}") from error

    def commit(self, group: list[Command], now_ms: int) -> None:
        """Execute the commands in one transaction; what may succeed if tried again is tried again."""
        problem = BusError(Fault.STORE_UNAVAILABLE, "The ledger's database is too busy.")
        for _ in range(ATTEMPTS):
            try:
                self._commit(group)
                return
            except _TryAgain:
                continue
            except BusError as error:
                problem = error
                break
            except psycopg.Error as error:
                problem = BusError(Fault.STORE_UNAVAILABLE, f"The ledger's database: {error}")
                # A commit whose outcome is unknown may be repeated: claims and marks say the same again.
                if postgres.is_lost(self._connection, error):
                    self._drop()
                elif not postgres.is_retryable(error):
                    break
        for command in group:
            command.error = problem

    def _commit(self, group: list[Command]) -> None:
        connection = self._connected()
        about_tags = [command for command in group if not isinstance(command, Trim)]
        # The numbers of all names are known before the transaction begins, which may be rolled back.
        for text in sorted({text for each in about_tags for text in (each.key.scope, each.copy.namespace)}):
            self._name(text)
        with connection.transaction():
            ((now_ms,),) = self._read(_NOW)
            now_ms += self.offset_ms
            for command in group:
                if isinstance(command, Trim):
                    self._trim(command, now_ms)
            keys = keys_of(group)
            if not keys:
                return
            marks = {each.key for each in about_tags if isinstance(each, Mark)}
            rows, locked = self._load(connection, keys, marks)
            work = Group(now_ms, rows, locked)
            work.execute(group)
            self._write(connection, work)

    def _load(
        self, connection: postgres.Connection, keys: Sequence[Key], marks: set[Key]
    ) -> tuple[dict[Key, Row], frozenset[Key]]:
        """The rows, locked; marks wait for the transaction that has a row in hand, claims take that for an answer."""
        rows = {key: Row(None, None) for key in keys}
        asked = [(self._name(key.scope), key.tag) for key in keys]
        by_place = dict(zip(asked, keys, strict=True))
        waiting = [place for place, key in by_place.items() if key in marks]
        found: set[Key] = set()
        for statement, places in ((_FIND_WAITING, waiting), (_FIND_FREE, [p for p in asked if p not in set(waiting)])):
            if places:
                for scope, tag, *values in connection.execute(_sql(statement), _columns(places)):
                    key = by_place[scope, tag]
                    rows[key] = self._row(values)
                    found.add(key)
        missing = [place for place, key in by_place.items() if key not in found]
        locked: set[Key] = set()
        if missing:
            locked = {by_place[scope, tag] for scope, tag in connection.execute(_sql(_FIND_ANY), _columns(missing))}
        return rows, frozenset(locked)

    def _write(self, connection: postgres.Connection, work: Group) -> None:
        new, changed = self._to_write(work)
        if new:
            new.sort()  # Two groups that add the same tags wait for each other in the same order.
            if connection.execute(_sql(_ADD), _columns(new)).rowcount != len(new):
                raise _TryAgain
        if changed:
            connection.execute(_sql(_CHANGE), _columns(changed))

    def _forget(self, ids: list[int]) -> int:
        return self._connected().execute(_sql(_FORGET), (postgres.integers(ids),)).rowcount

    # The connection.

    def _connected(self) -> postgres.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = postgres.connect(self.url)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return _rows(self._connected(), statement, values)

    def close(self) -> None:
        """Leave the database."""
        self._drop()


def records(url: str, scope: str | None = None) -> Iterator[Record]:
    """Every row of a ledger in a database, read while others write."""
    try:
        with postgres.connect(url) as connection:
            yield from read_records(partial(_rows, connection), scope)
    except psycopg.Error as error:
        raise BusError(Fault.STORE_UNAVAILABLE, f"The ledger's database cannot be read: {error}") from error


def _rows(connection: postgres.Connection, statement: str, values: Sequence[Any]) -> list[Any]:
    cursor = connection.execute(_sql(statement.replace("?", "%s")), values or None)
    return cursor.fetchall() if cursor.description is not None else []


def _sql(statement: str) -> LiteralString:
    """The statements are made of constants of this package."""
    return statement  # type: ignore[return-value,unused-ignore]


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Rows as arrays of integers, and of texts."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return [column if isinstance(column[0], str) else postgres.integers(column) for column in columns]
