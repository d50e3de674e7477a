"""The drill `spark-crash`: three Java machines one after the other, two of them killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
@pytest.mark.skipif("TWINBUS_TEST_CLUSTER" not in os.environ, reason="three Java machines: make test-cluster")
def test_spark_killed_in_the_midst_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "twinbus", "drill", "spark-crash", "--json", "--seed", "3", "--rate", "20"]
    command += ["--report", str(tmp_path / "report.html"), "--keep", str(tmp_path / "drill")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=590)

    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert (found["lost"], found["duplicated"], found["broken"]) == ([], [], [])
    assert found["diverted"] == found["recovered"] >= 900
    assert "killed 2 times in the midst" in found["remarks"][0]
