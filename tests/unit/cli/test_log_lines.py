"""How lines of the log look: for people and for machines, whatever is in them and however many there are."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from twinbus.cli.log_lines import LINES, WITHIN_S, JsonLines, LimitedHandler, TextLines


def record(message: str, created: float = 1_700_000_000.0, level: int = logging.WARNING, **told: Any) -> Any:
    made = logging.LogRecord("twinbus.test", level, __file__, 1, "%s", (message,), None)
    made.created = created
    if told:
        made.twinbus = told
    return made


class Lines:
    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        self.handler = LimitedHandler(self.stream)
        self.handler.setFormatter(formatter)

    def written(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_a_line_for_people_has_time_level_event_and_sentence() -> None:
    line = TextLines().format(record("store 2 is up", event="store.up", store=2))
    assert line == "2023-11-14T22:13:20.000Z WARNING store.up store 2 is up"
    assert TextLines().format(record("hello")).endswith("WARNING twinbus.test hello")


def test_a_line_for_machines_is_one_object() -> None:
    line = JsonLines().format(record("store 2 is up", event="store.up", store=2, why=None, numbers=[1, 2]))
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.000Z",
        "level": "warning",
        "event": "store.up",
        "logger": "twinbus.test",
        "message": "store 2 is up",
        "store": 2,
        "why": None,
        "numbers": [1, 2],
    }


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()])
def test_nobody_can_forge_a_line(formatter: logging.Formatter) -> None:
    evil = "a\n2026 CRITICAL \x1b[31m\u2028b\x00"
    line = formatter.format(record(evil, event="request.refused", entity=evil))
    assert len(line.splitlines()) == 1
    assert line.isprintable()


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Endpoint=sb://x;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0+/=;Entity=q", "c2VjcmV0"),
        ("SharedAccessSignature sr=x&sig=c2VjcmV0%3D&se=1&skn=Root", "c2VjcmV0"),
        ("postgresql://bus:c2VjcmV0@db1/bus", "c2VjcmV0"),
    ],
)
@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()])
def test_a_secret_that_got_into_a_line_is_masked(formatter: logging.Formatter, text: str, secret: str) -> None:
    assert secret not in formatter.format(record(text, event="request.failed", error=text))


def test_a_traceback_is_told_with_its_line() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        made = record("it failed")
        made.exc_info = (type(error), error, error.__traceback__)
    assert TextLines().format(made).splitlines()[1] == "Traceback (most recent call last):"
    assert json.loads(JsonLines().format(made))["traceback"][-2:] == ["ValueError: first", "second"]


def test_of_a_flood_the_first_lines_are_written_and_the_rest_is_counted() -> None:
    lines = Lines(TextLines())
    for number in range(LINES + 50):
        lines.handler.emit(record(f"refused {number}", event="request.refused"))
    lines.handler.emit(record("another matter", event="store.up"))
    assert len(lines.written()) == LINES + 1

    lines.handler.emit(record("refused again", 1_700_000_000.0 + WITHIN_S, event="request.refused"))
    told, again = lines.written()[-2:]
    assert told.endswith(f"refused {LINES + 49} (and 49 more such lines that were left out)")
    assert again.endswith("refused again")


def test_what_was_left_out_is_told_at_the_end_at_the_latest() -> None:
    lines = Lines(JsonLines())
    for number in range(LINES + 3):
        lines.handler.emit(record(f"refused {number}", event="request.refused"))
    lines.handler.close()
    assert json.loads(lines.written()[-1])["left_out"] == 2


def test_what_is_critical_is_always_written() -> None:
    lines = Lines(TextLines())
    for _ in range(LINES + 5):
        lines.handler.emit(record("the disk is full", level=logging.CRITICAL, event="store.full"))
    assert len(lines.written()) == LINES + 5
