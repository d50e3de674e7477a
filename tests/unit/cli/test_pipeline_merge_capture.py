"""`twinbus pipeline merge` and `capture` as far as they need no Spark: what is said before it starts, and journals."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from twinbus.cli import app
from twinbus.cli.output import Output
from twinbus.cli.pipeline_merge import _Showing
from twinbus.pipeline.merging.sightings import Totals

PAIR = {
    "TWINBUS_PRIMARY": "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b",
    "TWINBUS_SECONDARY": "Endpoint=sb://localhost:2;SharedAccessKeyName=a;SharedAccessKey=b",
    "TWINBUS_CONNECTION_STRING": "",
    "AZURE_SERVICEBUS_CONNECTION_STRING": "",
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("merge", "jobs", "--to-queue", "all"), "Give --checkpoint and --staging"),
        (("merge", "jobs", "--to-files", "out", "--tag", "colour"), "A tag is message_id, subject or property:NAME"),
        (("capture", "jobs", "--to", "out", "--journal", "there"), "Name entities or --journal"),
        (("capture", "jobs", "--to", "out"), "No namespace is named"),
        (("capture", "--to", "out", "--journal", "nowhere"), "There is no directory nowhere"),
    ],
)
def test_what_is_missing_is_said_before_spark_starts(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["pipeline", *words], env=PAIR)
    assert done.exit_code == 1
    assert said in done.stderr
    assert "Spark starts" not in done.stderr


def test_a_side_that_is_away_is_an_alarm_once_and_its_return_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    showing = _Showing(Output(False))
    found = SimpleNamespace(delivered=Counter(), totals=Totals(), alone=[], away={"secondary": "Nobody is there."})
    showing.look(found)  # type: ignore[arg-type]
    showing.look(found)  # type: ignore[arg-type]
    found.away, found.delivered = {}, Counter(secondary=3)
    showing.look(found)  # type: ignore[arg-type]
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "ALARM: the secondary cannot be read: Nobody is there. Its copies will be merged later.",
        "The secondary can be read again.",
    ]
    first, second = told.out.splitlines()
    assert first.endswith("; away: secondary")
    assert second.startswith("merged 3;")
    assert "away" not in second


def test_journals_are_captured_without_spark(tmp_path: Path) -> None:
    day = tmp_path / "journal" / "day=2026-11-16"
    day.mkdir(parents=True)
    for n in range(1, 6):
        pq.write_table(pa.table({"batch": [n]}), day / f"contoso-s0-w0-{n}-{n}.parquet")
    words = ["pipeline", "capture", "--journal", str(day.parent), "--to", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert json.loads(done.stdout) == {"rows": 5, "files": 5, "joined": 5, "gaps": []}
    assert CliRunner().invoke(app, words).stdout == "captured 0 rows in 0 files, joined 0\n"
    pq.write_table(pa.table({"batch": [9]}), day / "contoso-s0-w0-9-9.parquet")
    gap = CliRunner().invoke(app, words)
    assert (gap.exit_code, "contoso-s0-w0: 6 to 8" in gap.stderr) == (1, True)
    allowed = CliRunner().invoke(app, [*words, "--allow-gaps"])
    assert allowed.stdout == "captured 1 rows in 1 files, joined 0; missing: contoso-s0-w0: 6 to 8\n"
