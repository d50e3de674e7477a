"""Holds every folder of tests to its budget of time, so that `make check` and `make test` stay quick.

A folder over its budget fails the run even if each of its tests passed; a test that hangs is left to
pytest-timeout, and which worker runs what to `support.scheduling`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from support.postgres import PostgresServer
from support.repetition import IS_LONG
from support.scheduling import LongOnesFirst, folder_of, long_ones_first

# Three tests run at a time on two cores, so that the whole takes little more than a third of the sum.
BUDGET_S = {
    "unit": 120,
    "fuzz": 60,
    "contract": 220,
    "compat": 900,
    "faults": 450,
    "pair": 450,
    "replication": 320,
    "outbox": 200,
    "pipeline": 1200,
    "console": 180,
}

if "TWINBUS_TEST_STORE" in os.environ:
    BUDGET_S["compat"] = 1800  # Each broker is then two processes, and its store a server.

if IS_LONG:
    BUDGET_S["faults"] *= 5

# A slow example on a busy machine is no failure: the budgets above are what counts.
settings.register_profile("twinbus", deadline=None)
settings.load_profile("twinbus")


class Budgets:
    """Adds up what set-up, call and tear-down of each folder's tests took, and judges the sums at the end."""

    def __init__(self, budget_s: dict[str, int]) -> None:
        self.budget_s = budget_s
        self.spent_s: defaultdict[str, float] = defaultdict(float)

    def exceeded(self) -> list[str]:
        return [
            f"tests/{folder} took {spent:.0f} s, and its budget is {self.budget_s[folder]} s"
            for folder, spent in sorted(self.spent_s.items())
            if spent > self.budget_s[folder]
        ]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        homeless = {folder_of(item.nodeid) for item in items} - self.budget_s.keys()
        if homeless:
            raise pytest.UsageError(f"no budget in tests/conftest.py for: {', '.join(sorted(homeless))}")
        long_ones_first(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.spent_s[folder_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self.exceeded():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("time by folder")
        for folder, spent in sorted(self.spent_s.items()):
            terminalreporter.line(f"{folder:10} {spent:6.1f} s of {self.budget_s[folder]} s")
        for sentence in self.exceeded():
            terminalreporter.line(f"FAILED {sentence}", red=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests that share it; each makes a schema of its own."""
    server = PostgresServer().start()
    yield server
    server.remove()


# Hundreds of brokers and commands are started below; without bytecode on disk each of them would compile its source.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Whoever starts the tests in the background may have the interrupt ignored, which every process below would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


# A Java machine lives for seconds here: a second compiler and a collector with threads would cost more than they give.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "alone":  # What measures time, measures Spark as it is.
        os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)
    config.pluginmanager.register(Budgets(BUDGET_S), "twinbus-budgets")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongOnesFirst | None:
    return LongOnesFirst(config, log) if config.getvalue("dist") == "loadfile" else None
