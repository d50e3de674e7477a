"""Copies told by a tag instead of the MessageId: what is lost and what is doubled, by both engines and an oracle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from support.custody_in_duckdb import Reconciled
from support.tagged_journal import TagOracle, tagged
from twinbus.cli import app
from twinbus.pipeline.proof.evidence import Window
from twinbus.pipeline.proof.kinship import NAMELESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_SUBJECT = Window(tag="subject")


@pytest.mark.parametrize("seed", range(4))
def test_what_tags_make_and_mend_is_found_and_the_oracle_agrees(tmp_path: Path, seed: int) -> None:
    run = tagged(tmp_path, seed)
    found, oracle = Reconciled(run.evidence, BY_SUBJECT), TagOracle(run.evidence)
    assert set(found.ids("lost")) == run.lost == oracle.lost_by_tag()
    assert {row[0] for row in found.rows(f"SELECT tag FROM ({found.table('duplicated')})")} == run.doubled
    assert run.doubled == oracle.doubled_by_tag()
    assert found.rows(NAMELESS) == [(run.nameless,)]
    for created, ended, resident in found.balance().values():  # Tags excuse no copy.
        assert created - ended - resident in (0, len(run.planted.ids("lost_message")))


def test_without_asking_for_tags_each_id_is_judged_alone(tmp_path: Path) -> None:
    run = tagged(tmp_path, 9)
    found = Reconciled(run.evidence)
    assert set(found.ids("lost")) == run.lost | run.spared
    assert set(found.ids("duplicated")) == run.planted.ids("duplicated")


def test_where_there_is_no_journal_another_message_of_the_tag_is_proof(tmp_path: Path) -> None:
    run = tagged(tmp_path, 10)
    waiting, spared = run.planted.fates["active"][0], run.planted.faults["lost_whole"][1]
    lines = [json.loads(line) for line in run.planted.send_log.read_text().splitlines()]
    for line in lines:
        if line.get("attempted") in (waiting, spared):
            line.update(tag="one-still-there", entity="orders")
    run.planted.send_log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = Reconciled(replace(run.evidence, journals=run.planted.journals[1:]), BY_SUBJECT)
    assert spared not in found.ids("unproven")
    assert run.planted.faults["lost_whole"][2] in found.ids("unproven")


@pytest.mark.timeout(400)
def test_the_command_judges_by_the_tag_that_it_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def shared(*options: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("twinbus.cli.pipeline_reconcile.session", shared)
    run = tagged(tmp_path, 11)
    planted = run.planted
    words = [word for journal in planted.journals for word in ("--journal", str(journal))]
    words += ["--residents", str(planted.residents), "--send-log", str(planted.send_log)]
    words += ["--ledger", str(planted.ledger), "--tag", "subject", "--offline", "--json"]
    told = CliRunner().invoke(app, ["pipeline", "reconcile", *words])
    assert told.exit_code == 1, told.output
    document = json.loads(told.stdout)
    rows = {name: document["tables"][name]["rows"] for name in ("lost", "duplicated")}
    assert {row["message_id"] for row in rows["lost"]} == run.lost
    assert {row["tag"] for row in rows["duplicated"]} == run.doubled
    assert any(f"told by subject, as the send logs give it; {run.nameless:,} " in each for each in document["limits"])
