"""Messaging stores as the event loop sees them: commands go to a store's thread, finished ones come back in one call.

A store can be taken down and brought up, and goes down by itself when its disk fails or does not answer; who waits is
told at once. What a commit does is the store's business, and when things expire the store says.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from twinbus.broker.opened import Audience, OpenStore, SetAsideError, StoreState
from twinbus.broker.threads import on_thread
from twinbus.broker.timing import CommitTimes, TimedStore
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.sql.group import GroupCommit, Hold
from twinbus.store.answering import GROWING, full
from twinbus.store.catalog import CatalogFile, EntityRow
from twinbus.store.commands import Acquire, Command, Hints, Publish, Record, Send, Sweep
from twinbus.store.identity import OlderStoreError
from twinbus.store.quarantine import Held
from twinbus.store.room import NoRoomError
from twinbus.store.sums import Sums

_log = EventLog(__name__)

SWEEP_INTERVAL_S = 0.1
STALL_S = 10.0  # A commit that takes longer makes its store hang.
ROOM_S = 1.0  # So often one that had no room to be opened is tried again.
CLOSE_S = 3.0  # So long a stop waits for a disk.
C = TypeVar("C", bound=Command)
T = TypeVar("T")


class StoreShell:
    """One store with its thread. It is down until `start` or `bring_up` has opened it."""

    def __init__(
        self,
        number: int,
        open_store: Callable[[], OpenStore],
        clock: Clock,
        audience: Audience,
        *,
        stall_s: float | None = None,
        retry_s: float | None = None,
    ) -> None:
        """With `retry_s`, a failed store is opened anew by itself, so often until it succeeds."""
        self.number = number
        self.state = StoreState.DOWN
        self.reason = "It was not opened yet."
        self.since_ms = clock.now_ms()
        self.held: list[Held] = []  # The entities that it held when it was opened.
        self.holds_still = False  # Nothing becomes due yet, because it is not known what may be touched.
        self.opened_count = 0
        self.commit_times = CommitTimes()
        self.sums = Sums()  # Over openings, so that no counter ever falls.
        self._loop = asyncio.get_running_loop()
        self._open_store = open_store
        self._clock = clock
        self._audience = audience
        self._stall_s = STALL_S if stall_s is None else stall_s
        self._retry_s = retry_s
        self._waits_for_room = False
        self._tried_at_s = 0.0
        self._sweeping = False
        self._store: OpenStore | None = None
        self._group: GroupCommit[Command, Hints] | None = None
        self._closed: asyncio.Future[None] | None = None  # Done when the file is released.
        self._stalled = (0, 0.0)  # The commit under way, and since when it is known.
        self._synced_before = 0
        self._taken_down: str | None = None  # Why an operator wants it down.
        self._changing = asyncio.Lock()  # Held while the file is being opened or closed.
        self.is_refusing = False  # As if full, because somebody wants it so.
        self._slow_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer = self._loop.call_later(SWEEP_INTERVAL_S, self._tick)

    @property
    def state_name(self) -> str:
        """Its state in a word: one that is up may be full."""
        if self.is_available and self._store is not None and (self._store.is_full or self.is_refusing):
            return "full"
        return self.state.value

    # What the entities see

    @property
    def is_available(self) -> bool:
        """Whether it takes commands."""
        return self._is_up

    @property
    def _is_up(self) -> bool:
        return self.state is StoreState.UP

    @property
    def synced_commits(self) -> int:
        """Commits that waited for the disk."""
        return self._synced_before + (self._store.synced_commits if self._store is not None else 0)

    @property
    def pending_bytes(self) -> int:
        """Bytes of messages that wait for a commit."""
        return 0 if self._group is None else self._group.pending_bytes

    def submit(self, command: Command) -> None:
        """Queue a command for the next commit; a store that is not up refuses it."""
        if self._group is None or self.state is not StoreState.UP:
            self._refuse_soon(command, self.error())
            return
        if self.is_refusing and isinstance(command, GROWING):
            self._refuse_soon(command, full())
            return
        messages, size = 1, 0
        if isinstance(command, Send):
            messages = sum(map(len, command.units))
            size = sum(len(message.record) for unit in command.units for message in unit)
        elif isinstance(command, Publish):
            messages = sum(len(publication.copies) + 1 for unit in command.units for publication in unit)
            size = sum(len(publication.message.record) for unit in command.units for publication in unit)
        elif isinstance(command, Acquire):
            messages = command.limit
        try:
            self._group.submit(command, messages, size)
        except BusError:
            self._refuse_soon(command, self.error())

    def hold(self, reached: Callable[[], None]) -> Hold | None:
        """Have commits pause when the one under way is done; None if there are none, because it is not up."""
        return None if self._group is None or not self._is_up else self._group.hold(reached)

    def slow_down(self, delay_s: float) -> None:
        """Have each commit wait for so long; 0 ends it."""
        self._slow_s = delay_s
        if self._group is not None:
            self._group.delay_s = delay_s

    def _refuse_soon(self, command: Command, error: BusError) -> None:
        """Never at once: whoever submits is not prepared for the answer yet."""
        command.error = error
        if command.done is not None:
            self._loop.call_soon(self._answer, command)

    def _answer(self, command: Command) -> None:
        assert command.done is not None
        command.done(command)
        self._audience.flush()

    def call(self, command: C) -> asyncio.Future[C]:
        """Submit a command at once; whoever waits has it when it is durable, or its error is raised."""
        future: asyncio.Future[C] = self._loop.create_future()

        def finished(answered: Command) -> None:
            if future.done():
                return  # The caller was cancelled.
            if answered.error is not None:
                future.set_exception(answered.error)
            else:
                future.set_result(command)

        command.done = finished
        self.submit(command)
        return future

    def error(self, *, definite: bool = True) -> BusError:
        """What commands are answered while the store is not up; those that it had begun may have been done."""
        text = f"Messaging store {self.number} is {self.state.value}: {self.reason}"
        return BusError(Fault.STORE_UNAVAILABLE, text, definite=definite)

    # Coming and going

    async def start(self) -> None:
        """Open it when the broker starts. One that cannot be read is failed; one that must not be used is refused."""
        async with self._changing:
            try:
                await self._open()
            except BusError as error:
                if error.fault is not Fault.STORE_UNAVAILABLE:
                    raise BusError(error.fault, f"Messaging store {self.number}: {error.text}") from error
                self._log_unopened(error)

    async def bring_up(self) -> None:
        """Open it anew, as a start does; does nothing to one that is up. Raises why it cannot be had."""
        if self.state is StoreState.UP:
            return
        if self.state is StoreState.HANGING:
            self._taken_down = None
            raise BusError(
                Fault.STORE_UNAVAILABLE,
                f"Messaging store {self.number} is hanging: it comes back by itself when its disk answers.",
            )
        async with self._changing:
            if not self._is_up:
                self._taken_down = None
                await self._open()
                self._audience.store_returned(self.number, self.held)
                self._audience.flush()
                _log.warning("store.up", "store {store} is up", store=self.number)

    async def take_down(self, reason: str) -> None:
        """Finish what was submitted and release the file; until it is brought up, commands are refused."""
        async with self._changing:
            self._taken_down = reason
            if self.state is StoreState.HANGING:
                return  # The file is released when the disk answers.
            lost = self._is_up
            self._become(StoreState.DOWN, reason)
            if not lost:
                return
            _log.warning("store.down", "store {store} is taken down: {reason}", store=self.number, reason=reason)
            assert self._group is not None
            assert self._closed is not None
            self._group.end()
            self._tell_lost()
            await asyncio.wait([self._closed], timeout=self._stall_s)

    async def _open(self) -> None:
        self._tried_at_s = self._loop.time()
        try:
            if self._closed is not None and not (await asyncio.wait([self._closed], timeout=self._stall_s))[0]:
                raise BusError(Fault.STORE_UNAVAILABLE, "its file has not been released yet.")
            store, held = await on_thread(self._open_and_look, f"store-{self.number}-open")
        except Exception as problem:
            error = problem if isinstance(problem, BusError) else BusError(Fault.STORE_UNAVAILABLE, str(problem))
            is_doubtful = isinstance(error, SetAsideError)
            self._become(StoreState.SET_ASIDE if is_doubtful else StoreState.FAILED, error.text)
            self._waits_for_room = isinstance(error, NoRoomError)
            raise error from None
        self._store, self._waits_for_room = store, False
        store.sums = self.sums
        self.opened_count += 1
        self.held = held
        self._sweeping = False
        self._stalled = (0, 0.0)
        self._closed = closed = self._loop.create_future()
        self._group = GroupCommit(
            TimedStore(store, self.commit_times),
            self._clock,
            self._loop.call_soon_threadsafe,
            self._committed,
            Hints,
            f"store-{self.number}",
            lambda: self._released(store, closed),
        )
        self._group.delay_s = self._slow_s
        self._become(StoreState.UP, "")

    def _open_and_look(self) -> tuple[OpenStore, list[Held]]:
        """On a thread: a store whose list of entities cannot be read is not open."""
        store = self._open_store()
        try:
            return store, store.held()
        except BaseException:
            store.close()
            raise

    def _released(self, store: OpenStore, closed: asyncio.Future[None]) -> None:
        """The thread has closed the file."""
        self._synced_before += store.synced_commits
        self._store = self._group = None
        if not closed.done():
            closed.set_result(None)
        if self.state is not StoreState.HANGING:
            return
        if self._taken_down is not None:
            self._become(StoreState.DOWN, self._taken_down)
        else:
            _log.warning("store.answered", "store {store}: the disk has answered", store=self.number)
            self._become(StoreState.FAILED, "Its disk has answered, and it is being opened anew.")
            self._try_again()

    def _try_again(self) -> None:
        self._tried_at_s = self._loop.time()
        task = self._loop.create_task(self._bring_up_quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bring_up_quietly(self) -> None:
        known = self.reason
        try:
            await self.bring_up()
        except BusError as error:
            if error.text != known:
                self._log_unopened(error)

    def _log_unopened(self, error: BusError) -> None:
        _log.error("store.failed", "store {store} could not be opened: {error}", store=self.number, error=error.text)

    def _become(self, state: StoreState, reason: str) -> None:
        if state is not self.state:
            self.since_ms = self._clock.now_ms()
        self.state, self.reason = state, reason

    def _tell_lost(self) -> None:
        self._audience.store_lost(self.number, self.error())
        self._audience.flush()

    def _lose(self, state: StoreState, reason: str) -> None:
        """Nobody waits for this store any longer: refuse what was submitted, and tell everybody."""
        assert self._group is not None
        was_up = self._is_up
        self._become(state, reason)
        begun, waiting = self._group.abandon()
        for commands, error in ((begun, self.error(definite=False)), (waiting, self.error())):
            for command in commands:
                if command.done is not None:
                    # A copy, because a commit that hangs may still write into the command.
                    answered = copy.copy(command)
                    answered.error = error
                    command.done(answered)
        if was_up:
            self._tell_lost()

    # The thread's answers, and time

    def _committed(self, commands: list[Command], hints: Hints) -> None:
        for command in commands:
            if command.done is not None:
                try:
                    command.done(command)
                except Exception:  # A defect in one answer must not keep the others from theirs.
                    name = type(command).__name__
                    _log.exception("command.unanswered", "the answer to a {command} failed", command=name)
        self._audience.hinted(hints)
        self._audience.flush()
        self._look_for_failure()

    def _look_for_failure(self) -> None:
        failure = self._store.failure if self._store is not None else None
        if failure is not None and self._is_up:
            is_older = isinstance(failure, OlderStoreError)
            self._lose(StoreState.SET_ASIDE if is_older else StoreState.FAILED, failure.text)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(SWEEP_INTERVAL_S, self._tick)
        if self._group is not None:
            self._look_for_stall(self._group)
        if self._is_up and self._store is not None:
            self._look_for_failure()
            due = self._store.due_at_ms()
            if not (self._sweeping or self.holds_still) and due is not None and due <= self._clock.now_ms():
                self._sweep()
            elif self._store.is_full:
                self.submit(Record(queue=0, notes=[]))  # With each commit it looks whether there is room again.
        elif self._is_to_be_tried():
            self._try_again()

    def _is_to_be_tried(self) -> bool:
        retry_s = ROOM_S if self._waits_for_room else self._retry_s
        if self.state is not StoreState.FAILED or retry_s is None or self._changing.locked():
            return False
        return self._loop.time() - self._tried_at_s >= retry_s

    def _look_for_stall(self, group: GroupCommit[Command, Hints]) -> None:
        """Real time: a movable clock says nothing about a disk."""
        under_way, now_s = group.commit_under_way, self._loop.time()
        if under_way != self._stalled[0]:
            self._stalled = (under_way, now_s)
        elif under_way and now_s - self._stalled[1] >= self._stall_s and self.state is not StoreState.HANGING:
            reason = f"its disk has not answered for {self._stall_s:g} s."
            _log.critical("store.hanging", "store {store} hangs: {reason}", store=self.number, reason=reason)
            self._lose(StoreState.HANGING, reason)

    def _sweep(self) -> None:
        self._sweeping = True
        self.submit(Sweep(queue=0, done=self._swept))

    def _swept(self, command: Sweep) -> None:
        self._sweeping = False
        if command.result and command.error is None:
            self._sweep()

    async def close(self) -> None:
        """Finish what was submitted and release the file; a disk that does not answer is not waited for."""
        self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._group is not None and self._closed is not None:
            if self.state is not StoreState.HANGING:
                self._group.end()
            done, _ = await asyncio.wait([self._closed], timeout=CLOSE_S)
            if not done:
                text = "store {store}: the disk does not answer, its file is left as it is"
                _log.error("store.left", text, store=self.number)


class CatalogShell:
    """The catalog file, written on a thread of its own so that the loop never waits for the disk."""

    def __init__(self, file: CatalogFile) -> None:
        self._file = file
        self.generation = file.generation
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog")

    async def take_ids(self, count: int) -> int:
        """Numbers for new entities."""
        return await self._run(self._file.take_ids, count)

    async def put(self, row: EntityRow) -> None:
        """Store or replace an entity's row."""
        await self._run(self._file.put, row)

    async def take_up(self, row: EntityRow) -> None:
        """Store the row of an entity that stores hold and the catalog has not."""
        await self._run(self._file.put, row)

    async def remove(self, entity: int, parts: Mapping[int, int] | None = None) -> None:
        """Forget an entity, and remember that its stores are to drop it."""
        await self._run(self._file.remove, entity, parts)

    async def dropped(self, parts: Iterable[int]) -> None:
        """The stores have dropped these."""
        await self._run(self._file.dropped, list(parts))

    async def set_meta(self, key: str, value: str) -> None:
        """Store a value of the namespace itself."""
        await self._run(self._file.set_meta, key, value)

    async def note(self, values: Mapping[str, str]) -> None:
        """Keep what is known of the stores, which is no change of the namespace."""
        await self._run(self._file.note, values)

    async def _run(self, operation: Callable[..., T], *values: object) -> T:
        def run() -> T:
            try:
                return operation(*values)
            finally:
                self.generation = self._file.known_generation

        return await asyncio.get_running_loop().run_in_executor(self._executor, run)

    async def look_after(self) -> None:
        """Find out whether its files are still in their place."""
        await self._run(self._file.look_after)

    @property
    def problem(self) -> str:
        """Why nothing can be changed in it, if its files were taken away."""
        return self._file.problem

    def hold(self, reached: Callable[[], None]) -> Hold:
        """Have changes pause when the one under way is done."""
        hold, loop = Hold(reached), asyncio.get_running_loop()
        self._executor.submit(hold.wait, lambda told: loop.call_soon_threadsafe(told))
        return hold

    def close(self) -> None:
        """Finish and release the file."""
        self._executor.shutdown(wait=True)
        self._file.close()
