"""The catalog in PostgreSQL: entities, policies and the gateways that share them, each change numbered in its order.

Small and synchronous, like the catalog's file; who refreshes when, and who waits for whom, is the broker's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, LiteralString, NamedTuple, TypeVar

import psycopg
from psycopg import sql

from twinbus.model.errors import BusError, Fault
from twinbus.model.failpoints import failpoint
from twinbus.sql.postgres import Connection, integers
from twinbus.store.catalog import DAMAGED, EntityRow, checksum_of
from twinbus.store.postgres.schema import unfinished

VERSION = 2
UNFINISHED_VERSION = 0  # It is being filled from elsewhere; no version of Twinbus serves it.
STALE_S = 5  # A gateway that has not been heard of for so long does not count any more.

T = TypeVar("T")

# Checksums say of which change they are: a gateway of the version before writes rows and knows nothing of them. What
# was removed stays listed until its stores have been told: nothing else that a store holds may be dropped.
_SECOND: tuple[LiteralString, ...] = (
    "ALTER TABLE {s}.meta ADD COLUMN checksum text",
    "ALTER TABLE {s}.entity ADD COLUMN checksum text",
    "CREATE TABLE {s}.dropping (entity bigint PRIMARY KEY, store int NOT NULL)",
    "UPDATE {s}.counter SET version = 2",
)
# What makes a catalog of one version one of the next. Gateways of the version before go on working with it.
_MIGRATIONS: dict[int, tuple[LiteralString, ...]] = {1: _SECOND}

_TABLES: tuple[LiteralString, ...] = (
    "CREATE TABLE {s}.counter (change bigint NOT NULL, next_id bigint NOT NULL, version int NOT NULL)",
    "INSERT INTO {s}.counter VALUES (1, 1, 1)",
    "CREATE TABLE {s}.meta (key text PRIMARY KEY, value text NOT NULL, change bigint NOT NULL)",
    # The key is the name as names are compared; how letters fold is decided in one place, which is not the database.
    """CREATE TABLE {s}.entity (id bigint PRIMARY KEY, key text NOT NULL UNIQUE, name text NOT NULL, kind text NOT NULL,
        store int NOT NULL, document text NOT NULL, change bigint NOT NULL)""",
    "CREATE INDEX entity_change ON {s}.entity (change)",
    """CREATE TABLE {s}.gateway (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, label text NOT NULL,
        started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        beat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        seen bigint NOT NULL DEFAULT 0)""",
    # Numbers that a gateway has taken for entities that are not in the catalog yet.
    """CREATE TABLE {s}.making (first bigint PRIMARY KEY, past bigint NOT NULL,
        gateway bigint NOT NULL REFERENCES {s}.gateway ON DELETE CASCADE)""",
    "CREATE TABLE {s}.used (entity bigint PRIMARY KEY, at_ms bigint NOT NULL)",
    *_SECOND,
)
_NOW_MS: LiteralString = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class Reading(NamedTuple):
    """What the catalog holds: all of it, or what changed after a number."""

    change: int
    meta: dict[str, tuple[str, int]]  # With the number of its last change.
    rows: list[tuple[EntityRow, int]]
    ids: set[int]  # Of all entities, so that one sees which are gone.


class GatewayRow(NamedTuple):
    """A gateway as the others see it."""

    number: int
    label: str
    started_at_ms: int
    silent_ms: int
    seen: int


class Beat(NamedTuple):
    """The answer to a sign of life."""

    change: int
    now_ms: int
    is_known: bool  # False: the others had given this gateway up.


def schema_of(namespace: str) -> str:
    """Where a namespace's catalog is; also the channel on which its changes are told."""
    return f"twinbus_{namespace.lower()}"


class CatalogDatabase:
    """A namespace's catalog, shared with other gateways. Every change is durable when its call returns, or raises."""

    def __init__(self, connect: Callable[[], Connection], namespace: str) -> None:
        self._connect = connect
        self._schema = sql.Identifier(schema_of(namespace))
        self.channel = schema_of(namespace)
        self.gateway = 0
        self._connection = connect()
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        with self._connection.transaction():
            self._execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 1))", (self.channel,))
            found = self._execute("SELECT to_regclass(%s)", (f'"{self.channel}".counter',)).fetchone()
            if found == (None,):
                self._execute("CREATE SCHEMA IF NOT EXISTS {s}")
                for statement in _TABLES:
                    self._execute(statement)
                return
            version = int(self._value("SELECT version FROM {s}.counter"))
            if version == UNFINISHED_VERSION:
                raise unfinished("The catalog in the database")
            if version > VERSION:
                raise BusError(
                    Fault.STORE_UNAVAILABLE,
                    f"The catalog in the database has version {version}, and this version of Twinbus knows only up to"
                    f" {VERSION}. Start the newer Twinbus that wrote it, or use another database.",
                )
            for old in range(version, VERSION):
                for statement in _MIGRATIONS[old]:
                    self._execute(statement)

    # Starting: one gateway at a time, so that keys and declared entities are made once.

    def begin_start(self) -> None:
        """Wait until no other gateway of the namespace is starting. Released by `end_start`, or with the connection."""
        try:
            self._execute("SELECT pg_advisory_lock(hashtextextended(%s, 2))", (self.channel,))
        except psycopg.errors.LockNotAvailable:
            raise BusError(Fault.SERVER_BUSY, "Another gateway of the namespace is starting.") from None

    def end_start(self) -> None:
        """Let the next one start."""
        self._execute("SELECT pg_advisory_unlock(hashtextextended(%s, 2))", (self.channel,))

    # Reading

    def load(self) -> tuple[dict[str, str], list[EntityRow]]:
        """The namespace's settings, and all entities in order of their numbers."""
        reading = self.read()
        return {key: value for key, (value, _) in reading.meta.items()}, [row for row, _ in reading.rows]

    def read(self, since: int = 0) -> Reading:
        """What changed after `since`, at one instant; everything, if the database is older than that."""
        return self._retried(lambda: self._read(since))

    def _read(self, since: int) -> Reading:
        with self._connection.transaction():
            self._execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            change = int(self._value("SELECT change FROM {s}.counter"))
            if change == since:
                return Reading(change, {}, [], set())
            after = since if change > since else 0
            meta = self._execute(
                "SELECT key, value, change, checksum FROM {s}.meta WHERE change > %s", (after,)
            ).fetchall()
            rows = self._execute(
                "SELECT id, name, kind, store, document, change, checksum FROM {s}.entity WHERE change > %s"
                " ORDER BY id",
                (after,),
            ).fetchall()
            ids = self._value("SELECT coalesce(array_agg(id), '{{}}') FROM {s}.entity")
        for key, value, version, checksum in meta:
            if _is_damaged(checksum, version, key, value):
                raise BusError(
                    Fault.STORE_UNAVAILABLE,
                    f"The catalog cannot be read: its value of '{key}' does not match its checksum.",
                )
        return Reading(
            change,
            {key: (value, version) for key, value, version, _ in meta},
            [(_checked(EntityRow(*row[:5]), row[6], row[5]), row[5]) for row in rows],
            set(ids),
        )

    # Changing. `known` is the change that the caller has seen last; a row with a newer one is not overwritten.

    def take_ids(self, count: int) -> int:
        """Numbers for new entities, in a row, never given out twice; the first of them."""

        def take() -> int:
            first = int(
                self._value("UPDATE {s}.counter SET next_id = next_id + %s RETURNING next_id - %s", (count, count))
            )
            if self.gateway:
                self._execute("INSERT INTO {s}.making VALUES (%s, %s, %s)", (first, first + count, self.gateway))
            return first

        return self._changed(take)

    def put(self, row: EntityRow, known: int | None = None, *, is_taken_up: bool = False) -> int:
        """Add an entity, or replace the one with the same number; the number of this change.

        One that is taken up was made long ago.
        """

        def put() -> int:
            change = self._next_change()
            current = self._execute("SELECT change FROM {s}.entity WHERE id = %s", (row.id,)).fetchone()
            _check_current(current, known, f"'{row.name}'")
            if current is None and self.gateway and not is_taken_up:
                # Numbers that others may free by now are not used any more.
                made = self._execute("DELETE FROM {s}.making WHERE first <= %s AND past > %s", (row.id, row.id))
                if made.rowcount == 0:
                    raise BusError(Fault.SERVER_BUSY, "The gateway was given up by the others for a while; retry.")
            self._execute(
                "INSERT INTO {s}.entity VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET"
                " key = excluded.key, name = excluded.name, kind = excluded.kind, store = excluded.store,"
                " document = excluded.document, change = excluded.change, checksum = excluded.checksum",
                (
                    *(row.id, row.name.lower(), row.name, row.kind, row.store, row.document, change),
                    _checksum(change, *row.stored),
                ),
            )
            return change

        return self._changed(put)

    def remove(self, entity_id: int, parts: Mapping[int, int] | None = None) -> int:
        """Forget an entity; one that is not there is no error. The number of this change.

        `parts` are its numbers in stores that drop them now.
        """

        def remove() -> int:
            change = self._next_change()
            for part, store in (parts or {}).items():
                self._execute("INSERT INTO {s}.dropping VALUES (%s, %s) ON CONFLICT DO NOTHING", (part, store))
            self._execute("DELETE FROM {s}.entity WHERE id = %s", (entity_id,))
            self._execute("DELETE FROM {s}.used WHERE entity = %s", (entity_id,))
            return change

        return self._changed(remove)

    def set_meta(self, key: str, value: str, known: int | None = None) -> int:
        """Keep one of the namespace's settings; the number of this change."""

        def put() -> int:
            change = self._next_change()
            current = self._execute("SELECT change FROM {s}.meta WHERE key = %s", (key,)).fetchone()
            _check_current(current, known, "The namespace")
            self._execute(
                "INSERT INTO {s}.meta VALUES (%s, %s, %s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value,"
                " change = excluded.change, checksum = excluded.checksum",
                (key, value, change, _checksum(change, key, value)),
            )
            return change

        return self._changed(put)

    # What was removed and is perhaps still in its store

    def dropping(self) -> dict[int, int]:
        """The store of each number."""
        return dict(self._retried(lambda: self._execute("SELECT entity, store FROM {s}.dropping").fetchall()))

    def dropped(self, parts: Iterable[int]) -> None:
        """The stores have been told to drop these."""
        numbers = integers(list(parts))
        self._retried(lambda: self._execute("DELETE FROM {s}.dropping WHERE entity = ANY(%s::bigint[])", (numbers,)))

    def keep_ids_above(self, number: int) -> None:
        """Give out no number up to this one: a store knows it, whatever became of the catalog."""
        self._changed(
            lambda: self._execute("UPDATE {s}.counter SET next_id = %s WHERE next_id <= %s", (number + 1, number))
        )

    def note(self, values: Mapping[str, str]) -> None:
        """Keep what is known of the stores."""
        for key, value in values.items():
            self.set_meta(key, value)

    def raise_generation(self, least: int) -> None:
        """Go on counting changes from there at least: an operator has said that this is the right catalog."""
        self._changed(lambda: self._execute("UPDATE {s}.counter SET change = greatest(change, %s)", (least,)))

    # The gateways

    def join(self, label: str) -> int:
        """Enter this gateway in the list; its number, which no other ever has."""

        def join() -> int:
            self._drop_stale()
            return int(self._value("INSERT INTO {s}.gateway (label) VALUES (%s) RETURNING number", (label,)))

        self.gateway = self._changed(join)
        return self.gateway

    def beat(self, seen: int) -> Beat:
        """Give a sign of life, and tell the others which change has been taken over."""

        def beat() -> Beat:
            with self._connection.transaction():
                self._execute("SET LOCAL synchronous_commit = off")
                before = self._execute(
                    "UPDATE {s}.gateway g SET seen = %s, beat_at = clock_timestamp() FROM {s}.gateway old"
                    " WHERE g.number = %s AND old.number = g.number RETURNING old.seen",
                    (seen, self.gateway),
                ).fetchone()
                if before is not None and before[0] < seen:
                    self._execute("SELECT pg_notify(%s, %s)", (self.channel, "seen"))
                self._drop_stale()
                row = self._execute("SELECT change, " + _NOW_MS + " FROM {s}.counter").fetchone()
            assert row is not None
            return Beat(int(row[0]), int(row[1]), before is not None)

        return self._retried(beat)

    def behind(self, change: int) -> int:
        """How many of the other gateways have not taken over a change yet."""
        return int(
            self._retried(
                lambda: self._value(
                    "SELECT count(*) FROM {s}.gateway WHERE number <> %s AND seen < %s"
                    " AND beat_at > clock_timestamp() - make_interval(secs => %s)",
                    (self.gateway, change, STALE_S),
                )
            )
        )

    def gateways(self) -> list[GatewayRow]:
        """All gateways that are alive."""
        found = self._retried(
            lambda: self._execute(
                "SELECT number, label, (extract(epoch FROM started_at) * 1000)::bigint,"
                " (extract(epoch FROM clock_timestamp() - beat_at) * 1000)::bigint, seen FROM {s}.gateway"
                " WHERE beat_at > clock_timestamp() - make_interval(secs => %s) ORDER BY number",
                (STALE_S,),
            ).fetchall()
        )
        return [GatewayRow(*row) for row in found]

    def rejoin(self, label: str) -> None:
        """Be entered again under the same number, after the others had given this gateway up."""
        self._changed(
            lambda: self._execute(
                "INSERT INTO {s}.gateway (number, label) OVERRIDING SYSTEM VALUE VALUES (%s, %s)"
                " ON CONFLICT (number) DO NOTHING",
                (self.gateway, label),
            )
        )

    def leave(self) -> None:
        """Take this gateway off the list."""
        self._retried(lambda: self._execute("DELETE FROM {s}.gateway WHERE number = %s", (self.gateway,)))

    def _drop_stale(self) -> None:
        self._execute(
            "DELETE FROM {s}.gateway WHERE number IN (SELECT number FROM {s}.gateway WHERE number <> %s"
            " AND beat_at < clock_timestamp() - make_interval(secs => %s) FOR UPDATE SKIP LOCKED)",
            (self.gateway, STALE_S),
        )

    def making(self, entities: Iterable[int]) -> set[int]:
        """Which of these entities some gateway is making at the moment: nobody may take them for abandoned."""
        found = self._retried(
            lambda: self._execute(
                "SELECT id FROM unnest(%s::bigint[]) AS asked (id)"
                " WHERE EXISTS (SELECT FROM {s}.making WHERE first <= id AND past > id)",
                (integers(list(entities)),),
            ).fetchall()
        )
        return {row[0] for row in found}

    def share_use(self, used: Mapping[int, int]) -> dict[int, int]:
        """Tell when entities were last used here; when they were last used through any gateway."""

        def share() -> dict[int, int]:
            rows = self._execute(
                "INSERT INTO {s}.used SELECT * FROM unnest(%s::bigint[], %s::bigint[]) ON CONFLICT (entity) DO UPDATE"
                " SET at_ms = greatest(used.at_ms, excluded.at_ms) RETURNING entity, at_ms",
                (integers(list(used)), integers(list(used.values()))),
            ).fetchall()
            return dict(rows)

        return self._retried(share)

    def close(self) -> None:
        """Release the connection."""
        self._connection.close()

    # The connection

    def _next_change(self) -> int:
        """Number a change; the row is held until the commit, so that numbers become visible in their order."""
        change = int(self._value("UPDATE {s}.counter SET change = change + 1 RETURNING change"))
        self._execute("SELECT pg_notify(%s, %s)", (self.channel, "change"))
        return change

    def _changed(self, operation: Callable[[], T]) -> T:
        """One transaction, begun anew if the connection turns out to be gone before its commit.

        When its end is not known, the caller is told so and the next refresh shows it.
        """
        for is_last in (False, True):
            is_committing = False
            try:
                self._ready()
                with self._connection.transaction():
                    result = operation()
                    failpoint("catalog.write.before")
                    is_committing = True
                failpoint("catalog.write.after")
                return result
            except psycopg.errors.UniqueViolation as error:
                raise BusError(Fault.ENTITY_EXISTS, "Another entity has this name.") from error
            except psycopg.Error as error:
                is_gone = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
                if is_gone:
                    self._connection.close()
                if is_last or is_committing or not is_gone:
                    raise BusError(
                        Fault.STORE_UNAVAILABLE, f"The catalog could not be written: {_text(error)}"
                    ) from error
        raise AssertionError("unreachable")

    def _retried(self, operation: Callable[[], T]) -> T:
        """What may safely be done twice, once more on a new connection if need be."""
        try:
            try:
                self._ready()
                return operation()
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self._connection.close()
                self._ready()
                return operation()
        except psycopg.Error as error:
            raise BusError(Fault.STORE_UNAVAILABLE, f"The catalog could not be read: {_text(error)}") from error

    def _ready(self) -> None:
        if self._connection.closed or self._connection.broken:
            self._connection = self._connect()

    def _execute(self, statement: LiteralString, values: tuple[Any, ...] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._connection.execute(sql.SQL(statement).format(s=self._schema), values)

    def _value(self, statement: LiteralString, values: tuple[Any, ...] = ()) -> Any:
        row = self._execute(statement, values).fetchone()
        if row is None:
            raise BusError(
                Fault.STORE_UNAVAILABLE,
                f"The catalog in the schema {self.channel} is damaged: a row is missing that is always there. Put it"
                " back from a backup of the database.",
            )
        return row[0]


def _check_current(current: tuple[Any, ...] | None, known: int | None, what: str) -> None:
    """A row that somebody else has changed or removed is not overwritten with what was made from an older one."""
    if known is not None and known != (current[0] if current else 0):
        raise BusError(Fault.SERVER_BUSY, f"{what} was changed through another gateway at the same time; retry.")


def _text(error: psycopg.Error) -> str:
    return " ".join(str(error).split())


def _checksum(change: int, *values: int | str) -> str:
    return f"{change}:{checksum_of(*values)}"


def _is_damaged(checksum: str | None, change: int, *values: int | str) -> bool:
    """Whether a row is not as it was written; one that a gateway of an older version wrote is not judged."""
    return (checksum or "").startswith(f"{change}:") and checksum != _checksum(change, *values)


def _checked(row: EntityRow, checksum: str | None, change: int) -> EntityRow:
    return row._replace(problem=DAMAGED) if _is_damaged(checksum, change, *row.stored) else row
