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
    done = subprocess.run(
        [
            *(sys.executable, "-m", "support.replicated_worker", *strings, queue, str(database), str(int(joins))),
            *(*points, *["none"] * 3),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).parents[1],
    )
    outcomes = [line.split() for line in done.stdout.splitlines()]
    killed = Counter(point for point, outcome in outcomes if outcome == "killed")
    with closing(sqlite3.connect(database)) as connection:
        worked = Counter(job for (job,) in connection.execute("SELECT id FROM job"))

    assert done.returncode == 0, done.stderr
    assert set(worked) == set(jobs), done.stderr
    settle(log.path, worked, repeated=0 if joins else killed["work"])
    assert sum(killed.values()) >= 12
    assert [broker.count(queue) for broker in brokers] == [0, 0]
