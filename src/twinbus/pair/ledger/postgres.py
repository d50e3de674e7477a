"""A ledger in a PostgreSQL database, for receivers on several machines: rows are locked while a group decides.

The tables are where the address's search path leads, so that the application's own connections find them. The time is
the database's, because leases are compared across machines. Decisions are made by `ledger`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, LiteralString

from twinbus.model.errors import BusError, Fault
from twinbus.model.extras import needing
from twinbus.pair.ledger.decisions import Copy, Entry, Key, State
from twinbus.pair.ledger.storage import NAMES, TABLE, TRIM_CHUNK, Command, Group, Record, Row, Trim
from twinbus.sql import postgres

with needing("psycopg"):
    import psycopg

ATTEMPTS = 8
READ_ROWS = 5000
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
_COLUMNS = "id, state, namespace, sequence_number, until_ms, at_ms, suppressed"
# A row that somebody's transaction has in hand is left out by the first and found by the second.
_FIND_FREE = f"""
SELECT scope, tag, {_COLUMNS} FROM {TABLE}
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
_OLDEST = f"SELECT id, state, until_ms, at_ms FROM {TABLE} WHERE id > %s ORDER BY id LIMIT {TRIM_CHUNK}"
_FORGET = f"""
DELETE FROM {TABLE} WHERE id IN (
    SELECT id FROM {TABLE} WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED
)
"""
_ENDS = f"SELECT (SELECT id FROM {TABLE} ORDER BY id LIMIT 1), (SELECT id FROM {TABLE} ORDER BY id DESC LIMIT 1)"
_RECORDS = f"""
SELECT known.id, entity.name, tag, state, namespace.name, sequence_number, at_ms, suppressed
FROM {TABLE} AS known JOIN {NAMES} AS entity ON entity.id = known.scope
JOIN {NAMES} AS namespace ON namespace.id = known.namespace
WHERE known.id > %s AND (%s::text IS NULL OR entity.name = %s) ORDER BY known.id LIMIT {READ_ROWS}
"""


class _TryAgain(Exception):  # noqa: N818
    """Somebody else added a row that this group wanted to add."""


class PostgresStorage:
    """A ledger's rows in a database that others use too."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.offset_ms = 0  # Moves the clock, for tests.
        self._names: dict[str, int] = {}
        self._texts: dict[int, str] = {}
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
        self._learn(connection, group)
        with connection.transaction():
            now_ms = self._value(_NOW) + self.offset_ms
            for command in group:
                if isinstance(command, Trim):
                    self._trim(connection, command, now_ms)
            keys = list(dict.fromkeys(command.key for command in group if not isinstance(command, Trim)))
            if not keys:
                return
            marks = {command.key for command in group if not isinstance(command, Trim) and hasattr(command, "changed")}
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
                    rows[key] = self._row(connection, values)
                    found.add(key)
        missing = [place for place, key in by_place.items() if key not in found]
        locked: set[Key] = set()
        if missing:
            locked = {by_place[scope, tag] for scope, tag in connection.execute(_sql(_FIND_ANY), _columns(missing))}
        return rows, frozenset(locked)

    def _row(self, connection: postgres.Connection, values: Sequence[Any]) -> Row:
        number, state, namespace, sequence_number, until_ms, at_ms, suppressed = values
        copy = Copy(self._text(connection, namespace), sequence_number)
        return Row(number, Entry(State(state), copy, until_ms), at_ms, suppressed)

    def _write(self, connection: postgres.Connection, work: Group) -> None:
        new: list[tuple[Any, ...]] = []
        changed: list[tuple[Any, ...]] = []
        for key in work.changed:
            row = work.rows[key]
            entry = row.entry
            assert entry is not None
            namespace = self._name(entry.copy.namespace)
            number = entry.copy.sequence_number
            values = (int(entry.state), namespace, number, entry.until_ms, row.at_ms, row.suppressed)
            if row.id is None:
                new.append((self._name(key.scope), key.tag, *values))
            else:
                changed.append((*values, row.id))
        if new:
            new.sort()  # Two groups that add the same tags wait for each other in the same order.
            if connection.execute(_sql(_ADD), _columns(new)).rowcount != len(new):
                raise _TryAgain
        if changed:
            connection.execute(_sql(_CHANGE), _columns(changed))

    def _trim(self, connection: postgres.Connection, command: Trim, now_ms: int) -> None:
        rows = connection.execute(_sql(_OLDEST), (command.after,)).fetchall()
        surplus = self.entries() - command.entries_max
        old = [
            number
            for position, (number, state, until_ms, at_ms) in enumerate(rows)
            if (at_ms < now_ms - command.keep_ms or position < surplus)
            and (state != State.CLAIMED or until_ms <= now_ms)
        ]
        command.removed = connection.execute(_sql(_FORGET), (postgres.integers(old),)).rowcount if old else 0
        command.next_after = rows[-1][0] if old and len(rows) == TRIM_CHUNK else None

    # Names are few, and rows many.

    def _learn(self, connection: postgres.Connection, group: Sequence[Command]) -> None:
        """Know the numbers of all names before the transaction begins, which may be rolled back."""
        texts = {
            text
            for command in group
            if not isinstance(command, Trim)
            for text in (command.key.scope, command.copy.namespace)
            if text not in self._names
        }
        for text in sorted(texts):
            connection.execute(_sql(f"INSERT INTO {NAMES} (name) VALUES (%s) ON CONFLICT DO NOTHING"), (text,))
            number = self._value(f"SELECT id FROM {NAMES} WHERE name = %s", text)
            self._names[text], self._texts[number] = number, text

    def _name(self, text: str) -> int:
        return self._names[text]

    def _text(self, connection: postgres.Connection, number: int) -> str:
        text = self._texts.get(number)
        if text is None:
            row = connection.execute(_sql(f"SELECT name FROM {NAMES} WHERE id = %s"), (number,)).fetchone()
            assert row is not None
            text = str(row[0])
            self._names[text], self._texts[number] = number, text
        return text

    # The connection.

    def _connected(self) -> postgres.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = postgres.connect(self.url)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _value(self, statement: str, *values: Any) -> int:
        row = self._connected().execute(_sql(statement), values or None).fetchone()
        assert row is not None
        return int(row[0])

    def entries(self) -> int:
        """How many numbers there are between the oldest row and the newest."""
        row = self._connected().execute(_sql(_ENDS)).fetchone()
        return 0 if row is None or row[0] is None else row[1] - row[0] + 1

    def checkpoint_due(self) -> bool:
        """The database looks after its log itself."""
        return False

    def checkpoint(self) -> bool:
        """There is nothing to move."""
        return True

    def close(self) -> None:
        """Leave the database."""
        self._drop()


def records(url: str, scope: str | None = None) -> Iterator[Record]:
    """Every row of a ledger in a database, some thousands at a time."""
    try:
        with postgres.connect(url) as connection:
            after = 0
            while rows := connection.execute(_sql(_RECORDS), (after, scope, scope)).fetchall():
                for _, entity, tag, state, namespace, sequence_number, at_ms, suppressed in rows:
                    yield Record(entity, tag, State(state), namespace, sequence_number, at_ms, suppressed)
                after = rows[-1][0]
    except psycopg.Error as error:
        raise BusError(Fault.STORE_UNAVAILABLE, f"The ledger's database cannot be read: {error}") from error


def _sql(statement: str) -> LiteralString:
    """The statements are made of constants of this package."""
    return statement  # type: ignore[return-value,unused-ignore]


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Rows as arrays of integers, and of texts."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return [column if isinstance(column[0], str) else postgres.integers(column) for column in columns]
