"""One message's journey, from files alone."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run

import pytest

from support.generated_journal import FAULTS, Planted, generate
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.proof.evidence import Evidence
from twinbus.pipeline.proof.explain import Journey, explain
from twinbus.pipeline.proof.versions import journal_files


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return generate(tmp_path_factory.mktemp("journal"), 21, 2_000, dict.fromkeys(FAULTS, 2))


def evidence_of(planted: Planted) -> Evidence:
    return Evidence(planted.journals, planted.residents, [planted.send_log], [planted.ledger])


@pytest.fixture
def told(planted: Planted) -> Callable[[str], Journey]:
    """The journey of a message of some kind that was not diverted."""

    def of(kind: str) -> Journey:
        found = (explain(evidence_of(planted), one) for one in sorted(planted.ids(kind)))
        return next(journey for journey in found if not journey.moves)

    return of


@pytest.mark.parametrize(
    ("kind", "summary"),
    [
        ("ordinary", "Worked on once"),
        ("received_deleted", "Worked on once"),
        ("duplicated", "Worked on 2 times in orders"),
        ("suppressed", "Worked on once; suppressed once"),
        ("published", "Worked on once in each of 2 entities"),
        ("unwanted", "Published, and no subscription wanted it"),
        ("redriven", "Worked on once"),
        ("forwarded", "Worked on once"),
        ("forwarded_far", "Worked on once"),
        ("scheduled", "Worked on once"),
        ("expired", "Expired"),
        ("purged", "Purged"),
        ("cancelled", "Cancelled"),
        ("dropped", "Deleted with its entity"),
        ("active", "Active in contoso orders as number"),
        ("locked", "Locked in contoso orders as number"),
        ("deferred", "Deferred in contoso orders as number"),
        ("dead", "Dead-lettered in contoso orders $DeadLetterQueue as number"),
        ("waiting_scheduled", "Scheduled in contoso later as number"),
        ("lost_whole", "Acknowledged, and not accounted for: it may be lost"),
        ("stuck", "Active in fabrikam contoso/x-servicebus-transfer/3 as number"),
    ],
)
def test_the_end_of_each_journey_is_told(told: Callable[[str], Journey], kind: str, summary: str) -> None:
    assert told(kind).summary().startswith(summary)


def test_a_copy_that_nobody_saw_is_told_so(told: Callable[[str], Journey]) -> None:
    assert "though nobody saw it there" in told("lost_message").summary()


def test_a_diverted_message_is_followed_through_both_namespaces_in_order(planted: Planted) -> None:
    [one] = [
        name for name in sorted(planted.ids("ordinary"), key=lambda name: int(name[2:])) if int(name[2:]) >= 1_000
    ][:1]
    journey = explain(evidence_of(planted), one)
    assert [(event.namespace, event.what) for event in journey.events] == [
        ("", "the sender: attempted"),
        ("fabrikam", "diverted to the backlog"),
        ("", "the sender: acknowledged"),
        ("fabrikam", "handed out"),
        ("contoso", "accepted"),
        ("fabrikam", "brought home: completed in the backlog"),
        ("contoso", "handed out"),
        ("contoso", "completed"),
    ]
    assert (journey.moves, journey.completed, journey.deliveries) == (1, {"orders": 1}, 1)
    instants = [event.at_us or 0 for event in journey.events]
    assert instants == sorted(instants)


def test_of_an_unknown_message_nothing_is_known(planted: Planted) -> None:
    assert explain(evidence_of(planted), "nobody").summary() == "Nothing is known of this message."


def test_a_journey_without_files_is_empty() -> None:
    assert explain(Evidence(), "a") == Journey("a")


def test_neither_spark_nor_the_official_client_is_loaded(planted: Planted, tmp_path: Path) -> None:
    words = ["explain", "m-1", "--offline", "--journal", str(planted.journals[0]), "--json"]
    program = (
        "import sys, contextlib\n"
        "from twinbus.cli import app\n"
        "with contextlib.suppress(SystemExit):\n"
        f"    app({words!r})\n"
        "print(sorted({'pyspark', 'azure', 'matplotlib'} & sys.modules.keys()))\n"
    )
    ended = run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
    assert '"message_id": "m-1"' in ended.stdout


def test_a_file_that_two_gateways_exported_is_read_once_and_what_is_unfinished_is_not(
    planted: Planted, tmp_path: Path
) -> None:
    [export] = planted.journals[0].rglob("*.parquet")
    for folder in ("day=2026-11-16", "_compacting/day=2026-11-16"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(export, tmp_path / "day=2026-11-16" / export.name)
    (tmp_path / "day=2026-11-16" / f".{export.name}.tmp").write_text("unfinished")
    (tmp_path / "_compacting/day=2026-11-16" / "other.parquet").write_text("left over")
    assert journal_files([planted.journals[0], tmp_path]) == [export]
    assert journal_files([export]) == [export]
    with pytest.raises(PipelineError, match="There is no journal"):
        journal_files([tmp_path / "missing"])
