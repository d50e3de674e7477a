"""Receiving with the official client: both modes, competing receivers, prefetch, waiting, and giving back.

Settling is in `test_python_settle`, what ends a lock early in `test_python_lock_lost`.
"""

from __future__ import annotations

import asyncio
import datetime
import time

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessagingEntityDisabledError

from support.broker import SOON_S, BrokerProcess, NewQueue
from support.gateways import LATER_S
from support.sdk import Bus, both, nothing_comes, receive, receive_one, receiving, together

MOVABLE_CLOCK = True
DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE
SECOND = datetime.timedelta(seconds=1)


@pytest.mark.feature("receive-and-delete")
@both
async def test_receive_and_delete_removes_the_message(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    await bus.put(queue, "one", "two")
    async with bus.receiver(queue, receive_mode=DELETE) as receiver:
        (message,) = await receive(receiver, 1)
        assert str(message) == "one"
        assert broker.count(queue) == 1
        with pytest.raises(ValueError, match="not supported"):
            await receiver.complete_message(message)
        assert [str(message) for message in await receive(receiver, 1)] == ["two"]
    assert broker.queue(queue)["MessageCount"] == "0"


@pytest.mark.feature("peek-lock")
@both
async def test_a_locked_message_is_hidden_until_it_is_abandoned(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    await bus.put(queue, "m")
    async with together(bus.receiver(queue), bus.receiver(queue)) as (one, other):
        before = broker.now()
        message = await receive_one(one)
        assert before <= message.locked_until_utc - 30 * SECOND <= broker.now(), "the default lock duration is 30 s"
        assert await nothing_comes(other)
        await one.abandon_message(message)
        again = await receive_one(other)
        assert again.delivery_count == 1
        assert again.sequence_number == message.sequence_number
        await other.complete_message(again)


@pytest.mark.gateways
@pytest.mark.feature("competing-receivers")
@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode), ids=lambda mode: mode.name.lower())
@both
async def test_competing_receivers_never_get_the_same_message(
    bus: Bus, new_queue: NewQueue, mode: ServiceBusReceiveMode
) -> None:
    queue = new_queue()
    async with bus.sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(60)])
    taken: list[str] = []

    async def take() -> None:
        async with bus.receiver(queue, receive_mode=mode) as receiver:
            while len(taken) < 60:
                for message in await receiver.receive_messages(max_message_count=5, max_wait_time=1):
                    taken.append(str(message))
                    if mode is ServiceBusReceiveMode.PEEK_LOCK:
                        await receiver.complete_message(message)

    await asyncio.gather(*[take() for _ in range(4)])
    assert sorted(taken, key=int) == [str(number) for number in range(60)]


@pytest.mark.feature("prefetch")
@both
async def test_prefetched_messages_are_there_without_another_wait(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    async with bus.sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(30)])
    async with bus.receiver(queue, prefetch_count=20) as receiver:
        received = []
        while len(received) < 30:
            batch = await receiver.receive_messages(max_message_count=10, max_wait_time=SOON_S)
            assert batch, f"only {len(received)} messages came"
            received += batch
            for message in batch:
                await receiver.complete_message(message)
    assert [str(message) for message in received] == [str(number) for number in range(30)]
    assert all(message.delivery_count == 0 for message in received)
    assert broker.queue(queue)["MessageCount"] == "0"


@pytest.mark.feature("receive")
@both
async def test_an_empty_receive_returns_after_max_wait_time(bus: Bus, new_queue: NewQueue) -> None:
    async with bus.receiver(new_queue()) as receiver:
        began = time.monotonic()
        assert await receiver.receive_messages(max_wait_time=1) == []
        assert time.monotonic() - began > 0.9


@pytest.mark.gateways
@pytest.mark.feature("receive")
@both
async def test_a_waiting_receiver_gets_a_message_as_soon_as_it_is_sent(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with together(bus.receiver(queue), bus.sender(queue)) as (receiver, sender):
        waiting = asyncio.create_task(receive_one(receiver))
        await receiving(receiver)
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await sender.send_messages(ServiceBusMessage("m"))
        await receiver.complete_message(await waiting)


@pytest.mark.feature("receive")
@both
async def test_the_iterator_ends_when_nothing_came_for_max_wait_time(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    await bus.put(queue, "one", "two", "three")
    bodies = []
    async with bus.receiver(queue, max_wait_time=5) as receiver:
        async for message in receiver:
            bodies.append(str(message))
            await receiver.complete_message(message)
    assert bodies == ["one", "two", "three"]


@pytest.mark.feature("release")
@both
async def test_closing_a_receiver_gives_its_buffer_back_without_counting(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with bus.sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
    async with bus.receiver(queue, prefetch_count=15) as receiver:
        first = await receive_one(receiver)
        await receiver.complete_message(first)
    await bus.closed()
    async with bus.receiver(queue) as receiver:
        received = await receive(receiver, 19)
        for message in received:
            await receiver.complete_message(message)
    assert sorted(int(str(message)) for message in received) == list(range(1, 20))
    assert {message.delivery_count for message in received} == {0}


async def credit_left_from_an_earlier_call(bus: Bus, new_queue: NewQueue) -> None:
    """The first receiver has asked for ten and got none; what it does not take goes to the second."""
    queue = new_queue()
    async with together(bus.receiver(queue), bus.receiver(queue)) as (idle, busy):
        assert await idle.receive_messages(max_message_count=10, max_wait_time=0.5) == []
        await bus.put(queue, "m")
        message = await receive_one(busy)
        assert message.delivery_count == 0
        await busy.complete_message(message)


async def lock_that_expires(bus: Bus, new_queue: NewQueue) -> None:
    """It returns the message to the front of the queue, and counts."""
    queue = new_queue(LockDuration=f"PT{LATER_S}S")
    await bus.put(queue, "first", "second")
    async with bus.receiver(queue) as receiver:
        first = await receive_one(receiver)
        second = await receive_one(receiver)
        assert str(second) == "second", "the first is locked"
        await receiver.abandon_message(second)
        await bus.pass_time(LATER_S + 0.1)
        message = await receive_one(receiver)
        assert (str(message), message.delivery_count) == ("first", 1)
        assert message.sequence_number == first.sequence_number
        assert message.lock_token != first.lock_token
        await receiver.complete_message(message)


@pytest.mark.feature("lock-expiry")
@both
async def test_what_a_receiver_neither_takes_nor_settles_comes_back(bus: Bus, new_queue: NewQueue) -> None:
    await credit_left_from_an_earlier_call(bus, new_queue)
    await lock_that_expires(bus, new_queue)


@pytest.mark.gateways
@pytest.mark.feature("max-delivery-count")
@both
async def test_a_message_delivered_too_often_is_dead_lettered(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue(MaxDeliveryCount=2)
    await bus.send(queue, ServiceBusMessage("poison", message_id="p", application_properties={"kept": 1}))
    async with bus.receiver(queue) as receiver:
        for count in (0, 1):
            message = await receive_one(receiver)
            assert message.delivery_count == count
            await receiver.abandon_message(message)
        assert await nothing_comes(receiver)
    assert broker.count(queue) == 0
    assert broker.count(queue, "DeadLetterMessageCount") == 1
    async with bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = await receive_one(receiver)
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert message.dead_letter_error_description
        assert message.message_id == "p"
        assert message.application_properties[b"kept"] == 1
        await receiver.complete_message(message)
    assert broker.queue(queue)["MessageCount"] == "0"


@pytest.mark.feature("dead-letter-queue")
@both
async def test_the_dead_letter_queue_is_a_queue_of_its_own(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(MaxDeliveryCount=1)
    await bus.put(queue, "one", "two", "three")
    async with bus.receiver(queue) as receiver:
        for message in await receive(receiver, 3):
            await receiver.dead_letter_message(message, reason="no", error_description="not wanted")
    async with bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        peeked = await dead.peek_messages(max_message_count=10)
        assert [str(message) for message in peeked] == ["one", "two", "three"]
        # There is nowhere to go from here: abandoning more often than MaxDeliveryCount keeps the message.
        for count in range(3):
            message = await receive_one(dead)
            assert (str(message), message.delivery_count) == ("one", peeked[0].delivery_count + count)
            await dead.abandon_message(message)
        one, two, three = await receive(dead, 3)
        await dead.defer_message(one)
        await dead.complete_message(two)
        (deferred,) = await dead.receive_deferred_messages(one.sequence_number)
        await dead.complete_message(deferred)
        renewed = await dead.renew_message_lock(three)
        assert renewed >= three.locked_until_utc
        await dead.complete_message(three)
        assert await dead.peek_messages() == []


@pytest.mark.feature("dead-letter-queue")
@both
async def test_receive_and_delete_from_the_dead_letter_queue(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    await bus.put(queue, "m")
    async with bus.receiver(queue) as receiver:
        await receiver.dead_letter_message(await receive_one(receiver))
    options = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER, "receive_mode": DELETE}
    async with bus.receiver(queue, **options) as dead:
        assert str(await receive_one(dead)) == "m"
        assert await nothing_comes(dead)


@pytest.mark.feature("entity-status")
@both
async def test_a_queue_disabled_for_receiving_refuses_receivers_and_goes_on_taking_messages(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    await bus.put(queue, "before")
    async with bus.client(retry_total=0) as client:
        early, late = client.get_queue_receiver(queue), client.get_queue_receiver(queue)
        message = await receive_one(early)
        broker.update_queue(queue, Status="ReceiveDisabled")
        await bus.put(queue, "while disabled")
        for receiver in (early, late):
            with pytest.raises(MessagingEntityDisabledError):
                await receiver.receive_messages(max_wait_time=SOON_S)
        broker.update_queue(queue, Status="Active")
        again = await receive(late, 2)
        assert sorted((str(one), one.delivery_count) for one in again) == [("before", 1), ("while disabled", 0)]
        for one in again:
            await late.complete_message(one)
        assert str(message) == "before"
        await asyncio.gather(early.close(), late.close())
