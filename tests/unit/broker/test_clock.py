"""Clocks: the machine's, and the one that a test moves."""

from __future__ import annotations

import time

import pytest

from twinbus.broker.clock import MovableClock, SystemClock


def test_the_system_clock_tells_the_time_of_day() -> None:
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 1_000


def test_a_movable_clock_goes_on_by_itself_and_can_be_set_forward() -> None:
    real = SystemClock()
    clock = MovableClock(real)
    assert clock.now_ms() - real.now_ms() <= 0
    clock.advance_ms(3_600_000)
    clock.advance_ms(1_000)
    assert clock.offset_ms == 3_601_000
    before = real.now_ms()
    assert before + 3_601_000 <= clock.now_ms() <= real.now_ms() + 3_601_000


def test_a_clock_does_not_go_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        MovableClock(SystemClock()).advance_ms(-1)


def test_a_clock_can_be_set_right_again() -> None:
    real = SystemClock()
    clock = MovableClock(real)
    clock.advance_ms(3_600_000)
    clock.return_to_real()
    assert clock.now_ms() <= real.now_ms()
