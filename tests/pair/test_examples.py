"""Every program of `examples` runs as a newcomer runs it, without arguments, and says what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 200
pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)  # They wait for each other.
AT_A_TIME = 3
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


class Run(NamedTuple):
    """What came of a program, in a directory of its own."""

    directory: Path
    done: subprocess.CompletedProcess[str]


def _run(program: str, directory: Path) -> Run:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TWINBUS_")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return Run(directory, done)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Run]]]:
    """The programs that are asked for, a few at the same time, since each of them waits for most of its time."""
    specs = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    wanted = [spec.params["program"] for spec in specs if spec is not None]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {program: pool.submit(_run, program, tmp_path_factory.mktemp("example")) for program in wanted}


@pytest.mark.parametrize("program", programs())
def test_an_example_does_what_it_says(runs: dict[str, Future[Run]], program: str) -> None:
    directory, done = runs[program].result()
    assert done.returncode == 0, done.stdout + done.stderr
    lines = iter(done.stdout.splitlines())
    missing = [said for said in SAYS.get(program, []) if said not in lines]  # In this order.
    assert missing == [], done.stdout
    assert done.stdout
    assert list(directory.iterdir()) == []  # Nothing is left behind.


def test_every_program_that_is_promised_is_there() -> None:
    assert SAYS.keys() <= set(programs())
