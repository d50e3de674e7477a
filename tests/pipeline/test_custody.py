"""The SQL of the proof on generated journals: every planted fault is found, and nothing else. DuckDB runs it here.

What Spark answers to the same text is shown in test_reconcile.py.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from support.custody_in_duckdb import Oracle, Reconciled
from support.generated_journal import FAULTS, START_MS, Planted, generate
from twinbus.pipeline.proof.evidence import Evidence, Window
from twinbus.pipeline.proof.versions import journal_files

ALL = dict.fromkeys(FAULTS, 2)


def evidence_of(planted: Planted) -> Evidence:
    return Evidence(planted.journals, planted.residents, [planted.send_log], [planted.ledger])


def window_of(planted: Planted) -> Window:
    return Window(slo_s=planted.slo_s, backlog_queues=planted.backlog_queues)


def expected(planted: Planted) -> dict[str, set[str]]:
    """Which messages belong into which table; a gap in a journal is of no message."""
    imbalances = ("lost_message", "unexplained", "ended_twice", "unborn", "created_twice", "risen")
    return {
        "lost": planted.ids("lost_whole", "lost_message", "lost_in_move"),
        "stuck": planted.ids("stuck"),
        "duplicated": planted.ids("duplicated"),
        "redelivered": planted.ids("redelivered"),
        "suppressed": planted.ids("suppressed"),
        "late": planted.ids("late", "active", "locked", "stuck"),
        "out_of_order": planted.ids("out_of_order"),
        "imbalances": planted.ids(*imbalances) | ({""} if planted.faults.get("gap") else set()),
    }


@pytest.mark.parametrize("seed", range(16))
def test_every_planted_fault_is_found_and_nothing_else(tmp_path: Path, seed: int) -> None:
    faults = {kind: 1 + (seed + place) % 3 for place, kind in enumerate(FAULTS)}
    planted = generate(tmp_path, seed, 500, faults)
    found = Reconciled(evidence_of(planted), window_of(planted))
    assert {name: found.ids(name) for name in expected(planted)} == {
        name: sorted(ids) for name, ids in expected(planted).items()
    }
    assert found.ids("unproven") == []


@pytest.mark.parametrize("seed", range(100, 106))
def test_an_oracle_that_was_written_apart_agrees(tmp_path: Path, seed: int) -> None:
    planted = generate(tmp_path, seed, 600, {kind: 1 + (seed * 7 + place) % 3 for place, kind in enumerate(FAULTS)})
    found, oracle = Reconciled(evidence_of(planted), window_of(planted)), Oracle(evidence_of(planted))
    assert set(found.ids("lost")) == oracle.traceless() | oracle.vanished() | oracle.gone_astray()
    assert set(found.ids("imbalances")) - {""} == oracle.unbalanced()
    assert set(found.ids("duplicated")) == oracle.worked_on_twice()
    assert set(found.ids("out_of_order")) == oracle.overtakers()
    assert found.balance() == oracle.balance()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_alone_is_found_in_its_place_alone(tmp_path: Path, fault: str) -> None:
    planted = generate(tmp_path, 7, 200, {fault: 3})
    found = Reconciled(evidence_of(planted), window_of(planted))
    assert {name: set(found.ids(name)) for name in expected(planted)} == expected(planted)


def test_a_clean_run_balances(tmp_path: Path) -> None:
    planted = generate(tmp_path, 3, 2_000)
    found = Reconciled(evidence_of(planted), window_of(planted))
    assert [found.ids(name) for name in ("lost", "stuck", "duplicated", "out_of_order", "imbalances")] == [[]] * 5
    for created, ended, resident in found.balance().values():
        assert created == ended + resident


def test_without_a_send_log_what_was_lost_whole_is_not_seen(tmp_path: Path) -> None:
    planted = generate(tmp_path, 4, 400, {"lost_whole": 2, "lost_message": 2, "lost_in_move": 2})
    found = Reconciled(replace(evidence_of(planted), send_logs=[]), window_of(planted))
    assert set(found.ids("lost")) == planted.ids("lost_message", "lost_in_move")


def test_what_its_sender_gave_up_is_not_lost_and_does_not_balance(tmp_path: Path) -> None:
    planted = generate(tmp_path, 4, 400, {"lost_message": 2})
    given_up, kept = sorted(planted.ids("lost_message"))
    lines = planted.send_log.read_text().splitlines(keepends=True)
    planted.send_log.write_text("".join(line for line in lines if f'"acknowledged": "{given_up}"' not in line))
    found = Reconciled(evidence_of(planted), window_of(planted))
    assert found.ids("lost") == [kept]
    assert found.ids("imbalances") == sorted([given_up, kept])


def test_without_a_browse_the_journal_is_taken_at_its_word(tmp_path: Path) -> None:
    planted = generate(tmp_path, 5, 400, {"lost_message": 2, "risen": 1})
    found = Reconciled(replace(evidence_of(planted), residents=None), window_of(planted))
    assert found.ids("lost") == found.ids("imbalances") == []


def test_what_came_after_the_browse_began_is_known_from_the_journal_alone(tmp_path: Path) -> None:
    planted = generate(tmp_path, 5, 400, {"lost_message": 2})
    table = pq.read_table(planted.residents)
    early = pa.array([START_MS * 1000] * len(table), pa.timestamp("us", "UTC"))
    table = table.set_column(table.schema.get_field_index("began"), table.schema.field("began"), early)
    pq.write_table(table, planted.residents)
    found = Reconciled(evidence_of(planted), window_of(planted))
    assert found.ids("lost") == found.ids("imbalances") == []


def test_a_journal_without_its_beginning_carries_copies_over(tmp_path: Path) -> None:
    faults = {"lost_whole": 4, "lost_message": 4, "unexplained": 2}
    planted = generate(tmp_path, 6, 1_500, faults, fates={})
    for path in journal_files(planted.journals[:1]):
        table = pq.read_table(path)
        kept = table.filter(pc.greater(table["batch"], 400))
        pq.write_table(kept, path)
    known = set(kept["message_id"].to_pylist())
    vanished = planted.ids("lost_message") & known
    begins_at = pc.min(kept["at"]).as_py().timestamp()
    found = Reconciled(evidence_of(planted), window_of(planted))
    assert set(found.ids("imbalances")) == planted.ids("unexplained") | vanished
    assert vanished <= set(found.ids("lost")) <= planted.ids("lost_whole") | vanished
    sent_before = [line for line in planted.send_log.read_text().splitlines() if json.loads(line)["at"] < begins_at]
    told_before = {json.loads(line).get("acknowledged") for line in sent_before}
    assert set(found.ids("unproven")) == told_before - known - {None} - _diverted(planted) - _there(planted)
    for created, ended, resident in found.balance().values():
        assert created - ended - resident in (0, len(vanished) - 2)


def _diverted(planted: Planted) -> set[str]:
    return set(pq.read_table(journal_files(planted.journals[1:])[0])["message_id"].to_pylist())


def _there(planted: Planted) -> set[str]:
    return set(pq.read_table(planted.residents)["message_id"].to_pylist()) | planted.ids("suppressed")


def test_a_namespace_without_a_journal_leaves_messages_unproven_and_not_lost(tmp_path: Path) -> None:
    planted = generate(tmp_path, 8, 400, {"lost_whole": 2, "stuck": 1})
    shutil.rmtree(planted.journals[0])
    evidence = replace(evidence_of(planted), journals=planted.journals[1:])
    found = Reconciled(evidence, window_of(planted))
    assert found.without == {"contoso"}
    assert found.ids("lost") == []
    assert planted.ids("lost_whole") < set(found.ids("unproven"))
    assert not planted.ids("active", "dead", "deferred", "suppressed", "stuck") & set(found.ids("unproven"))
    assert set(found.ids("stuck")) == planted.ids("stuck")


def test_only_messages_of_the_window_are_judged(tmp_path: Path) -> None:
    planted = generate(tmp_path, 9, 400, {"duplicated": 6, "lost_whole": 6})
    middle_ms = START_MS + 1_800_000
    parts = [
        Reconciled(evidence_of(planted), replace(window_of(planted), **limits))
        for limits in ({"until_ms": middle_ms}, {"since_ms": middle_ms})
    ]
    for name in ("duplicated", "lost"):
        earlier, later = (set(part.ids(name)) for part in parts)
        assert earlier
        assert later
        assert not earlier & later
        assert earlier | later == planted.ids("duplicated" if name == "duplicated" else "lost_whole")


def test_ids_that_look_like_sql_or_markup_are_only_ids(tmp_path: Path) -> None:
    planted = generate(tmp_path, 10, 300, {"lost_whole": 1, "lost_message": 1}, prefix="'); DROP TABLE x; --<b>&\t")
    found = Reconciled(evidence_of(planted), window_of(planted))
    assert set(found.ids("lost")) == planted.ids("lost_whole", "lost_message")


def test_the_same_seed_makes_the_same_files(tmp_path: Path) -> None:
    first, second = (generate(tmp_path / name, 11, 300, ALL) for name in ("first", "second"))
    for one, other in zip(journal_files(first.journals), journal_files(second.journals), strict=True):
        assert pq.read_table(one).equals(pq.read_table(other))
    assert first.send_log.read_bytes() == second.send_log.read_bytes()
