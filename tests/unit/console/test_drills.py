"""Drills as the console tells them: which can be begun, and records of any shape."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.console.asking import Answer
from twinbus.console.pages import drills
from twinbus.drill.scenarios import SCENARIOS


def test_those_that_are_offered_can_be_run_on_a_pair_that_is_up() -> None:
    able = [name for name, scenario in SCENARIOS.items() if scenario.on_a_pair_that_is_up]
    assert [name for name, _ in drills.SCENARIOS] == able


@pytest.mark.parametrize(
    "record",
    [
        None,
        {"id": "<b>", "counts": 3, "times": [], "points": {}, "moments": "many"},
        {"counts": {"lost": "all", "received": True}, "times": {"heal": -1}, "points": [1, {"at_s": None}]},
    ],
)
def test_a_record_of_any_shape_is_shown(record: Any) -> None:
    shown = drills.listed(Answer({"allowed": True, "drills": [record]}, 1.0))
    assert "<table" in shown
    assert "<b>" not in shown


def test_where_no_pair_was_described_it_is_said() -> None:
    assert "told of no pair" in drills.listed(Answer({"allowed": False, "drills": []}, 1.0))
