"""Drills as a person runs them: each must hold, and have tried what it is about."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)
AT_ONCE = 5  # They mostly wait.
PATIENCE_S = 280
DRILLS = {
    "flap": ["flap", "--for", "6"],
    "both-down": ["both-down", "--for", "3"],
    "returns-old": ["disaster", "--for", "4", "--returns", "old"],
    "returns-empty": ["disaster", "--for", "4", "--returns", "empty"],
    "backlog-full": ["backlog-full", "--for", "4"],
    "slow": ["slow", "--for", "8"],
    "blackhole": ["blackhole", "--for", "8"],
    "store": ["store", "--for", "6"],
    "disaster": ["disaster", "--for", "5"],
    "replacement": ["replacement", "--for", "2"],
}


@dataclass(frozen=True)
class Run:
    """A drill that has ended."""

    directory: Path
    code: int
    stdout: str
    stderr: str

    def held(self) -> dict[str, Any]:
        """What it printed; it must hold."""
        assert self.code == 0, self.stdout + self.stderr
        found: dict[str, Any] = json.loads(self.stdout)
        assert found["holds"]
        assert found["duplicated"] == found["broken"] == []
        assert "It holds." in (self.directory / "report.html").read_text()
        return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """All of them, several at once."""
    directories = {name: tmp_path_factory.mktemp(name) for name in DRILLS}

    def run(name: str) -> Run:
        directory = directories[name]
        command = [sys.executable, "-m", "twinbus", "drill", *DRILLS[name]]
        command += ["--json", "--seed", "7", "--rate", "10", "--no-spark", "--keep", "kept", "--report", "report.html"]
        with subprocess.Popen(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                stdout, stderr = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.terminate()  # What it said tells what it waited for.
                stdout, stderr = process.communicate()
            return Run(directory, process.returncode, stdout, stderr)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(DRILLS, pool.map(run, DRILLS), strict=True))


@pytest.mark.parametrize(
    "name", ["flap", "blackhole", "slow", "store", "backlog-full", "both-down", "returns-old", "replacement"]
)
def test_nothing_is_lost_and_what_was_diverted_comes_home(runs: dict[str, Run], name: str) -> None:
    found = runs[name].held()

    assert found["lost"] == found["condemned"] == []
    assert found["received"] >= found["acknowledged"]
    assert found["recovered"] == found["diverted"] > 0


def test_a_disaster_lists_what_only_the_primary_held(runs: dict[str, Run]) -> None:
    run = runs["disaster"]
    found = run.held()

    assert found["lost"] == found["condemned"]
    assert found["acknowledged"] == found["received"] + found["diverted"] + len(found["lost"])
    assert found["recovered"] == 0
    (remark,) = found["remarks"]
    assert remark.endswith(f"({len(found['lost'])}): {', '.join(found['lost'])}")
    assert found["lost"][0] in (run.directory / "report.html").read_text()


def test_a_primary_that_returns_empty_gets_the_backlog_and_nothing_else(runs: dict[str, Run]) -> None:
    found = runs["returns-empty"].held()

    assert found["lost"] == found["condemned"] != []
    assert found["recovered"] == found["diverted"] > 0


def test_a_primary_that_returns_with_its_old_disk_hands_out_what_it_held(runs: dict[str, Run]) -> None:
    told, late = runs["returns-old"].held()["remarks"]

    assert re.match(r"came back with the old disk \([1-9]\d*\): ", told)
    assert re.fullmatch(r"arrived after younger ones: \d+", late)


def test_what_each_drill_is_about_has_happened(runs: dict[str, Run]) -> None:
    """A drill that holds since nothing happened would prove nothing."""
    assert re.search(r"went \d times; failovers: .*orders [1-9]", runs["flap"].held()["remarks"][0])
    assert runs["slow"].held()["suppressed"] > 0
    assert re.search(r"refused [1-9]\d* times", runs["backlog-full"].held()["remarks"][0])
    assert re.search(r"queued in the outbox: [1-9]", runs["both-down"].held()["remarks"][0])
    changed = {line.split()[2] for line in runs["store"].stderr.splitlines() if "-> failed over" in line}
    assert changed == {"carts:"}
