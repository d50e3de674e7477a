"""An outbox's tables in the application's PostgreSQL database, next to its own.

Statements, and the connection of the dispatcher. Counts are not kept in a row here, since all transactions of the
application would wait for each other at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from twinbus.model.errors import BusError
from twinbus.model.extras import needing
from twinbus.pair.errors import OutboxError, OutboxFullError
from twinbus.pair.outbox.rows import Counts, Entry, Row, Tables, Wanted, Work
from twinbus.sql import postgres
from twinbus.sql.group import Committer

with needing("psycopg"):
    import psycopg
    from psycopg.rows import tuple_row

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS twinbus_outbox (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, path text NOT NULL, lane text,
        message_id text NOT NULL, bytes bigint NOT NULL, put_at_ms bigint NOT NULL,
        aside_at_ms bigint, reason text, payload bytea NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS twinbus_outbox_waiting ON twinbus_outbox (number) WHERE aside_at_ms IS NULL",
    "CREATE INDEX IF NOT EXISTS twinbus_outbox_lane ON twinbus_outbox (lane) WHERE lane IS NOT NULL",
    """CREATE TABLE IF NOT EXISTS twinbus_outbox_state (
        only_one integer PRIMARY KEY CHECK (only_one = 1), version bigint NOT NULL, holder text, until_ms bigint)""",
    "INSERT INTO twinbus_outbox_state (only_one, version) VALUES (1, 1) ON CONFLICT DO NOTHING",
)
_FIELDS = "number, path, lane, message_id, put_at_ms, payload, aside_at_ms, reason"
_PUT = """INSERT INTO twinbus_outbox (path, lane, message_id, bytes, put_at_ms, payload)
    VALUES (?, ?, ?, ?, ?, ?) RETURNING number"""


class PostgresTables(Tables):
    """The tables in PostgreSQL."""

    schema = _SCHEMA
    lease_locks = " FOR UPDATE"

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def counts(self) -> Counts:
        """How full it is; counted."""
        (row,) = self._run(
            "SELECT count(*), coalesce(sum(bytes), 0)::bigint, count(aside_at_ms),"
            " min(put_at_ms) FILTER (WHERE aside_at_ms IS NULL) FROM twinbus_outbox"
        )
        return Counts(*row)

    def put(self, rows: Sequence[Row], now_ms: int) -> list[int]:
        numbers = []
        for path, group, message_id, payload in rows:
            ((number,),) = self._run(_PUT, (path, group, message_id, len(payload), now_ms, payload))
            numbers.append(number)
        return numbers

    def take(self, wanted: Wanted) -> list[Entry]:
        """The first messages that a dispatcher has room for.

        A number that was taken earlier may become visible later, so that nothing but what is known is passed over.
        """
        rows = self._run(
            f"SELECT {_FIELDS} FROM twinbus_outbox WHERE aside_at_ms IS NULL AND number <> ALL(?::bigint[])"
            " AND lower(path) <> ALL(?::text[]) AND (lane IS NULL OR lane <> ALL(?::text[]))"
            " ORDER BY number LIMIT ?",
            (list(wanted.known), list(wanted.paused_paths), list(wanted.busy_groups), min(wanted.limit, 200)),
        )
        found: list[Entry] = []
        size = 0
        for row in rows:
            size += len(row[5])
            if found and size > wanted.max_bytes:
                break
            found.append(_entry(row))
        return found

    def remove(self, numbers: Sequence[int]) -> int:
        return len(
            self._run("DELETE FROM twinbus_outbox WHERE number = ANY(?::bigint[]) RETURNING 1", (list(numbers),))
        )

    def set_aside(self, refused: Sequence[tuple[int, str]], now_ms: int) -> None:
        for number, reason in refused:
            self._run(
                "UPDATE twinbus_outbox SET aside_at_ms = ?, reason = ? WHERE number = ?", (now_ms, reason, number)
            )

    def bring_back(self, numbers: Sequence[int] | None) -> int:
        return len(
            self._run(
                "UPDATE twinbus_outbox SET aside_at_ms = NULL, reason = NULL WHERE aside_at_ms IS NOT NULL"
                " AND (?::bigint[] IS NULL OR number = ANY(?::bigint[])) RETURNING 1",
                (None if numbers is None else list(numbers),) * 2,
            )
        )

    def look(self, limit: int, from_number: int, aside: bool | None) -> list[Entry]:
        rows = self._run(
            f"SELECT {_FIELDS} FROM twinbus_outbox WHERE number >= ?"
            " AND (?::boolean IS NULL OR (aside_at_ms IS NOT NULL) = ?::boolean) ORDER BY number LIMIT ?",
            (from_number, aside, aside, limit),
        )
        return [_entry(row) for row in rows]

    def holds(self, group: str) -> bool:
        found = "SELECT 1 FROM twinbus_outbox WHERE lane = ? AND aside_at_ms IS NULL LIMIT 1"
        return bool(self._run(found, (group,)))

    def now_ms(self) -> int:
        """The database's time, which all machines share."""
        ((now_ms,),) = self._run("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        return int(now_ms)

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(_sql(statement.replace("?", "%s")), values or None)
            return cursor.fetchall() if cursor.description is not None else []


def _create(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        PostgresTables(connection).create()


def _entry(row: tuple[Any, ...]) -> Entry:
    number, path, group, message_id, put_at_ms, payload, aside_at_ms, reason = row
    return Entry(number, path, group, message_id, put_at_ms, bytes(payload), aside_at_ms, reason)


class PostgresHome(Committer[Work[Any], None]):
    """The connection of a dispatcher, made again when it is lost."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: postgres.Connection | None = None
        self._connect()

    def commit(self, group: list[Work[Any]], now_ms: int) -> None:
        """One transaction for all. One whose connection was lost has an unknown outcome, and counts as a failure."""
        try:
            connection = self._connect()
            with connection.transaction():
                tables = PostgresTables(connection)
                now_ms = tables.now_ms()
                for work in group:
                    work.attempt(tables, now_ms)
        except Exception as error:
            problem = error if isinstance(error, OutboxError) else _explain(error)
            for work in group:
                work.problem = problem
            if not isinstance(error, OutboxError) and postgres.is_lost(self._connection, error):
                self._drop()

    def _connect(self) -> postgres.Connection:
        if self._connection is None:
            try:
                connection = postgres.connect(self._address, settings={"enable_sort": "on", "enable_bitmapscan": "on"})
            except BusError as error:
                raise OutboxError(str(error)) from error
            try:
                try:
                    _create(connection)
                except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable):
                    _create(connection)  # Somebody else made them at the same time.
            except psycopg.Error as error:
                connection.close()
                raise _explain(error) from error
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._drop()


def _explain(error: Exception) -> OutboxError:
    if postgres.is_full(error):
        return OutboxFullError("There is no room left on the disk of the outbox's database.")
    return OutboxError(f"The outbox's database cannot be used: {' '.join(str(error).split())}")


def _sql(statement: str) -> LiteralString:
    """The statements are made of constants of this module."""
    return statement  # type: ignore[return-value,unused-ignore]
