"""The pace of a task: never more than its rate, and nearly all of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.syphoning.movement import BURST_S, Pace


def test_nothing_may_go_at_once() -> None:
    assert Pace(10, now=0.0).take(100, 0.0) == 0


def test_after_a_tenth_of_a_second_a_tenth_of_the_rate_may_go() -> None:
    pace = Pace(1000, now=0.0)
    assert pace.take(500, 0.1) == 100
    assert pace.take(500, 0.1) == 0


def test_time_in_which_nothing_went_is_not_saved_up() -> None:
    assert Pace(1000, now=0.0).take(5000, 60.0) == 1000 * BURST_S


def test_what_was_not_used_may_go_later() -> None:
    pace = Pace(100, now=0.0)
    assert pace.take(10, 0.1) == 10
    pace.give_back(8)
    assert pace.take(10, 0.1) == 8


def test_it_says_how_long_to_wait_for_the_next_one() -> None:
    pace = Pace(2, now=0.0)
    assert pace.take(1, 0.0) == 0
    assert pace.wait_s() == 0.5
    assert pace.take(1, 0.5) == 1


@given(st.integers(1, 5000), st.lists(st.tuples(st.floats(0, 2), st.integers(1, 500)), max_size=60))
def test_in_no_time_more_goes_than_the_rate_and_one_burst(rate: int, asked: list[tuple[float, int]]) -> None:
    pace, now, gone = Pace(rate, now=0.0), 0.0, 0
    for after, wanted in asked:
        now += after
        gone += pace.take(wanted, now)
        assert gone <= rate * now + 1e-6
