"""Moved, left, rate and time to go, from what tasks and broker tell."""

from __future__ import annotations

from collections import Counter

from twinbus.pipeline.syphoning.movement import Done
from twinbus.pipeline.syphoning.progress import STALE_S, WINDOW_S, Meter, Waiting


def moved(count: int, **facts: int) -> Done:
    return Done(moved=Counter({"orders": count}), **facts)


def test_nothing_is_known_before_the_broker_was_asked() -> None:
    found = Meter(0.0).progress(1.0)
    assert (found.moved, found.left, found.rate, found.eta_s) == (0, None, 0.0, None)


def test_during_a_round_the_counts_of_the_broker_tell_what_has_moved() -> None:
    meter = Meter(0.0)
    meter.looked(10_000, 0.0)
    meter.begins()
    meter.looked(8_000, 2.0)
    found = meter.progress(2.0)
    assert (found.moved, found.left, found.total) == (2_000, 8_000, 10_000)
    assert found.rate == 1_000
    assert found.eta_s == 8.0


def test_at_the_end_of_a_round_the_tasks_tell_it_exactly() -> None:
    meter = Meter(0.0)
    meter.looked(10_000, 0.0)
    meter.begins()
    meter.looked(8_000, 2.0)
    assert meter.returned([moved(1_500), moved(400, dead=7)], 3.0) == 1_907
    meter.looked(8_093, 3.0)
    found = meter.progress(3.0)
    assert (found.moved, found.dead, found.left, found.total) == (1_900, 7, 8_093, 10_000)


def test_what_arrives_meanwhile_does_not_turn_progress_round() -> None:
    meter = Meter(0.0)
    meter.looked(100, 0.0)
    meter.begins()
    meter.looked(40, 1.0)
    meter.looked(500, 2.0)
    assert meter.progress(2.0).moved == 60


def test_the_rate_is_that_of_the_last_while() -> None:
    meter = Meter(0.0)
    meter.looked(1_000_000, 0.0)
    meter.begins()
    meter.looked(900_000, 1.0)
    for second in range(2, 3 + int(WINDOW_S)):
        meter.looked(900_000 - (second - 1) * 100, float(second))
    assert meter.progress(2 + WINDOW_S).rate == 100


def test_the_time_before_the_first_message_does_not_make_it_slow() -> None:
    meter = Meter(0.0)
    meter.looked(10_000, 0.0)
    meter.begins()
    for second in range(1, 9):
        meter.looked(10_000, float(second))
    meter.looked(9_000, 9.0)
    assert meter.progress(9.5).rate == 1_000
    assert meter.progress(9.5).eta_s == 9


def test_a_broker_that_tells_nothing_any_more_makes_it_slower() -> None:
    meter = Meter(0.0)
    meter.looked(10_000, 0.0)
    meter.begins()
    meter.looked(9_000, 1.0)
    assert meter.progress(1.0 + STALE_S).rate == 1_000
    assert meter.progress(9.0 + STALE_S).rate < 200


def test_when_nothing_moves_nobody_says_how_long_it_takes() -> None:
    meter = Meter(0.0)
    meter.looked(100, 0.0)
    meter.begins()
    meter.looked(100, 30.0)
    assert meter.progress(30.0).eta_s is None


def test_a_task_that_was_lost_is_remembered_since_its_count_is_lost_too() -> None:
    meter = Meter(0.0)
    meter.returned([moved(5, attempt=2), moved(5)], 1.0)
    assert meter.progress(1.0).lost_tasks == 2


def test_what_is_deferred_is_left_but_cannot_be_received() -> None:
    waiting = Waiting({"q0": 3}, {"o0": 2}, unreceivable=4)
    assert (waiting.receivable, waiting.left) == (5, 9)
