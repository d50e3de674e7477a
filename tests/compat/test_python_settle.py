"""Settling with the official client: over the link, through `$management`, from another connection, and renewing.

Deferred messages are in `test_python_deferred`; locks that are gone, in `test_python_lock_lost`.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.exceptions import MessageAlreadySettled

from support.broker import BrokerProcess, NewQueue
from support.sdk import Bus, bare, both, detach_link, nothing_comes, receive, receive_one, together

DEAD = ServiceBusSubQueue.DEAD_LETTER
# The client's own renewer renews when ten seconds are left: so much may go wrong on a busy machine.
LOCK_S = 12


@pytest.mark.gateways
@pytest.mark.feature("complete")
@both
async def test_complete_removes_the_message_for_good(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    await bus.put(queue, "m")
    async with bus.receiver(queue) as receiver:
        message = await receive_one(receiver)
        await receiver.complete_message(message)
        assert broker.queue(queue)["MessageCount"] == "0"
        assert await receiver.peek_messages() == []
        with pytest.raises(MessageAlreadySettled):
            await receiver.complete_message(message)


@pytest.mark.gateways
@pytest.mark.feature("abandon")
@both
async def test_abandon_counts_and_returns_the_message_at_once(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(LockDuration="PT5M")
    await bus.put(queue, "m")
    async with bus.receiver(queue) as receiver:
        for count in range(3):
            message = await receive_one(receiver)
            assert message.delivery_count == count
            await receiver.abandon_message(message)


@pytest.mark.gateways
@pytest.mark.feature("dead-letter")
@both
async def test_dead_letter_carries_reason_and_description(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    await bus.put(queue, "with", "without")
    async with bus.receiver(queue) as receiver:
        one, two = await receive(receiver, 2)
        await receiver.dead_letter_message(one, reason="the reason", error_description="the description")
        await receiver.dead_letter_message(two)
        assert await receiver.peek_messages() == []
    async with bus.receiver(queue, sub_queue=DEAD) as dead:
        one, two = await receive(dead, 2)
        assert (one.dead_letter_reason, one.dead_letter_error_description) == ("the reason", "the description")
        assert one.application_properties == {
            b"DeadLetterReason": b"the reason",
            b"DeadLetterErrorDescription": b"the description",
        }
        assert two.dead_letter_reason in (None, "")
        for message in (one, two):
            await dead.complete_message(message)


@pytest.mark.gateways
@pytest.mark.feature("defer")
@both
async def test_defer_sets_the_message_aside(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    await bus.put(queue, "m")
    async with bus.receiver(queue) as receiver:
        message = await receive_one(receiver)
        await receiver.defer_message(message)
        assert await nothing_comes(receiver)
        (deferred,) = await receiver.receive_deferred_messages(message.sequence_number)
        assert str(deferred) == "m"
        await receiver.complete_message(deferred)


OUTCOMES = {
    "complete": ("complete_message", "MessageCount", "0"),
    "abandon": ("abandon_message", "ActiveMessageCount", "1"),
    "defer": ("defer_message", "MessageCount", "1"),
    "dead-letter": ("dead_letter_message", "DeadLetterMessageCount", "1"),
}


async def settled_elsewhere(bus: Bus, queue: str, broker: BrokerProcess, outcome: str) -> None:
    method, count, expected = OUTCOMES[outcome]
    await bus.put(queue, "m")
    async with together(bus.receiver(queue), bus.receiver(queue)) as (one, other):
        message = await receive_one(one)
        await getattr(other, method)(message)
        assert broker.queue(queue)[count] == expected
        if outcome == "abandon":
            again = await receive_one(other)
            assert again.delivery_count == 1
            await other.complete_message(again)
        else:
            assert await nothing_comes(one)


@pytest.mark.feature("settle-through-management")
@both
async def test_a_message_received_elsewhere_is_settled_by_its_token(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    await asyncio.gather(*[settled_elsewhere(bus, new_queue(), broker, outcome) for outcome in OUTCOMES])


@pytest.mark.gateways
@pytest.mark.feature("settle-through-management")
@both
async def test_a_detached_link_keeps_its_locks_and_its_messages_are_settled_through_management(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    await bus.put(queue, "one", "two", "three")
    async with together(bus.receiver(queue), bus.receiver(queue)) as (receiver, other):
        one, two, three = await receive(receiver, 3)
        await detach_link(receiver)
        assert await nothing_comes(other), "a detached link must not release its locks"
        await receiver.complete_message(one)
        await receiver.dead_letter_message(two, reason="r")
        await receiver.abandon_message(three)
        again = await receive_one(other)
        assert (str(again), again.delivery_count) == ("three", 1)
        await other.complete_message(again)
    assert broker.count(queue) == 0
    assert broker.count(queue, "DeadLetterMessageCount") == 1


@pytest.mark.feature("settle-through-management")
@both
async def test_a_connection_closed_politely_keeps_its_locks(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    await bus.put(queue, "one", "two")
    async with bus.receiver(queue) as receiver:
        one, two = await receive(receiver, 2)
    await bus.closed()
    async with bus.receiver(queue) as other:
        assert await nothing_comes(other)
        await other.complete_message(one)
        await other.abandon_message(two)
        again = await receive_one(other)
        assert (str(again), again.delivery_count) == ("two", 1)
        await other.complete_message(again)
    assert broker.queue(queue)["MessageCount"] == "0"


async def renewed_by_hand(bus: Bus, queue: str) -> None:
    async with together(bus.receiver(queue), bus.receiver(queue)) as (receiver, other):
        message = await receive_one(receiver)
        first_end = message.locked_until_utc
        await asyncio.sleep(LOCK_S / 2)
        before = time.time()
        renewed = await receiver.renew_message_lock(message)
        assert renewed == message.locked_until_utc
        assert before - 0.5 < renewed.timestamp() - LOCK_S < time.time() + 0.5
        # Over the end of the first lock, short of the end of the renewed one.
        wait_s = first_end.timestamp() + 1 - time.time()
        assert await nothing_comes(other, within_s=wait_s)
        await receiver.complete_message(message)
        assert await other.peek_messages() == []


async def renewed_automatically(bus: Bus, queue: str) -> None:
    renewer = bus.renewer()
    async with together(bus.receiver(queue), bus.receiver(queue)) as (receiver, other):
        message = await receive_one(receiver)
        first_end = message.locked_until_utc
        renewer.register(bare(receiver), message, max_lock_renewal_duration=30)
        assert await nothing_comes(other, within_s=first_end.timestamp() + 1 - time.time())
        assert message.auto_renew_error is None
        assert message.locked_until_utc > first_end
        await receiver.complete_message(message)
    closing = renewer.close()
    if closing is not None:
        await closing


@pytest.mark.feature("renew-lock")
@both
async def test_renewing_by_hand_or_automatically_keeps_a_lock_beyond_its_first_end(
    bus: Bus, new_queue: NewQueue
) -> None:
    queues = new_queue(LockDuration=f"PT{LOCK_S}S"), new_queue(LockDuration=f"PT{LOCK_S}S")
    for queue in queues:
        await bus.put(queue, "m")
    await asyncio.gather(renewed_by_hand(bus, queues[0]), renewed_automatically(bus, queues[1]))


@pytest.mark.feature("complete")
@both
async def test_messages_are_settled_in_any_order(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    await bus.put(queue, *[str(number) for number in range(8)])
    async with bus.receiver(queue) as receiver:
        received = await receive(receiver, 8)
        for message in reversed(received[::2]):
            await receiver.complete_message(message)
        for message in received[1::2]:
            await receiver.abandon_message(message)
        again = await receive(receiver, 4)
        assert sorted(str(message) for message in again) == ["1", "3", "5", "7"]
        for message in again:
            await receiver.complete_message(message)
    assert broker.queue(queue)["MessageCount"] == "0"
