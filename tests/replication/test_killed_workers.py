"""Workers that are killed with -9 between receive, work, mark and complete, as processes against two real brokers."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from support.accounts import settle
from support.broker import BrokerProcess
from twinbus.drill.history import SendLog
from twinbus.pair import ReplicatedClient

Brokers = tuple[BrokerProcess, BrokerProcess]
STEPS = ("receive", "work", "mark", "complete")
JOBS = 20


class Workers:
    """Starts one worker after the other, each to be killed at a point."""

    def __init__(self, directory: Path, *words: str) -> None:
        self._errors = directory / "errors"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.replicated_worker", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=Path(__file__).parents[1],
            )

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *args: object) -> None:
        self._process.communicate()

    def run(self, point: str) -> bool:
        """One worker to its end; whether it was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(point, file=self._process.stdin, flush=True)
        outcome = self._process.stdout.readline().strip()
        assert outcome in ("0", "killed"), f"{outcome}: {self._errors.read_text()}"
        return outcome == "killed"


@pytest.mark.timeout(300)  # Locks that are left behind are waited for.
@pytest.mark.parametrize("joins", [True, False], ids=["mark in the work's transaction", "mark after the work"])
def test_every_job_is_done_and_only_a_kill_between_work_and_mark_repeats_one(
    brokers: Brokers, tmp_path: Path, joins: bool
) -> None:
    queue = f"jobs-{int(joins)}"
    for broker in brokers:
        broker.create_queue(queue, LockDuration="PT5S", MaxDeliveryCount=100)
    strings = [broker.connection_string() for broker in brokers]
    jobs = [f"job-{number}" for number in range(JOBS)]
    client = ReplicatedClient.from_connection_strings(*strings, mode="active")
    with client, client.get_queue_sender(queue) as sender, SendLog(tmp_path / "sent.jsonl") as log:
        for job in jobs:
            log.attempted(job, queue, 0)
        sender.send_messages([ServiceBusMessage(b"", message_id=job) for job in jobs])
        for job in jobs:
            log.acknowledged(job, 0, False)
    points = list(STEPS * 4)
    random.Random(5).shuffle(points)
    database = tmp_path / "jobs.db"
    killed: Counter[str] = Counter()
    with Workers(tmp_path, *strings, queue, str(database), str(int(joins))) as workers:
        for point in points:
            while not workers.run(point):  # What there is to do is still locked for somebody who was killed.
                pass
            killed[point] += 1
        while any(broker.count(queue) for broker in brokers):
            assert not workers.run("none")
    with closing(sqlite3.connect(database)) as connection:
        worked = Counter(job for (job,) in connection.execute("SELECT id FROM job"))

    assert set(worked) == set(jobs)
    settle(log.path, worked, repeated=0 if joins else killed["work"])
