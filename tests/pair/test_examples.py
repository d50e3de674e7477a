"""Every program of `examples` runs as a newcomer runs it, without arguments, and says what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 50
# The lines that matter; of a program that is not here, that it ends well.
SAYS = {
    "active_replication.py": [
        "worked on 10 orders, 10 of them different",
        "second copies that the ledger suppressed: 5",
    ],
    "passive_replication.py": [
        "m1 is in the primary",
        "m2 is in the secondary",
        "the active namespace is the secondary now",
        "worked on m2",
        "worked on m1",
    ],
    "outbox.py": ["safe on this disk: 20 messages", "the namespace is back, and has 20", "in order"],
    "job_scheduler.py": ["a worker, killed after its work: exit code -9", "done: invoice-1 invoice-2 invoice-3"],
    "pairing.py": ["diverted: 10", "orders: failed over -> healthy", "received from the primary: 20"],
    "overlapped_sends.py": ["acknowledged: 200", "in the queue: 200"],
    "relay_replication.py": [
        "answered through the relay that was killed: 10",
        "answered through the other one: 10",
    ],
}


def programs() -> list[str]:
    """All but those that need Spark, which are tried where a JVM is."""
    return sorted(path.name for path in EXAMPLES.glob("*.py") if "spark" not in path.name)


@pytest.mark.parametrize("program", programs())
def test_an_example_does_what_it_says(program: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TWINBUS_")}
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    lines = iter(run.stdout.splitlines())
    missing = [said for said in SAYS.get(program, []) if said not in lines]  # In this order.
    assert missing == [], run.stdout
    assert run.stdout
    assert list(tmp_path.iterdir()) == []  # Nothing is left behind.


def test_every_program_that_is_promised_is_there() -> None:
    assert SAYS.keys() <= set(programs())
