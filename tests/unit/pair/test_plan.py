"""The order in which messages leave an outbox, by random schedules: nothing lost, nothing of a group overtaken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.pair.outbox import plan as plan_module
from twinbus.pair.outbox.plan import GROUP_DEPTH, LOT, DispatchPlan, Lot
from twinbus.pair.outbox.rows import Entry, Wanted, order_group_of

MAX_IN_FLIGHT = 4
SENT, LATER, REFUSED = "sent", "later", "refused"
FATES = (SENT, SENT, SENT, LATER, REFUSED)


def entry(number: int, path: str = "orders", key: str | None = None) -> Entry:
    return Entry(number, path, order_group_of(path, key), f"m{number}", 0, b"x" * 10)


def take(waiting: dict[int, Entry], wanted: Wanted) -> list[Entry]:
    """As the tables do it."""
    return [
        found
        for number, found in sorted(waiting.items())
        if number not in wanted.known
        and found.path.lower() not in wanted.paused_paths
        and (found.order_group is None or found.order_group not in wanted.busy_groups)
    ][: wanted.limit]


@dataclass
class World:
    """An outbox, a dispatcher that may be killed at any moment, and what arrived."""

    random: Random
    waiting: dict[int, Entry] = field(default_factory=dict)
    aside: set[int] = field(default_factory=set)
    arrived: list[Entry] = field(default_factory=list)
    under_way: list[Lot] = field(default_factory=list)
    answered: list[tuple[Lot, list[str]]] = field(default_factory=list)
    asked: Wanted | None = None
    found: list[Entry] | None = None
    now: float = 0.0
    last: int = 0
    plan: DispatchPlan = field(default_factory=lambda: DispatchPlan(MAX_IN_FLIGHT))

    def put(self) -> None:
        self.last += 1
        path = self.random.choice(["orders", "Orders", "carts"])
        key = self.random.choice([None, "a", "b", "c"])
        self.waiting[self.last] = entry(self.last, path, key)

    def ask(self) -> None:
        if self.found is None and (wanted := self.plan.wanted(self.now)) is not None:
            self.found = take(self.waiting, wanted)

    def add(self) -> None:
        """The answer may come much later than the question."""
        if self.found is not None:
            self.plan.add(self.found, self.now)
            self.found = None

    def begin(self) -> None:
        self.under_way += self.plan.next(self.now)
        assert self.plan.under_way <= MAX_IN_FLIGHT
        plan = Counter(lot.entries[0].order_group for lot in [*self.under_way, *(lot for lot, _ in self.answered)])
        assert all(count == 1 for group, count in plan.items() if group is not None)

    def answer(self) -> None:
        if not self.under_way:
            return
        lot = self.under_way.pop(self.random.randrange(len(self.under_way)))
        fates = [self.random.choice(FATES) for _ in lot.entries]
        for each, fate in zip(lot.entries, fates, strict=True):
            # What is not acknowledged may have arrived nevertheless.
            if fate == SENT or (fate == LATER and self.random.random() < 0.5):
                self.arrived.append(each)
        self.answered.append((lot, fates))

    def note(self) -> None:
        if self.answered:
            lot, fates = self.answered.pop(self.random.randrange(len(self.answered)))
            gone = []
            for each, fate in zip(lot.entries, fates, strict=True):
                # A note that could not be written leaves the message in the outbox.
                if fate != LATER and self.random.random() < 0.9:
                    del self.waiting[each.number]
                    gone.append(each.number)
                    if fate == REFUSED:
                        self.aside.add(each.number)
            self.plan.ended(lot, gone, took=SENT in fates, is_blocked=LATER in fates, now=self.now)

    def pass_time(self) -> None:
        self.now += self.random.choice([0.1, 1.0, 40.0])

    def heal(self) -> None:
        self.plan.resume()

    def die(self) -> None:
        """Killed between any two steps: what was under way may have arrived, and was not written down."""
        for lot in self.under_way:
            self.arrived += [each for each in lot.entries if self.random.random() < 0.5]
        self.under_way, self.answered, self.found = [], [], None
        self.plan = DispatchPlan(MAX_IN_FLIGHT)


STEPS = ("put", "ask", "add", "begin", "answer", "note", "pass_time", "heal", "die")


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), max_size=150))
def test_whatever_happens_nothing_is_lost_and_no_group_is_overtaken(seed: int, schedule: list[str]) -> None:
    world = World(Random(seed))
    for step in schedule:
        getattr(world, step)()
    for _ in range(2000):
        for step in ("pass_time", "ask", "add", "begin", "answer", "note"):
            getattr(world, step)()
        if not world.waiting:
            break
    assert not world.waiting

    arrived = {each.number for each in world.arrived}
    assert arrived | world.aside == set(range(1, world.last + 1))
    for group in {each.order_group for each in world.arrived if each.order_group is not None}:
        numbers = [each.number for each in world.arrived if each.order_group == group]
        assert numbers == sorted(numbers)  # A repetition comes at once, before anything that follows.


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), max_size=120))
def test_a_group_that_is_longer_than_the_memory_for_it_stays_in_order(seed: int, schedule: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "GROUP_DEPTH", 2)
        world = World(Random(seed))
        for step in [*schedule, *("put",) * 30, *schedule]:
            getattr(world, step)()
        plan = {each.order_group for each in world.arrived if each.order_group is not None}
        for group in plan:
            numbers = [each.number for each in world.arrived if each.order_group == group]
            assert numbers == sorted(numbers)


def test_messages_without_a_key_leave_together() -> None:
    plan = DispatchPlan(MAX_IN_FLIGHT)
    plan.add([entry(number) for number in range(1, 251)], 0.0)

    assert [len(lot.entries) for lot in plan.next(0.0)] == [LOT, LOT, 50]


def test_a_long_group_leaves_room_for_others() -> None:
    plan = DispatchPlan(MAX_IN_FLIGHT)
    plan.add([entry(number, key="a") for number in range(1, 501)], 0.0)

    assert plan.waiting == GROUP_DEPTH
    wanted = plan.wanted(0.0)
    assert wanted is not None
    assert list(wanted.busy_groups) == ["orders\na"]


def test_an_entity_that_takes_nothing_is_tried_ever_less_often_and_holds_up_nobody() -> None:
    plan = DispatchPlan(MAX_IN_FLIGHT)
    plan.add([entry(1, key="a"), entry(2, "carts", "a")], 0.0)
    blocked, fine = plan.next(0.0)
    plan.ended(blocked, (), took=False, is_blocked=True, now=0.0)

    assert plan.paused(0.0) == ["orders"]
    assert plan.next_try(0.0) == 0.5
    plan.ended(fine, [2], took=True, is_blocked=False, now=0.0)
    assert plan.paused(0.0) == ["orders"]
    assert plan.wanted(1.0) is not None
    plan.add([entry(1, key="a")], 1.0)
    (again,) = plan.next(1.0)
    plan.ended(again, (), took=False, is_blocked=True, now=1.0)
    assert plan.next_try(1.0) == 2.0
    plan.resume()
    assert plan.paused(1.0) == []


def test_a_message_refused_for_good_lets_the_next_of_its_key_pass() -> None:
    plan = DispatchPlan(MAX_IN_FLIGHT)
    plan.add([entry(1, key="a"), entry(2, key="a")], 0.0)
    (lot,) = plan.next(0.0)
    plan.ended(lot, [lot.entries[0].number], took=False, is_blocked=False, now=0.0)

    assert [lot.entries[0].number for lot in plan.next(0.0)] == [2]
