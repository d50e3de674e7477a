"""What each folder of tests may cost, what it did cost, and how every test ended.

A folder over its budget fails the run even if each of its tests passed, so that `make check` and `make test` stay
quick. Each phase of `make test` leaves its results in a file, and `tests/whole.py` judges their sums.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.repetition import IS_LONG
from support.scheduling import folder_of, long_ones_first

# In seconds, added up over all workers: several tests run at a time, so the whole takes a fraction of the sum. About
# twice what a quiet machine needs, because a machine in a cloud may be half as fast from one hour to the next.
BUDGET_S = {
    "unit": 300,
    "fuzz": 60,
    "contract": 900,
    "compat": 2000,
    "faults": 1400,
    "pair": 950,
    "replication": 450,
    "outbox": 320,
    "pipeline": 1500,
    "console": 300,
}
RESULTS = "TWINBUS_TEST_RESULTS"  # The file for the results of a phase, if somebody wants to add them up.
LOADED = "TWINBUS_TEST_LOADED"  # Another program keeps the machine busy on purpose, so that times say nothing.

if "TWINBUS_TEST_STORE" in os.environ:
    BUDGET_S["compat"] = 1800  # Each broker is then two processes, and its store a server.

if IS_LONG:
    BUDGET_S["faults"] *= 5


class Ended(NamedTuple):
    """How a test ended, what all of it took, and why it was skipped or failed."""

    nodeid: str
    outcome: str
    took_s: float
    reason: str


def over_budget(spent_s: dict[str, float]) -> list[str]:
    """A sentence for each folder that took longer than it may."""
    return [
        f"tests/{folder} took {spent:.0f} s, and its budget is {BUDGET_S[folder]} s"
        for folder, spent in sorted(spent_s.items())
        if spent > BUDGET_S[folder]
    ]


def time_by_folder(spent_s: dict[str, float]) -> list[str]:
    """A line for each folder."""
    return [f"{folder:12}{spent:7.1f} s of {BUDGET_S[folder]} s" for folder, spent in sorted(spent_s.items())]


class Budgets:
    """Notes how each test ended and what it took, set-up and tear-down included; judges or hands on at the end."""

    def __init__(self) -> None:
        self.ended: dict[str, Ended] = {}

    @property
    def spent_s(self) -> dict[str, float]:
        spent: defaultdict[str, float] = defaultdict(float)
        for test in self.ended.values():
            spent[folder_of(test.nodeid)] += test.took_s
        return spent

    def exceeded(self) -> list[str]:
        return [] if LOADED in os.environ else over_budget(self.spent_s)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        homeless = {folder_of(item.nodeid) for item in items} - BUDGET_S.keys()
        if homeless:
            raise pytest.UsageError(f"no budget in tests/support/budgets.py for: {', '.join(sorted(homeless))}")
        long_ones_first(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        known = self.ended.get(report.nodeid, Ended(report.nodeid, "passed", 0.0, ""))
        outcome, reason = known.outcome, known.reason
        if report.outcome != "passed" and outcome != "failed":
            outcome, reason = report.outcome, _reason(report)
        self.ended[report.nodeid] = Ended(report.nodeid, outcome, known.took_s + report.duration, reason)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(session.config, "workerinput"):
            return
        if wanted := os.environ.get(RESULTS):
            Path(wanted).write_text(json.dumps(list(self.ended.values())))
        elif exitstatus == pytest.ExitCode.OK and self.exceeded():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if RESULTS in os.environ:
            return
        terminalreporter.section("time by folder")
        for line in time_by_folder(self.spent_s):
            terminalreporter.line(line)
        for sentence in self.exceeded():
            terminalreporter.line(f"FAILED {sentence}", red=True)


def _reason(report: Any) -> str:
    """The last word of a report: a skip's own sentence, or where it failed and why."""
    if report.outcome == "skipped":
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash is not None else report.longrepr).strip().splitlines()
    return f"{report.when}: {lines[0] if lines else 'no reason given'}"
