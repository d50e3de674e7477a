"""`twinbus drill` as a newcomer runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path


def test_the_drill_ends_with_a_verdict_that_holds(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "twinbus",
        "drill",
        "--for",
        "3",
        "--rate",
        "60",
        "--keep",
        str(tmp_path / "drill"),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=90)

    assert run.returncode == 0, run.stdout + run.stderr
    numbers = re.fullmatch(
        r"verdict: attempted (\d+), acknowledged (\d+), received (\d+), lost 0, duplicated 0, diverted (\d+),"
        r" recovered (\d+); divert ([\d.]+) s, heal ([\d.]+) s, drain ([\d.]+) s\n",
        run.stdout,
    )
    assert numbers is not None, run.stdout
    attempted, acknowledged, received, diverted, recovered = (int(number) for number in numbers.groups()[:5])
    assert attempted >= acknowledged >= diverted == recovered > 0
    assert received >= acknowledged
    assert "the primary is gone" in run.stderr
    assert "failed over -> healthy" in run.stderr
    entries = [json.loads(line) for line in (tmp_path / "drill" / "sent.jsonl").read_text().splitlines()]
    assert sum("acknowledged" in entry for entry in entries) == acknowledged


def test_an_unknown_drill_is_refused(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-m", "twinbus", "drill", "earthquake"], capture_output=True, text=True)

    assert run.returncode == 2
    assert "earthquake" in run.stderr
