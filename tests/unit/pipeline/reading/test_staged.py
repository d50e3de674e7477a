"""Claims by staging, with a crash between any two steps: nothing lost, nothing into Spark twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.claiming import Broker, CrashError, Disk, Fate, Spark
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.reading.staged import GRACE_S, Limit, Offset, StagedClaims
from twinbus.pipeline.reading.staging import Key

LIMIT = Limit(3)


class Clock:
    def __init__(self) -> None:
        self.now = 10 * GRACE_S

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class StagedSource:
    """One process' reader over a broker and a disk."""

    def __init__(self, broker: Broker, disk: Disk, limit: Limit = LIMIT, **settings: Any) -> None:
        self.disk = disk
        self.limit = limit
        self.claims = StagedClaims(disk, broker, now_s=Clock(), **settings)  # type: ignore[arg-type]

    def initial(self) -> dict[str, Any]:
        return self.claims.initial().told()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        return self.claims.next(Offset.read(start), self.limit, 0.0, ending=True).told()

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[Key]:
        parts = self.claims.parts(Offset.read(start), Offset.read(end))
        keys = [key for part in parts for key in self.disk.keys(part.segment)[part.first : part.first + part.rows]]
        return keys

    def commit(self, end: dict[str, Any]) -> None:
        self.claims.commit(Offset.read(end))


class World:
    """All that outlives a process."""

    def __init__(self, settle_at_once: bool = False) -> None:
        self.broker, self.disk, self.spark = Broker(), Disk(), Spark()
        self.sent: list[Key] = []
        self.settle_at_once = settle_at_once

    def send(self, count: int, entity: str = "orders") -> None:
        self.sent += self.broker.send(entity, count)

    def run(self, crash_at: int | None = None) -> bool:
        """One process; whether it lived to its end."""
        self.broker.fate = self.disk.fate = self.spark.fate = Fate(crash_at)
        self.broker.process_ended()
        try:
            self.spark.run(StagedSource(self.broker, self.disk, settle_at_once=self.settle_at_once))
        except CrashError:
            return False
        return True

    @property
    def seen(self) -> Counter[Key]:
        return Counter(key for rows in self.spark.written.values() for key in rows)


def test_everything_is_read_once_and_completed() -> None:
    world = World()
    world.send(7)
    world.send(4, "other")
    assert world.run()
    assert world.seen == Counter(world.sent)
    assert world.broker.messages == {}
    assert world.disk.segments == {}


@given(
    crashes=st.lists(st.integers(0, 70), max_size=4),
    arrivals=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    settle_at_once=st.booleans(),
)
def test_nothing_is_lost_or_read_twice_wherever_processes_end(
    crashes: list[int], arrivals: list[int], settle_at_once: bool
) -> None:
    world = World(settle_at_once)
    for count, crash_at in zip([*arrivals, *[0] * len(crashes)], [*crashes, *[None] * len(arrivals)], strict=False):
        world.send(count)
        world.run(crash_at)
    assert world.run()
    assert world.seen == Counter(world.sent)
    assert world.broker.messages == {}


@given(crash_at=st.integers(0, 60), second=st.integers(0, 60))
def test_without_its_checkpoint_a_query_loses_nothing(crash_at: int, second: int) -> None:
    world = World()
    world.send(8)
    world.run(crash_at)
    done = dict(world.seen)
    world.spark.lose_checkpoint()
    world.spark.written.clear()
    world.run(second)
    assert world.run()
    assert {*done, *world.seen} == set(world.sent)
    assert max(world.seen.values(), default=1) == 1
    assert world.broker.messages == {}


@given(crash_at=st.integers(0, 60))
def test_without_its_staging_directory_a_query_loses_nothing(crash_at: int) -> None:
    world = World()
    world.send(8)
    world.run(crash_at)
    world.disk = Disk()
    world.broker.fate = world.spark.fate = Fate()
    world.broker.process_ended()
    world.spark.written = dict(list(world.spark.written.items())[: world.spark.committed])
    world.spark.run(StagedSource(world.broker, world.disk, fail_on_data_loss=False))
    assert set(world.seen) == set(world.sent)
    assert world.broker.messages == {}


def test_a_missing_segment_fails_the_query_unless_told_otherwise() -> None:
    strict = StagedSource(Broker(), Disk())
    with pytest.raises(PipelineError, match="Segment 4, which the checkpoint asks for"):
        strict.read({"segment": 3, "tick": 0}, {"segment": 4, "tick": 0})
    assert (
        StagedSource(Broker(), Disk(), fail_on_data_loss=False).read(
            {"segment": 3, "tick": 0}, {"segment": 4, "tick": 0}
        )
        == []
    )


def test_a_message_whose_lock_expires_in_a_long_batch_is_recognised_and_completed() -> None:
    broker, disk = Broker(), Disk()
    (key,) = broker.send("orders")
    source = StagedSource(broker, disk)
    start = source.initial()
    end = source.latest(start)
    broker.locks_expire()
    tick = source.latest(end)
    assert source.read(end, tick) == []
    assert broker.deliveries[key] == 2
    source.commit(end)
    assert broker.messages == {}


def test_a_message_that_comes_back_after_its_commit_is_completed_and_not_read_again() -> None:
    broker, disk = Broker(), Disk()
    broker.send("orders")
    source = StagedSource(broker, disk)
    end = source.latest(source.initial())
    broker.locks_expire()
    source.commit(end)
    assert broker.messages
    assert source.latest(end) == end
    assert broker.messages == {}


def test_an_idle_query_has_its_last_batch_committed_by_a_tick_and_then_rests() -> None:
    broker, disk = Broker(), Disk()
    broker.send("orders")
    source = StagedSource(broker, disk)
    end = source.latest(source.initial())
    tick = source.latest(end)
    assert (tick["segment"], tick["tick"]) == (end["segment"], end["tick"] + 1)
    source.commit(end)
    assert source.latest(tick) == tick


def test_commit_can_be_repeated() -> None:
    broker, disk = Broker(), Disk()
    broker.send("orders", 3)
    source = StagedSource(broker, disk)
    end = source.latest(source.initial())
    source.commit(end)
    source.commit(end)
    assert broker.messages == {}
    assert disk.finished == 1


def test_settling_that_a_broker_refuses_is_tried_again() -> None:
    broker, disk = Broker(), Disk()
    broker.send("orders")
    source = StagedSource(broker, disk)
    end = source.latest(source.initial())
    broker.refuse_settling = True
    source.commit(end)
    broker.refuse_settling = False
    assert source.latest(end) == end
    assert broker.messages == {}


def test_a_segment_that_is_only_said_to_be_gone_is_kept_for_a_while() -> None:
    broker, disk = Broker(), Disk()
    (key,) = broker.send("orders")
    source = StagedSource(broker, disk)
    end = source.latest(source.initial())
    disk.age_s = lambda number, now_s: GRACE_S / 2  # type: ignore[method-assign]
    del broker.messages[key]
    broker.locks_expire()
    source.commit(end)
    assert disk.segments
    broker.messages[key] = None  # A store that was away is back.
    assert source.latest(end) == end
    assert broker.messages == {}


def test_few_messages_wait_for_more_but_not_for_ever() -> None:
    broker, disk = Broker(), Disk()
    clock = Clock()
    claims = StagedClaims(disk, broker, least=5, patience_s=100.0, now_s=clock)  # type: ignore[arg-type]
    start = claims.initial()
    broker.send("orders", 2)
    assert claims.next(start, Limit(10), 0.0) == start
    broker.send("orders", 3)
    assert claims.next(start, Limit(10), 0.0).segment == 1
    assert len(disk.segments[1]) == 5
    broker.send("orders", 1)
    claims.commit(Offset(1))
    assert claims.next(Offset(1), Limit(10), 0.0) == Offset(1)
    clock.now += 101
    assert claims.next(Offset(1), Limit(10), 0.0) == Offset(2)


def test_a_batch_ends_at_its_bytes_and_the_rest_is_for_the_next() -> None:
    broker, disk = Broker(), Disk()
    broker.send("orders", 5)  # Eight bytes each.
    claims = StagedClaims(disk, broker, now_s=Clock())  # type: ignore[arg-type]
    assert claims.next(claims.initial(), Limit(10, 17), 0.0) == Offset(1)
    assert [message.number for message in disk.segments[1]] == [1, 2]
    assert claims.next(Offset(1), Limit(10, 17), 0.0) == Offset(2)
    assert [message.number for message in disk.segments[2]] == [3, 4]


def test_an_offset_of_another_claim_mode_is_refused() -> None:
    with pytest.raises(PipelineError, match="none of claimMode=stage"):
        Offset.read({"batch": 1})
