"""A store that moves from SQLite to PostgreSQL is what SQLite would have opened again; or nobody serves it."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from contract.conftest import DEAD, QUEUE, Bus, SqliteFactory, ids, record
from support.gateways import new_database
from support.postgres import PostgresServer
from twinbus.broker import migrating
from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.migrating import Migration, MovedNamespace, Step
from twinbus.broker.settings import SettingsError
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, Outcome
from twinbus.sql.postgres import connect, connect_for_bulk
from twinbus.sql.sqlite import read_only
from twinbus.store.catalog import CatalogFile, EntityRow
from twinbus.store.commands import (
    Copy,
    Create,
    Drop,
    EntityName,
    GetSessionState,
    ListSessions,
    QueueSettings,
    Send,
    SetSessionState,
    Transfer,
)
from twinbus.store.postgres import move_target, moving, schema
from twinbus.store.postgres.catalog import CatalogDatabase
from twinbus.store.postgres.journal import PostgresJournal
from twinbus.store.postgres.snapshot import PostgresSnapshot
from twinbus.store.postgres.store import PostgresStore
from twinbus.store.range_commands import CloseRange, FinishRange, Range
from twinbus.store.statements import SEQ_BITS

SESSIONS, TOPIC, FIRST, SECOND, GONE = 8, 12, 16, 20, 24
HOUR_MS = 3_600_000
ODD = "zero \0, mark \ue000, both \ue0000"
ROW = EntityRow(7, "Orders", "queue", 0, '{"x": "\\u0000"}')

_names = itertools.count(1)


class Here:
    """A SQLite store in a data directory, and how it would be after a restart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "live").mkdir(parents=True)
        self.factory = SqliteFactory(folder / "live")
        self.bus = Bus(self.factory)
        self.name = f"moving-{next(_names)}"

    def stopped(self, stores: int = 1) -> Path:
        """A directory as a kill would leave it; more stores than one are empty."""
        data = self.folder / "data"
        data.mkdir()
        catalog = CatalogFile(str(data / "catalog.db"))
        catalog.put(ROW)
        catalog.set_meta("authorization-rules", "[]")
        catalog.take_ids(50)
        for suffix in ("", "-wal"):
            shutil.copy(f"{self.factory.path}{suffix}", data / f"store-0.db{suffix}")
            shutil.copy(data / f"catalog.db{suffix}", data / f"kept{suffix}")
        catalog.close()
        for suffix in ("", "-wal"):
            (data / f"kept{suffix}").replace(data / f"catalog.db{suffix}")
        for number in range(1, stores):
            place = self.folder / f"other-{number}"
            place.mkdir()
            other = Bus(SqliteFactory(place))
            other.create(queue=400)
            other.send("there", queue=400)
            other.close()
            shutil.copy(other.factory.path, data / f"store-{number}.db")
        return data

    def again(self) -> Bus:
        """The same store, opened again by SQLite after a kill."""
        self.bus.crash()
        return self.bus


class There:
    """The same store in PostgreSQL."""

    has_one_journal = False

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema

    def open(self, now_ms: int) -> PostgresStore:
        return PostgresStore(self.url, self.schema, poll_ms=0)

    def snapshot(self) -> PostgresSnapshot:
        return PostgresSnapshot(self.url, self.schema, disorder_ms=-1)

    def journal(self, store: Any) -> list[Any]:
        return [row for writer in store.writers() for row in store.journal_after(0, 100_000, writer)]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    made = Here(tmp_path)
    yield made
    made.bus.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with two stores, which all tests can have because it is only read."""
    here = Here(tmp_path_factory.mktemp("data"))
    fill(here.bus)
    here.bus.send("locked")
    here.bus.receive(1, owner=9)
    here.bus.send("x", queue=SESSIONS, session_id="a")
    here.bus.accept("a", queue=SESSIONS)
    here.bus.do(SetSessionState(queue=SESSIONS, session="a", state=b"state"))
    yield here.stopped(stores=2)
    here.bus.close()


@pytest.fixture
def name() -> str:
    """A namespace that no other test has."""
    return f"moving-{next(_names)}"


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.connection_url


def move(
    data: Path, url: str, name: str, watch: migrating.Watcher = lambda *_: None, now_ms: int | None = None
) -> MovedNamespace:
    with Migration(data, [DatabaseAddress(url)], name, now_ms) as migration:
        return migration.run(watch)


@pytest.fixture
def there(here: Here, url: str) -> Iterator[Callable[[Path], Bus]]:
    opened: list[Bus] = []

    def moved(data: Path) -> Bus:
        move(data, url, here.name, now_ms=here.bus.now)
        bus = Bus(There(url, f"twinbus_{here.name}_0"))
        bus.now = here.bus.now
        opened.append(bus)
        return bus

    yield moved
    for bus in opened:
        bus.close()


def fill(bus: Bus, seed: int = 1) -> None:
    """Some of everything, in an order that a seed decides."""
    random = Random(seed)
    bus.create(QUEUE, duplicate_window_ms=HOUR_MS, max_delivery_count=3)
    bus.create(SESSIONS, requires_session=True)
    bus.create(TOPIC, kind="topic")
    for queue in (FIRST, SECOND):
        bus.create(queue, kind="subscription")
    numbers = itertools.count(1)
    for _ in range(40):
        bus.now += random.randrange(5_000)
        names = [f"m{next(numbers)}" for _ in range(random.randrange(1, 6))]
        match random.randrange(8):
            case 0 | 1:
                bus.send(*names, size=random.randrange(3_000))
            case 2:
                bus.send(*names, due_at_ms=bus.now + random.randrange(1, 60_000))
            case 3:
                bus.send(*names, queue=SESSIONS, session_id=random.choice("abc"))
            case 4:
                own = Copy(SECOND, names[0], overlay=b"\0overlay", ttl_ms=random.choice((None, 40_000)))
                bus.publish(*names, to=[FIRST, own], queue=TOPIC)
            case 5:
                bus.send(*names, ttl_ms=random.randrange(1, 30_000))
            case 6:
                for message in bus.receive(3, owner=random.randrange(1, 5)):
                    _settle(bus, message, random)
            case 7:
                bus.pass_ms(random.randrange(70_000))


def _settle(bus: Bus, message: Any, random: Random) -> None:
    match random.randrange(6):
        case 0:
            bus.complete(message)
        case 1:
            bus.settle(Outcome.DEFER, message, overlay=b"changed")
        case 2:
            bus.settle(Outcome.DEAD_LETTER, message, reason="a\0b", description="why")
        case 3:
            bus.settle(Outcome.ABANDON, message)
        # Or it stays locked.


def state_of(bus: Bus) -> dict[int, Any]:
    """What a store holds, as far as commands can tell."""
    held = {}
    for queue in range(QUEUE, SECOND + 4):
        if queue & 3 < 3:
            held[queue] = [message._replace(token=b"", locked_until_ms=0) for message in bus.peek(queue=queue)]
    return held


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_store_that_a_restart_would_have_opened(seed: int, here: Here, there: Callable[[Path], Bus]) -> None:
    fill(here.bus, seed)
    moved = there(here.stopped())
    again = here.again()
    for bus in (moved, again):
        bus.sweep()
    assert state_of(moved) == state_of(again)
    for queue in (QUEUE, SESSIONS, TOPIC, FIRST, SECOND):
        assert moved.count(queue) == again.count(queue)
    for bus in (moved, again):
        bus.pass_ms(200_000)  # What is due then happens in both.
    # Where several messages become due at one instant, the order of their new numbers is free.
    assert {q: sorted(ids(m)) for q, m in state_of(moved).items()} == {
        q: sorted(ids(m)) for q, m in state_of(again).items()
    }
    assert moved.told(frozenset({TOPIC})) == moved.resident(QUEUE, SESSIONS, TOPIC, FIRST, SECOND)


def test_what_was_locked_counts_as_delivered_and_comes_first_again(here: Here, there: Callable[[Path], Bus]) -> None:
    here.bus.create(max_delivery_count=2)
    here.bus.send("a", "b", "c", "d")
    here.bus.receive(1)
    here.bus.drop_locks()  # "a" was delivered once.
    here.bus.receive(3)
    moved = there(here.stopped())
    assert [(m.message_id, m.delivery_count) for m in moved.receive()] == [("b", 1), ("c", 1), ("d", 0)]
    [dead] = moved.peek(queue=DEAD)
    assert (dead.message_id, dead.reason) == ("a", "MaxDeliveryCountExceeded")


def test_any_character_moves(here: Here, there: Callable[[Path], Bus]) -> None:
    here.bus.create(QUEUE, duplicate_window_ms=HOUR_MS)
    here.bus.create(SESSIONS, requires_session=True)
    here.bus.send(ODD, "plain")
    here.bus.send(ODD, queue=SESSIONS, session_id=ODD)
    here.bus.accept(ODD, queue=SESSIONS)
    here.bus.do(SetSessionState(queue=SESSIONS, session=ODD, state=b"\0state"))
    moved = there(here.stopped())
    assert moved.send(ODD) == [0]
    assert moved.do(GetSessionState(queue=SESSIONS, session=ODD)) == b"\0state"
    assert moved.do(ListSessions(queue=SESSIONS, limit=9, skip=0, updated_after_ms=None)) == [ODD]
    moved.accept(ODD, queue=SESSIONS)
    assert ids(moved.receive(queue=SESSIONS, session=ODD, holder=1)) == [ODD]
    assert ids(moved.receive()) == [ODD, "plain"]


def test_numbers_go_on_behind_the_old_ones(here: Here, there: Callable[[Path], Bus], url: str) -> None:
    here.bus.create()
    here.bus.create(FIRST)
    here.bus.create(SECOND)
    here.bus.send("a", "b")
    here.bus.publish("shared", to=[FIRST, SECOND], queue=QUEUE)
    moved = there(here.stopped())
    here.bus.is_harmed = moved.is_harmed = True  # No broker makes a queue that is a topic as well.
    assert moved.send("c") == [4]
    with connect(url, f"twinbus_{here.name}_0") as connection:
        bodies = [row[0] for row in connection.execute("SELECT id FROM body ORDER BY id").fetchall()]
    assert bodies[:-1] == [-1, 1, 2]
    assert bodies[-1] >> SEQ_BITS >= 1
    with CatalogReader(url, here.name) as catalog:
        assert catalog.take_ids(1) == 51


def test_transfers_names_and_the_journal_move(here: Here, there: Callable[[Path], Bus], url: str) -> None:
    settings = QueueSettings()
    here.bus.do(Create(queue=QUEUE, settings=settings, name=EntityName("orders", "queue")))
    incoming = Transfer(queue=444, sequence_number=9)
    send = partial(Send, queue=QUEUE, transfers=[incoming])
    sent = here.bus.send("before")
    units = [[Incoming(record("moved"), "moved")]]
    here.bus.do(send(units=units))
    here.bus.do(CloseRange(queue=0, range=Range(0, 1, 1, 5, 6, 7)))
    here.bus.do(FinishRange(queue=0, range=Range(0, 1, 1, 5, 6, 7)))
    here.bus.receive(1)
    before = here.bus.journal()
    moved = there(here.stopped())
    assert moved.do(send(units=units)) == [[0]]
    assert sent == [1]
    after = moved.journal()
    assert after[: len(before)] == before
    assert [entry.operation for entry in after[len(before) :]][:1] == ["expire_lock"]
    moved.send("after")
    journal = PostgresJournal(url, f"twinbus_{here.name}_0")
    streams = {stream.writer: stream for stream in journal.streams()}
    assert (streams[0].exported, streams[0].open) == (1, None)
    assert len(streams) > 1
    assert journal.names([1])[1] == EntityName("orders", "queue")
    journal.close()


def test_an_entity_that_is_being_freed_is_freed_there(here: Here, there: Callable[[Path], Bus], url: str) -> None:
    here.bus.create(GONE)
    here.bus.send("a", "b", queue=GONE)
    here.bus.receive(1, queue=GONE)
    here.bus.do(Drop(queue=GONE))
    moved = there(here.stopped())
    assert moved.store.entities() == []  # type: ignore[attr-defined]
    moved.sweep()
    with connect(url, f"twinbus_{here.name}_0") as connection:
        for table in ("entity", "message", "body", "lock"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


class CatalogReader:
    """The catalog of a namespace as a gateway opens it."""

    def __init__(self, url: str, name: str) -> None:
        self._database = CatalogDatabase(partial(connect, url), name)

    def __enter__(self) -> CatalogDatabase:
        return self._database

    def __exit__(self, *problem: object) -> None:
        self._database.close()


def test_the_catalog_moves(here: Here, url: str) -> None:
    here.bus.create()
    moved = move(here.stopped(stores=3), url, here.name)
    assert [store.number for store in moved.stores] == [0, 1, 2]
    with CatalogReader(url, here.name) as catalog:
        meta, rows = catalog.load()
    assert rows == [ROW]
    assert meta.pop("authorization-rules") == "[]"
    assert sorted(meta) == ["store-0", "store-1", "store-2"]


def test_no_column_of_either_side_is_forgotten(here: Here, name: str, url: str) -> None:
    """Whoever adds a column or a table to one of the stores says here what becomes of it in a move."""
    PostgresStore(url, f"twinbus_{name}_0").close()
    with connect(url) as connection:
        there: dict[str, set[str]] = {}
        for table, column in connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s",
            (f"twinbus_{name}_0",),
        ).fetchall():
            there.setdefault(table, set()).add(column)
    of_gateways = {"meta", "gateway", "hold"}  # Who is there, and what they hold.
    moved = {each.table: {column for column, _ in each.columns} for each in moving.MOVED}
    assert {table: columns for table, columns in there.items() if table not in of_gateways} == moved

    database = here.bus.store._database  # type: ignore[attr-defined]
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    source = {table: {row[1] for row in database.execute(f"PRAGMA table_info({table})")} for table in tables}
    del source["meta"]  # Kind and version.
    assert source.pop("claim") == {"id", "queue", "held"}
    counters = set(schema.COUNTERS) - {"head"}
    assert source.pop("queue") == {"id", "settings", "dropped"} | counters
    moved["message"].remove("size")
    moved["journal"].remove("writer")
    assert source == {table: columns for table, columns in moved.items() if table not in ("entity", "lock")}


def test_the_directory_is_only_read(here: Here, url: str) -> None:
    fill(here.bus)
    data = here.stopped(stores=2)
    (data / "lock").touch()

    def files() -> dict[str, tuple[str, int]]:
        return {
            path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            for path in data.iterdir()
        }

    before = files()
    assert {"catalog.db-wal", "store-0.db-wal"} < set(before)
    move(data, url, here.name)
    assert files() == before


# What is not served.

DAMAGE = {
    "a delivery count": "UPDATE message SET delivery_count = delivery_count + 1 WHERE seq = 1",
    "a session": "UPDATE message SET session = 'd' WHERE session = 'a'",
    "a body's byte": "UPDATE body SET data = set_byte(data, 5, get_byte(data, 5) # 1) WHERE id = 1",
    "a body gone": "DELETE FROM body WHERE id = 1",
    "a message gone": "DELETE FROM message WHERE ctid = (SELECT min(ctid) FROM message)",
    "a message more": "INSERT INTO message SELECT queue, seq + 99999, body, size, state, delivery_count, enqueued_at,"
    " expires_at, due_at, session, message_id, overlay, reason, description FROM message LIMIT 1",
    "an id": "DELETE FROM duplicate WHERE message_id = 'locked'",
    "a journal row": "UPDATE journal SET ops = ops || '\\x20'::bytea WHERE id = 3",
    "a count": "UPDATE entity SET counts[2] = counts[2] + 1 WHERE id = 1",
    "a lock": "DELETE FROM lock",
    "a session's state": "UPDATE session_state SET state = '\\x00'",
}


def test_any_difference_is_found(data: Path, name: str, url: str) -> None:
    place = f"twinbus_{name}_0"
    with closing(read_only(data / "store-0.db")) as source, connect_for_bulk(url, place) as connection:
        move_target.begin_store(connection, place, "a move", {})
        sent, _ = moving.copy_store(source, connection, lambda _: None)
        assert moving.compare(source, connection, sent, lambda _: None) == []
        for what, statement in DAMAGE.items():
            with connection.transaction(force_rollback=True):
                assert connection.execute(statement).rowcount > 0, what  # type: ignore[arg-type]
                assert moving.compare(source, connection, sent, lambda _: None) != [], what


def test_a_difference_is_an_error_and_nobody_serves_the_copy(data: Path, name: str, url: str) -> None:
    def damage(step: Step, store: int, _: int) -> None:
        if (step, store) == (Step.COPIED, 1):
            with connect(url, f"twinbus_{name}_1") as connection:
                connection.execute("UPDATE message SET delivery_count = 7")

    with pytest.raises(
        BusError, match=r"What was copied is not what is there: .*message of queue 400 .*1 were sent, 1"
    ):
        move(data, url, name, damage)
    not_served(url, name)
    assert move(data, url, name).stores[0].messages > 0
    served(url, name)


def not_served(url: str, name: str) -> None:
    with pytest.raises(BusError, match="unfinished `twinbus store migrate`"):
        CatalogDatabase(partial(connect, url), name)


def served(url: str, name: str) -> None:
    with CatalogReader(url, name) as catalog:
        assert catalog.load()[1] == [ROW]
    for number in range(2):
        PostgresStore(url, f"twinbus_{name}_{number}").close()


class PulledPlugError(Exception):
    """The process ends here."""


STOPS = [(Step.COPYING, 0), (Step.COPIED, 0), (Step.COMPARED, 1)]


def test_what_an_interrupted_move_leaves_is_not_served_and_the_next_one_begins_anew(
    data: Path, name: str, url: str
) -> None:
    for stop in STOPS:

        def end(step: Step, store: int, _: int, stop: tuple[Step, int] = stop) -> None:
            if (step, store) == stop:
                raise PulledPlugError

        with pytest.raises(PulledPlugError):
            move(data, url, name, end)
        not_served(url, name)
        with pytest.raises(BusError, match="unfinished `twinbus store migrate`") as refused:
            PostgresStore(url, f"twinbus_{name}_{stop[1]}")
        assert refused.value.fault is Fault.NOT_ALLOWED
    move(data, url, name)
    served(url, name)


def test_a_move_that_ends_before_its_last_transaction_is_not_served_either(
    data: Path, name: str, postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = new_database(postgres)

    def end(*_: object) -> None:
        raise PulledPlugError

    both = [DatabaseAddress(url), DatabaseAddress(second)]
    with monkeypatch.context() as patched, Migration(data, both, name) as migration:
        patched.setattr(move_target, "finish_catalog", end)
        with pytest.raises(PulledPlugError):
            migration.run(lambda *_: None)
    not_served(url, name)
    PostgresStore(second, f"twinbus_{name}_1").close()  # Its mark is gone; the catalog's counts.
    with Migration(data, both, name) as migration:
        migration.run(lambda *_: None)
    with CatalogReader(url, name) as catalog:
        assert catalog.load()[1] == [ROW]


def test_an_older_broker_does_not_serve_it_either(data: Path, name: str, url: str) -> None:
    """It knows no marks, but it looks for a kind and a version, which are others."""

    def end(step: Step, store: int, _: int) -> None:
        if (step, store) == (Step.COPIED, 0):
            raise PulledPlugError

    with pytest.raises(PulledPlugError):
        move(data, url, name, end)
    with connect(url) as connection:
        version = connection.execute(f'SELECT version FROM "twinbus_{name}".counter').fetchone()
        kind = connection.execute(f"SELECT value FROM \"twinbus_{name}_0\".meta WHERE key = 'kind'").fetchone()
    assert version == (0,)
    assert kind != ("messaging-store",)


# What is refused.


def test_a_namespace_that_is_there_is_not_touched(data: Path, name: str, url: str) -> None:
    move(data, url, name)
    with pytest.raises(BusError, match=r"there already.*_1: a messaging store with 1 message.*catalog with 1 entit"):
        move(data, url, name)
    served(url, name)


def test_something_else_in_its_place_is_not_touched(data: Path, name: str, url: str, postgres: PostgresServer) -> None:
    postgres.execute(f'CREATE SCHEMA "twinbus_{name}_1" CREATE TABLE mine (x int)')
    with pytest.raises(BusError, match=f"twinbus_{name}_1: 1 table"):
        move(data, url, name)
    assert postgres.execute(f'SELECT * FROM "twinbus_{name}_1".mine') == []


def test_two_moves_at_once(data: Path, name: str, url: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    refused: list[str] = []

    def second(step: Step, *_: int) -> None:
        if step is Step.COPIED:
            with pytest.raises(BusError) as error:
                move(copy, url, name)
            refused.append(error.value.text)

    move(data, url, name, second)
    assert "Another `twinbus store migrate`" in refused[0]


def test_a_directory_in_use_is_refused(data: Path, name: str, url: str) -> None:
    with (
        Migration(data, [DatabaseAddress(url)], name),
        pytest.raises(SettingsError, match="Another process is using"),
    ):
        Migration(data, [DatabaseAddress(url)], name)


def test_what_is_no_data_directory_is_refused_and_not_made(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingsError, match=r"no catalog\.db"):
        Migration(tmp_path / "nothing", [DatabaseAddress(url)], "any")
    assert not (tmp_path / "nothing").exists()


def test_a_store_that_is_missing_is_refused(here: Here, url: str) -> None:
    data = here.stopped(stores=3)
    (data / "store-1.db").unlink()
    with pytest.raises(SettingsError, match=r"store-1\.db is missing"):
        Migration(data, [DatabaseAddress(url)], here.name)


def test_more_addresses_than_stores_are_refused(here: Here, url: str) -> None:
    with pytest.raises(SettingsError, match="--stores cannot be 1 with 2"):
        Migration(here.stopped(), [DatabaseAddress(url)] * 2, here.name)


def test_a_server_that_loses_what_it_acknowledges_is_refused(
    data: Path, name: str, url: str, postgres: PostgresServer
) -> None:
    with pytest.raises(BusError, match="synchronous_commit is off"):
        move(data, f"{url}?options=-csynchronous_commit%3Doff", name)
    assert not postgres.execute("SELECT 1 FROM pg_namespace WHERE nspname LIKE %s", [f"twinbus_{name}%"])


@pytest.mark.parametrize(("file", "change"), [("store-0.db", "schema_version"), ("catalog.db", "catalog_version")])
def test_a_file_of_another_version_is_refused(
    file: str, change: str, data: Path, name: str, url: str, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(data, tmp_path / "copy"))
    database = apsw.Connection(str(data / file))
    database.execute("UPDATE meta SET value = '1' WHERE key = ?", (change,))
    database.close()
    with pytest.raises(BusError, match=rf"{file}.*serve it once with this version"):
        Migration(data, [DatabaseAddress(url)], name)


def test_damage_that_was_there_before_moves_and_is_told(here: Here, there: Callable[[Path], Bus], url: str) -> None:
    here.bus.create()
    here.bus.send("good", "bad", "without")
    here.factory.damage(here.bus.store, "bad")
    here.bus.store._database.execute("DELETE FROM body WHERE id = 3")  # type: ignore[attr-defined]
    data = here.stopped()
    moved = there(data)
    here.bus.is_harmed = moved.is_harmed = True
    [told] = move(data, url, f"{here.name}-again").stores
    assert (told.damage.bodies, told.damage.messages) == (1, 1)
    assert ids(moved.receive()) == ["good"]
