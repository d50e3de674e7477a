"""Group commit: what arrives during one commit is the next, everything submitted is finished, and it is handed back."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.sql import group
from twinbus.sql.group import GroupCommit


@dataclass(eq=False)
class Command:
    name: str
    error: BusError | None = None


@dataclass
class GatedStore:
    """A store whose commits wait to be let through."""

    groups: list[list[str]] = field(default_factory=list)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    fails: bool = False
    due: bool = False
    checkpoints: list[str] = field(default_factory=list)
    checkpointed: threading.Event = field(default_factory=threading.Event)
    closed: bool = False

    def commit(self, commands: list[Command], now_ms: int) -> str:
        self.groups.append([command.name for command in commands])
        self.entered.release()
        assert self.gate.acquire(timeout=10)
        if self.fails:
            raise RuntimeError("broken")
        return f"hints at {now_ms}"

    def checkpoint_due(self) -> bool:
        return self.due

    def checkpoint(self) -> bool:
        self.checkpoints.append(threading.current_thread().name)
        self.due = False
        self.checkpointed.set()
        return True

    def close(self) -> None:
        self.closed = True


class Clock:
    def now_ms(self) -> int:
        return 77


@pytest.fixture
def store():
    return GatedStore()


@pytest.fixture
def posted():
    return []


@pytest.fixture
def running(store, posted):
    handed_back = []
    commit = GroupCommit(
        store, Clock(), posted.append, lambda commands, hints: handed_back.append((commands, hints)), str, name="test"
    )
    commit.handed_back = handed_back
    yield commit
    store.gate.release(100)
    commit.close()


def submit(running, *names):
    for name in names:
        running.submit(Command(name), size=10)


def entered(store):
    assert store.entered.acquire(timeout=10)


def test_what_arrives_during_a_commit_is_the_next_group(running, store):
    submit(running, "a")
    entered(store)
    submit(running, "b", "c", "d")
    store.gate.release()
    entered(store)
    assert store.groups == [["a"], ["b", "c", "d"]]


def test_a_commit_is_handed_back_with_one_call(running, store, posted):
    submit(running, "a")
    entered(store)
    submit(running, "b", "c")
    store.gate.release(2)
    running.close()
    assert len(posted) == 2
    for callback in posted:
        callback()
    assert [([c.name for c in commands], hints) for commands, hints in running.handed_back] == [
        (["a"], "hints at 77"),
        (["b", "c"], "hints at 77"),
    ]


def test_close_finishes_what_was_submitted_and_then_closes_the_store(running, store):
    submit(running, "a", "b", "c")
    store.gate.release(3)
    running.close()
    assert [name for names in store.groups for name in names] == ["a", "b", "c"]
    assert store.closed
    with pytest.raises(BusError) as refused:
        submit(running, "late")
    assert refused.value.fault is Fault.STORE_UNAVAILABLE


def test_pending_messages_and_bytes_are_known(running, store):
    submit(running, "a")
    entered(store)
    running.submit(Command("b"), messages=5, size=1_000)
    assert (running.pending_count, running.pending_bytes) == (6, 1_010)
    store.gate.release(2)
    running.close()
    assert (running.pending_count, running.pending_bytes) == (0, 0)


def test_a_group_is_bounded_by_messages_and_by_bytes(running, store, monkeypatch):
    monkeypatch.setattr(group, "GROUP_MESSAGES", 3)
    monkeypatch.setattr(group, "GROUP_BYTES", 100)
    submit(running, "first")
    entered(store)
    for name, messages, size in (("a", 2, 1), ("b", 2, 1), ("c", 1, 200), ("d", 1, 1)):
        running.submit(Command(name), messages, size)
    store.gate.release(10)
    running.close()
    assert store.groups == [["first"], ["a", "b"], ["c"], ["d"]]


def test_nobody_waits_for_ever_because_of_a_defect(running, store, posted):
    store.fails = True
    submit(running, "a")
    store.gate.release()
    running.close()
    posted[0]()
    [([command], hints)] = running.handed_back
    assert command.error.fault is Fault.INTERNAL
    assert hints == ""


def test_commits_go_on_when_nobody_listens_any_more(store):
    def gone(callback):
        raise RuntimeError("the event loop is closed")

    commit = GroupCommit(store, Clock(), gone, lambda commands, hints: None, str)
    submit(commit, "a")
    entered(store)
    submit(commit, "b")
    store.gate.release(2)
    commit.close()
    assert store.groups == [["a"], ["b"]]


def test_a_checkpoint_runs_beside_the_commits_and_is_finished_between_two(running, store):
    store.due = True
    store.gate.release(100)
    submit(running, "a")
    assert store.checkpointed.wait(timeout=10)
    helper = running._checkpointing
    if helper is not None:
        helper.join(timeout=10)
    submit(running, "b")
    running.close()
    assert store.checkpoints == ["test-checkpoint", "test-commit"]


class TestAbandoned:
    def test_what_was_not_handed_back_is_returned_and_never_heard_of_again(self, running, store, posted):
        submit(running, "a", "b")
        entered(store)
        submit(running, "c")
        begun, waiting = running.abandon()
        names = [command.name for command in [*begun, *waiting]]
        assert names == ["a", "b", "c"]
        assert waiting[-1].name == "c"
        store.gate.release(10)
        running.close()
        for callback in posted:
            callback()
        assert running.handed_back == []
        assert "c" not in [name for group in store.groups for name in group]
        assert store.closed

    def test_what_was_handed_back_before_is_not_returned(self, running, store, posted):
        submit(running, "a")
        store.gate.release()
        entered(store)
        while not posted:
            pass
        posted.pop()()
        assert running.abandon() == ([], [])
        assert [[command.name for command in commands] for commands, _ in running.handed_back] == [["a"]]

    def test_nothing_more_is_taken(self, running, store):
        running.abandon()
        with pytest.raises(BusError):
            submit(running, "late")

    def test_the_end_is_told(self, store, posted):
        ended = []
        commit = GroupCommit(
            store, Clock(), posted.append, lambda *answer: None, str, on_closed=lambda: ended.append(store.closed)
        )
        commit.close()
        for callback in posted:
            callback()
        assert ended == [True]


def test_the_commit_under_way_has_a_number(running, store):
    assert running.commit_under_way == 0
    submit(running, "a")
    entered(store)
    first = running.commit_under_way
    assert first > 0
    submit(running, "b")
    store.gate.release()
    entered(store)
    assert running.commit_under_way > first


def until(condition):
    """The thread gets there by itself."""
    waiting = threading.Event()
    for _ in range(1_000):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it never came")


def reached():
    """What is posted when commits are held."""


class TestHolding:
    def test_commits_pause_between_two_and_go_on(self, running, store, posted):
        running.submit(Command("a"))
        assert store.entered.acquire(timeout=10)
        hold = running.hold(reached)
        assert reached not in posted  # The commit under way is finished first.
        store.gate.release()
        until(lambda: reached in posted)
        running.submit(Command("b"))
        assert store.groups == [["a"]]
        hold.release()
        assert store.entered.acquire(timeout=10)
        assert store.groups == [["a"], ["b"]]
        assert not hold.is_over

    def test_one_that_waits_for_work_is_held_at_once(self, running, posted):
        hold = running.hold(reached)
        until(lambda: reached in posted)
        hold.release()

    def test_nobody_is_held_for_long(self, running, store, posted, monkeypatch):
        monkeypatch.setattr(group, "HOLD_S", 0.01)
        hold = running.hold(reached)
        until(lambda: hold.is_over)
        running.submit(Command("a"))
        assert store.entered.acquire(timeout=10)

    def test_a_hold_that_is_released_before_it_is_reached_holds_nobody(self, running, store, posted):
        running.submit(Command("a"))
        assert store.entered.acquire(timeout=10)
        running.hold(reached).release()
        store.gate.release(2)
        running.submit(Command("b"))
        assert store.entered.acquire(timeout=10)
