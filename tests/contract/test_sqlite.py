"""What only the embedded store has: its file, its syncs, and what it does when the disk fails it."""

from __future__ import annotations

import itertools
import zlib

import apsw
import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, Outcome, ReceiveMode, Settlement
from twinbus.sql import sqlite
from twinbus.store import identity_file, schema, sending
from twinbus.store.commands import (
    Acquire,
    AcquireDeferred,
    Complete,
    Count,
    Create,
    Peek,
    QueueSettings,
    Record,
    Renew,
    Send,
    Settle,
    Sweep,
)
from twinbus.store.sqlite import SqliteStore

NUMBERS = itertools.count(1)


class Disk(apsw.VFS):
    """A disk that counts syncs and fails on demand."""

    def __init__(self) -> None:
        self.name = f"disk-{next(NUMBERS)}"
        self.syncs = 0
        self.broken = False
        self.full = False
        super().__init__(self.name, "")

    def xOpen(self, name, flags):  # noqa: N802
        return File(self, name, flags)


class File(apsw.VFSFile):
    def __init__(self, disk, name, flags) -> None:
        self.disk = disk
        self.log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("", name, flags)

    def xSync(self, flags):  # noqa: N802
        if self.disk.broken:
            raise apsw.IOError("the disk is gone")
        self.disk.syncs += self.log
        super().xSync(flags)

    def xWrite(self, data, offset):  # noqa: N802
        if self.disk.full and self.log:
            raise apsw.FullError("the disk is full")
        super().xWrite(data, offset)


@pytest.fixture
def disk():
    disk = Disk()
    yield disk
    disk.broken = disk.full = False


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def store(path, disk):
    store = opened(path, vfs=disk.name)
    commit(store, Create(queue=4, settings=QueueSettings()))
    yield store
    store.close()


def opened(path, **options):
    return SqliteStore(path, epoch=b"epoch..1", now_ms=1_000, **options)


def commit(store, *commands, now=1_000):
    store.commit(list(commands), now)
    return commands[0]


def send(*ids):
    return Send(queue=4, units=[[Incoming(message_id.encode() * 10, message_id)] for message_id in ids])


def acquire(limit=100):
    return Acquire(queue=4, limit=limit, mode=ReceiveMode.PEEK_LOCK, owner=1)


def peeked(store):
    return [message.message_id for message in commit(store, Peek(queue=4, from_sequence_number=0, limit=100)).result]


class TestFile:
    def test_it_is_opened_in_wal_mode_with_full_syncs(self, store):
        assert store._database.pragma("journal_mode") == "wal"
        assert store._database.pragma("synchronous") == 2

    def test_a_database_that_cannot_be_durable_is_refused(self):
        with pytest.raises(BusError, match="journal_mode is memory"):
            sqlite.connect(":memory:")

    def test_a_path_that_cannot_be_opened_is_refused(self, tmp_path):
        with pytest.raises(BusError, match="could not be opened"):
            opened(str(tmp_path / "missing" / "store.db"))

    def test_a_file_of_a_newer_version_is_refused_with_a_clear_sentence(self, path):
        opened(path).close()
        with apsw.Connection(path) as newer:
            newer.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(schema.VERSION + 1),))
        newer.close()
        with pytest.raises(BusError, match=r"schema version 5.*knows only up to 4.*newer Twinbus"):
            opened(path)

    def test_a_file_of_the_first_version_is_brought_up_to_date(self, path):
        old = sqlite.connect(path)
        old.execute(schema.TABLES)
        old.execute("INSERT INTO meta VALUES ('kind', 'messaging-store'), ('schema_version', '1')")
        old.execute("INSERT INTO queue (id, settings, next_seq, active, bytes) VALUES (4, '{}', 2, 1, 1)")
        old.execute("INSERT INTO queue (id) VALUES (5), (6)")
        record = zlib.crc32(b"a").to_bytes(4, "big") + b"a"
        old.execute("INSERT INTO body VALUES (1, ?)", (record,))
        old.execute("INSERT INTO message (queue, seq, body, enqueued_at, message_id) VALUES (4, 1, 1, 0, 'a')")
        old.close()
        for _ in range(2):
            store = opened(path)
            assert peeked(store) == ["a"]
            store.close()
        with apsw.Connection(path) as new:
            version = new.execute("SELECT value FROM meta WHERE key = 'schema_version'").get
            assert new.execute("SELECT count(*) FROM transfer").get == 0
        new.close()
        assert version == str(schema.VERSION)

    def test_somebody_elses_database_is_refused(self, path):
        other = apsw.Connection(path)
        other.execute("CREATE TABLE t (x)")
        other.close()
        with pytest.raises(BusError, match="not one of Twinbus' messaging stores"):
            opened(path)

    def test_closing_moves_the_log_into_the_file(self, store, tmp_path):
        commit(store, send("a"))
        store.close()
        assert not (tmp_path / "store.db-wal").exists()
        assert commit(store, send("b")).error.fault is Fault.STORE_UNAVAILABLE

    def test_the_log_starts_anew_after_a_checkpoint_between_commits(self, store, tmp_path, monkeypatch):
        monkeypatch.setattr("twinbus.store.sqlite.CHECKPOINT_BYTES", 100_000)
        for number in range(200):
            commit(store, Send(queue=4, units=[[Incoming(b"x" * 10_000, str(number))]]))
            if store.checkpoint_due():
                assert store.checkpoint()
                assert not store.checkpoint_due()
        assert (tmp_path / "store.db-wal").stat().st_size < 500_000


class TestSyncs:
    @pytest.mark.parametrize(
        "command",
        [
            lambda token: send("b"),
            lambda token: Complete(queue=4, tokens=[token]),
            lambda token: Acquire(queue=4, limit=1, mode=ReceiveMode.RECEIVE_AND_DELETE, owner=1),
        ],
        ids=["send", "complete", "receive-and-delete"],
    )
    def test_what_is_acknowledged_is_synced_once(self, store, disk, command):
        commit(store, send("a", "c"))
        token = commit(store, acquire(1)).result[0].token
        before = disk.syncs
        commit(store, command(token))
        # The first sync after the log has begun anew also covers its header.
        assert disk.syncs - before in (1, 2)

    def test_what_is_volatile_is_written_but_not_synced(self, store, disk):
        commit(store, send("a"))
        before = disk.syncs
        [message] = commit(store, acquire()).result
        commit(store, Renew(queue=4, tokens=[message.token]))
        commit(store, Record(queue=0, notes=[]))
        assert disk.syncs == before
        assert store._database.execute("SELECT count(*) FROM claim").get == 1

    def test_a_group_is_one_transaction(self, store, disk):
        commit(store, send("a"))
        before = disk.syncs
        commit(store, *[send(f"m{number}") for number in range(50)])
        assert disk.syncs - before == 1


class TestChecksum:
    def test_a_damaged_message_is_set_aside_and_the_queue_goes_on(self, path, caplog):
        store = opened(path, cache_bytes=0)
        commit(store, Create(queue=4, settings=QueueSettings()))
        commit(store, send("a", "b", "c"))
        store._database.execute("UPDATE body SET data = CAST('ABCD' || 'bbbbbbbbbB' AS BLOB) WHERE id = 2")
        assert [m.message_id for m in commit(store, acquire()).result] == ["a", "c"]
        assert "queue 4: message 2 does not match its checksum" in caplog.text
        assert peeked(store) == ["a", "c"]
        store.close()
        store = opened(path, cache_bytes=0)
        assert [m.message_id for m in commit(store, acquire()).result] == ["a", "c"]
        assert store._database.execute("SELECT count(*) FROM message WHERE state = 3").get == 1
        store.close()

    def test_a_damaged_message_that_is_asked_for_by_number_is_named(self, store):
        commit(store, send("a"))
        [message] = commit(store, acquire()).result
        commit(store, Settle(queue=4, settlements=[Settlement(message.token, Outcome.DEFER)]))
        store._database.execute("UPDATE body SET data = CAST('ABCD' || 'aaaaaaaaaa' AS BLOB)")
        command = AcquireDeferred(queue=4, sequence_numbers=[1], mode=ReceiveMode.PEEK_LOCK, owner=1)
        assert commit(store, command).error.fault is Fault.INTERNAL
        assert "Message 1 of queue 4 is damaged" in command.error.text

    def test_peeking_at_a_damaged_message_keeps_the_counts_right(self, store):
        commit(store, send("locked", "ready"))
        [message] = commit(store, acquire(1)).result
        store._database.execute("UPDATE body SET data = CAST('ABCD' || 'aaaaaaaaaa' AS BLOB)")
        assert peeked(store) == []
        commit(store, Complete(queue=4, tokens=[message.token]))
        assert commit(store, acquire()).result == []
        assert commit(store, Count(queue=4)).result.active == 0

    def test_a_damaged_message_at_the_end_does_not_stop_later_ones(self, path, caplog):
        store = opened(path, cache_bytes=0)
        commit(store, Create(queue=4, settings=QueueSettings()))
        commit(store, send("a"))
        store._database.execute("UPDATE body SET data = CAST('ABCD' || 'aaaaaaaaaa' AS BLOB)")
        assert commit(store, acquire()).result == []
        commit(store, send("b"))
        assert [m.message_id for m in commit(store, acquire()).result] == ["b"]
        store.close()


class TestFailure:
    def test_only_the_culprit_of_a_group_fails(self, store, monkeypatch):
        plain = sending.store

        def failing(work, queue, command, accepted):
            plain(work, queue, command, accepted)
            if "bad" in [incoming.message_id for incoming in accepted]:
                raise RuntimeError("cannot be stored")

        monkeypatch.setattr(sending, "store", failing)
        good, bad, late = send("a"), send("b", "bad"), send("c")
        commit(store, good, bad, late)
        assert (good.error, late.error) == (None, None)
        assert (good.result, late.result) == ([[1]], [[2]])
        assert bad.error.fault is Fault.INTERNAL
        assert bad.result == []
        assert peeked(store) == ["a", "c"]

    def test_locks_are_lost_and_counted_when_a_group_fails(self, store, monkeypatch):
        commit(store, send("a"))
        [message] = commit(store, acquire()).result
        monkeypatch.setattr(sending, "store", lambda *arguments: 1 / 0)
        commit(store, send("b"))
        monkeypatch.undo()
        assert commit(store, Complete(queue=4, tokens=[message.token])).result[0].fault is Fault.LOCK_LOST
        assert [(m.message_id, m.delivery_count) for m in commit(store, acquire()).result] == [("a", 1)]

    def test_a_failed_sync_closes_the_store_for_good(self, store, disk, caplog):
        commit(store, send("a"))
        disk.broken = True
        first, second = send("b"), send("c")
        commit(store, first, second)
        disk.broken = False
        assert {first.error.fault, second.error.fault} == {Fault.STORE_UNAVAILABLE}
        for command in (send("d"), acquire(), Sweep(queue=0)):
            assert commit(store, command).error.fault is Fault.STORE_UNAVAILABLE
        assert store.due_at_ms() is None
        assert "takes no more commands" in caplog.text

    def test_after_a_failed_sync_a_restart_finds_what_was_acknowledged(self, store, path, disk, tmp_path):
        commit(store, send("a"))
        disk.broken = True
        commit(store, send("b"))
        disk.broken = False
        store.close()
        assert (tmp_path / "store.db-wal").stat().st_size > 0
        store = opened(path)
        assert peeked(store)[0] == "a"
        store.close()

    def test_a_full_disk_refuses_sends_and_the_store_goes_on(self, store, disk):
        commit(store, send("a"))
        disk.full = True
        refused = [send("b"), send("c")]
        commit(store, *refused)
        assert {(command.error.fault, command.error.is_definite) for command in refused} == {
            (Fault.STORE_UNAVAILABLE, True)
        }
        disk.full = False
        assert store.is_full
        assert commit(store, send("d"), now=2_000).result == [[2]]
        assert not store.is_full
        assert peeked(store) == ["a", "d"]


def test_a_deep_queue_costs_neither_memory_nor_start_up(path):
    """A tenth of what the documentation promises for a million messages, so that the suite stays quick."""
    store = opened(path)
    commit(store, Create(queue=4, settings=QueueSettings(max_size_bytes=1 << 40)))
    body = b"x" * 1_024
    for start in range(0, 100_000, 2_000):
        units = [[Incoming(body, f"message-{number}")] for number in range(start, start + 2_000)]
        commit(store, Send(queue=4, units=units))
        if store.checkpoint_due():
            store.checkpoint()
    assert store._memory.cached <= store._memory.cache_bytes
    store.close()
    store = opened(path)
    # The start has read nothing but the queues' own rows.
    assert [len(queue.line.ready) for queue in store._memory.queues.values()] == [0, 0, 0]
    assert [m.sequence_number for m in commit(store, acquire(3)).result] == [1, 2, 3]
    assert len(store._memory.queues[4].line.ready) < 1_000
    store.close()


def test_a_file_that_is_older_than_the_log_beside_it_is_refused(tmp_path):
    """SQLite applies the log all the same, and what it lacks is found damaged only when it is read."""
    path = tmp_path / "store-0.db"
    database = sqlite.connect(str(path))
    schema.prepare(database)
    sqlite.checkpoint(database)
    older = path.read_bytes()

    def fill(first: int, past: int) -> None:
        with database:
            database.executemany(
                "INSERT INTO body VALUES (?, ?)", [(number, bytes(9_000)) for number in range(first, past)]
            )

    fill(1, 100)
    sqlite.checkpoint(database, truncate=True)
    fill(100, 110)
    log = (tmp_path / "store-0.db-wal").read_bytes()
    right = path.read_bytes()
    database.close()
    for content, is_right in ((older, False), (right, True)):
        path.write_bytes(content)
        (tmp_path / "store-0.db-wal").write_bytes(log)
        if is_right:
            identity_file.read(str(path))
        else:
            with pytest.raises(BusError, match="shorter than the log beside it needs"):
                identity_file.read(str(path))
        assert path.read_bytes() == content
        assert (tmp_path / "store-0.db-wal").read_bytes() == log
