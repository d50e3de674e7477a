"""The store under contract: every test here runs over every store there is, through `bus`, on a clock it moves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from support.postgres import PostgresServer
from support.replay import Told, residents
from twinbus.model.errors import BusError
from twinbus.model.message import Counts, Delivered, Incoming, Origin, Outcome, ReceiveMode, Settlement
from twinbus.store.balance import Balance
from twinbus.store.commands import (
    AcceptSession,
    Acquire,
    AcquireDeferred,
    Command,
    Complete,
    Copy,
    Count,
    Create,
    DropLocks,
    EntityName,
    Hints,
    Peek,
    Publication,
    Publish,
    QueueSettings,
    Send,
    Settle,
    Store,
    Sweep,
    Transfer,
    Weigh,
)
from twinbus.store.export import JournalSource
from twinbus.store.journal import JournalEntry, JournalRow, read
from twinbus.store.journal_source import SqliteJournal
from twinbus.store.postgres.journal import PostgresJournal
from twinbus.store.postgres.snapshot import PostgresSnapshot
from twinbus.store.postgres.store import PostgresStore
from twinbus.store.sqlite import SqliteStore
from twinbus.store.verification.checks import Finding
from twinbus.store.verification.examining import examine
from twinbus.store.verification.sqlite import SqliteSnapshot

QUEUE = 4
DEAD = 5
PEEK_LOCK = ReceiveMode.PEEK_LOCK
REMOVE = ReceiveMode.RECEIVE_AND_DELETE

TOPIC = 4
FIRST, SECOND, THIRD = SUBSCRIPTIONS = (8, 12, 16)


class Factory(Protocol):
    """Opens a store, and opens it again after it was closed or after its process died."""

    has_one_journal: bool  # Whether restarts go on with the same stream of journal rows.

    def open(self, now_ms: int) -> Store: ...

    def crash(self) -> None:
        """Make the next `open` see what a killed process would have left behind."""
        ...

    def journal(self, store: Any) -> list[JournalRow]:
        """Everything that was ever journaled, in order."""
        ...

    def source(self) -> JournalSource:
        """The journal as an exporter reads it, beside the store."""
        ...

    engine: str

    def execute(self, store: Any, statement: str) -> None:
        """Do something to the tables that no operation does."""
        ...

    def snapshot(self) -> SqliteSnapshot | PostgresSnapshot:
        """The store as `twinbus verify` reads it, beside whoever has it open."""
        ...

    def bodies(self, store: Any) -> int:
        """How many records the store holds."""
        ...

    def damage(self, store: Any, message_id: str) -> None:
        """Spoil the record of a message."""
        ...


class SqliteFactory:
    has_one_journal = True
    engine = "sqlite"

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.path = folder / "0" / "store.db"
        self.path.parent.mkdir()
        self.options = options
        self.starts = 0

    def open(self, now_ms: int) -> SqliteStore:
        self.starts += 1
        epoch = self.starts.to_bytes(8, "big")
        return SqliteStore(str(self.path), epoch=epoch, now_ms=now_ms, **self.options)

    def crash(self) -> None:
        copy = self.folder / str(self.starts)
        copy.mkdir()
        for file in self.path.parent.iterdir():
            if not file.name.endswith("-shm"):
                shutil.copy(file, copy / file.name)
        self.path = copy / self.path.name

    def journal(self, store: Any) -> list[JournalRow]:
        return store.journal_after(0, 100_000)

    def source(self) -> SqliteJournal:
        return SqliteJournal(str(self.path))

    def execute(self, store: Any, statement: str) -> None:
        store._database.execute(statement)

    def snapshot(self) -> SqliteSnapshot:
        return SqliteSnapshot(self.path, is_in_use=True)

    def bodies(self, store: Any) -> int:
        return store._database.execute("SELECT count(*) FROM body").get

    def damage(self, store: Any, message_id: str) -> None:
        store._database.execute(
            "UPDATE body SET data = CAST('ABCDxxxx' AS BLOB)"
            " WHERE id IN (SELECT body FROM message WHERE message_id = ?)",
            (message_id,),
        )


class PostgresFactory:
    """Stores in one schema of the shared server, which is emptied for each test.

    A killed gateway's locks last until they expire. Here they fall as soon as the next one opens the store, so that
    the tests, which know of one gateway only, need not wait; what others see is in test_two_gateways.
    """

    has_one_journal = False
    engine = "postgres"

    def __init__(self, server: PostgresServer, poll_ms: int = 0) -> None:
        self.server = server
        self.poll_ms = poll_ms
        self.schema = f"contract_{os.getpid()}"
        self.gateway = 0
        self.crashed = False
        if self._execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", self.schema):
            self._execute(";".join(f"DELETE FROM {table}" for table in _TABLES))

    def open(self, now_ms: int) -> PostgresStore:
        store = PostgresStore(self.server.connection_url, self.schema, poll_ms=self.poll_ms)
        if self.crashed:
            self.crashed = False
            heir = 999_999
            for table in ("lock", "hold"):
                self._execute(
                    f"UPDATE {table} SET owner = {store.gateway << 32 | heir} WHERE owner >> 32 = {self.gateway}"
                )
            store.commit([DropLocks(queue=0, owner=heir)], now_ms)
        self.gateway = store.gateway
        return store

    def crash(self) -> None:
        self.crashed = True

    def journal(self, store: Any) -> list[JournalRow]:
        return [row for writer in store.writers() for row in store.journal_after(0, 100_000, writer)]

    def source(self) -> PostgresJournal:
        return PostgresJournal(self.server.connection_url, self.schema)

    def execute(self, store: Any, statement: str) -> None:
        self._execute(statement)

    def snapshot(self) -> PostgresSnapshot:
        # One gateway's commits are in the order of time, and nothing is trimmed but in tests of that.
        return PostgresSnapshot(self.server.connection_url, self.schema, disorder_ms=-1)

    def bodies(self, store: Any) -> int:
        return self._execute("SELECT count(*) FROM body")[0][0]

    def damage(self, store: Any, message_id: str) -> None:
        self._execute(
            "UPDATE body SET data = 'ABCDxxxx' WHERE id IN (SELECT body FROM message WHERE message_id = %s)", message_id
        )

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        # Its durability is not what any test here shows: the stores have connections of their own.
        options = f"-csearch_path={self.schema} -csynchronous_commit=off"
        cursor = self.server.kept_connection(options).execute(statement, values)
        return cursor.fetchall() if cursor.description is not None else []


_TABLES = (
    "entity",
    "message",
    "body",
    "lock",
    "hold",
    "duplicate",
    "transfer",
    "session_state",
    "journal",
    "gateway",
    "name",
    "export",
)


def sqlite_with_little_memory(folder: Path) -> SqliteFactory:
    """Nothing fits into its cache, so that every message is read back from the disk."""
    return SqliteFactory(folder, cache_bytes=0)


FACTORIES = {"sqlite": SqliteFactory, "sqlite-uncached": sqlite_with_little_memory}
ENGINES = [*FACTORIES, "postgres"]


def factory_for(request: pytest.FixtureRequest, folder: Path) -> Factory:
    """A factory of the engine that a test is run with."""
    if request.param == "postgres":
        return PostgresFactory(request.getfixturevalue("postgres"))
    return FACTORIES[request.param](folder)


class Bus:
    """A store with one queue, driven command by command."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        self.now = 1_000_000
        self.store = factory.open(self.now)
        self.hints = Hints()
        self.crashed: list[Store] = []
        self.is_harmed = False  # A test has damaged the store on purpose.

    def commit(self, *commands: Command) -> Hints:
        self.hints = self.store.commit(list(commands), self.now)
        return self.hints

    def do(self, command: Command) -> Any:
        """Commit one command alone; its result, or its error raised."""
        self.commit(command)
        if command.error is not None:
            raise command.error
        return getattr(command, "result", None)

    def create(self, queue: int = QUEUE, kind: str = "queue", **settings: Any) -> None:
        name = EntityName(f"{kind}-{queue}", kind) if kind else None
        self.do(Create(queue=queue, settings=QueueSettings(**settings), name=name))

    def send(self, *ids: str, queue: int = QUEUE, size: int = 0, **fields: Any) -> list[int]:
        """Send messages in one command, each a unit of its own; their numbers."""
        units = [[Incoming(record(message_id, size), message_id, **fields)] for message_id in ids]
        results = self.do(Send(queue=queue, units=units, origin=Origin("connection-1", "sender")))
        for result in results:
            if isinstance(result, BusError):
                raise result
        return [number for numbers in results for number in numbers]

    def publish(self, *ids: str, to: list[int | Copy], queue: int = QUEUE, size: int = 0, **fields: Any) -> list[int]:
        """Publish messages in one command, each a unit of its own and with the same copies; their numbers."""
        units = []
        for message_id in ids:
            copies = [copy if isinstance(copy, Copy) else Copy(copy, message_id) for copy in to]
            units.append([publication(message_id, *copies, size=size, **fields)])
        results = self.do(Publish(queue=queue, units=units, origin=Origin("connection-1", "sender")))
        for result in results:
            if isinstance(result, BusError):
                raise result
        return [number for numbers in results for number in numbers]

    def receive(self, limit: int = 100, queue: int = QUEUE, **fields: Any) -> list[Delivered]:
        fields = {"mode": PEEK_LOCK, "owner": 1, "origin": Origin("connection-1", "receiver"), **fields}
        return self.do(Acquire(queue=queue, limit=limit, **fields))

    def receive_deferred(self, *numbers: int, queue: int = QUEUE, **fields: Any) -> list[Delivered]:
        fields = {"mode": PEEK_LOCK, "owner": 1, **fields}
        return self.do(AcquireDeferred(queue=queue, sequence_numbers=list(numbers), **fields))

    def complete(self, *messages: Delivered, queue: int = QUEUE) -> None:
        only(self.do(Complete(queue=queue, tokens=[message.token for message in messages])))

    def settle(self, outcome: Outcome, *messages: Delivered, queue: int = QUEUE, **fields: Any) -> None:
        settlements = [Settlement(message.token, outcome, **fields) for message in messages]
        only(self.do(Settle(queue=queue, settlements=settlements)))

    def peek(self, start: int = 0, limit: int = 1000, queue: int = QUEUE, **fields: Any) -> list[Delivered]:
        return self.do(Peek(queue=queue, from_sequence_number=start, limit=limit, **fields))

    def accept(self, session: str | None, holder: int = 1, owner: int = 1, queue: int = QUEUE) -> Any:
        return self.do(AcceptSession(queue=queue, session=session, owner=owner, holder=holder))

    def drop_locks(self, owner: int = 1) -> int:
        return self.do(DropLocks(queue=0, owner=owner))

    def count(self, queue: int = QUEUE) -> Counts:
        return self.do(Count(queue=queue))

    def sweep(self) -> None:
        """Sweep until nothing is left to do at this instant."""
        while self.do(Sweep(queue=0)):
            pass

    def pass_ms(self, duration: int) -> None:
        """Let time pass and do what it makes due, as a broker's timer would."""
        self.now += duration
        due = self.store.due_at_ms()
        if due is not None and due <= self.now:
            self.sweep()

    def restart(self) -> None:
        """A polite end and a new start."""
        self.weigh()
        self.store.close()
        self.store = self.factory.open(self.now)

    def crash(self) -> None:
        """The process dies without a word and a new one starts."""
        self.factory.crash()
        self.crashed.append(self.store)
        self.store = self.factory.open(self.now)

    def journal(self) -> list[JournalEntry]:
        return [entry for row in self.factory.journal(self.store) for entry in read(row)]

    def resident(self, *queues: int) -> set[tuple[int, int]]:
        """What is in queues and their sub-queues, by queue and number."""
        everywhere = [queue + sub for queue in queues for sub in range(3)]
        return {(queue, message.sequence_number) for queue in everywhere for message in self.peek(queue=queue)}

    def told(self, topics: frozenset[int] = frozenset()) -> set[tuple[int, int]]:
        """What must be in the queues if the journal is true."""
        entries = [Told(e.operation, e.queue, e.sequence_number, e.outcome) for e in self.journal()]
        return residents(entries, topics)

    def weigh(self) -> Balance | None:
        """What came in is what left and what is here, whatever a test did; None where a store does not tell it."""
        if not isinstance(self.store, SqliteStore) or self.store.failure is not None:
            return None
        weighed = Weigh(queue=0)
        self.store.commit([weighed], self.now)
        balance: Balance = weighed.result
        assert balance.delta == 0, balance
        return balance

    def verify(self) -> list[Finding]:
        """What `twinbus verify` would find in the store as it is."""
        snapshot = self.factory.snapshot()
        try:
            snapshot.begin()
            return examine(snapshot, 0, lambda rows: None).findings
        finally:
            snapshot.close()

    def close(self) -> None:
        self.weigh()
        if not self.is_harmed:
            assert self.verify() == []
        for store in [*self.crashed, self.store]:
            store.close()


def only(results: list[BusError | None]) -> None:
    for result in results:
        if result is not None:
            raise result


def record(message_id: str, size: int = 0) -> bytes:
    """A record that names its message and has bytes that no text may have."""
    return (message_id.encode() + b"\x00\xff\xc0").ljust(size, b"\xfe")


def bodies(bus: Bus) -> int:
    """How many records the store holds."""
    return bus.factory.bodies(bus.store)


def ids(messages: list[Delivered]) -> list[str]:
    return [message.message_id for message in messages]


def publication(message_id: str, *copies: Copy, size: int = 0, **fields: Any) -> Publication:
    return Publication(Incoming(record(message_id, size), message_id, **fields), list(copies))


def transfer(message: Delivered, queue: int = QUEUE) -> Transfer:
    """A move of a locked message out of a queue of the same store."""
    return Transfer(queue, message.sequence_number, message.token)


@pytest.fixture(params=ENGINES)
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> Factory:
    return factory_for(request, tmp_path)


class OpenBus:
    """Opens stores without entities, for tests that need many of them."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self.engine = request.param
        # So many histories are tried; a commit to a server takes its time.
        self.examples = 12 if self.engine == "postgres" else 40

    def __call__(self, folder: Path) -> Bus:
        return Bus(factory_for(self._request, folder))


@pytest.fixture(params=ENGINES)
def open_bus(request: pytest.FixtureRequest) -> OpenBus:
    return OpenBus(request)


@pytest.fixture
def empty(factory: Factory) -> Iterator[Bus]:
    """A store without any entity."""
    bus = Bus(factory)
    yield bus
    bus.close()


@pytest.fixture
def bus(empty: Bus) -> Bus:
    """A store with a queue of the default settings."""
    empty.create()
    return empty


@pytest.fixture
def sessions(empty: Bus) -> Bus:
    """A store with a queue that requires sessions."""
    empty.create(requires_session=True)
    return empty


@pytest.fixture
def topic(empty: Bus) -> Bus:
    """A store with a topic and three subscriptions."""
    for queue in (TOPIC, *SUBSCRIPTIONS):
        empty.create(queue, "topic" if queue == TOPIC else "subscription")
    return empty
