"""A stopped namespace moves from its directory into PostgreSQL databases: read, copied, compared, and only then usable.

The directory is held and only read. What is copied and how it is compared is told in `store.postgres.moving`; what
marks the other side as unfinished, in `store.postgres.move_target`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.datadir import DataDirectory
from twinbus.broker.settings import NamespaceSettings, SettingsError
from twinbus.broker.shared_data import spread
from twinbus.broker.store_schemas import store_schema_of
from twinbus.model.errors import BusError, Fault
from twinbus.model.extras import needing
from twinbus.sql import sqlite
from twinbus.sql.copy_rows import Tally
from twinbus.sql.postgres import Connection, connect_for_bulk
from twinbus.store import catalog, schema
from twinbus.store.commands import Sweep
from twinbus.store.identity import STORE_KEY, known_stores
from twinbus.store.postgres import move_target, moving
from twinbus.store.postgres.moving import Damage
from twinbus.store.postgres.store import PostgresStore

with needing("psycopg"):
    import psycopg

import apsw

IDENTITY_KEY = "identity"  # Under this, a store in PostgreSQL keeps which one it is.
PROBLEMS_TOLD = 5


class Step(Enum):
    """How far a store is."""

    COPYING = "copying"
    COPIED = "copied"
    COMPARING = "comparing"
    COMPARED = "compared"


Watcher = Callable[[Step, int, int], None]  # Hears of a step, of which store, and of rows since the last time.


class MovedStore(NamedTuple):
    """A store that was moved."""

    number: int
    schema: str
    database: str
    entities: int
    messages: int
    bytes: int
    journal_rows: int
    locks: int  # That were dropped; their deliveries were counted.
    damage: Damage
    digest: str  # Of all rows, the same on both sides.


class MovedNamespace(NamedTuple):
    """What was moved."""

    name: str
    entities: int
    stores: list[MovedStore]
    has_exported: bool  # Some of its journal is in files.


class _Source(NamedTuple):
    """One store's file, and where it goes."""

    number: int
    file: apsw.Connection
    identity: str  # Its new id: what is done there from now on is not in the file.
    address: DatabaseAddress
    schema: str


class Migration:
    """One move, once. After a failure the other side is marked as unfinished, and the next move begins anew."""

    def __init__(
        self, directory: Path, addresses: Sequence[DatabaseAddress], namespace: str, now_ms: int | None = None
    ) -> None:
        """The time is the database's own if it is not given."""
        NamespaceSettings(name=namespace).check()
        if not (directory / "catalog.db").exists():
            raise SettingsError(f"{directory} is not a namespace's data directory: there is no catalog.db in it.")
        self._namespace = namespace
        self._now_ms = now_ms
        self._move = os.urandom(16).hex()
        self._opened = ExitStack()
        self._sources: list[_Source] = []
        with self._opened:
            held = DataDirectory(directory)
            self._opened.callback(held.release)
            self._meta, self._rows, self._dropping = self._read_catalog(held)
            self._open_stores(held, addresses)
            self._opened = self._opened.pop_all()

    def __enter__(self) -> Migration:
        return self

    def __exit__(self, *problem: object) -> None:
        self._opened.close()

    def _read_catalog(self, held: DataDirectory) -> tuple[dict[str, str], list[catalog.EntityRow], dict[int, int]]:
        with _told(held.catalog.name), closing(sqlite.read_only(held.catalog)) as file:
            meta, rows, dropping = catalog.read(file)
        for row in rows:
            if row.problem:
                raise SettingsError(
                    f"The row of '{row.name}' in {held.catalog.name} is damaged: mend it before the move."
                )
        return meta, rows, dropping

    def _open_stores(self, held: DataDirectory, addresses: Sequence[DatabaseAddress]) -> None:
        count = held.stores(None, known_stores(self._meta))
        for number, address in enumerate(spread(addresses, count)):
            path = held.store(number)
            if not path.exists():
                raise SettingsError(f"{path} is missing: all messaging stores of the namespace move together.")
            with _told(path.name):
                file = sqlite.read_only(path)
                self._opened.callback(file.close)
                schema.check_current(file)
                moving.check_source(file)
            identity = os.urandom(16).hex()
            name = store_schema_of(self._namespace, number)
            self._sources.append(_Source(number, file, identity, address, name))

    @property
    def rows(self) -> int:
        """About how many rows the watcher will hear of."""
        return 2 * sum(moving.count_rows(source.file) for source in self._sources)

    def run(self, watch: Watcher) -> MovedNamespace:
        """Move everything."""
        first = self._sources[0].address
        with _told(f"The database {first.label}"), connect_for_bulk(first.uri) as connection:
            move_target.claim_target(connection, self._namespace)
            self._clear(connection)
            move_target.begin_catalog(connection, self._namespace, self._move)
            moved = [self._move_store(source, watch) for source in self._sources]
            for source in self._sources:
                self._finish_store(source)
            meta = {key: value for key, value in self._meta.items() if key != catalog.NEXT_ID_KEY}
            for source in self._sources:
                meta[STORE_KEY.format(source.number)] = source.identity
            move_target.finish_catalog(connection, self._namespace, meta, self._rows, self._dropping, self._next_id())
        exported = any(source.file.execute("SELECT EXISTS (SELECT 1 FROM export)").get for source in self._sources)
        return MovedNamespace(self._namespace, len(self._rows), moved, exported)

    def _clear(self, connection: Connection) -> None:
        """Refuse databases in which the namespace is already; remove what an unfinished move left in them."""
        unfinished = move_target.unfinished_move(connection, self._namespace)
        found = []
        # The catalog's database last: it tells which stores are leftovers.
        for address in reversed(list(dict.fromkeys(source.address for source in self._sources))):
            with _told(f"The database {address.label}"), connect_for_bulk(address.uri) as there:
                found.append((address, move_target.look(there, self._namespace, unfinished)))
        served = [
            f"{each.words} at {address.label}"
            for address, schemas in found
            for each in schemas
            if not each.is_unfinished
        ]
        if served:
            raise MigrationError(
                Fault.NOT_ALLOWED,
                f"The namespace '{self._namespace}' is there already: {'; '.join(served)}. Give an empty database, or"
                " the namespace another name.",
            )
        for address, leftovers in found:
            with _told(f"The database {address.label}"), connect_for_bulk(address.uri) as there:
                move_target.drop(there, leftovers)

    def _move_store(self, source: _Source, watch: Watcher) -> MovedStore:
        number = source.number

        def at(step: Step) -> Callable[[int], None]:
            return lambda rows: watch(step, number, rows)

        where = f"Messaging store {number} at {source.address.label}"
        with _told(where), connect_for_bulk(source.address.uri, source.schema) as connection:
            move_target.begin_store(connection, source.schema, self._move, {IDENTITY_KEY: source.identity})
            sent, damage = moving.copy_store(source.file, connection, at(Step.COPYING))
            watch(Step.COPIED, number, 0)
            problems = moving.compare(source.file, connection, sent, at(Step.COMPARING))
            if problems:
                more = f"; and {len(problems) - PROBLEMS_TOLD} more" if len(problems) > PROBLEMS_TOLD else ""
                raise BusError(
                    Fault.INTERNAL,
                    f"What was copied is not what is there: {'; '.join(problems[:PROBLEMS_TOLD])}{more}."
                    " The copy stays marked as unfinished, and nobody serves it.",
                )
            watch(Step.COMPARED, number, 0)
        return self._describe(source, sent, damage)

    def _describe(self, source: _Source, sent: dict[str, Tally], damage: Damage) -> MovedStore:
        size = source.file.execute("SELECT coalesce(sum(bytes), 0) FROM queue WHERE dropped <> 1").get
        return MovedStore(
            source.number,
            source.schema,
            source.address.label,
            sent["entity"].rows,
            sent["message"].rows,
            int(size),
            sent["journal"].rows,
            sent["lock"].rows,
            damage,
            Tally.joined(sent.values()),
        )

    def _finish_store(self, source: _Source) -> None:
        """The store becomes one like any other, and what was locked is given back as at a start."""
        where = f"Messaging store {source.number} at {source.address.label}"
        with _told(where), connect_for_bulk(source.address.uri, source.schema) as connection:
            move_target.finish_store(connection)
            _give_back(source, connection, self._now_ms)

    def _next_id(self) -> int:
        """The first number for new entities: what the catalog says, and behind all that anything still speaks of."""
        known = [int(self._meta.get(catalog.NEXT_ID_KEY, 1)), *(row.id + 1 for row in self._rows)]
        for source in self._sources:
            known.append(source.file.execute("SELECT coalesce(max(id), 0) / 4 + 1 FROM queue").get)
            known.append(source.file.execute("SELECT coalesce(max(entity), 0) + 1 FROM name").get)
        return max(known)


def _give_back(source: _Source, connection: Connection, now_ms: int | None) -> None:
    """Have the store's own rules count a delivery for each lock: it may be one too many, or the message too old."""

    def locks() -> int:
        row = connection.execute("SELECT count(*) FROM lock").fetchone()
        assert row is not None
        return int(row[0])

    left = locks()
    if not left:
        return
    store = PostgresStore(
        source.address.uri,
        source.schema,
        number=source.number,
        clock_offset_ms=(lambda: 0) if now_ms is None else None,
        poll_ms=0,
        journal_retention_ms=None,  # What is old is trimmed by whoever serves it.
    )
    try:
        while left:
            sweep = Sweep(queue=0)
            store.commit([sweep], now_ms or 0)
            if sweep.error is not None:
                raise sweep.error
            before, left = left, locks()
            if left == before:
                raise BusError(Fault.INTERNAL, f"{left} locks could not be dropped.")
    finally:
        store.close()


class MigrationError(BusError):
    """Why a move failed, with the place where it did."""


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Say where something went wrong, once, in words for people."""
    try:
        yield
    except MigrationError:
        raise
    except BusError as error:
        raise MigrationError(error.fault, f"{where}: {error.text}") from error
    except (apsw.Error, psycopg.Error, ValueError) as error:
        raise MigrationError(Fault.STORE_UNAVAILABLE, f"{where}: {' '.join(str(error).split())}") from error
