"""Claims by deferral, with a crash between any two steps: nothing lost, nothing into Spark twice."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.claiming import Broker, CrashError, Fate, Marking, Spark
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.reading import claims
from twinbus.pipeline.reading.deferred import Claimed, DeferredClaims
from twinbus.pipeline.reading.staged import Limit
from twinbus.pipeline.reading.staging import Key

LIMIT = Limit(3)


class DeferredSource:
    """One process' reader over a broker."""

    def __init__(self, broker: Broker, limit: Limit = LIMIT) -> None:
        self.broker = broker
        self.limit = limit
        self.claims = DeferredClaims(Marking(broker), now_s=lambda: 1.0)

    def initial(self) -> dict[str, Any]:
        return self.claims.initial().told()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        return self.claims.next(Claimed.read(start), self.limit, 0.0).told()

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[Key]:
        keys = [key for part in self.claims.parts(Claimed.read(end)) for key in claims.read(part)]
        assert all(key in self.broker.messages for key in keys), "what is read is still there"
        return keys

    def commit(self, end: dict[str, Any]) -> None:
        self.claims.commit(Claimed.read(end))


@given(
    crashes=st.lists(st.integers(0, 90), max_size=4),
    arrivals=st.lists(st.integers(0, 5), min_size=1, max_size=5),
)
def test_nothing_is_lost_or_read_twice_wherever_processes_end(crashes: list[int], arrivals: list[int]) -> None:
    broker, spark = Broker(), Spark()
    sent: list[Key] = []
    runs = [*crashes, *[None] * (len(arrivals) + 1)]
    for position, crash_at in enumerate(runs):
        sent += broker.send("orders", arrivals[position] if position < len(arrivals) else 0)
        broker.fate = spark.fate = Fate(crash_at)
        broker.process_ended()
        with suppress(CrashError):
            spark.run(DeferredSource(broker))
    assert Counter(key for rows in spark.written.values() for key in rows) == Counter(sent)
    assert broker.messages == {}


@given(crash_at=st.integers(0, 80))
def test_without_its_checkpoint_a_query_finds_what_it_had_set_aside(crash_at: int) -> None:
    broker, spark = Broker(), Spark()
    sent = broker.send("orders", 7)
    broker.fate = spark.fate = Fate(crash_at)
    with suppress(CrashError):
        spark.run(DeferredSource(broker))
    seen = {key for rows in spark.written.values() for key in rows}
    spark.lose_checkpoint()
    spark.written.clear()
    broker.fate = spark.fate = Fate()
    broker.process_ended()
    spark.run(DeferredSource(broker))
    assert seen | {key for rows in spark.written.values() for key in rows} == set(sent)
    assert broker.messages == {}


def test_what_others_have_set_aside_is_left_alone() -> None:
    broker = Broker()
    (key,) = broker.send("orders")
    broker.messages[key] = "theirs"
    source = DeferredSource(broker)
    assert source.latest(source.initial()) == source.initial()
    assert broker.messages == {key: "theirs"}


def test_what_could_not_be_completed_is_carried_along_until_it_is() -> None:
    broker = Broker()
    broker.send("orders", 2)
    source = DeferredSource(broker)
    first = source.latest(source.initial())
    second = source.latest(first)
    broker.refuse_settling = True
    source.commit(first)
    broker.send("orders")
    third = source.latest(second)
    assert third["previous"] == {"orders": "1-2"}
    broker.refuse_settling = False
    source.commit(third)
    assert broker.messages == {}


def test_an_offset_of_another_claim_mode_is_refused() -> None:
    with pytest.raises(PipelineError, match="none of claimMode=defer"):
        Claimed.read({"segment": 1, "tick": 0})
