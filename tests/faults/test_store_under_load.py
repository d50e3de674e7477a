"""A messaging store is lost under load, in each way that it can be, and returns: nothing accepted is missing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from faults.disk import BROKEN, FULL, HANGING
from faults.faulty import FaultyBroker
from faults.history import Place
from faults.load import Load, body_of, message
from faults.remains import look, look_at_all
from support.repetition import times
from twinbus.client import ClientError, connect

PATIENT = 'LockDuration = "PT5M"\nMaxDeliveryCount = 100000\n'
PLAIN = [f"plain-{n}" for n in range(4)]
SESSIONS = ["a", "b", "c"]
BESIDE = "beside"
CONFIG = (
    "".join(f'[[queues]]\nName = "{name}"\n{PATIENT}' for name in PLAIN)
    + f'[[queues]]\nName = "sessions"\nRequiresSession = true\n{PATIENT}'
    + f'[[queues]]\nName = "{BESIDE}"\n'  # The second store has every other queue.
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


Meanwhile = Callable[[], object]  # What happens while the store is lost.


def taken_down(broker: FaultyBroker, meanwhile: Meanwhile) -> None:
    broker.down(LOST)
    meanwhile()
    broker.up(LOST)


def broken(broker: FaultyBroker, meanwhile: Meanwhile) -> None:
    with broker.fault(LOST, BROKEN):
        broker.until(LOST, "failed")
        meanwhile()
    broker.up(LOST)


def hanging(broker: FaultyBroker, meanwhile: Meanwhile) -> None:
    with broker.fault(LOST, HANGING):
        broker.until(LOST, "hanging")
        meanwhile()
    broker.until(LOST, "up")


def full(broker: FaultyBroker, meanwhile: Meanwhile) -> None:
    with broker.fault(LOST, FULL):
        broker.until(LOST, "full")
        meanwhile()
    broker.until(LOST, "up")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("lose", [taken_down, broken, hanging, full])
async def test_nothing_accepted_is_missing(
    broker: FaultyBroker, random: Random, lose: Callable[[FaultyBroker, Meanwhile], None]
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

    def others_are_served() -> None:
        asyncio.run(send_beside(broker))
        time.sleep(random.uniform(0, 0.3))

    losses = 0
    while losses < TIMES or not not_sent(load, set(PLAIN) - unlost):  # A sender may have been resting.
        await progress(load, random.randrange(100, 600))
        await asyncio.to_thread(lose, broker, others_are_served)
        losses += 1
        assert problems(load) == []
    await progress(load, 500)
    await load.stop()
    assert problems(load) == []
    assert "Traceback" not in broker.log, broker.log[-8000:]
    print({queue: dict(history.counts) for queue, history in load.histories.items()})
    assert not_sent(load, unlost) == 0
    await asyncio.to_thread(broker.restart)  # Locks of connections that were closed politely would last.
    found = await asyncio.to_thread(look_at_all, broker, PLAIN, "sessions", SESSIONS)
    judged = [problem for queue in found for problem in load.histories[queue].judge(found[queue])]
    assert [problem for problem in judged if not any(word in problem for word in FORGIVEN)] == []


async def send_beside(broker: FaultyBroker) -> None:
    """To a queue on the other store of which the load knows nothing."""
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(BESIDE)).send([message("served")])


def not_sent(load: Load, queues: set[str]) -> int:
    counts = [load.histories[queue].counts for queue in queues]
    return sum(count["sends unknown"] + count["sends refused"] for count in counts)


def problems(load: Load) -> list[str]:
    return [problem for problem in load.problems() if not any(word in problem for word in FORGIVEN)]


async def progress(load: Load, amount: int) -> None:
    goal = load.progress + amount
    async with asyncio.timeout(60):
        while load.progress < goal:
            await asyncio.sleep(0.005)


@pytest.mark.timeout(300)
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
        async with asyncio.timeout(60):
            while len(done) < before + 50:
                await asyncio.sleep(0.02)
        await asyncio.to_thread(lose, broker, lambda: time.sleep(0.1))
    async with asyncio.timeout(60):
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
            waiting = asyncio.create_task(slow.send([message("waits")]))
            for number in range(5):
                await quick.send([message(f"overtakes {number}")])
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
        assert await asyncio.to_thread(broker.stop) == 0  # Its disk does not answer before this is over.
