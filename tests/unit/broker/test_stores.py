"""A messaging store that goes down and comes back: who waits is told at once, and nothing waits for a dead disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from twinbus.broker import stores
from twinbus.broker.stores import StoreShell, StoreState
from twinbus.model.errors import BusError, Fault
from twinbus.store.commands import Command, Complete, Count, Hints
from twinbus.store.quarantine import Held

STALL_S = 0.05


class Clock:
    def now_ms(self) -> int:
        return 1_000


@dataclass
class FakeStore:
    """A store whose disk can fail, or not answer until it is let through."""

    fails: bool = False
    gate: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)
    committed: list[Command] = field(default_factory=list)
    closed: bool = False
    failure: BusError | None = None
    synced_commits: int = 0
    is_full: bool = False

    def __post_init__(self) -> None:
        self.gate.set()

    def commit(self, group: list[Command], now_ms: int) -> Hints:
        self.entered.set()
        assert self.gate.wait(10)
        if self.fails:
            self.failure = BusError(Fault.STORE_UNAVAILABLE, "The messaging store failed and was closed: EIO")
        for command in group:
            command.error = self.failure
            self.committed.append(command)
        self.synced_commits += 1
        return Hints(ready={4})

    def due_at_ms(self) -> int | None:
        return None

    def held(self) -> list[Held]:
        return [Held(1), Held(2)]

    def checkpoint_due(self) -> bool:
        return False

    def checkpoint(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


@dataclass
class World:
    """Everything around one shell; `opened` are the stores in the order in which they were opened."""

    told: list[str] = field(default_factory=list)
    opened: list[FakeStore] = field(default_factory=list)
    refuses: BusError | Exception | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self) -> FakeStore:
        if self.refuses is not None:
            raise self.refuses
        self.opened.append(FakeStore())
        return self.opened[-1]

    def hinted(self, hints: Hints) -> None:
        self._note("hinted")

    def flush(self) -> None:
        pass

    def store_lost(self, number: int, error: BusError) -> None:
        self._note(f"lost {number}: {error.fault.value}")

    def store_returned(self, number: int, held: list[Held]) -> None:
        self._note(f"returned {number} with {[each.entity for each in held]}")

    def _note(self, what: str) -> None:
        self.told.append(what)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.002)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(stores, "SWEEP_INTERVAL_S", 0.005)
    monkeypatch.setattr(stores, "CLOSE_S", 0.1)
    return World()


@pytest.fixture
async def shell(world: World) -> AsyncIterator[StoreShell]:
    made = StoreShell(3, world.open, Clock(), world, stall_s=STALL_S)
    await made.start()
    yield made
    for store in world.opened:
        store.gate.set()
    await made.close()


def count(done: Callable[[Command], None] | None = None) -> Count:
    return Count(queue=4, done=done)


async def refusal_of(shell: StoreShell) -> BusError:
    with pytest.raises(BusError) as refused:
        await shell.call(count())
    return refused.value


class TestUp:
    async def test_commands_are_committed_and_hints_are_told(self, shell: StoreShell, world: World) -> None:
        assert shell.is_available
        await shell.call(count())
        assert world.told == ["hinted"]
        assert [each.entity for each in shell.held] == [1, 2]

    async def test_bringing_up_what_is_up_changes_nothing(self, shell: StoreShell, world: World) -> None:
        await shell.bring_up()
        assert len(world.opened) == 1
        assert world.told == []


class TestTakenDown:
    async def test_what_was_submitted_is_finished_and_the_file_is_released(
        self, shell: StoreShell, world: World
    ) -> None:
        [store] = world.opened
        answered: list[Command] = []
        for _ in range(3):
            shell.submit(count(answered.append))
        await shell.take_down("a new disk")
        assert len(answered) == 3
        assert {command.error for command in answered} == {None}
        assert store.closed
        assert (shell.state, shell.reason) == (StoreState.DOWN, "a new disk")
        assert "lost 3: store-unavailable" in world.told

    async def test_commands_are_refused_at_once_but_not_before_submit_returns(self, shell: StoreShell) -> None:
        await shell.take_down("test")
        answered: list[Command] = []
        shell.submit(count(answered.append))
        assert answered == []
        await asyncio.sleep(0)
        [command] = answered
        assert command.error is not None
        assert command.error.fault is Fault.STORE_UNAVAILABLE
        assert command.error.text == "Messaging store 3 is down: test"
        assert not shell.is_available
        assert shell.pending_bytes == 0

    async def test_brought_up_it_is_opened_anew_and_everyone_is_told(self, shell: StoreShell, world: World) -> None:
        await shell.call(count())
        await shell.take_down("test")
        await shell.bring_up()
        assert len(world.opened) == 2
        assert world.told[-1] == "returned 3 with [1, 2]"
        await shell.call(count())
        assert len(world.opened[1].committed) == 1
        assert shell.synced_commits == 2

    async def test_taken_down_twice_it_keeps_the_last_reason(self, shell: StoreShell, world: World) -> None:
        await shell.take_down("first")
        await shell.take_down("second")
        assert shell.reason == "second"
        assert world.told == ["lost 3: store-unavailable"]

    async def test_what_cannot_be_opened_is_failed_and_can_be_tried_again(
        self, shell: StoreShell, world: World
    ) -> None:
        await shell.take_down("test")
        world.refuses = OSError("no such device")
        with pytest.raises(BusError, match="no such device"):
            await shell.bring_up()
        assert shell.state is StoreState.FAILED
        assert "no such device" in (await refusal_of(shell)).text
        world.refuses = None
        await shell.bring_up()
        assert shell.is_available


class TestFailed:
    async def test_a_failing_disk_takes_the_store_down(self, shell: StoreShell, world: World) -> None:
        [store] = world.opened
        store.fails = True
        assert (await refusal_of(shell)).fault is Fault.STORE_UNAVAILABLE
        assert shell.state is StoreState.FAILED
        assert "EIO" in shell.reason
        assert "lost 3: store-unavailable" in world.told
        await world.until(lambda: store.closed)

    async def test_it_can_be_brought_up_again(self, shell: StoreShell, world: World) -> None:
        world.opened[0].fails = True
        await refusal_of(shell)
        await shell.bring_up()
        await shell.call(count())
        assert shell.reason == ""

    async def test_a_failure_outside_of_commits_is_found(self, shell: StoreShell, world: World) -> None:
        world.opened[0].failure = BusError(Fault.STORE_UNAVAILABLE, "The checkpoint failed")
        await world.until(lambda: shell.state is StoreState.FAILED)
        assert world.told == ["lost 3: store-unavailable"]

    async def test_with_a_retry_it_comes_back_by_itself(self, world: World) -> None:
        shell = StoreShell(3, world.open, Clock(), world, stall_s=STALL_S, retry_s=0.01)
        await shell.start()
        world.opened[0].fails = True
        await refusal_of(shell)
        await world.until(lambda: shell.is_available)
        assert world.told[-1] == "returned 3 with [1, 2]"
        await shell.close()


class TestAtStart:
    async def test_a_file_that_cannot_be_read_does_not_end_the_start(self, world: World) -> None:
        world.refuses = BusError(Fault.STORE_UNAVAILABLE, "file is not a database")
        shell = StoreShell(0, world.open, Clock(), world)
        await shell.start()
        assert shell.state is StoreState.FAILED
        assert shell.held == []
        assert (await refusal_of(shell)).text == "Messaging store 0 is failed: file is not a database"
        await shell.close()

    async def test_a_file_of_a_newer_version_does(self, world: World) -> None:
        world.refuses = BusError(Fault.NOT_ALLOWED, "schema version 999")
        shell = StoreShell(0, world.open, Clock(), world)
        with pytest.raises(BusError, match="999"):
            await shell.start()
        await shell.close()


class TestHanging:
    async def hang(self, shell: StoreShell, store: FakeStore, answered: list[Command]) -> None:
        store.gate.clear()
        store.entered.clear()
        shell.submit(Complete(queue=4, tokens=[b"t"], done=answered.append))
        await asyncio.to_thread(store.entered.wait, 5)
        shell.submit(count(answered.append))  # Behind the commit that hangs.
        async with asyncio.timeout(5):
            while shell.state is not StoreState.HANGING:
                await asyncio.sleep(0.002)

    async def test_who_waits_is_answered_and_new_commands_are_refused(self, shell: StoreShell, world: World) -> None:
        answered: list[Command] = []
        await self.hang(shell, world.opened[0], answered)
        assert [type(command) for command in answered] == [Complete, Count]
        assert {command.error.fault for command in answered if command.error} == {Fault.STORE_UNAVAILABLE}
        assert "has not answered" in (await refusal_of(shell)).text
        assert world.told == ["lost 3: store-unavailable"]

    async def test_when_the_disk_answers_late_answers_are_dropped_and_the_store_returns(
        self, shell: StoreShell, world: World
    ) -> None:
        answered: list[Command] = []
        await self.hang(shell, world.opened[0], answered)
        world.opened[0].gate.set()
        await world.until(lambda: shell.is_available)
        assert len(answered) == 2
        assert [type(command) for command in world.opened[0].committed] == [Complete]
        assert world.opened[0].closed
        assert len(world.opened) == 2
        assert world.told[-1] == "returned 3 with [1, 2]"
        await shell.call(count())

    async def test_an_operator_can_have_it_stay_down_when_the_disk_answers(
        self, shell: StoreShell, world: World
    ) -> None:
        await self.hang(shell, world.opened[0], [])
        await shell.take_down("replace the disk")
        assert shell.state is StoreState.HANGING
        world.opened[0].gate.set()
        await world.until(lambda: shell.state is StoreState.DOWN)
        assert shell.reason == "replace the disk"
        assert world.opened[0].closed

    async def test_bringing_it_up_is_refused_with_a_reason(self, shell: StoreShell, world: World) -> None:
        await self.hang(shell, world.opened[0], [])
        with pytest.raises(BusError, match="comes back by itself"):
            await shell.bring_up()

    async def test_taking_down_does_not_wait_for_ever(self, shell: StoreShell, world: World) -> None:
        [store] = world.opened
        store.gate.clear()
        answered: list[Command] = []
        shell.submit(count(answered.append))
        await asyncio.to_thread(store.entered.wait, 5)
        async with asyncio.timeout(5):
            await shell.take_down("test")
            await world.until(lambda: shell.state is StoreState.HANGING)
        assert len(answered) == 1
        store.gate.set()
        await world.until(lambda: shell.state is StoreState.DOWN)

    async def test_the_end_of_the_broker_does_not_wait_for_it(self, world: World) -> None:
        shell = StoreShell(3, world.open, Clock(), world, stall_s=STALL_S)
        await shell.start()
        await self.hang(shell, world.opened[0], [])
        async with asyncio.timeout(2):
            await shell.close()
        world.opened[0].gate.set()

    async def test_many_quick_commits_are_no_stall(self, shell: StoreShell) -> None:
        until = asyncio.get_running_loop().time() + 3 * STALL_S
        while asyncio.get_running_loop().time() < until:
            await shell.call(count())
        assert shell.is_available


async def test_a_defect_in_one_answer_keeps_nobody_else_waiting(
    shell: StoreShell, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(command: Command) -> None:
        raise RuntimeError("a defect")

    shell.submit(count(failing))
    await shell.call(count())
    assert "the answer to a Count failed" in caplog.text
