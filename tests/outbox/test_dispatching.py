"""Dispatchers that are killed or have no room to write, and what becomes of the messages."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from support.disks import fill_up
from support.order import SessionReader
from support.pair_scene import Scene, until
from support.postgres import PostgresServer
from twinbus.client.messages import read
from twinbus.drill.history import SendLog
from twinbus.pair.aio import OutboxClient
from twinbus.pair.outbox import dispatcher as dispatch
from twinbus.pair.outbox.dispatcher import Dispatcher
from twinbus.pair.outbox.outbox import Outbox

# An application that puts lists for as long as it lives; its dispatcher is killed with it.
APPLICATION = """
import itertools, sys
from pathlib import Path
from azure.servicebus import ServiceBusMessage
from twinbus.drill.history import SendLog
from twinbus.pair import OutboxClient, PairedServiceBusClient, SendAvailabilityOptions
how, name, primary, secondary, queue, outbox, log, life = sys.argv[1:]
if how == "send_many":
    options = SendAvailabilityOptions(backlog_queue_count=1, attempts=1)
    client = PairedServiceBusClient.from_connection_strings(
        primary, secondary, options, primary_name=name, outbox=outbox, always=True)
else:
    client = OutboxClient(primary, outbox)
with client, client.get_queue_sender(queue) as sender, SendLog(Path(log)) as sent:
    for number in itertools.count():
        ids = [f"life-{life}.{number}.{each}" for each in range(25)]
        for each in ids:
            sent.attempted(each, queue, 0)
        messages = [ServiceBusMessage(b"x", message_id=each) for each in ids]
        if how == "send_many":
            outcomes = sender.send_many(messages)
            ids = [each for each, outcome in zip(ids, outcomes) if outcome.error is None]
        else:
            sender.send_messages(messages)
        for each in ids:
            sent.acknowledged(each, 0, True)
        print(number, flush=True)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["lists", "send_many"])
async def test_lists_are_whole_and_arrive_though_the_dispatcher_is_killed_in_the_middle(
    scene: Scene, tmp_path: Path, how: str
) -> None:
    queue = scene.queue(RequiresDuplicateDetection=True)
    outbox, log = tmp_path / "outbox.db", tmp_path / "application.jsonl"
    strings = [scene.primary.connection_string(), scene.secondary.connection_string()]
    for life in range(2):
        words = [how, scene.name, *strings, queue, str(outbox), str(log), str(life)]
        process = subprocess.Popen([sys.executable, "-c", APPLICATION, *words], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            before = scene.primary.count(queue)
            for _ in range(8):
                assert await asyncio.to_thread(process.stdout.readline)
            await until(lambda before=before: scene.primary.count(queue) > before, "dispatching")
        finally:
            process.kill()
            process.communicate()
    async with OutboxClient(strings[0], outbox) as client:
        await client.outbox.wait_until_empty_async(60)
    await scene.receive(queue, 0, timeout_s=90)

    verdict = scene.settle(log=log)
    assert verdict.acknowledged >= 2 * 8 * 25
    assert verdict.recovered == verdict.acknowledged
    if how == "lists":  # A list is put whole or not at all.
        assert {len(each) for each in _lists(scene.received).values()} == {25}


def _lists(received: Counter[str]) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for message_id in received:
        lists.setdefault(message_id.rpartition(".")[0], []).append(message_id)
    return lists


async def test_a_full_disk_while_dispatching_sends_nothing_twice(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent cannot be forgotten: it is not sent again, and nothing of its key follows until it is."""
    monkeypatch.setattr(dispatch, "NOTE_AGAIN_S", 0.05)
    arrived: list[str] = []
    filler: Path | None = None

    async def deliver(path: str, payloads: Sequence[bytes], key: str | None) -> None:
        nonlocal filler
        arrived.extend(read(payload).message_id or "" for payload in payloads)
        if filler is None and len(arrived) >= 10:
            filler = fill_up(small_disk)

    with Outbox(small_disk / "outbox.db") as outbox:
        bodies = [ServiceBusMessage(b"x" * 2000, message_id=f"m{each}", session_id="k") for each in range(40)]
        outbox.put(bodies, "orders")
        dispatcher = Dispatcher(outbox, deliver, max_in_flight=4)
        running = asyncio.create_task(dispatcher.run())
        await until(lambda: "no room left" in (dispatcher.progress.problem or ""), "the full disk")
        sent = len(arrived)
        await asyncio.sleep(0.2)
        assert len(arrived) == sent < 40
        assert filler is not None
        filler.unlink()
        await until(lambda: len(arrived) == 40, "dispatching")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert outbox.counts().messages == 0
    assert arrived == [f"m{each}" for each in range(40)]


@contextmanager
def dispatching(where: str, connection_string: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes of `twinbus outbox dispatch` for one outbox."""
    command = [sys.executable, "-m", "twinbus", "outbox", "dispatch", where, "-c", connection_string]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.timeout(240)
async def test_the_second_dispatcher_of_a_database_takes_over_from_one_that_is_killed(
    scene: Scene, postgres: PostgresServer
) -> None:
    queue = scene.queue(RequiresSession=True, RequiresDuplicateDetection=True)
    schema = postgres.new_schema()
    postgres.execute(f"CREATE SCHEMA {schema}")
    where = f"{postgres.connection_url}?options=-csearch_path%3D{schema}"
    put = 0

    def more(outbox: Outbox, log: SendLog) -> None:
        nonlocal put
        ids = [f"s{number % 3}.{number // 3}" for number in range(put, put + 90)]
        for message_id in ids:
            log.attempted(message_id, queue, 0)
        outbox.put([ServiceBusMessage(b"x", message_id=each, session_id=each[:2]) for each in ids], queue)
        for message_id in ids:
            log.acknowledged(message_id, 0, True)
        put += 90

    with Outbox(where) as outbox:
        more(outbox, scene.log)
        with dispatching(where, scene.primary.connection_string()) as processes:
            await until(lambda: scene.primary.count(queue) > 10, "the first dispatcher", 60)
            lease = outbox.lease()
            assert lease is not None
            first = int(lease.holder.split()[1])
            assert first in [process.pid for process in processes]
            os.kill(first, signal.SIGKILL)  # In the middle of a list.
            next(process for process in processes if process.pid == first).wait()
            more(outbox, scene.log)
            async with SessionReader(scene, queue) as reader:
                await until(lambda: outbox.counts().messages == 0, "the second dispatcher", 60)
                await until(lambda: reader.count == put, "arrival", 60)
            second = outbox.lease()
            assert second is not None
            assert int(second.holder.split()[1]) in {process.pid for process in processes} - {first}

    assert scene.settle().recovered == 180
    assert reader.disorder() == []
