"""ISO 8601 durations: what is read, what is written, and that nothing changes on the way round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.model.duration import UNLIMITED_TEXT, format_duration, parse_duration_ms
from twinbus.model.errors import BusError, Fault
from twinbus.model.limits import UNLIMITED_MS

SPELLINGS = [
    ("PT0S", 0),
    ("PT0.001S", 1),
    ("PT0.5S", 500),
    ("PT5S", 5_000),
    ("PT30S", 30_000),
    ("PT1M", 60_000),
    ("PT1M30S", 90_000),
    ("PT5M0.25S", 300_250),
    ("PT1H", 3_600_000),
    ("P1D", 86_400_000),
    ("P7D", 604_800_000),
    ("P1DT2H3M4.567S", 93_784_567),
    (UNLIMITED_TEXT, UNLIMITED_MS),
]


@pytest.mark.parametrize(("text", "milliseconds"), SPELLINGS)
def test_a_duration_is_read(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(("text", "milliseconds"), SPELLINGS)
def test_a_duration_is_written_in_its_shortest_spelling(text: str, milliseconds: int) -> None:
    assert format_duration(milliseconds) == text


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT90S", 90_000),
        ("PT120M", 7_200_000),
        ("PT36H", 129_600_000),
        ("P0DT0H0M30S", 30_000),
        ("PT1,5S", 1_500),
        (" PT1M\n", 60_000),
        ("PT0.0019S", 1),
        ("PT1.123456789S", 1_123),
    ],
)
def test_other_spellings_mean_the_same(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["P10675200D", "P99999999D", "PT999999999999S", "P10675199DT2H48M6S"])
def test_what_is_longer_than_the_longest_duration_is_unlimited(text: str) -> None:
    assert parse_duration_ms(text) == UNLIMITED_MS


def test_one_millisecond_less_than_unlimited_is_not_unlimited() -> None:
    assert parse_duration_ms("P10675199DT2H48M5.476S") == UNLIMITED_MS - 1
    assert format_duration(UNLIMITED_MS - 1) == "P10675199DT2H48M5.476S"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "30",
        "30S",
        "T30S",
        "PT-5S",
        "-PT5S",
        "P1Y",
        "P1M",
        "P1W",
        "PT1S1M",
        "PT1.5M",
        "PT.5S",
        "PT5",
        "pt5s",
        "PT5S junk",
        "PT5S\nPT6S",
        "P999999999D",
        "PT\u0665S",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BusError, match="is not a duration") as refused:
        parse_duration_ms(text)
    assert refused.value.fault is Fault.ARGUMENT


def test_a_number_in_place_of_a_text_is_refused() -> None:
    with pytest.raises(BusError, match="'30' is not a duration"):
        parse_duration_ms(30)  # type: ignore[arg-type]


def test_a_refusal_quotes_only_the_beginning_of_a_long_text() -> None:
    with pytest.raises(BusError) as refused:
        parse_duration_ms("x" * 10_000)
    assert len(refused.value.text) < 120


@given(st.integers(min_value=0, max_value=UNLIMITED_MS))
def test_every_duration_survives_the_round_trip(milliseconds: int) -> None:
    assert parse_duration_ms(format_duration(milliseconds)) == milliseconds
