"""Time to live and duplicate detection, with the official client: what the broker does without being asked.

Lock expiry is in `test_python_receive` and `test_python_lock_lost`.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from support.broker import BrokerProcess, NewQueue
from support.gateways import LATER_S
from support.sdk import Bus, both, nothing_comes, receive, receive_one, together, until

DEAD = ServiceBusSubQueue.DEAD_LETTER
MOVABLE_CLOCK = True
LATER = datetime.timedelta(seconds=LATER_S)


async def expires_without_any_receiver(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> AsyncIterator[None]:
    """Four queues wait for the same time: with and without dead-lettering, by message and by queue."""
    by_message, dropped = new_queue(DeadLetteringOnMessageExpiration=True), new_queue()
    by_queue = new_queue(DefaultMessageTimeToLive=f"PT{LATER_S}S", DeadLetteringOnMessageExpiration=True)
    lowered = new_queue(DefaultMessageTimeToLive=f"PT{LATER_S}S", DeadLetteringOnMessageExpiration=True)
    for queue in (by_message, dropped):
        await bus.send(queue, ServiceBusMessage("short", message_id="id", time_to_live=LATER))
        await bus.put(queue, "long")
    await bus.put(by_queue, "short")
    await bus.send(lowered, ServiceBusMessage("m", time_to_live=datetime.timedelta(hours=1)))
    yield
    await until(lambda: broker.count(by_message, "DeadLetterMessageCount") == 1, "dead-lettering")
    await until(lambda: broker.count(dropped) == 1, "expiry")
    for queue in (by_queue, lowered):
        await until(lambda queue=queue: broker.count(queue, "DeadLetterMessageCount") == 1, "expiry")
    assert broker.count(by_message) == 1
    assert broker.count(dropped, "DeadLetterMessageCount") == 0
    async with together(bus.receiver(by_message, sub_queue=DEAD), bus.receiver(by_message)) as (dead, receiver):
        message = await receive_one(dead)
        assert message.dead_letter_reason == "TTLExpiredException"
        assert (str(message), message.message_id) == ("short", "id")
        assert message.time_to_live == LATER
        await dead.complete_message(message)
        message = await receive_one(receiver)
        assert str(message) == "long"
        await receiver.complete_message(message)


async def is_not_expired_under_its_holder(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> AsyncIterator[None]:
    queue = new_queue(DeadLetteringOnMessageExpiration=True, LockDuration="PT5M")
    async with together(bus.sender(queue), bus.receiver(queue)) as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(body, time_to_live=LATER) for body in ("done", "given back")])
        done, given_back = await receive(receiver, 2)
        yield
        assert broker.count(queue, "DeadLetterMessageCount") == 0
        await receiver.complete_message(done)
        await receiver.abandon_message(given_back)
        assert await nothing_comes(receiver)
    await until(lambda: broker.count(queue, "DeadLetterMessageCount") == 1, "dead-lettering")


async def begins_when_a_scheduled_message_becomes_visible(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> AsyncIterator[None]:
    """Counted from when it was sent, it would be over before that."""
    queue = new_queue()
    message = ServiceBusMessage("m", time_to_live=LATER * 2 / 3, scheduled_enqueue_time_utc=broker.now() + LATER)
    await bus.send(queue, message)
    yield
    async with bus.receiver(queue) as receiver:
        received = await receive_one(receiver)
        assert received.expires_at_utc == received.enqueued_time_utc + LATER * 2 / 3
        await receiver.complete_message(received)


@pytest.mark.feature("time-to-live")
@both
async def test_time_to_live(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    prepare = (
        expires_without_any_receiver,
        is_not_expired_under_its_holder,
        begins_when_a_scheduled_message_becomes_visible,
    )
    parts = [part(bus, new_queue, broker) for part in prepare]
    await asyncio.gather(*[anext(part) for part in parts])
    await bus.pass_time(LATER_S + 0.1)
    assert await asyncio.gather(*[anext(part, None) for part in parts]) == [None] * len(parts)


@pytest.mark.feature("duplicate-detection")
@both
async def test_a_second_message_with_the_same_id_is_accepted_and_dropped(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT1H")
    later = broker.now() + datetime.timedelta(minutes=1)
    async with together(bus.sender(queue), bus.receiver(queue)) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("first", message_id="a"))
        await sender.send_messages(ServiceBusMessage("second", message_id="a"))
        await sender.send_messages(
            [
                ServiceBusMessage("third", message_id="a"),
                ServiceBusMessage("other", message_id="b"),
                ServiceBusMessage("again", message_id="b"),
            ]
        )
        received = await receive(receiver, 2)
        assert [str(message) for message in received] == ["first", "other"]
        for message in received:
            await receiver.complete_message(message)
        # The id is remembered although the message is gone, and for scheduled messages too.
        await sender.send_messages(ServiceBusMessage("late", message_id="a"))
        await sender.schedule_messages(ServiceBusMessage("scheduled", message_id="b"), later)
        assert await nothing_comes(receiver)
    assert broker.queue(queue)["MessageCount"] == "0"


@pytest.mark.feature("duplicate-detection")
@both
async def test_without_duplicate_detection_the_same_id_is_stored_twice(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    await bus.send(queue, ServiceBusMessage("1", message_id="a"), ServiceBusMessage("2", message_id="a"))
    assert broker.count(queue) == 2
