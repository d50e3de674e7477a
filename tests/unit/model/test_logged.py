"""Every event that is logged has its name in the table, and the page has every name."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinbus.model.logged import EVENTS, EventLog
from twinbus.pair.route import health_board

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "twinbus"
PACKAGES = ("sql", "store", "entities", "gateway", "admin", "relay", "broker", "client", "pair")
METHODS = ("debug", "info", "warning", "error", "critical", "exception", "log")
ROW = re.compile(r"^\| `([a-z_.]+)` \| (.*) \|$", re.MULTILINE)


def logged() -> Iterator[tuple[str, ast.Call]]:
    for package in PACKAGES:
        for file in sorted((SOURCE / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id in ("log", "_log")
                    and node.func.attr in METHODS
                ):
                    yield f"{file.relative_to(SOURCE)}:{node.lineno}", node


def names_in(call: ast.Call) -> set[str]:
    """The names that a call may log: a text, or one of two."""
    given = call.args[0] if call.func.attr != "log" else call.args[1]  # type: ignore[attr-defined]
    if isinstance(given, ast.IfExp):
        return {ast.literal_eval(given.body), ast.literal_eval(given.orelse)}
    if isinstance(given, ast.Subscript):
        return set(health_board.EVENTS.values())
    return {ast.literal_eval(given)}


def test_what_is_logged_has_a_name_in_the_table_and_the_table_has_no_other() -> None:
    found = [(where, name) for where, call in logged() for name in names_in(call)]
    assert [(where, name) for where, name in found if name not in EVENTS] == []
    assert EVENTS.keys() - {name for _, name in found} == set()


def test_nobody_logs_without_a_name() -> None:
    plain = [
        str(file.relative_to(SOURCE))
        for package in PACKAGES
        for file in sorted((SOURCE / package).rglob("*.py"))
        if "logging.getLogger" in file.read_text()
    ]
    assert plain == ["admin/server.py"]  # It silences a library's logger.


def test_the_page_has_every_event() -> None:
    page = (ROOT / "docs" / "logs.md").read_text().partition("## Events")[2]
    assert dict(ROW.findall(page)) == EVENTS


def test_an_event_is_a_sentence_and_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog("twinbus.test")
    with caplog.at_level(logging.INFO, "twinbus.test"):
        log.warning("store.down", "store {store} is taken down: {reason}", store=2, reason="a {new} disk")
        log.debug("store.up", "{missing}")  # Nobody listens, so nothing is put together.
    (record,) = caplog.records
    assert record.getMessage() == "store 2 is taken down: a {new} disk"
    assert record.twinbus == {"event": "store.down", "store": 2, "reason": "a {new} disk"}  # type: ignore[attr-defined]
    assert record.funcName == "test_an_event_is_a_sentence_and_its_fields"
