"""What ends a message's lock early or late, and what the holder of the old token is told.

In each case the message is available again with a delivery counted, every late decision is answered with lock-lost, on
the link where there still is one and through `$management`, and none of them touches the lock of the next holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import MessageLockLostError

from support.broker import BrokerProcess, NewQueue
from support.gateways import LATER_S
from support.sdk import Bus, both, break_off, forget_expiry, nothing_comes, receive, receive_one, together

pytestmark = pytest.mark.feature("lock-lost")

MOVABLE_CLOCK = True
LATE = (
    "complete_message",
    "dead_letter_message",
    "abandon_message",
    "defer_message",
    "renew_message_lock",
)


async def send_numbers(bus: Bus, queue: str, count: int) -> None:
    await bus.put(queue, *[str(number) for number in range(count)])


async def delivered_again(receiver: Any, count: int) -> list[ServiceBusReceivedMessage]:
    """All messages, each with one delivery counted; sooner than a lock of five minutes would end."""
    messages = await receive(receiver, count)
    assert sorted(int(str(message)) for message in messages) == list(range(count))
    assert {message.delivery_count for message in messages} == {1}
    return messages


async def all_are_too_late(receiver: Any, messages: Sequence[ServiceBusReceivedMessage]) -> None:
    """Every decision about a message with its old token is answered with lock-lost."""
    for method, message in zip(LATE, messages, strict=True):
        forget_expiry(message)
        with pytest.raises(MessageLockLostError):
            await getattr(receiver, method)(message)


async def complete_all(
    receiver: Any, messages: Sequence[ServiceBusReceivedMessage], queue: str, broker: BrokerProcess
) -> None:
    """The newer locks hold, and nothing is left, neither deferred nor dead-lettered."""
    for message in messages:
        await receiver.complete_message(message)
    assert broker.queue(queue)["MessageCount"] == "0"
    assert broker.count(queue, "DeadLetterMessageCount") == 0


@both
async def test_expired(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue, untaken_queue = new_queue(LockDuration=f"PT{LATER_S}S"), new_queue(LockDuration=f"PT{LATER_S}S")
    await send_numbers(bus, queue, 2 * len(LATE))
    await bus.put(untaken_queue, "m")
    receivers = bus.receiver(queue), bus.receiver(queue), bus.receiver(queue), bus.receiver(untaken_queue)
    async with together(*receivers) as (receiver, other, third, of_untaken):
        old = await receive(receiver, 2 * len(LATE))
        untaken = await receive_one(of_untaken)
        await bus.pass_time(LATER_S + 0.1)
        newer = await delivered_again(other, 2 * len(LATE))
        await all_are_too_late(receiver, old[: len(LATE)])
        await all_are_too_late(third, old[len(LATE) :])
        await complete_all(other, newer, queue, broker)
        # It is too late as well where nobody has taken the message since.
        forget_expiry(untaken)
        with pytest.raises(MessageLockLostError):
            await of_untaken.complete_message(untaken)
        again = await receive_one(of_untaken)
        assert again.delivery_count == 1
        await of_untaken.complete_message(again)


@both
async def test_settings_of_the_queue_changed(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue(LockDuration="PT5M")
    await send_numbers(bus, queue, 2 * len(LATE))
    receivers = bus.receiver(queue), bus.receiver(queue), bus.receiver(queue)
    async with together(*receivers) as (receiver, other, third):
        old = await receive(receiver, 2 * len(LATE))
        broker.update_queue(queue, LockDuration="PT4M")
        newer = await delivered_again(other, 2 * len(LATE))
        await all_are_too_late(receiver, old[: len(LATE)])
        await all_are_too_late(third, old[len(LATE) :])
        await complete_all(other, newer, queue, broker)


@both
async def test_connection_broken_off(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue(LockDuration="PT5M")
    await send_numbers(bus, queue, len(LATE))
    async with together(bus.receiver(queue), bus.receiver(queue)) as (receiver, other):
        old = await receive(receiver, len(LATE))
        break_off(receiver)
        newer = await delivered_again(other, len(LATE))
        await all_are_too_late(receiver, old)
        await complete_all(other, newer, queue, broker)


@both
async def test_a_sender_whose_connection_broke_off_goes_on_by_itself(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    async with bus.sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("before"))
        break_off(sender)
        await sender.send_messages(ServiceBusMessage("after"))
    assert broker.count(queue) == 2


@both
async def test_a_broken_off_connection_leaves_other_connections_their_locks(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue(LockDuration="PT5M")
    await bus.put(queue, "one", "two")
    async with together(bus.receiver(queue), bus.receiver(queue)) as (broken, whole):
        one = await receive_one(broken)
        two = await receive_one(whole)
        break_off(broken)
        again = await receive_one(whole)
        assert str(again) == str(one)
        assert await nothing_comes(whole)
        await whole.complete_message(two)
        await whole.complete_message(again)
    assert broker.queue(queue)["MessageCount"] == "0"
