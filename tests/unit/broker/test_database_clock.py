"""The database's clock as a gateway carries it on between two looks at it."""

from __future__ import annotations

import pytest

from twinbus.broker.clock import DatabaseClock


class Machine:
    """A machine's own measure of time."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(DatabaseClock, "local_ms", staticmethod(machine))
    return machine


def test_it_goes_on_from_what_the_database_said(machine: Machine) -> None:
    clock = DatabaseClock()
    clock.measured(5_000_000, 998, 1_000)
    assert clock.now_ms() == 5_000_001
    machine.now += 250
    assert clock.now_ms() == 5_000_251


def test_a_slow_answer_does_not_spoil_a_good_measurement(machine: Machine) -> None:
    clock = DatabaseClock()
    clock.measured(5_000_000, 1_000, 1_000)
    machine.now = 2_000
    clock.measured(5_000_700, 1_000, 2_000)  # Somewhere in this second the database looked at its clock.
    assert clock.now_ms() == 5_001_000


def test_another_database_with_another_clock_is_believed(machine: Machine) -> None:
    clock = DatabaseClock()
    clock.measured(5_000_000, 1_000, 1_000)
    clock.measured(5_060_000, 990, 1_010)
    assert clock.now_ms() == 5_060_000


def test_it_does_not_go_backwards(machine: Machine) -> None:
    clock = DatabaseClock()
    clock.measured(5_000_000, 1_000, 1_000)
    clock.measured(4_999_000, 1_000, 1_000)
    assert clock.now_ms() == 5_000_000
    machine.now += 1_500
    assert clock.now_ms() == 5_000_500
