"""A messaging store is lost under load, in each way that it can be, and returns: nothing accepted is missing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from faults.disk import BROKEN, FULL, HANGING
from faults.faulty import STALL_S, FaultyBroker
from faults.history import Place
from faults.load import Load, body_of, message
from faults.remains import look, look_at_all
from support.repetition import times
from twinbus.client import ClientError, connect

PATIENT = 'LockDuration = "PT5M"\nMaxDeliveryCount = 100000\n'
PLAIN = [f"plain-{n}" for n in range(4)]
SESSIONS = ["a", "b", "c"]
CONFIG = (
    "".join(f'[[queues]]\nName = "{name}"\n{PATIENT}' for name in PLAIN)
    + f'[[queues]]\nName = "sessions"\nRequiresSession = true\n{PATIENT}'
)
LOST = 0
TIMES = times(2, 8)
# Locks are lost with their store, so that settling can fail for this reason alone.
FORGIVEN = ("message-lock-lost", "session-lock-lost")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FaultyBroker]:
    process = FaultyBroker(tmp_path, namespace="faults", config=CONFIG, options=("--stores", "2"), log_level="warning")
    try:
        yield process.start()
    finally:
        process.kill()


def taken_down(broker: FaultyBroker, pause_s: float) -> None:
    broker.down(LOST)
    time.sleep(pause_s)
    broker.up(LOST)


def broken(broker: FaultyBroker, pause_s: float) -> None:
    with broker.fault(LOST, BROKEN):
        broker.until(LOST, "failed")
        time.sleep(pause_s)
    broker.up(LOST)


def hanging(broker: FaultyBroker, pause_s: float) -> None:
    with broker.fault(LOST, HANGING):
        broker.until(LOST, "hanging")
        time.sleep(pause_s)
    broker.until(LOST, "up")


def full(broker: FaultyBroker, pause_s: float) -> None:
    with broker.fault(LOST, FULL):
        broker.until(LOST, "full")
        time.sleep(pause_s)
    broker.until(LOST, "up")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("lose", [taken_down, broken, hanging, full])
async def test_nothing_accepted_is_missing(
    broker: FaultyBroker, random: Random, lose: Callable[[FaultyBroker, float], None]
) -> None:
    load = Load(broker.connection_string(), random)
    for queue in PLAIN:
        if lose is full:
            # Locks are lost then, but no link. Of two receivers, one may read late what the other had after it.
            load.batched(queue)
        else:
            load.plain(queue)
    load.sessions("sessions", SESSIONS)
    unlost = {f"plain-{number}" for number in (1, 3)}  # On the other store.
    for _ in range(TIMES):
        await progress(load, random.randrange(100, 600))
        served = served_by(load, unlost)
        await asyncio.to_thread(lose, broker, random.uniform(0, 0.3))
        assert served_by(load, unlost) > served
        assert problems(load) == []
    await progress(load, 500)
    await load.stop()
    assert problems(load) == []
    assert "Traceback" not in broker.log, broker.log[-8000:]
    print({queue: dict(history.counts) for queue, history in load.histories.items()})
    refused = Counter[str]()
    for queue, history in load.histories.items():
        lost = history.counts["sends unknown"] + history.counts["sends refused"]
        refused["unlost" if queue in unlost else "lost"] += lost
    assert refused["lost"] > 0
    assert refused["unlost"] == 0
    await asyncio.to_thread(broker.restart)  # Locks of connections that were closed politely would last.
    found = await asyncio.to_thread(look_at_all, broker, PLAIN, "sessions", SESSIONS)
    judged = [problem for queue in found for problem in load.histories[queue].judge(found[queue])]
    assert [problem for problem in judged if not any(word in problem for word in FORGIVEN)] == []


def served_by(load: Load, queues: set[str]) -> int:
    return sum(load.histories[queue].counts["acknowledged"] for queue in queues)


def problems(load: Load) -> list[str]:
    return [problem for problem in load.problems() if not any(word in problem for word in FORGIVEN)]


async def progress(load: Load, amount: int) -> None:
    goal = load.progress + amount
    async with asyncio.timeout(20):
        while load.progress < goal:
            await asyncio.sleep(0.005)


@pytest.mark.timeout(90)
async def test_an_application_with_the_official_client_that_tries_again_loses_nothing(broker: FaultyBroker) -> None:
    """Each message is sent until it is accepted, and worked on until it could be completed."""
    accepted: set[str] = set()
    done: set[str] = set()
    unknown: set[str] = set()  # Completions that were not answered; the message may come again, or not.
    stopping = asyncio.Event()

    async def persist(work: Callable[[ServiceBusClient], Awaitable[None]]) -> None:
        while not stopping.is_set():
            client = ServiceBusClient.from_connection_string(
                broker.connection_string(), retry_total=1, retry_backoff_factor=0.05
            )
            try:
                async with client:
                    await work(client)
            except ServiceBusError:
                await asyncio.sleep(0.05)

    async def send(client: ServiceBusClient) -> None:
        async with client.get_queue_sender("plain-0") as sender:
            while not stopping.is_set():
                message_id = f"m{len(accepted)}"
                await sender.send_messages(ServiceBusMessage(body_of(message_id), message_id=message_id))
                accepted.add(message_id)

    async def receive(client: ServiceBusClient) -> None:
        async with client.get_queue_receiver("plain-0") as receiver:
            while not stopping.is_set():
                for received in await receiver.receive_messages(max_message_count=10, max_wait_time=1):
                    unknown.add(str(received.message_id))
                    await receiver.complete_message(received)
                    done.add(str(received.message_id))

    tasks = [asyncio.create_task(persist(work)) for work in (send, receive)]
    for lose in (taken_down, hanging, broken):
        before = len(done)
        async with asyncio.timeout(20):
            while len(done) < before + 50:
                await asyncio.sleep(0.02)
        await asyncio.to_thread(lose, broker, 0.1)
    async with asyncio.timeout(20):
        before = len(done)
        while len(done) < before + 50:
            await asyncio.sleep(0.02)
        stopping.set()
        await asyncio.gather(*tasks)
    await asyncio.to_thread(broker.restart)  # Whatever is still locked is free then.
    left = await asyncio.to_thread(look, broker, "plain-0")
    print(f"{len(accepted)} accepted, {len(done)} completed, {len(unknown - done)} unknown, {left} left")
    assert accepted - done - unknown - set(left[Place.QUEUE]) == set()
    assert done & set(left[Place.QUEUE]) == set()


async def test_sends_to_other_entities_are_settled_while_one_store_does_not_answer(broker: FaultyBroker) -> None:
    async with connect(broker.connection_string()) as connection:
        slow, quick = await connection.sender("plain-0"), await connection.sender("plain-1")
        with broker.fault(LOST, HANGING):
            began = time.monotonic()
            waiting = asyncio.create_task(slow.send([message("waits")]))
            for number in range(20):
                await quick.send([message(f"overtakes {number}")])
            assert time.monotonic() - began < STALL_S
            assert not waiting.done()
            with pytest.raises(ClientError) as unknown:
                await waiting
            assert unknown.value.transient
            assert not unknown.value.definite
        await asyncio.to_thread(broker.until, LOST, "up")


async def test_a_broker_whose_disk_hangs_can_be_stopped(broker: FaultyBroker) -> None:
    with broker.fault(LOST, HANGING):
        async with connect(broker.connection_string()) as connection:
            sender = await connection.sender("plain-0")
            with pytest.raises(ClientError):
                await sender.send([message("lost")])
        began = time.monotonic()
        assert await asyncio.to_thread(broker.stop, 10) == 0
        assert time.monotonic() - began < 6
