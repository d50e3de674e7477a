"""docs/replication.md: its table is the ledger's own, and its program survives what it claims to survive."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from support.accounts import settle
from support.broker import BrokerProcess
from twinbus.drill.history import SendLog
from twinbus.pair.ledger.decisions import DECISIONS, CopyRelation, Decision, State

PAGE = (Path(__file__).parents[2] / "docs" / "replication.md").read_text()


def test_the_table_is_the_ledgers_own() -> None:
    lines = [f"| nothing | {' | '.join([Decision.HAND_OUT.value] * 3)} |"]
    for state in State:
        decisions = [DECISIONS[state, standing].value for standing in CopyRelation]
        lines.append(f"| {state.name.lower().replace('_', '-')} | {' | '.join(decisions)} |")
    assert "\n".join(lines) in PAGE


@pytest.mark.timeout(300)
def test_the_job_scheduler_does_each_job_once_whatever_is_killed(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    program = tmp_path / "jobs.py"
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    # The second program is the same, but dies between its work and telling the broker.
    program.write_text(found.group(1))
    dying = tmp_path / "dying.py"
    last = "                receiver.complete_message(message)\n"
    assert last in found.group(1)
    dying.write_text(
        found.group(1).replace(last, "                __import__('os').kill(__import__('os').getpid(), 9)\n")
    )
    for broker in brokers:
        broker.create_queue("jobs", LockDuration="PT5S")
    strings = [broker.connection_string() for broker in brokers]

    def run(path: Path, *words: str) -> int:
        command = [sys.executable, str(path), *strings, *words]
        return subprocess.run(command, cwd=tmp_path, timeout=150, check=False).returncode

    def submit(log: SendLog, *jobs: str, shut_in: bool = False) -> None:
        for job in jobs:
            log.attempted(job, "jobs", 0)
        assert run(program, "submit", *jobs) == 0
        for job in jobs:
            log.acknowledged(job, 0, shut_in)

    with SendLog(tmp_path / "sent.jsonl") as log:
        submit(log, "a", "b", shut_in=True)
        brokers[0].kill()
        submit(log, "c")  # One namespace is enough.

    def dies() -> None:
        while (code := run(dying, "work")) != -9:  # It ends by itself where nothing comes in time.
            assert code == 0

    dies()
    brokers[0].start()
    dies()
    while any(broker.count("jobs") for broker in brokers):  # Of a job that is locked nothing comes in time.
        assert run(program, "work") == 0
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as results:
        worked = Counter(job for (job,) in results.execute("SELECT job FROM result"))
    settle(log.path, worked)
    assert worked == {"a": 1, "b": 1, "c": 1}
