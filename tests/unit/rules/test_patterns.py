"""LIKE's matcher against an obviously right one, and its work on texts that are made to cost."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from twinbus.rules.compiler import compile_condition
from twinbus.rules.errors import FilterError
from twinbus.rules.limits import STEPS_MAX
from twinbus.rules.parser import parse_filter
from twinbus.rules.patterns import matcher, simple_form
from twinbus.rules.view import MessageView


def free(steps: int) -> None:
    assert steps > 0


def obviously(text: str, pattern: str, escape: str | None) -> bool:
    """The definition of LIKE, one character at a time, every possibility tried."""

    @cache
    def matches(at: int, place: int) -> bool:
        if place == len(pattern):
            return at == len(text)
        character = pattern[place]
        if character == escape:
            return at < len(text) and text[at] == pattern[place + 1] and matches(at + 1, place + 2)
        if character == "%":
            return matches(at, place + 1) or (at < len(text) and matches(at + 1, place))
        return at < len(text) and character in ("_", text[at]) and matches(at + 1, place + 1)

    return matches(0, 0)


@settings(max_examples=400)
@given(text=st.text("ab", max_size=12), pattern=st.text("ab%_", max_size=10))
@example(text="aab", pattern="%a_b%")
@example(text="abcabd", pattern="%ab_abd")
def test_a_pattern_matches_what_it_says(text: str, pattern: str) -> None:
    assert matcher(pattern)(text, free) is obviously(text, pattern, None)


@given(text=st.text("ab%_!", max_size=10), pattern=st.text("ab%_!", max_size=10))
def test_escaped_characters_stand_for_themselves(text: str, pattern: str) -> None:
    if _dangling(pattern):
        with pytest.raises(FilterError, match="escape"):
            matcher(pattern, "!")
    else:
        assert matcher(pattern, "!")(text, free) is obviously(text, pattern, "!")


def _dangling(pattern: str) -> bool:
    open_escape = False
    for character in pattern:
        open_escape = character == "!" and not open_escape
    return open_escape


@pytest.mark.parametrize(
    ("pattern", "form"),
    [
        ("abc", ("is", "abc")),
        ("", ("is", "")),
        ("abc%", ("starts", "abc")),
        ("%abc", ("ends", "abc")),
        ("%abc%", ("holds", "abc")),
        ("%", ("starts", "")),
        ("%%", ("holds", "")),
        ("a!%%", ("starts", "a%")),
        ("a%c", None),
        ("a_", None),
        ("_%", None),
        ("%a%b%", None),
    ],
)
def test_common_patterns_have_a_simple_form(pattern: str, form: tuple[str, str] | None) -> None:
    assert simple_form(pattern, "!") == form


@pytest.mark.parametrize("escape", ["", "ab"])
def test_an_escape_is_one_character(escape: str) -> None:
    with pytest.raises(FilterError, match="one character"):
        matcher("a", escape)


class Purse:
    """Counts steps as a view does, without an end."""

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, steps: int) -> None:
        self.spent += steps


def test_many_wildcards_do_not_multiply() -> None:
    purse = Purse()
    assert matcher("%a" * 500 + "b%")("a" * 60_000, purse.spend) is False
    assert purse.spent == 0


def test_a_piece_with_single_wildcards_is_paid_for() -> None:
    purse = Purse()
    assert matcher("%a_a_b%")("a" * 1_000, purse.spend) is False
    assert 0 < purse.spent < 10_000


def test_a_hostile_pattern_ends_with_an_error_before_it_costs_much() -> None:
    message = MessageView({}, {"text": "a" * 32_000})
    hostile = compile_condition(parse_filter(f"text LIKE '%{'a_' * 400}b%'"), {})
    with pytest.raises(FilterError, match=f"more than {STEPS_MAX} steps"):
        hostile(message)


def test_patterns_from_messages_are_bounded_too() -> None:
    condition = compile_condition(parse_filter("text LIKE pattern"), {})
    with pytest.raises(FilterError, match="more than 1024 characters"):
        condition(MessageView({}, {"text": "a", "pattern": "%" * 1025}))
    with pytest.raises(FilterError, match=f"more than {STEPS_MAX} steps"):
        condition(MessageView({}, {"text": "a" * 32_000, "pattern": "%" + "a_" * 500 + "b%"}))


def test_making_patterns_from_messages_is_paid_for() -> None:
    condition = compile_condition(parse_filter(" OR ".join(["a LIKE b"] * 85)), {})
    assert condition(MessageView({}, {"a": "x", "b": "y" * 100})) is False
    with pytest.raises(FilterError, match=f"more than {STEPS_MAX} steps"):
        condition(MessageView({}, {"a": "x", "b": "y" * 1024}))
    with pytest.raises(FilterError, match=f"more than {STEPS_MAX} steps"):
        condition(MessageView({}, {"a": "x" * 32_000, "b": "%y%"}))
