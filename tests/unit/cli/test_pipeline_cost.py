"""`twinbus pipeline cost` without Spark: what the documents say comes out at the prompt, and bills as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from twinbus.cli import app
from twinbus.cli.output import Output
from twinbus.cli.pipeline_cost_showing import show_bill
from twinbus.pipeline.costs.cost import bill
from twinbus.pipeline.costs.metering import Meter
from twinbus.pipeline.costs.prices import load


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["pipeline", "cost", *words])


def operations(*words: str) -> dict[str, int]:
    """By shape, of the documents' model unless another is given."""
    done = run("--json", *words)
    assert done.exit_code == 0, done.output
    return {line["shape"]: line["operations"] for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize(("period", "receives"), [("1h", 40), ("1d", 960), ("30d", 28_800)])
def test_ten_idle_backlog_queues_are_polled_as_often_as_documented(period: str, receives: int) -> None:
    assert operations("--model", "messages", "--messages", "0", "--period", period)["paired"] == receives


@pytest.mark.parametrize(("model", "plain", "moved"), [("messages", 2, 4), ("operations", 3, 6)])
def test_a_moved_message_is_charged_as_documented(model: str, plain: int, moved: int) -> None:
    found = operations("--model", model, "--messages", "1", "--diverted", "1", "--syphons", "0")
    assert (found["unpaired"], found["paired"]) == (plain, moved)


def test_active_doubles() -> None:
    found = operations("--messages", "1000", "--size", "70000")
    assert found["active"] == 2 * found["unpaired"] == 2 * 1000 * 5


def test_every_combination_has_a_row() -> None:
    done = run(
        "--messages", "5000", "--outage", "2h", "--outage", "1d", "--backlog-queues", "5", "--ping-interval", "30s"
    )
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("paired")]
    assert [row[1:4] for row in rows] == [["PT2H", "5", "PT30S"], ["P1D", "5", "PT30S"]]
    assert "not confirmed by the seller" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--journal"),
        (["--messages", "1", "--journal", "somewhere"], "--messages"),
        (["--messages", "1", "--prices", "free-beer"], "free-beer"),
        (["--messages", "1", "--tier", "golden"], "golden"),
    ],
)
def test_what_cannot_be_reckoned_is_told(words: list[str], told: str) -> None:
    done = run(*words)
    assert done.exit_code == 1
    assert told in done.stderr


def test_ones_own_prices_count(tmp_path: Path) -> None:
    table = tmp_path / "mine.toml"
    table.write_text(
        'as_of = "2027-01-01"\ncurrency = "EUR"\nmodel = "messages"\ndefault_tier = "only"\n[tier.only]\n'
        'source = "us"\nconfirmed = true\noperations = [{ above = 0, per_million = 1_000_000 }]\n'
    )
    done = run("--messages", "3", "--prices", str(table), "--json")
    unpaired, *_ = map(json.loads, done.stdout.splitlines())
    assert (unpaired["amount"], unpaired["currency"], unpaired["model"]) == (6.0, "EUR", "messages")


def test_a_bill_is_told_to_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    meters = [
        Meter("contoso", "orders", "2026-11-16", "send", "sent", 3, 3, 30),
        Meter("contoso", "orders", "2026-11-16", "settle", "", 3, 3, 0),
    ]
    show_bill(Output(True), bill(meters, [], "operations", load("2026-11")), ["entity", "kind"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {
        "by": "entity", "namespace": "contoso", "entity": "orders",
        "times": 6, "messages": 3, "operations": 6, "bytes_in": 30, "bytes_out": 0,
    }  # fmt: skip
    assert [line["kind"] for line in lines[1:3]] == ["send", "settle"]
    assert lines[-1]["operations"] == 6
    assert lines[-1]["confirmed"] is False


def test_nothing_that_a_terminal_obeys_gets_out_of_an_entitys_name(capsys: pytest.CaptureFixture[str]) -> None:
    meters = [Meter("contoso", "\x1b[31mred", "2026-11-16", "send", "sent", 1, 1, 1)]
    show_bill(Output(), bill(meters, [], "operations", load("2026-11")), ["entity"])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "red" in shown
