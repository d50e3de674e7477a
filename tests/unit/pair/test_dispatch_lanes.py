"""The order in which messages leave an outbox, by random schedules: nothing lost, nothing of a lane overtaken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.pair import dispatch_lanes
from twinbus.pair.dispatch_lanes import LANE_DEPTH, LOT, Fate, Lanes, Lot, Outcome, Settled
from twinbus.pair.outbox_rows import Entry, Wanted, lane_of

MAX_IN_FLIGHT = 4
FATES = (Fate.SENT, Fate.SENT, Fate.SENT, Fate.LATER, Fate.REFUSED)


def entry(number: int, path: str = "orders", key: str | None = None) -> Entry:
    return Entry(number, path, lane_of(path, key), f"m{number}", 0, b"x" * 10)


def take(waiting: dict[int, Entry], wanted: Wanted) -> list[Entry]:
    """As the tables do it."""
    return [
        found
        for number, found in sorted(waiting.items())
        if number not in wanted.known
        and found.path.lower() not in wanted.paused_paths
        and (found.lane is None or found.lane not in wanted.busy_lanes)
    ][: wanted.limit]


@dataclass
class World:
    """An outbox, a dispatcher that may be killed at any moment, and what arrived."""

    random: Random
    waiting: dict[int, Entry] = field(default_factory=dict)
    aside: set[int] = field(default_factory=set)
    arrived: list[Entry] = field(default_factory=list)
    under_way: list[Lot] = field(default_factory=list)
    answered: list[tuple[Lot, Settled]] = field(default_factory=list)
    asked: Wanted | None = None
    found: list[Entry] | None = None
    now: float = 0.0
    last: int = 0
    lanes: Lanes = field(default_factory=lambda: Lanes(MAX_IN_FLIGHT))

    def put(self) -> None:
        self.last += 1
        path = self.random.choice(["orders", "Orders", "carts"])
        key = self.random.choice([None, "a", "b", "c"])
        self.waiting[self.last] = entry(self.last, path, key)

    def ask(self) -> None:
        if self.found is None and (wanted := self.lanes.wanted(self.now)) is not None:
            self.found = take(self.waiting, wanted)

    def add(self) -> None:
        """The answer may come much later than the question."""
        if self.found is not None:
            self.lanes.add(self.found, self.now)
            self.found = None

    def begin(self) -> None:
        self.under_way += self.lanes.next(self.now)
        assert self.lanes.under_way <= MAX_IN_FLIGHT
        lanes = Counter(lot.entries[0].lane for lot in [*self.under_way, *(lot for lot, _ in self.answered)])
        assert all(count == 1 for lane, count in lanes.items() if lane is not None)

    def answer(self) -> None:
        if not self.under_way:
            return
        lot = self.under_way.pop(self.random.randrange(len(self.under_way)))
        outcomes = [Outcome(self.random.choice(FATES), "why") for _ in lot.entries]
        for each, outcome in zip(lot.entries, outcomes, strict=True):
            # What is not acknowledged may have arrived nevertheless.
            if outcome.fate is Fate.SENT or (outcome.fate is Fate.LATER and self.random.random() < 0.5):
                self.arrived.append(each)
        self.answered.append((lot, self.lanes.done(lot, outcomes, self.now)))

    def note(self) -> None:
        if self.answered:
            lot, settled = self.answered.pop(self.random.randrange(len(self.answered)))
            for number in settled.sent:
                del self.waiting[number]
            for number, _ in settled.refused:
                del self.waiting[number]
                self.aside.add(number)
            self.lanes.settled(lot, True, settled, self.now)

    def pass_time(self) -> None:
        self.now += self.random.choice([0.1, 1.0, 40.0])

    def heal(self) -> None:
        self.lanes.resume()

    def die(self) -> None:
        """Killed between any two steps: what was under way may have arrived, and was not written down."""
        for lot in self.under_way:
            self.arrived += [each for each in lot.entries if self.random.random() < 0.5]
        self.under_way, self.answered, self.found = [], [], None
        self.lanes = Lanes(MAX_IN_FLIGHT)


STEPS = ("put", "ask", "add", "begin", "answer", "note", "pass_time", "heal", "die")


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), max_size=150))
def test_whatever_happens_nothing_is_lost_and_no_lane_is_overtaken(seed: int, schedule: list[str]) -> None:
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
    for lane in {each.lane for each in world.arrived if each.lane is not None}:
        numbers = [each.number for each in world.arrived if each.lane == lane]
        assert numbers == sorted(numbers)  # A repetition comes at once, before anything that follows.


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), max_size=120))
def test_a_lane_that_is_longer_than_the_memory_for_it_stays_in_order(seed: int, schedule: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch_lanes, "LANE_DEPTH", 2)
        world = World(Random(seed))
        for step in [*schedule, *("put",) * 30, *schedule]:
            getattr(world, step)()
        lanes = {each.lane for each in world.arrived if each.lane is not None}
        for lane in lanes:
            numbers = [each.number for each in world.arrived if each.lane == lane]
            assert numbers == sorted(numbers)


def test_messages_without_a_key_leave_together() -> None:
    lanes = Lanes(MAX_IN_FLIGHT)
    lanes.add([entry(number) for number in range(1, 251)], 0.0)

    assert [len(lot.entries) for lot in lanes.next(0.0)] == [LOT, LOT, 50]


def test_a_long_lane_leaves_room_for_others() -> None:
    lanes = Lanes(MAX_IN_FLIGHT)
    lanes.add([entry(number, key="a") for number in range(1, 501)], 0.0)

    assert lanes.waiting == LANE_DEPTH
    wanted = lanes.wanted(0.0)
    assert wanted is not None
    assert list(wanted.busy_lanes) == ["orders\na"]


def test_an_entity_that_takes_nothing_is_tried_ever_less_often_and_holds_up_nobody() -> None:
    lanes = Lanes(MAX_IN_FLIGHT)
    lanes.add([entry(1, key="a"), entry(2, "carts", "a")], 0.0)
    blocked, fine = lanes.next(0.0)
    lanes.settled(blocked, True, lanes.done(blocked, [Outcome(Fate.LATER)], 0.0), 0.0)

    assert lanes.paused(0.0) == ["orders"]
    assert lanes.next_try(0.0) == 0.5
    assert lanes.done(fine, [Outcome(Fate.SENT)], 0.0).sent == [2]
    assert lanes.wanted(1.0) is not None
    lanes.add([entry(1, key="a")], 1.0)
    (again,) = lanes.next(1.0)
    lanes.settled(again, True, lanes.done(again, [Outcome(Fate.LATER)], 1.0), 1.0)
    assert lanes.next_try(1.0) == 2.0
    lanes.resume()
    assert lanes.paused(1.0) == []


def test_a_message_refused_for_good_lets_the_next_of_its_key_pass() -> None:
    lanes = Lanes(MAX_IN_FLIGHT)
    lanes.add([entry(1, key="a"), entry(2, key="a")], 0.0)
    (lot,) = lanes.next(0.0)
    settled = lanes.done(lot, [Outcome(Fate.REFUSED, "too large")], 0.0)
    lanes.settled(lot, True, settled, 0.0)

    assert settled.refused == [(1, "too large")]
    assert [lot.entries[0].number for lot in lanes.next(0.0)] == [2]
