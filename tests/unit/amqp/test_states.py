"""The tables of states: complete, and without a way out of an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.amqp.conditions import ViolationError
from twinbus.amqp.states import CONNECTION, LINK, SESSION, LinkState, Phase, SessionState, Signal, step


def test_every_state_can_be_reached_and_left() -> None:
    for table, states, start in (
        (CONNECTION, Phase, Phase.HEADER),
        (SESSION, SessionState, SessionState.UNMAPPED),
        (LINK, LinkState, LinkState.DETACHED),
    ):
        reached = {start} | set(table.values())  # type: ignore[attr-defined]
        left = {state for state, _ in table}  # type: ignore[attr-defined]
        assert reached == left == set(states)  # type: ignore[call-overload]


def test_a_failed_connection_stays_failed() -> None:
    assert {after for (phase, _), after in CONNECTION.items() if phase is Phase.FAILED} == {Phase.FAILED}
    assert {after for (phase, _), after in CONNECTION.items() if phase is Phase.CLOSED} == {Phase.FAILED}


def test_a_signal_that_is_not_in_the_table_is_a_violation() -> None:
    assert step(SESSION, SessionState.UNMAPPED, Signal.BEGIN) is SessionState.BEGIN_RECEIVED
    with pytest.raises(ViolationError, match="end received while not begun") as violation:
        step(SESSION, SessionState.UNMAPPED, Signal.END)
    assert violation.value.condition == "amqp:illegal-state"


def test_the_documentation_draws_the_tables_as_they_are() -> None:
    text = (Path(__file__).parents[3] / "docs" / "amqp.md").read_text()
    drawn = [line.strip() for line in text.splitlines() if "-->" in line]
    tables = [entry for table in (CONNECTION, SESSION, LINK) for entry in table.items()]  # type: ignore[attr-defined]
    expected = [
        f"{state.name} --> {after.name}: {signal.value}"
        for (state, signal), after in tables
        if signal is not Signal.FAIL
    ]
    assert drawn == expected
