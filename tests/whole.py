"""All that `make test` runs: every phase, whatever became of those before it, and one summary over all of them.

`--loaded` keeps one processor busy meanwhile, to bring out what depends on time; `--times N` repeats the tests (`make
test-repeat`). What a test shows and costs is its own matter; which worker runs it is decided in `support.scheduling`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support.budgets import LOADED, RESULTS, Ended, over_budget, time_by_folder
from support.optional import is_there, parts, reason
from support.scheduling import WORKERS, folder_of

ROOT = Path(__file__).parents[1]
SLOWEST = 10
PYTHON = sys.executable
PYTEST = (PYTHON, "-m", "pytest")
# Ends with the run, however that ends, because it looks whether its parent is still there.
SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1_000_000): pass\n"


class Phase(NamedTuple):
    """One command, with what it adds to the environment."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = {}  # noqa: RUF012 (nobody writes into it)

    @property
    def is_tests(self) -> bool:
        return self.command[:3] == PYTEST


CHECKS = (
    Phase("format", (PYTHON, "-m", "ruff", "format", "--check", ".")),
    Phase("lint", (PYTHON, "-m", "ruff", "check", ".")),
    Phase("types", (PYTHON, "-m", "mypy")),
)
SPREAD = ("-n", str(WORKERS), "--dist", "loadfile")
TESTS = (
    Phase("together", (*PYTEST, *SPREAD, "-m", "not alone")),
    Phase("gateways", (*PYTEST, *SPREAD, "-m", "gateways", "tests/compat"), {"TWINBUS_TEST_STORE": "postgresql"}),
    Phase("alone", (*PYTEST, "-m", "alone")),  # What measures time has the machine to itself.
)


class Outcome(NamedTuple):
    """How a phase ended."""

    phase: Phase
    code: int
    took_s: float
    tests: list[Ended]

    @property
    def problems(self) -> list[str]:
        """What failed, one line each. A phase that ends badly without a failed test counts itself."""
        failed = [f"{test.nodeid}: {test.reason}" for test in self.tests if test.outcome == "failed"]
        if self.code not in (0, 5) and not failed:  # 5: it had no tests.
            failed = [f"the phase '{self.phase.name}' ended with exit code {self.code}"]
        return failed


def run(phase: Phase, selected: list[str]) -> Outcome:
    """Run a phase to its end; its output goes where ours goes."""
    print(f"\n== {phase.name}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="twinbus-test-") as directory:
        results = Path(directory) / "results.json"
        environment = os.environ | phase.environment | {RESULTS: str(results)}
        done = subprocess.run([*phase.command, *(selected if phase.is_tests else ())], env=environment, cwd=ROOT)
        tests = [Ended(*each) for each in json.loads(results.read_text())] if results.exists() else []
    return Outcome(phase, done.returncode, time.monotonic() - began, tests)


@contextmanager
def spinning(wanted: bool) -> Iterator[None]:
    """Keep the first processor busy."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([PYTHON, "-c", SPIN])
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    os.environ[LOADED] = "1"
    try:
        yield
    finally:
        process.kill()
        process.wait()


def by_folder(tests: list[Ended]) -> dict[str, float]:
    """What the tests of each folder took."""
    spent_s: defaultdict[str, float] = defaultdict(float)
    for test in tests:
        spent_s[folder_of(test.nodeid)] += test.took_s
    return spent_s


def problems(outcomes: list[Outcome], is_loaded: bool) -> list[str]:
    """Everything for which the run fails."""
    found = [problem for outcome in outcomes for problem in outcome.problems]
    late = over_budget(by_folder([test for outcome in outcomes for test in outcome.tests]))
    return found if is_loaded else found + late


def summary(outcomes: list[Outcome], took_s: float, is_loaded: bool) -> list[str]:
    """What people want to know at the end, in lines; the last one is the count."""
    tests = [test for outcome in outcomes for test in outcome.tests]
    spent_s = by_folder(tests)
    late = over_budget(spent_s)
    lines = ["", "=" * 20 + " summary " + "=" * 20]
    for outcome in outcomes:
        counted = Counter(test.outcome for test in outcome.tests)
        what = ", ".join(f"{count} {name}" for name, count in sorted(counted.items())) or "ok"
        lines.append(
            f"{outcome.phase.name:12}{outcome.took_s:7.1f} s   {what if outcome.code in (0, 1, 5) else 'FAILED'}"
        )
    lines += ["", "time by folder:", *(f"  {line}" for line in time_by_folder(spent_s))]
    lines += ["", f"the slowest {SLOWEST}:"]
    for test in sorted(tests, key=lambda test: -test.took_s)[:SLOWEST]:
        lines.append(f"  {test.took_s:6.1f} s  {test.nodeid}")
    if absent := [name for name in parts() if not is_there(name)]:
        lines += ["", "left out of the set-up:", *(f"  {name}: {reason(name)}" for name in absent)]
    if skipped := [test for test in tests if test.outcome == "skipped"]:
        lines += ["", "skipped:", *(f"  {test.nodeid}: {test.reason}" for test in skipped)]
    if late and is_loaded:
        lines += [
            "",
            "over budget, which is no failure while the machine is kept busy:",
            *(f"  {each}" for each in late),
        ]
    if found := problems(outcomes, is_loaded):
        lines += ["", "FAILED:", *(f"  {problem}" for problem in found)]
    counted = Counter(test.outcome for test in tests)
    lines += ["", f"in {took_s / 60:.1f} minutes:"]
    lines.append(f"{counted['passed']} passed, {len(found)} failed, {counted['skipped']} skipped")
    return lines


def main() -> int:
    """Run what was asked for; 0 if nothing failed."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--loaded", action="store_true", help="keep one processor busy meanwhile")
    reader.add_argument("--times", type=int, default=1, help="how often the tests are run")
    reader.add_argument("selected", nargs="*", help="tests or folders; everything if none is named")
    asked = reader.parse_args()
    failures: Counter[str] = Counter()
    began = time.monotonic()
    with spinning(asked.loaded):
        for number in range(1, asked.times + 1):
            if asked.times > 1:
                print(f"\n#### run {number} of {asked.times}", flush=True)
            # Format, lint and types are about files, so that repeating them shows nothing.
            phases = TESTS if asked.selected or number > 1 else (*CHECKS, *TESTS)
            if asked.selected:
                phases = tuple(phase for phase in phases if phase.name != "gateways")
            outcomes = [run(phase, asked.selected) for phase in phases]
            print("\n".join(summary(outcomes, time.monotonic() - began, asked.loaded)), flush=True)
            failures.update(problems(outcomes, asked.loaded))
    if asked.times > 1:
        print(f"\n#### {asked.times} runs, {failures.total()} failures")
        for problem, count in failures.most_common():
            print(f"  {count} times: {problem}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
