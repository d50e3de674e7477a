"""The embedded store on its own thread, with checkpoints running beside the commits."""

from __future__ import annotations

import queue
import threading

import pytest

from twinbus.model.message import Incoming, ReceiveMode
from twinbus.sql.group import GroupCommit
from twinbus.store.commands import Acquire, Complete, Count, Create, Hints, QueueSettings, Send
from twinbus.store.sqlite import SqliteStore


class Clock:
    def now_ms(self) -> int:
        return 1_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def finished():
    return queue.SimpleQueue()


@pytest.fixture
def group(path, finished, monkeypatch):
    monkeypatch.setattr("twinbus.store.sqlite.CHECKPOINT_BYTES", 200_000)
    store = SqliteStore(str(path), epoch=b"12345678", now_ms=1_000)

    def on_commit(commands, hints):
        for command in commands:
            finished.put(command)

    group = GroupCommit(store, Clock(), lambda callback: callback(), on_commit, Hints)
    group.submit(Create(queue=4, settings=QueueSettings()))
    assert finished.get(timeout=10).error is None
    yield group
    group.close()


def test_everything_submitted_is_stored_while_the_log_is_moved(group, finished, path):
    for start in range(0, 4_000, 50):
        units = [[Incoming(b"x" * 1_000, f"m{number}")] for number in range(start, start + 50)]
        group.submit(Send(queue=4, units=units), 50, 50_000)
        if start % 400 == 0:
            assert finished.get(timeout=10).error is None
    group.close()
    while not finished.empty():
        assert finished.get().error is None
    store = SqliteStore(str(path), epoch=b"87654321", now_ms=1_000)
    count = Count(queue=4)
    store.commit([count], 1_000)
    store.close()
    assert count.result.active == 4_000


def test_messages_pass_through_many_commits_once_each(group, finished):
    total = 2_000
    received: list[str] = []

    def sender():
        for start in range(0, total, 20):
            units = [[Incoming(b"x" * 500, f"m{number}")] for number in range(start, start + 20)]
            group.submit(Send(queue=4, units=units), 20, 10_000)

    thread = threading.Thread(target=sender)
    thread.start()
    group.submit(Acquire(queue=4, limit=64, mode=ReceiveMode.PEEK_LOCK, owner=1))
    while len(received) < total:
        command = finished.get(timeout=10)
        assert command.error is None
        if isinstance(command, Acquire):
            received += [message.message_id for message in command.result]
            if command.result:
                group.submit(Complete(queue=4, tokens=[message.token for message in command.result]))
            group.submit(Acquire(queue=4, limit=64, mode=ReceiveMode.PEEK_LOCK, owner=1))
    thread.join()
    assert received == [f"m{number}" for number in range(total)]
