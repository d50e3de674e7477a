"""What a restart and a kill of the broker leave, as the official client sees it: everything but the locks.

A part of a test is a generator that prepares, lets the broker end and come back, and looks. All parts share one end.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import AsyncIterator, Callable

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageLockLostError

from support.broker import BrokerProcess, NewQueue
from support.gateways import ON_POSTGRES
from support.sdk import Bus, both, forget_expiry, receive, receive_one

Part = Callable[[Bus, NewQueue, BrokerProcess], AsyncIterator[None]]

# On PostgreSQL the locks of a killed gateway are rows: they last until they expire.
LOCK = "PT5S" if ON_POSTGRES else "PT5M"
LATE = "complete_message", "dead_letter_message", "abandon_message", "defer_message", "renew_message_lock"


async def locks_are_lost(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> AsyncIterator[None]:
    """The messages are there with a delivery counted, and every decision with an old token comes too late."""
    queue = new_queue(LockDuration=LOCK)
    await bus.put(queue, *[str(number) for number in range(len(LATE))])
    async with bus.receiver(queue) as receiver:
        old = await receive(receiver, len(LATE))
        yield
        async with bus.receiver(queue) as other:
            newer = await receive(other, len(LATE))
            assert sorted(int(str(message)) for message in newer) == list(range(len(LATE)))
            assert {message.delivery_count for message in newer} == {1}
            for method, message in zip(LATE, old, strict=True):
                forget_expiry(message)
                with pytest.raises(MessageLockLostError):
                    await getattr(receiver, method)(message)
            for message in newer:
                await other.complete_message(message)
    assert broker.queue(queue)["MessageCount"] == "0"
    assert broker.count(queue, "DeadLetterMessageCount") == 0


async def messages_are_kept(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> AsyncIterator[None]:
    """Active, deferred, scheduled and dead-lettered ones; completed ones stay away, and numbers go on."""
    queue = new_queue()
    due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)
    await bus.put(queue, "done", "deferred", "dead", "active")
    async with bus.receiver(queue) as receiver:
        done, deferred, dead = await receive(receiver, 3)
        await receiver.complete_message(done)
        await receiver.defer_message(deferred)
        await receiver.dead_letter_message(dead, reason="the reason")
    await bus.send(queue, ServiceBusMessage("scheduled", scheduled_enqueue_time_utc=due))
    yield
    await bus.put(queue, "new")
    async with bus.receiver(queue) as receiver:
        peeked = await receiver.peek_messages(max_message_count=10)
        states = {str(message): message.state for message in peeked}
        assert states == {
            "deferred": ServiceBusMessageState.DEFERRED,
            "active": ServiceBusMessageState.ACTIVE,
            "scheduled": ServiceBusMessageState.SCHEDULED,
            "new": ServiceBusMessageState.ACTIVE,
        }
        assert [message.sequence_number for message in peeked] == [2, 4, 5, 6]
        received = await receive(receiver, 2)
        assert [(str(message), message.delivery_count) for message in received] == [("active", 0), ("new", 0)]
        received += await receiver.receive_deferred_messages(deferred.sequence_number)
        for message in received:
            await receiver.complete_message(message)
    async with bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = await receive_one(receiver)
        assert (str(message), message.dead_letter_reason) == ("dead", "the reason")
        await receiver.complete_message(message)


async def ids_are_remembered(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> AsyncIterator[None]:
    """A second message with the same id is dropped after it too."""
    queue = new_queue(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT1M")
    await bus.send(queue, ServiceBusMessage("first", message_id="a"))
    yield
    await bus.send(queue, ServiceBusMessage("second", message_id="a"))
    assert broker.count(queue) == 1


async def session_state_is_kept(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> AsyncIterator[None]:
    """And the session is free, although its holder never let go of it."""
    queue = new_queue(RequiresSession=True, LockDuration=LOCK)
    async with bus.receiver(queue, session_id="s") as receiver:
        await receiver.session.set_state("kept")
        yield
        async with bus.receiver(queue, session_id="s") as other:
            assert await other.session.get_state() == b"kept"


PARTS: tuple[Part, ...] = locks_are_lost, messages_are_kept, ids_are_remembered, session_state_is_kept


@pytest.mark.feature("durability")
@pytest.mark.parametrize("how", ["restart", "kill"])
@both
async def test_what_the_end_of_the_broker_leaves(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess, how: str
) -> None:
    def kill_and_start() -> None:
        broker.kill()
        broker.start()
        if ON_POSTGRES:
            time.sleep(5)

    parts = [part(bus, new_queue, broker) for part in PARTS]
    await asyncio.gather(*[anext(part) for part in parts])
    await bus.once(broker.restart if how == "restart" else kill_and_start)
    finished = await asyncio.gather(*[anext(part, None) for part in parts])
    assert finished == [None] * len(parts)
