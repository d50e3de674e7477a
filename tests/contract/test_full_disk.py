"""A store whose disk is full: it takes no messages, but what is in it can be received and settled."""

from __future__ import annotations

import itertools
from pathlib import Path

import apsw
import pytest

from twinbus.model.errors import Fault
from twinbus.model.failpoints import armed
from twinbus.model.message import Incoming, Outcome, ReceiveMode, Settlement
from twinbus.store.commands import Acquire, Complete, Create, Peek, QueueSettings, Send, SetSessionState, Settle
from twinbus.store.reserve import RESERVE_BYTES as RESERVE
from twinbus.store.reserve import Reserve
from twinbus.store.room import NoRoomError
from twinbus.store.sqlite import SqliteStore

NUMBERS = itertools.count(1)
KIB = 1024


class SmallDisk(apsw.VFS):
    """A disk with so much room for everything in one directory."""

    def __init__(self, directory: Path) -> None:
        self.name = f"small-disk-{next(NUMBERS)}"
        self.directory = directory
        self.room = 1 << 40
        super().__init__(self.name, "")

    def used(self) -> int:
        return sum(path.stat().st_size for path in self.directory.iterdir())

    def fill(self) -> None:
        """Somebody else takes what is left."""
        self.room = self.used()

    def xOpen(self, name, flags):  # noqa: N802
        return File(self, name, flags)


class File(apsw.VFSFile):
    def __init__(self, disk, name, flags) -> None:
        self.disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data, offset):  # noqa: N802
        growth = offset + len(data) - self.xFileSize()
        if growth > 0 and self.disk.used() + growth > self.disk.room:
            raise apsw.FullError("the disk is full")
        super().xWrite(data, offset)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """The reserve is a real file on a real disk, so the small one is asked before it is made."""
    disk = SmallDisk(tmp_path)
    monkeypatch.setattr(Reserve, "free_bytes", lambda self: max(disk.room - disk.used(), 0))
    return disk


@pytest.fixture
def store(disk, tmp_path):
    store = opened(tmp_path, disk)
    commit(store, Create(queue=4, settings=QueueSettings(lock_duration_ms=300_000)))
    yield store
    disk.room = 1 << 40
    store.close()


def opened(directory, disk):
    return SqliteStore(str(directory / "store.db"), epoch=b"epoch..1", now_ms=1_000, vfs=disk.name)


def commit(store, *commands, now=1_000):
    store.commit(list(commands), now)
    return commands[0]


def send(*ids, size=2_000):
    return Send(queue=4, units=[[Incoming(b"x" * size, message_id)] for message_id in ids])


def acquire(limit=10):
    return Acquire(queue=4, limit=limit, mode=ReceiveMode.PEEK_LOCK, owner=1)


def filled(store, disk):
    """A store of fifty messages whose disk has been found to be full."""
    for number in range(50):
        commit(store, send(f"m{number}"))
    disk.fill()
    refused = send("refused", size=100_000)
    commit(store, refused)
    assert refused.error.fault is Fault.STORE_UNAVAILABLE
    assert store.is_full


def test_sends_are_refused_and_certainly_did_not_happen(store, disk):
    filled(store, disk)
    for command in (send("late"), SetSessionState(queue=4, session="s", state=b"s")):
        commit(store, command)
        assert command.error.fault is Fault.STORE_UNAVAILABLE
        assert command.error.is_definite
        assert "full" in command.error.text


def test_everything_in_it_can_be_received_and_settled(store, disk):
    filled(store, disk)
    got = []
    while messages := commit(store, acquire(), send("refused as well")).result:
        namespace = len(messages) // 2
        done = commit(store, Complete(queue=4, tokens=[m.token for m in messages[:namespace]]))
        assert done.error is None
        assert set(done.result) == {None}
        dead = [Settlement(m.token, Outcome.DEAD_LETTER, reason="test") for m in messages[namespace:]]
        settled = commit(store, Settle(queue=4, settlements=dead), send("refused too"))
        assert settled.error is None
        assert set(settled.result) == {None}
        got += [m.message_id for m in messages]
    assert got == [f"m{number}" for number in range(50)]


def test_locks_that_are_taken_afterwards_are_kept(store, disk):
    filled(store, disk)
    [message] = commit(store, acquire(1)).result
    for number in range(5):
        commit(store, send(f"refused {number}"), acquire(1))
    assert commit(store, Complete(queue=4, tokens=[message.token])).result == [None]


def test_it_takes_messages_again_soon_after_there_is_room(store, disk):
    filled(store, disk)
    disk.room += 10 * RESERVE
    assert commit(store, send("too early"), now=1_500).error is not None
    assert commit(store, send("in time"), now=2_000).result == [[51]]
    assert not store.is_full
    found = commit(store, Peek(queue=4, from_sequence_number=50, limit=10)).result
    assert [m.message_id for m in found] == ["m49", "in time"]


def test_a_start_on_a_full_disk_gives_up_a_part_and_hands_out_what_is_there(store, disk, tmp_path):
    filled(store, disk)
    store.close()
    disk.fill()
    again = opened(tmp_path, disk)
    assert again.is_full
    assert commit(again, send("refused")).error.fault is Fault.STORE_UNAVAILABLE
    assert len(commit(again, Peek(queue=4, from_sequence_number=0, limit=5)).result) == 5
    messages = commit(again, acquire(50)).result
    assert commit(again, Complete(queue=4, tokens=[m.token for m in messages])).result == [None] * 50
    disk.room += 2 * RESERVE
    assert commit(again, send("in time"), now=2_000).error is None
    again.close()


def test_with_nothing_laid_aside_and_no_room_it_can_be_read_and_is_right_when_there_is_room(store, disk, tmp_path):
    """What was locked at the end counts as delivered; that cannot be written, so nothing is locked until it can."""
    for number in range(50):
        commit(store, send(f"m{number}"))
    commit(store, acquire(5))
    abandoned(store, tmp_path)
    for path in tmp_path.glob("*.reserve"):
        path.unlink()
    disk.fill()
    again = opened(tmp_path, disk)
    assert again.is_full
    assert len(commit(again, Peek(queue=4, from_sequence_number=0, limit=5)).result) == 5
    for command in (acquire(5), send("refused")):
        commit(again, command)
        assert command.error.fault is Fault.STORE_UNAVAILABLE
        assert command.error.is_definite
    disk.room += 3 * RESERVE
    assert [m.delivery_count for m in commit(again, acquire(6), now=2_000).result] == [1, 1, 1, 1, 1, 0]
    again.close()


def test_a_store_that_cannot_even_be_opened_says_so(store, disk, tmp_path):
    store.close()
    with armed("store.open", no_room), pytest.raises(NoRoomError, match="no room on its disk"):
        opened(tmp_path, disk)


def no_room():
    raise apsw.FullError("the disk is full")


def test_a_log_that_needs_more_than_was_laid_aside_is_not_moved_halfway(store, disk, tmp_path):
    """Half of it would use up the room that receiving needs."""
    big = [send(f"m{number}", size=1_000_000) for number in range(12)]
    commit(store, *big)
    size = (tmp_path / "store.db").stat().st_size
    (tmp_path / "store.db.reserve").unlink()
    disk.fill()
    assert commit(store, send("refused", size=100_000)).error is not None
    assert store.checkpoint()
    assert (tmp_path / "store.db").stat().st_size == size


def test_what_is_laid_aside_grows_with_the_log_so_that_it_can_be_moved(store, disk, tmp_path):
    for number in range(24):
        commit(store, send(f"m{number}", size=500_000))
        store.checkpoint_due()
    log = (tmp_path / "store.db-wal").stat().st_size
    assert (tmp_path / "store.db.reserve").stat().st_size > log > RESERVE
    disk.fill()
    assert commit(store, send("refused", size=100_000)).error is not None
    for _ in range(24):
        [message] = commit(store, acquire(1)).result
        assert commit(store, Complete(queue=4, tokens=[message.token])).result == [None]
    assert (tmp_path / "store.db-wal").stat().st_size == log  # It was moved, and its file has room for all of that.


def abandoned(store, directory):
    """The process is gone: the files stay as they are."""
    copies = {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("-shm")}
    store.close()
    for name, data in copies.items():
        (directory / name).write_bytes(data)
