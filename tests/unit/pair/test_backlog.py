"""Backlog queues: names, the documented description, and the rotation."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from twinbus.model import limits
from twinbus.model.entity import check_queue
from twinbus.pair.backlog import queues as backlog
from twinbus.pair.backlog.rotation import Rotation


def test_paths_and_numbers() -> None:
    assert backlog.path("contoso", 3) == "contoso/x-servicebus-transfer/3"
    assert backlog.index_of("contoso", "Contoso/X-ServiceBus-Transfer/12") == 12
    for other in (
        "fabrikam/x-servicebus-transfer/1",
        "contoso/x-servicebus-transfer/",
        "contoso/x-servicebus-transfer/a",
    ):
        assert backlog.index_of("contoso", other) is None
    assert backlog.index_of("a.c", "abc/x-servicebus-transfer/1") is None


def test_the_description_is_the_documented_one_and_can_be_made() -> None:
    made = backlog.description("contoso", 0)
    check_queue(made)

    assert (made.max_size_mb, made.max_delivery_count, made.lock_duration_ms) == (5120, 2147483647, 60_000)
    assert made.default_ttl_ms == made.auto_delete_on_idle_ms == limits.UNLIMITED_MS
    assert made.dead_letter_on_expiration
    assert made.batched_operations
    assert backlog.differences(made) == []


def test_each_difference_is_named() -> None:
    found = replace(backlog.description("c", 0), lock_duration_ms=5_000, requires_session=True, created_at_ms=77)

    assert backlog.differences(found) == [
        "lock_duration_ms is 5000 instead of 60000",
        "requires_session is True instead of False",
    ]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_sender_stays_with_its_queue_while_it_works(clock: Clock) -> None:
    rotation = Rotation(["a", "b", "c"], 60, clock, random.Random(1))

    assert {rotation.pick("b") for _ in range(20)} == {"b"}
    assert {rotation.pick() for _ in range(50)} == {"a", "b", "c"}


def test_a_queue_that_failed_is_left_out_for_everyone_and_returns(clock: Clock) -> None:
    rotation = Rotation(["a", "b"], 60, clock)
    rotation.failed("a")

    assert {rotation.pick("a") for _ in range(20)} == {"b"}
    assert rotation.resting() == ["a"]
    clock.now = 60
    assert rotation.pick("a") == "a"


def test_one_send_tries_each_queue_once_even_those_that_rest(clock: Clock) -> None:
    rotation = Rotation(["a", "b"], 60, clock)
    rotation.failed("a")
    rotation.failed("b")

    assert rotation.pick(None, ["a"]) == "b"
    assert rotation.pick(None, ["a", "b"]) is None


def test_a_queue_that_works_again_is_back_at_once(clock: Clock) -> None:
    rotation = Rotation(["a"], 60, clock)
    rotation.failed("a")
    rotation.worked("a")

    assert rotation.resting() == []
