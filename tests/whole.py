"""All that `make test` runs: every phase, whatever became of those before it, and one summary over all of them.

`--loaded` keeps one processor busy meanwhile, to bring out what depends on time; `--times N` repeats the tests (`make
test-repeat`). What a test shows and costs is its own matter; which worker runs it is decided in `support.scheduling`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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
STEP_BACK = ("nice", "-n", "5")
MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30  # Twice what the temporary files of a run take.
# Ends with the run, however that ends, because it looks whether its parent is still there.
SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1_000_000): pass\n"


class Phase(NamedTuple):
    """One command, with what it adds to the environment."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = {}  # noqa: RUF012 (nobody writes into it)

    def of(self, selected: Sequence[str]) -> Phase:
        """The same with these words behind it: files, folders, an option."""
        return self._replace(command=(*self.command, *selected))


SPREAD = ("-n", str(WORKERS), "--dist", "loadfile")
TOGETHER = Phase("together", (*PYTEST, *SPREAD, "-m", "not alone"))
ALONE = Phase("alone", (*PYTEST, "-m", "alone"))  # What measures time has the machine to itself.
# The files that have such tests: nobody else needs to be collected for them.
MEASURING = sorted(
    str(file.relative_to(ROOT)) for file in ROOT.glob("tests/*/test_*.py") if "mark.alone" in file.read_text()
)
CHECKS = (
    Phase("format", (PYTHON, "-m", "ruff", "format", "--check", ".")),
    Phase("lint", (PYTHON, "-m", "ruff", "check", ".")),
    Phase("types", (PYTHON, "-m", "mypy")),
)
# Units wait for nobody, so one process runs them while all others wait; two thirds of all tests need not be collected
# by every worker then.
UNITS = "tests/unit"
ASIDE = (
    Phase("unit", (*PYTEST, "-q", UNITS)),
    Phase("gateways", (*PYTEST, "-q", "-m", "gateways", "tests/compat"), {"TWINBUS_TEST_STORE": "postgresql"}),
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


class Running:
    """A phase on its way. What runs aside steps back for the others, and its output is shown when it has ended."""

    def __init__(self, phase: Phase, environment: dict[str, str], *, aside: bool) -> None:
        self._phase = phase
        self._began = time.monotonic()
        self._directory = tempfile.TemporaryDirectory(prefix="twinbus-test-")
        self._results = Path(self._directory.name) / "results.json"
        self._output = (Path(self._directory.name) / "output").open("w+") if aside else None
        if not aside:
            print(f"\n== {phase.name}", flush=True)
        self.process = subprocess.Popen(
            [*(STEP_BACK if aside else ()), *phase.command],
            env=os.environ | environment | phase.environment | {RESULTS: str(self._results)},
            cwd=ROOT,
            stdout=self._output,
            stderr=self._output and subprocess.STDOUT,
        )

    def outcome(self) -> Outcome:
        """Wait for its end."""
        code = self.process.wait()
        took_s = time.monotonic() - self._began
        if self._output is not None:
            self._output.seek(0)
            print(f"\n== {self._phase.name}\n{self._output.read()}", flush=True)
            self._output.close()
        tests = [Ended(*each) for each in json.loads(self._results.read_text())] if self._results.exists() else []
        self._directory.cleanup()
        return Outcome(self._phase, code, took_s, tests)


def run(phase: Phase, aside: Sequence[Phase] = (), environment: dict[str, str] | None = None) -> list[Outcome]:
    """Run a phase to its end, its output going where ours goes, and others one after another at the same time."""
    environment = environment or {}
    first = Running(phase, environment, aside=False)
    outcomes: list[Outcome] = []
    running: Running | None = None
    try:
        for each in aside:
            running = Running(each, environment, aside=True)
            outcomes.append(running.outcome())
        return [*outcomes, first.outcome()]
    finally:
        for started in (first, running):
            if started is not None and started.process.poll() is None:
                started.process.terminate()
                started.process.wait()


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


@contextmanager
def files_in_memory() -> Iterator[dict[str, str]]:
    """What to add to the environment so that temporary files wait for no disk.

    A process that is killed finds the same there as on a disk. Without enough memory, files are where they always are.
    """
    if not (MEMORY.is_dir() and min(shutil.disk_usage(MEMORY).free, _available_bytes() // 2) >= ROOM_BYTES):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="twinbus-test-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)  # If the tests are root's, PostgreSQL is another user's, and has a folder in it.
        yield {"TMPDIR": folder}


def _available_bytes() -> int:
    found = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(found["MemAvailable"].split()[0]) << 10


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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that what is begun is ended.
    failures: Counter[str] = Counter()
    began = time.monotonic()
    with spinning(asked.loaded):
        for number in range(1, asked.times + 1):
            if asked.times > 1:
                print(f"\n#### run {number} of {asked.times}", flush=True)
            # Format, lint and types are about files, so that repeating them shows nothing.
            aside = () if asked.selected else ASIDE if number > 1 else (*CHECKS, *ASIDE)
            with files_in_memory() as environment:
                outcomes = run(TOGETHER.of(asked.selected or [f"--ignore={UNITS}"]), aside, environment)
            outcomes += run(ALONE.of(asked.selected or MEASURING))
            print("\n".join(summary(outcomes, time.monotonic() - began, asked.loaded)), flush=True)
            failures.update(problems(outcomes, asked.loaded))
    if asked.times > 1:
        print(f"\n#### {asked.times} runs, {failures.total()} failures")
        for problem, count in failures.most_common():
            print(f"  {count} times: {problem}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
