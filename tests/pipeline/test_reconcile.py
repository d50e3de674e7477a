"""The proof on Spark: the same answers as an oracle's on generated journals, and real brokers held to account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from support.custody_in_duckdb import Oracle
from support.eventful_run import EventfulRun
from support.generated_journal import FAULTS, generate
from twinbus.cli import app
from twinbus.client import connect
from twinbus.pipeline.proof.evidence import Evidence, Window
from twinbus.pipeline.proof.explain import explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.pipeline.proof.findings import Findings

Command = Callable[..., Any]

pytestmark = pytest.mark.timeout(400)  # The first test waits for Java.


def ids(findings: Findings, name: str) -> list[str]:
    assert findings.tables[name].count == len(findings.tables[name].rows)
    return sorted(findings.tables[name].column("message_id"))


def test_spark_finds_what_was_planted_in_several_pairs_and_agrees_with_the_oracle(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twinbus.pipeline.proof import reconcile as proof

    # Large journals go through files; only that the plans are not compiled is as for small ones.
    monkeypatch.setattr(proof, "SMALL", 0)
    monkeypatch.setattr(proof, "_SETTINGS", {**proof._SETTINGS, **proof._SMALL})
    runs = [
        generate(
            tmp_path / str(seed),
            seed,
            300,
            {kind: 1 + (seed + place) % 2 for place, kind in enumerate(FAULTS)},
            primary=f"contoso-{seed}",
            secondary=f"fabrikam-{seed}",
            prefix=f"{seed}-",
        )
        for seed in range(5)
    ]
    residents = tmp_path / "residents.parquet"
    pq.write_table(pa.concat_tables(pq.read_table(run.residents) for run in runs), residents)
    evidence = Evidence(
        [journal for run in runs for journal in run.journals],
        residents,
        [run.send_log for run in runs],
        [run.ledger for run in runs],
    )

    window = Window(slo_s=runs[0].slo_s, backlog_queues=runs[0].backlog_queues, rows=1_000)
    found = proof.reconcile(spark, evidence, window)

    def planted(*kinds: str) -> list[str]:
        return sorted(one for run in runs for one in run.ids(*kinds))

    odd = ("lost_message", "unexplained", "ended_twice", "unborn", "created_twice", "risen")
    assert ids(found, "lost") == planted("lost_whole", "lost_message", "lost_in_move")
    assert [one for one in ids(found, "imbalances") if one] == planted(*odd)
    assert ids(found, "imbalances").count("") == len(runs)  # Each has a gap in one journal.
    assert ids(found, "stuck") == planted("stuck")
    assert ids(found, "duplicated") == planted("duplicated")
    assert ids(found, "suppressed") == planted("suppressed")
    assert ids(found, "redelivered") == planted("redelivered")
    assert ids(found, "late") == planted("late", "active", "locked", "stuck")
    assert ids(found, "out_of_order") == planted("out_of_order")
    assert not found.holds

    oracle = Oracle(evidence)
    assert set(ids(found, "lost")) == oracle.traceless() | oracle.vanished() | oracle.gone_astray()
    assert set(ids(found, "imbalances")) - {""} == oracle.unbalanced()
    assert set(ids(found, "duplicated")) == oracle.worked_on_twice()
    sides = {
        each.namespace: (sum(each.created.values()), sum(each.ended.values()), sum(each.resident.values()))
        for each in found.balances
    }
    assert sides == oracle.balance()
    assert found.acknowledged == sum(300 - len(run.ids("unexplained")) for run in runs)
    assert found.operations == sum(run.rows for run in runs)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventfulRun]:
    """Brokers to which everything has happened."""
    with EventfulRun(tmp_path_factory.mktemp("run")) as run:
        asyncio.run(run.everything())
        yield run


@pytest.fixture
def command(spark: SparkSession, run: EventfulRun, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`twinbus pipeline reconcile` on the session that is there."""

    @contextmanager
    def shared(*options: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("twinbus.cli.pipeline_reconcile.session", shared)
    return lambda *words: CliRunner().invoke(app, ["pipeline", "reconcile", *words], env=run.environment)


def test_a_run_with_an_outage_balances(run: EventfulRun, command: Command, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    told = command("--send-log", str(run.log.path), "--report", str(report), "--slo", "1h", "--cost", "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert (document["holds"], document["proven"], document["balances_out"]) == (True, True, True)
    contoso, fabrikam = document["namespaces"]
    assert (contoso["difference"], fabrikam["difference"]) == (0, 0)
    assert set(contoso["created"]) == {"accepted", "scheduled", "fanned_out", "forwarded", "redriven"}
    assert set(contoso["ended"]) == {
        "completed", "received_deleted", "forwarded", "redriven", "expired", "purged", "cancelled", "dropped",
        "published",
    }  # fmt: skip
    assert set(contoso["resident"]) == {"active", "deferred", "scheduled", "dead", "transfer_dead"}
    assert contoso["apart"] == {"duplicate": 1}
    assert fabrikam["brought_home"] == len(run.diverted) > 0
    tables = document["tables"]
    assert [row["message_id"] for row in tables["stuck"]["rows"]] == ["stranded"]
    assert {name for name, table in tables.items() if table["count"]} == {"stuck", "redelivered"}
    assert "It holds" in report.read_text()
    assert int(document["cost"]["billable operations"].replace(",", "")) > len(run.diverted)
    assert "<h2>Costs</h2>" in report.read_text()


def test_a_journey_is_told_by_the_brokers_themselves_and_where_it_ended_is_looked_at(run: EventfulRun) -> None:
    diverted = min(run.diverted)
    told = CliRunner().invoke(app, ["explain", diverted, "--send-log", str(run.log.path)], env=run.environment)
    assert told.exit_code == 0, told.output
    words = ("the sender: attempted", "diverted to the backlog", "brought home: completed in the backlog", "accepted")
    assert [word for word in words if word not in told.stdout] == []
    told = CliRunner().invoke(app, ["explain", "blue-0", "--json"], env=run.environment)
    [copy] = json.loads(told.stdout)["standing"]
    assert (copy["entity"], copy["state"], copy["is_seen"]) == ("carts", "active", True)


def test_a_message_that_vanished_is_found_and_so_is_one_whose_journal_went_with_it(
    run: EventfulRun, command: Command, tmp_path: Path
) -> None:
    async def send() -> None:
        async with connect(run.primary.connection_string()) as connection:
            await run.send(connection, "orders", "ephemeral")

    run.lose_message("wide-7")
    asyncio.run(send())
    run.lose_whole("ephemeral")

    told = command("--send-log", str(run.log.path), "--keep", str(tmp_path))

    assert told.exit_code == 1
    assert "It does not hold: 2 lost, and the conservation line does not balance." in told.stdout
    lost, imbalances = (told.stdout.split(f"{name}: ")[1].split("\n\n")[0] for name in ("lost", "imbalances"))
    assert [line.split()[0] for line in lost.splitlines()[2:]] == ["wide-7", "ephemeral"]
    # Of a transaction that is lost whole nothing is left that could be out of balance.
    assert "wide-7" in imbalances
    assert "ephemeral" not in imbalances
    journals = [broker.data / "journal" for broker in (run.primary, run.secondary)]
    evidence = Evidence(journals, tmp_path / "residents.parquet", [run.log.path])
    assert explain(evidence, "ephemeral").summary() == "Acknowledged, and not accounted for: it may be lost."
    assert "nobody saw it there" in explain(evidence, "wide-7").summary()
