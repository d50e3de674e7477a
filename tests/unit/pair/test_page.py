"""docs/pairing.md says what the code has: the table of states is drawn from the policy's own, options are complete."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from twinbus.pair import errors
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.route import presets
from twinbus.pair.route.health import TABLE, Event, Health, Policy, State, on

PAGE = (Path(__file__).parents[3] / "docs" / "pairing.md").read_text()


def outcomes(state: State, event: Event) -> str:
    """The states that an event can lead to, over intervals, times and counts of pings that differ."""
    if (state, event) not in TABLE:
        return "·"
    found: set[State] = set()
    for interval in (0.0, 10.0):
        for pings in (1, 2):
            for now in (1.0, 100.0):
                policy = Policy(interval, 5.0, pings)
                found.add(on(Health(state, 0.0, 50.0), event, now, policy).state)
    return ", ".join(state.value for state in State if state in found)


def drawn() -> str:
    lines = [
        f"| | {' | '.join(event.value for event in Event)} |",
        "|---|" + "---|" * len(Event),
    ]
    for state in State:
        lines.append(f"| **{state.value}** | {' | '.join(outcomes(state, event) for event in Event)} |")
    return "\n".join(lines)


def test_the_states_are_drawn_from_the_table() -> None:
    assert drawn() in PAGE, f"docs/pairing.md needs this table:\n{drawn()}"


def test_every_option_is_there_with_its_default_and_bounds() -> None:
    for option in fields(SendAvailabilityOptions):
        low, high = SendAvailabilityOptions._BOUNDS.get(option.name, (None, None))
        allowed = "" if low is None or high is None else f"{low:g} to {high:g}"
        row = " ".join(f"| `{option.name}` | {option.default} | {allowed} |".split())
        assert row in " ".join(PAGE.split()), f"docs/pairing.md lacks {row}"


def test_every_preset_is_there_and_every_error_that_is_named_exists() -> None:
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \| (?:time-outs|what)", PAGE, re.MULTILINE)) == set(presets.PRESETS)
    named = re.findall(r"^\| `(\w+Error)` \|", PAGE, re.MULTILINE)
    assert len(named) >= 5
    assert all(issubclass(getattr(errors, name), errors.PairError) for name in named)
