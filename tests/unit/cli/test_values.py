"""Values as people type them."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from twinbus.cli.values import parse_duration, parse_instant, parse_properties
from twinbus.model.limits import UNLIMITED_MS


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("30", 30_000),
        ("30s", 30_000),
        ("1.5s", 1_500),
        ("500ms", 500),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("14d", 1_209_600_000),
        ("1w", 604_800_000),
        ("1h30m", 5_400_000),
        (" 5M ", 300_000),
        ("PT30S", 30_000),
        ("p1dt2h", 93_600_000),
        ("unlimited", UNLIMITED_MS),
        ("99999999999d", UNLIMITED_MS),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds
    assert parse_duration(parse_duration(text)) == milliseconds


@pytest.mark.parametrize("text", ["", "soon", "5x", "-5s", "5 minutes", "P", "PT", "1h-30m", "٣s"])
def test_what_is_no_duration_is_told_so(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no duration"):
        parse_duration(text)


def test_an_instant_is_a_time_or_a_distance() -> None:
    at = parse_instant("2030-01-31T08:00:00Z")
    assert (at, at.relative) == (1_896_076_800_000, False)
    assert parse_instant("2030-01-31T09:00:00+01:00") == at
    later = parse_instant("10m")
    assert (later, later.relative) == (600_000, True)
    assert parse_instant(later) is later


@pytest.mark.parametrize("text", ["tomorrow", "2030-13-01", "31.01.2030"])
def test_what_is_no_instant_is_told_so(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="neither a time"):
        parse_instant(text)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("a=", "a", ""),
        ("a=b=c", "a", "b=c"),
        ("a=5", "a", "5"),
        ("a:=5", "a", 5),
        ("a:=1.5", "a", 1.5),
        ("a:=true", "a", True),
        ("a:=null", "a", None),
        ('a:="x"', "a", "x"),
        ("a:b=c", "a:b", "c"),
    ],
)
def test_properties(text: str, name: str, value: Any) -> None:
    assert parse_properties([text]) == {name: value}


@pytest.mark.parametrize("text", ["a", "=b", ":=5", "a:=", "a:=[1]", "a:={}", "a:=x", f"a:={2**63}"])
def test_what_is_no_property_is_told_so(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_properties([text])
