"""docs/rules.md: its examples are evaluated and its table of system properties is compared with the code's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from twinbus.rules.compiler import compile_condition
from twinbus.rules.errors import FilterError
from twinbus.rules.parser import parse_filter
from twinbus.rules.view import SYSTEM_ALIASES, SYSTEM_NAMES, MessageView, system_property

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"


@cache
def rows(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading."""
    section = PAGE.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("condition", "answer"), rows("Examples"))
def test_an_example_has_the_answer_that_the_page_gives(condition: str, answer: str) -> None:
    user = {"color": "red", "quantity": 10, "price": 2.5, "urgent": True, "code": "50%"}
    evaluate = compile_condition(parse_filter(condition.strip("`")), {})
    view = MessageView({"Label": "order"}, user)
    if answer == "error":
        with pytest.raises(FilterError):
            evaluate(view)
    else:
        assert evaluate(view) is {"true": True, "false": False, "unknown": None}[answer]


def test_the_page_names_every_system_property() -> None:
    found = {name: (alias, form, settable) for name, alias, form, settable in rows("System properties")}
    assert found.keys() == SYSTEM_NAMES
    for name, (alias, form, settable) in found.items():
        known = system_property(name)
        assert known is not None
        assert (known.form.value, "yes" if known.settable else "no") == (form, settable)
        if alias:
            assert system_property(alias) == known


def test_every_alias_is_on_the_page() -> None:
    assert {row[1]: row[0] for row in rows("System properties") if row[1]} == SYSTEM_ALIASES
