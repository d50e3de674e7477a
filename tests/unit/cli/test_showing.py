"""Messages on their way to the prompt: text, other bodies, and what a terminal must not get."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from twinbus.cli.output import Output, Table
from twinbus.cli.showing import (
    MessageView,
    as_json,
    body_text,
    clean,
    clean_lines,
    counted,
    document,
    duration,
    facts,
    moment,
    raw_body,
)
from twinbus.client.messages import Message
from twinbus.model.limits import UNLIMITED_MS

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("body", "text", "told"),
    [
        (b"hello", "hello", {"body": "hello"}),
        ("déjà vu\n".encode(), "déjà vu\n", {"body": "déjà vu\n"}),
        (b"\x00\xff", "0x00ff", {"body": None, "body_base64": "AP8="}),
        (b"\x1b[2J", "0x1b5b324a", {"body": None, "body_base64": "G1sySg=="}),
        (b"", "", {"body": ""}),
        ("a value", "a value", {"body": "a value"}),
        ({"a": [1, None]}, '{"a": [1, null]}', {"body": None, "body_value": {"a": [1, None]}}),
    ],
)
def test_a_body_is_text_if_it_is_text(body: Any, text: str, told: dict[str, Any]) -> None:
    message = Message(body=body)
    assert body_text(message) == text
    assert {key: value for key, value in document(message).items() if key.startswith("body")} == told


def test_a_raw_body_is_the_bytes_themselves() -> None:
    assert raw_body(Message(body=b"\x1b\xff")) == b"\x1b\xff"
    assert raw_body(Message(body="text")) == b"text"


def test_a_row_obeys_no_sender(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\nNUMBER \x9b31m\u202e"
    output = Output()
    MessageView(output).show([Message(body=evil, message_id=evil, session_id=evil, subject=evil)])
    MessageView(output, dead=True).show([Message(dead_letter_reason=evil, dead_letter_description=evil)])
    output.facts(facts(Message(message_id=evil, properties={evil: evil})))
    output.line(clean_lines(evil))
    Output(True).record(document(Message(body=evil, properties={evil: evil})))
    printed = capsys.readouterr().out
    assert all(letter.isprintable() or letter == "\n" for letter in printed)


def test_json_keeps_what_it_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x9b\u202e\U000e0001é\n"
    Output(True).record({"text": text})
    assert json.loads(capsys.readouterr().out) == {"text": text}


def test_a_document_has_the_same_keys_for_every_message() -> None:
    full = document(Message(body="x", message_id="id", ttl_ms=5000, enqueued_at_ms=NOW_MS, properties={"a": 1}))
    assert full.keys() == document(Message()).keys()
    assert full["time_to_live"] == "PT5S"
    assert full["enqueued_at"] == "2023-11-14T22:13:20.000Z"
    assert full["properties"] == {"a": 1}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), "2023-11-14T22:13:20.000Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x00", {"base64": "AA=="}),
        (float("nan"), "nan"),
        ([True, 1.5, None], [True, 1.5, None]),
    ],
)
def test_every_value_has_a_json_form(value: Any, plain: Any) -> None:
    assert as_json(value) == plain


def test_facts_leave_out_what_is_not_there() -> None:
    shown = facts(Message(sequence_number=7, subject="s", properties={"n": 5, "t": "x"}))
    assert shown == {
        "sequence number": "7",
        "state": "active",
        "delivery count": "0",
        "subject": "s",
        "property n": "5",
        "property t": "x",
    }


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (30_000, "30s"),
        (300_000, "5m"),
        (5_400_000, "90m"),
        (86_400_000, "1d"),
        (1_500, "1.5s"),
        (UNLIMITED_MS, "unlimited"),
    ],
)
def test_durations_for_people(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


def test_small_words() -> None:
    assert clean("a\tb\x00") == "a\\tb\\x00"
    assert counted(1) == "1 message"
    assert counted(1_000, "queue") == "1,000 queues"
    assert moment(NOW_MS) == "2023-11-14 22:13:20Z"
    assert moment(None) == moment(0) == "-"


def test_columns_are_aligned_and_headings_come_once(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(Output(), ("NAME", "SIZE", "BODY"), numbers=("SIZE",))
    table.rows([])
    table.rows([["a", "1", "one"], ["long name", "1000", "x" * 300]])
    table.rows([["日本", "5", ""]])
    assert capsys.readouterr().out.splitlines() == [
        "NAME       SIZE  BODY",
        "a             1  one",
        "long name  1000  " + "x" * 300,
        "日本          5",
    ]


def test_on_a_terminal_a_row_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Table(Output(), ("NAME", "BODY")).rows([["a", "x" * 300]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "a     " + "x" * 13 + "…"
