"""`kill -9` under load, 52 times and more at random moments: nothing acknowledged is lost, undone or doubled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from faults.history import History, Place
from faults.load import BATCH, DELETING_CREDIT, Load, message, noticed, read
from faults.remains import look_at_all
from support.broker import BrokerProcess
from support.repetition import times
from twinbus.client import connect

RUNS = times(4, 20)
KILLS = 13  # In each run.
SESSIONS = [f"s{n}" for n in range(6)]
# Nothing may leave its queue, or its lock, by itself.
PATIENT = 'LockDuration = "PT5M"\nMaxDeliveryCount = 100000\n'
PLAIN = [f"plain-{n}" for n in range(4)]
CONFIG = "".join(f'[[queues]]\nName = "{name}"\n{PATIENT}' for name in [*PLAIN, "batched", "deleting"]) + (
    f'[[queues]]\nName = "sessions"\nRequiresSession = true\n{PATIENT}'
    f'[[queues]]\nName = "deduplicated"\nRequiresDuplicateDetection = true\n{PATIENT}'
)
STALL_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, namespace="faults", config=CONFIG, log_level="warning")
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("run", range(RUNS))
async def test_acknowledged_messages_survive(broker: BrokerProcess, random: Random, run: int) -> None:
    broker.start()
    load = Load(broker.connection_string(), random)
    for queue in PLAIN:
        load.plain(queue)
    load.batched("batched")
    load.deduplicated("deduplicated")
    load.deleting("deleting")
    load.sessions("sessions", SESSIONS)
    kills = 0
    # Until it was killed in the middle of something, and not only between.
    while kills < KILLS or min(unknown(load, "sends"), unknown(load, "settlements")) <= KILLS:
        await killed_at_a_random_moment(broker, load, random)
        kills += 1
        assert load.problems() == []
    await progress(load, 1)
    await load.stop()
    assert load.problems() == []
    assert "Traceback" not in broker.log, broker.log[-8000:]
    report = {queue: dict(history.counts) for queue, history in load.histories.items()}
    print(report)
    # Locks of connections that were closed politely would last; those of a broker that is gone do not.
    broker.kill()
    broker.start()
    await asyncio.to_thread(judge, broker, load.histories, kills)


def unknown(load: Load, what: str) -> int:
    """Of how many of them nobody knows what became of them."""
    return sum(history.counts[f"{what} unknown"] for history in load.histories.values())


async def killed_at_a_random_moment(broker: BrokerProcess, load: Load, random: Random) -> None:
    """Kill the broker under load, sometimes also while it starts again, and leave it running."""
    await progress(load, random.randrange(1, 250))
    await asyncio.sleep(random.uniform(0, 0.2))
    await asyncio.to_thread(broker.kill)
    if random.random() < 0.25:
        starting = asyncio.create_task(asyncio.to_thread(broker.start))
        await asyncio.sleep(random.uniform(0.1, 0.8))
        if broker.process is not None:
            broker.process.kill()
        with suppress(AssertionError):  # It could not become ready.
            await starting
        broker.kill()
    await asyncio.to_thread(broker.start)


async def progress(load: Load, amount: int) -> None:
    """Wait until the broker has answered so often again."""
    goal, deadline = load.progress + amount, time.monotonic() + STALL_S
    while load.progress < goal:
        assert time.monotonic() < deadline, f"the broker answers nothing any more: {load.problems()}"
        await asyncio.sleep(0.005)


def judge(broker: BrokerProcess, histories: dict[str, History], kills: int) -> None:
    found = look_at_all(broker, [*PLAIN, "deduplicated", "batched", "deleting"], "sessions", SESSIONS)
    forgive_deletions(histories["deleting"], found["deleting"], kills)
    assert [problem for queue in histories for problem in histories[queue].judge(found[queue])] == []
    judge_batches(histories["batched"], found["batched"])


def judge_batches(history: History, found: dict[Place, list[str]]) -> None:
    """Of each batch, all messages were stored or none."""
    stored = {message_id for ids in found.values() for message_id in ids} | history.seen()
    for first in range(0, history.counts["attempted"], BATCH):
        batch = {f"batched:{number}" for number in range(first, first + BATCH)}
        certain = batch & stored
        assert certain in (set(), batch), f"only {sorted(certain)} of a batch were stored"


def forgive_deletions(history: History, found: dict[Place, list[str]], kills: int) -> None:
    """What was handed out and not seen is lost by design: at most what was on its way at each kill."""
    lost = history.surely_in_queue() - set(found[Place.QUEUE])
    assert len(lost) <= 2 * DELETING_CREDIT * kills
    for message_id in lost:
        history.deleted(message_id)


async def test_a_lock_ends_with_the_broker_and_its_delivery_counts(broker: BrokerProcess) -> None:
    broker.start()
    async with connect(broker.connection_string()) as connection:
        sender = await connection.sender("plain-0")
        await sender.send([message(f"m{n}") for n in range(3)])
    for kills in range(3):
        async with connect(broker.connection_string()) as connection:
            receiver = await connection.receiver("plain-0", credit=3)
            seen = []
            while len(seen) < 3:
                received = await receiver.receive(3, timeout_s=30)
                assert received
                seen += [read(each.payload) for each in received]
            assert [(each.message_id, each.delivery_count) for each in seen] == [
                ("m0", kills),
                ("m1", kills),
                ("m2", kills),
            ]
            broker.kill()
            await noticed(connection)
        broker.start()
    assert broker.count("plain-0") == 3
