"""`twinbus ledger` at a prompt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinbus.cli import app
from twinbus.pair import Ledger
from twinbus.pair.ledger.decisions import Copy, Key, State
from twinbus.pair.ledger.storage import Claim


@pytest.fixture
def where(tmp_path: Path) -> str:
    path = str(tmp_path / "ledger.db")
    first, second = Copy("contoso", 1), Copy("fabrikam", 2)
    with Ledger(path) as ledger:
        ledger.mark(Key("orders", "a"), first, State.DONE).result()
        ledger.claim([Claim(Key("orders", "a"), second, 1000), Claim(Key("events/subscriptions/x", "b"), first, 1000)])
        ledger.mark(Key("orders", "c"), first, State.DEAD_LETTERED).result()
    return path


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["ledger", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_show_counts_by_scope_and_state(where: str) -> None:
    lines = run("show", where).splitlines()
    assert lines[0].split() == ["SCOPE", "CLAIMED", "DEFERRED", "DONE", "DEAD-LETTERED", "SUPPRESSED", "SINCE"]
    assert [line.split()[:6] for line in lines[1:]] == [
        ["events/subscriptions/x", "1", "0", "0", "0", "0"],
        ["orders", "0", "0", "1", "1", "1"],
    ]
    (told,) = [json.loads(line) for line in run("show", where, "--scope", "Orders", "--json").splitlines()]
    assert (told["done"], told["dead-lettered"], told["suppressed"]) == (1, 1, 1)


def test_show_tells_about_one_message(where: str) -> None:
    told = json.loads(run("show", where, "--tag", "a", "--json"))
    assert (told["scope"], told["state"], told["namespace"], told["suppressed"]) == ("orders", "done", "contoso", 1)
    assert "dead-lettered" in run("show", where, "--tag", "c")


def test_export_writes_every_row(where: str) -> None:
    assert [json.loads(line)["tag"] for line in run("export", where).splitlines()] == ["a", "b", "c"]


def test_trim_forgets_what_is_old(where: str) -> None:
    assert run("trim", where) == "0 messages forgotten\n"
    assert json.loads(run("trim", where, "--days", "0", "--json"))["forgotten"] >= 2
    assert "orders" not in run("show", where)


def test_a_ledger_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    for words in (["show"], ["export"], ["trim"]):
        result = CliRunner().invoke(app, ["ledger", *words, str(missing)])
        assert result.exit_code != 0
    assert not missing.exists()
