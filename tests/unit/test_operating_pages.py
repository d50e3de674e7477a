"""Alerts, and the pages that say what to do: metrics that there are, pages that there are, commands that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from twinbus.cli import app
from twinbus.model.metrics import BROKER, PAIR

DOCS = Path(__file__).parents[2] / "docs"
RUNBOOKS = sorted((DOCS / "runbooks").glob("*.md"))
PAGES = [*RUNBOOKS, DOCS / "operating.md"]
HEADINGS = [
    "Trigger",
    "What it means",
    "Who decides",
    "Steps",
    "Proof of restoration",
    "Stop when",
    "Evidence to keep",
]
# What Prometheus knows by itself, and what every client of it tells.
OF_OTHERS = {"up", "process_open_fds", "process_max_fds"}
TWINBUS: Any = typer.main.get_command(app)
EXPOSED = {metric.name: metric for metric in (*BROKER, *PAIR)}


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((DOCS / "alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def metrics_in(expression: str) -> set[str]:
    """The names of metrics in an expression, those of a histogram's series without their ending."""
    found = set(re.findall(r"\b(?:twinbus|process)_[a-z_]+\b|\bup\b", expression))
    return {name.removesuffix("_bucket") for name in found}


def labels_in(text: str) -> set[str]:
    return set(re.findall(r"\$labels\.(\w+)", text))


def commands_in(page: Path) -> Iterator[str]:
    """Every line of a code block that is a command of ours."""
    for block in re.findall(r"(?ms)^ *```\w*\n(.*?)^ *```", page.read_text()):
        for line in block.splitlines():
            command = line.strip().removeprefix("$ ").partition("  #")[0]
            if command.startswith("twinbus "):
                yield command


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_asks_for_metrics_that_are_exposed_and_leads_to_its_page(alert: dict[str, Any]) -> None:
    names = metrics_in(alert["expr"])
    assert names
    assert names - OF_OTHERS <= EXPOSED.keys()
    known = {"instance"} | {label for name in names & EXPOSED.keys() for label in EXPOSED[name].labels}
    assert labels_in(alert["annotations"]["summary"]) <= known
    page = DOCS.parent / alert["annotations"]["runbook"]
    assert f"Alert `{alert['alert']}`" in page.read_text()
    assert alert["labels"]["severity"] in ("warning", "critical")


def test_every_runbook_belongs_to_an_alert() -> None:
    led_to = {DOCS.parent / alert["annotations"]["runbook"] for alert in alerts()}
    assert led_to == set(RUNBOOKS)


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_runbook_says_everything_that_it_should(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"(?m)^## (.*)$", text) == HEADINGS
    steps = text.partition("## Steps")[2].partition("## Proof")[0]
    numbers = re.findall(r"(?m)^(\d+)\. ", steps)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert steps.count("*If that does not help:*") == len(numbers)  # A way out of each.


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_commands_exist_with_these_options(page: Path) -> None:
    for line in commands_in(page):
        command: Any = TWINBUS
        words = shlex.split(line)[1:]
        while hasattr(command, "commands"):
            assert words, f"{line}: which command?"
            assert words[0] in command.commands, f"{line}: there is no '{words[0]}'"
            command = command.commands[words.pop(0)]
        try:
            command.make_context(line, words)
        except Exception as problem:
            pytest.fail(f"{line}: {problem}")


@pytest.mark.parametrize("page", [*PAGES, *(DOCS / name for name in ("metrics.md", "logs.md", "traces.md"))])
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+\.(?:md|yml))(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [*PAGES, DOCS / "traces.md"], ids=lambda page: page.stem)
def test_metrics_and_events_that_it_names_are_there(page: Path) -> None:
    named = set(re.findall(r"\btwinbus_[a-z_]+[a-z]\b", page.read_text()))
    assert {name for name in named if name not in EXPOSED} <= {"twinbus_backlog", "twinbus_pair", "twinbus_outbox"}


def test_the_page_lists_every_alert() -> None:
    page = (DOCS / "operating.md").read_text()
    rows = re.findall(r"(?m)^\| `(\w+)` \| (\w+) \| \[.*\]\((.*)\) \|$", page)
    wanted = [
        (alert["alert"], alert["labels"]["severity"], alert["annotations"]["runbook"].removeprefix("docs/"))
        for alert in alerts()
    ]
    assert rows == wanted


def test_the_page_begins_with_what_an_outage_is_and_what_a_disaster_is() -> None:
    first = re.findall(r"(?m)^## (.*)$", (DOCS / "operating.md").read_text())[0]
    assert first == "Outage and disaster"
