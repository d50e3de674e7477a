"""`twinbus drill` as a newcomer runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from twinbus.pair.ledger import State
from twinbus.pair.ledger_keeping import records


def test_the_drill_ends_with_a_verdict_that_holds_by_the_ledger_alone(tmp_path: Path) -> None:
    """Answers are lost before the outage, and nothing but the ledger is there to tell the second copies."""
    command = [
        sys.executable,
        "-m",
        "twinbus",
        "drill",
        "--no-spark",
        "--for",
        "3",
        "--rate",
        "60",
        "--lost-answers",
        "4",
        "--keep",
        str(tmp_path / "drill"),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=90)

    assert run.returncode == 0, run.stdout + run.stderr
    numbers = re.fullmatch(
        r"suppressed by the ledger (\d+)\n"
        r"verdict: attempted (\d+), acknowledged (\d+), received (\d+), lost 0, duplicated 0, diverted (\d+),"
        r" recovered (\d+); divert ([\d.]+) s, heal ([\d.]+) s, drain ([\d.]+) s\n",
        run.stdout,
    )
    assert numbers is not None, run.stdout
    suppressed, attempted, acknowledged, received, diverted, recovered = map(int, numbers.groups()[:6])
    assert attempted >= acknowledged >= diverted == recovered > 0
    assert received >= acknowledged
    assert "DuplicateDetection" not in (tmp_path / "drill" / "primary.toml").read_text()
    known = list(records(str(tmp_path / "drill" / "ledger.db")))
    assert sum(row.suppressed for row in known) == suppressed > 0
    assert {row.state for row in known} == {State.DONE}
    assert "the primary is gone" in run.stderr
    assert "failed over -> healthy" in run.stderr
    entries = [json.loads(line) for line in (tmp_path / "drill" / "sent.jsonl").read_text().splitlines()]
    assert sum("acknowledged" in entry for entry in entries) == acknowledged


def test_an_unknown_drill_is_refused(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-m", "twinbus", "drill", "earthquake"], capture_output=True, text=True)

    assert run.returncode == 2
    assert "earthquake" in run.stderr
