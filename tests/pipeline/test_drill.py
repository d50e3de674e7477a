"""`twinbus drill` as `make drill` runs it: drained with Spark, and proven from the journals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(500)  # Spark starts beside two brokers.
def test_the_drill_is_drained_and_proven_with_spark(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    command = [sys.executable, "-m", "twinbus", "drill", "--for", "3", "--rate", "30"]
    command += ["--keep", str(tmp_path / "drill"), "--report", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=480)

    assert run.returncode == 0, run.stdout + run.stderr
    holds, conservation, pair, cost, where, suppressed, verdict = run.stdout.splitlines()
    entries = [json.loads(line) for line in (tmp_path / "drill" / "sent.jsonl").read_text().splitlines()]
    acknowledged = sum("acknowledged" in entry for entry in entries)
    assert holds == f"It holds: all {acknowledged} acknowledged messages are accounted for, and the line balances."
    numbers = re.fullmatch(
        r"verdict: attempted (\d+), acknowledged (\d+), received (\d+), lost 0, duplicated 0, diverted (\d+),"
        r" recovered (\d+); divert [\d.]+ s, heal [\d.]+ s, drain [\d.]+ s",
        verdict,
    )
    assert numbers is not None, verdict
    diverted, recovered = int(numbers[4]), int(numbers[5])
    assert diverted == recovered > 0
    assert f"brought home {diverted}; balances" in conservation
    assert f"{diverted} brought home, which cancel out" in pair
    assert re.match(r"cost: [\d,]+ billable operations", cost)
    assert where == f"report: {report}"
    assert suppressed.startswith("suppressed by the ledger ")
    page = report.read_text()
    assert "<svg" in page
    assert "http://" not in re.sub(r'http://www\.w3\.org/[^"]*|http://purl\.org/[^"]*|xmlns[^>]*', "", page)
