"""The ledger's tables, and a thousand schedules of workers that are killed between any two steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.pair.ledger.decisions import (
    DECISIONS,
    MARKS,
    Copy,
    CopyRelation,
    Decision,
    Entry,
    State,
    claim,
    extend,
    mark,
    relation,
)

FIRST, SECOND = Copy("contoso", 1), Copy("fabrikam", 7)
LEASE = 1000


def test_every_state_and_relation_has_a_decision() -> None:
    assert set(DECISIONS) == set(product(State, CopyRelation))


def test_a_copy_that_nobody_knows_is_claimed_and_handed_out() -> None:
    assert claim(None, FIRST, 5, LEASE) == (Decision.HAND_OUT, Entry(State.CLAIMED, FIRST, 5 + LEASE))


def test_the_same_copy_is_handed_out_again_until_it_is_done() -> None:
    entry = claim(None, FIRST, 0, LEASE).entry
    assert claim(entry, FIRST, 1, LEASE).decision is Decision.HAND_OUT
    done = mark(entry, FIRST, State.DONE)
    assert claim(done, FIRST, 2, LEASE).decision is Decision.SUPPRESS


def test_another_copy_is_held_until_the_claim_lapses_and_takes_it_over_then() -> None:
    entry = claim(None, FIRST, 0, LEASE).entry
    assert claim(entry, SECOND, LEASE - 1, LEASE) == (Decision.HOLD, entry)
    assert claim(entry, SECOND, LEASE, LEASE) == (Decision.HAND_OUT, Entry(State.CLAIMED, SECOND, 2 * LEASE))


def test_a_second_copy_in_the_same_namespace_is_another_copy() -> None:
    entry = claim(None, FIRST, 0, LEASE).entry
    assert claim(entry, Copy("contoso", 2), 1, LEASE).decision is Decision.HOLD


@pytest.mark.parametrize("state", [State.DONE, State.DEAD_LETTERED, State.DEFERRED])
def test_other_copies_are_suppressed_once_one_is_done_dead_lettered_or_deferred(state: State) -> None:
    entry = mark(claim(None, FIRST, 0, LEASE).entry, FIRST, state)
    assert claim(entry, SECOND, 10 * LEASE, LEASE).decision is Decision.SUPPRESS


def test_a_dead_lettered_copy_that_comes_again_is_dead_lettered_again() -> None:
    entry = mark(claim(None, FIRST, 0, LEASE).entry, FIRST, State.DEAD_LETTERED)
    assert claim(entry, FIRST, 1, LEASE).decision is Decision.DEAD_LETTER


def test_a_deferred_copy_is_handed_out_when_the_application_asks_for_it() -> None:
    entry = mark(claim(None, FIRST, 0, LEASE).entry, FIRST, State.DEFERRED)
    assert claim(entry, FIRST, 1, LEASE).decision is Decision.HAND_OUT


def test_what_is_over_is_not_marked_again() -> None:
    for before, after in product((State.DONE, State.DEAD_LETTERED), (State.DEFERRED, State.DONE, State.DEAD_LETTERED)):
        assert mark(Entry(before, FIRST, 0), SECOND, after) is None
        assert (before, after) not in MARKS


def test_a_renewed_lock_extends_the_claim_of_its_own_copy_alone() -> None:
    entry = claim(None, FIRST, 0, LEASE).entry
    longer = extend(entry, FIRST, 500, LEASE)
    assert longer is not None
    assert longer.until_ms == 500 + LEASE
    assert extend(entry, SECOND, 500, LEASE) == entry
    assert extend(entry, FIRST, -500, LEASE) == entry
    assert extend(None, FIRST, 0, LEASE) is None


def test_what_cannot_be_settled_is_marked_as_it_is_handed_out() -> None:
    entry = claim(None, FIRST, 0, LEASE, State.DONE).entry
    assert claim(entry, SECOND, 10 * LEASE, LEASE).decision is Decision.SUPPRESS


def test_how_copies_stand_to_each_other() -> None:
    entry = Entry(State.CLAIMED, FIRST, LEASE)
    assert [relation(entry, copy, at) for copy, at in ((FIRST, 0), (FIRST, LEASE), (SECOND, 0), (SECOND, LEASE))] == [
        CopyRelation.SAME,
        CopyRelation.SAME,
        CopyRelation.OTHER,
        CopyRelation.LATE,
    ]


# Workers that are killed

TAGS = ("a", "b", "c")


@dataclass
class World:
    """Two namespaces with a copy of each message, a ledger, and workers that may die between any two steps.

    A lock lasts as long as a lease. `joins`: the mark is in the transaction of the work.
    """

    joins: bool
    now_ms: int = 0
    ledger: dict[str, Entry] = field(default_factory=dict)
    queue: dict[tuple[str, Copy], int] = field(default_factory=dict)  # Locked until.
    workers: dict[int, list[object]] = field(default_factory=dict)
    worked: Counter[str] = field(default_factory=Counter)
    killed_before_mark: Counter[str] = field(default_factory=Counter)
    lock_lost: Counter[str] = field(default_factory=Counter)  # Before the mark, while the worker lived.

    def __post_init__(self) -> None:
        for number, tag in enumerate(TAGS):
            self.queue[tag, Copy("contoso", number)] = 0
            self.queue[tag, Copy("fabrikam", number)] = 0

    def step(self, worker: int, choice: int) -> None:
        """One step of one worker: receive, work, mark, complete."""
        state = self.workers.get(worker)
        if state is None:
            free = [item for item, until in self.queue.items() if until <= self.now_ms]
            if free:
                self._receive(worker, *free[choice % len(free)])
            return
        step, tag, copy, until_ms = state
        assert isinstance(tag, str)
        assert isinstance(copy, Copy)
        if step != "complete" and isinstance(until_ms, int) and self.now_ms >= until_ms:
            self.lock_lost[tag] += 1
            state[3] = None
        if step == "work":
            self._work(state, tag, copy)
        elif step == "mark":
            self.ledger[tag] = mark(self.ledger.get(tag), copy, State.DONE) or self.ledger[tag]
            state[0] = "complete"
        else:
            self.queue.pop((tag, copy), None)
            del self.workers[worker]

    def _receive(self, worker: int, tag: str, copy: Copy) -> None:
        answer = claim(self.ledger.get(tag), copy, self.now_ms, LEASE)
        self.queue[tag, copy] = self.now_ms + LEASE
        if answer.decision is Decision.HAND_OUT:
            self.ledger[tag] = answer.entry
            self.workers[worker] = ["work", tag, copy, self.now_ms + LEASE]
        elif answer.decision is Decision.SUPPRESS:
            del self.queue[tag, copy]
        else:
            self.queue[tag, copy] = self.now_ms  # Held: given back for the sake of the model.

    def _work(self, state: list[object], tag: str, copy: Copy) -> None:
        if not self.joins:
            self.worked[tag] += 1
            state[0] = "mark"
            return
        after = mark(self.ledger.get(tag), copy, State.DONE)
        if after is not None:  # Else the transaction is rolled back.
            self.ledger[tag] = after
            self.worked[tag] += 1
        state[0] = "complete"

    def kill(self, worker: int) -> None:
        """The worker is gone; its lock runs out."""
        state = self.workers.pop(worker, None)
        if state is not None and state[0] == "mark":
            self.killed_before_mark[str(state[1])] += 1

    def settle(self) -> None:
        """Everybody who is left goes on until nothing is left."""
        for _ in range(1000):
            if not self.queue:
                return
            self.now_ms += LEASE
            for worker in (0, 1):
                for _ in range(4):
                    self.step(worker, 0)
        raise AssertionError(f"never empty: {self.queue}")


steps = st.lists(
    st.tuples(st.sampled_from(["step", "step", "step", "step", "kill", "time"]), st.integers(0, 1), st.integers(0, 5)),
    max_size=60,
)


@settings(max_examples=1000)
@given(schedule=steps)
def test_where_the_mark_joins_the_transaction_everything_is_worked_on_exactly_once(
    schedule: list[tuple[str, int, int]],
) -> None:
    world = run(World(joins=True), schedule)
    assert world.worked == dict.fromkeys(TAGS, 1)


@settings(max_examples=1000)
@given(schedule=steps)
def test_elsewhere_work_is_repeated_only_where_a_worker_died_or_lost_its_lock_before_the_mark(
    schedule: list[tuple[str, int, int]],
) -> None:
    world = run(World(joins=False), schedule)
    for tag in TAGS:
        assert 1 <= world.worked[tag] <= 1 + world.killed_before_mark[tag] + world.lock_lost[tag]


def run(world: World, schedule: list[tuple[str, int, int]]) -> World:
    for what, worker, choice in schedule:
        if what == "kill":
            world.kill(worker)
        elif what == "time":
            world.now_ms += LEASE // 2
        else:
            world.step(worker, choice)
    world.settle()
    assert world.queue == {}
    return world
