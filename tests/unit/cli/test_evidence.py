"""What a person is told who names no evidence, or evidence that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinbus.cli import app

NOWHERE = dict.fromkeys(("TWINBUS_PAIR", "TWINBUS_PRIMARY", "TWINBUS_SECONDARY"))


@pytest.mark.parametrize("words", [("pipeline", "reconcile"), ("explain", "a")])
def test_who_names_nothing_is_told_what_to_name(words: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, words, env=NOWHERE)
    assert told.exit_code == 1
    assert "Name journals with --journal" in told.stderr


@pytest.mark.parametrize("option", ["--journal", "--residents", "--send-log", "--ledger"])
@pytest.mark.parametrize("words", [("pipeline", "reconcile"), ("explain", "a")])
def test_a_file_that_is_not_there_is_named(words: tuple[str, ...], option: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, [*words, option, str(tmp_path / "missing")], env=NOWHERE)
    assert told.exit_code == 1
    assert "missing" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_journal_of_another_kind_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "day=2026-11-16").mkdir()
    (tmp_path / "day=2026-11-16" / "contoso-s0-w0-1-2.parquet").write_text("no Parquet")
    told = CliRunner().invoke(app, ["explain", "a", "--journal", str(tmp_path)], env=NOWHERE)
    assert told.exit_code == 1
    assert "is no Parquet file" in told.stderr


def test_of_an_unknown_message_nothing_is_known(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["explain", "a", "--journal", str(tmp_path), "--json"], env=NOWHERE)
    assert told.exit_code == 1
    assert '"summary": "Nothing is known of this message."' in told.stdout


def test_an_environment_that_names_a_pair_is_not_asked_when_told_so(tmp_path: Path) -> None:
    pair = {"TWINBUS_PRIMARY": "Endpoint=sb://nowhere.invalid;SharedAccessKeyName=a;SharedAccessKey=b"}
    told = CliRunner().invoke(app, ["explain", "a", "--offline", "--journal", str(tmp_path)], env=NOWHERE | pair)
    assert told.exit_code == 1
    assert "Nothing is known of this message." in told.stdout
