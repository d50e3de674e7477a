"""The example of docs/spark.md as a program of its own: what it prints, and that it prints nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_stream.py"


@pytest.mark.timeout(500)
def test_the_example_counts_its_orders_and_is_quiet() -> None:
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [
        "there are 300 orders",
        "book: 100",
        "picture: 100",
        "record: 100",
        "left in the queue: 0",
    ]
    assert done.stderr == ""
