"""Messages that are not simply next: deferred, scheduled, peeked.

Expiry and duplicates are in `test_python_expiry`.
"""

from __future__ import annotations

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from support.broker import BrokerProcess, NewQueue
from support.gateways import LATER_S
from support.sdk import Bus, both, nothing_comes, receive, receive_one, together

MOVABLE_CLOCK = True
DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


def soon(broker: BrokerProcess, seconds: float = LATER_S) -> datetime.datetime:
    return broker.now() + datetime.timedelta(seconds=seconds)


async def defer(bus: Bus, queue: str, *bodies: str) -> list[int]:
    """Send messages and defer them; their sequence numbers."""
    await bus.put(queue, *bodies)
    async with bus.receiver(queue) as receiver:
        messages = await receive(receiver, len(bodies))
        for message in messages:
            await receiver.defer_message(message)
    return [message.sequence_number for message in messages]


@pytest.mark.gateways
@pytest.mark.feature("defer")
@both
async def test_deferred_messages_are_received_by_their_numbers_from_another_connection(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    one, two, three = await defer(bus, queue, "one", "two", "three")
    async with bus.receiver(queue) as receiver:
        messages = await receiver.receive_deferred_messages([three, one])
        assert sorted(str(message) for message in messages) == ["one", "three"]
        assert {message.state for message in messages} == {ServiceBusMessageState.DEFERRED}
        assert all(message.lock_token and message.locked_until_utc for message in messages)
        for message in messages:
            await receiver.complete_message(message)
        (left,) = await receiver.peek_messages(max_message_count=10)
        assert left.sequence_number == two
    async with bus.receiver(queue, receive_mode=DELETE) as receiver:
        (message,) = await receiver.receive_deferred_messages(two)
        assert str(message) == "two"
    assert broker.queue(queue)["MessageCount"] == "0"


@pytest.mark.feature("defer")
@both
async def test_numbers_that_are_not_deferred_are_not_found(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    (deferred,) = await defer(bus, queue, "deferred")
    await bus.put(queue, "active")
    # The client would ask again three times: to it, this is an error that may pass.
    async with bus.client(retry_total=0) as client, client.get_queue_receiver(queue) as receiver:
        (active,) = [m for m in await receiver.peek_messages(10) if str(m) == "active"]
        for numbers in ([999], [active.sequence_number], [deferred, 999]):
            with pytest.raises(MessageNotFoundError):
                await receiver.receive_deferred_messages(numbers)
        (message,) = await receiver.receive_deferred_messages(deferred)
        await receiver.complete_message(message)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(deferred)


@pytest.mark.feature("defer")
@both
async def test_a_deferred_message_is_dead_lettered_abandoned_and_deferred_again(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    (number,) = await defer(bus, queue, "m")
    async with bus.receiver(queue) as receiver:
        (message,) = await receiver.receive_deferred_messages(number)
        await receiver.defer_message(message)
        assert await nothing_comes(receiver)
        (message,) = await receiver.receive_deferred_messages(number)
        await receiver.renew_message_lock(message)
        await receiver.abandon_message(message)
        assert await nothing_comes(receiver), "an abandoned deferred message stays deferred"
        (message,) = await receiver.receive_deferred_messages(number)
        await receiver.dead_letter_message(message, reason="r", error_description="d")
    async with bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        message = await receive_one(dead)
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("r", "d")
        await dead.complete_message(message)
    assert broker.queue(queue)["MessageCount"] == "0"


@pytest.mark.gateways
@pytest.mark.feature("peek")
@both
async def test_peek_shows_active_locked_deferred_and_scheduled_messages_and_changes_nothing(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    await defer(bus, queue, "deferred")
    await bus.put(queue, "locked", "active")
    await bus.send(queue, ServiceBusMessage("scheduled", scheduled_enqueue_time_utc=soon(broker, 600)))
    async with together(bus.receiver(queue), bus.receiver(queue)) as (holder, receiver):
        locked = await receive_one(holder)
        for _ in range(2):
            peeked = await receiver.peek_messages(max_message_count=10, sequence_number=1)
            assert {str(message): message.state for message in peeked} == {
                "deferred": ServiceBusMessageState.DEFERRED,
                "locked": ServiceBusMessageState.ACTIVE,
                "active": ServiceBusMessageState.ACTIVE,
                "scheduled": ServiceBusMessageState.SCHEDULED,
            }
        numbers = [message.sequence_number for message in peeked]
        assert numbers == sorted(numbers)
        with pytest.raises(ValueError, match="peeked"):
            await receiver.complete_message(peeked[0])
        active = await receive_one(receiver)
        assert (str(active), active.delivery_count) == ("active", 0)
        await receiver.complete_message(active)
        await holder.complete_message(locked)


@pytest.mark.feature("peek")
@both
async def test_peek_begins_at_a_number_and_takes_so_many(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with bus.sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(1, 8)])
    async with bus.receiver(queue) as receiver:
        assert [str(message) for message in await receiver.peek_messages()] == ["1"]
        peeked = await receiver.peek_messages(max_message_count=3, sequence_number=4)
        assert [(str(message), message.sequence_number) for message in peeked] == [("4", 4), ("5", 5), ("6", 6)]
        assert [str(m) for m in await receiver.peek_messages(100, sequence_number=7)] == ["7"]
        assert await receiver.peek_messages(sequence_number=8) == []
    async with bus.receiver(new_queue()) as empty:
        assert await empty.peek_messages(max_message_count=10) == []


@pytest.mark.gateways
@pytest.mark.feature("schedule")
@both
async def test_scheduled_messages_become_visible_at_their_time(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    async with together(bus.sender(queue), bus.receiver(queue)) as (sender, receiver):
        due = soon(broker)
        numbers = await sender.schedule_messages(
            [ServiceBusMessage("one", message_id="1"), ServiceBusMessage("two", message_id="2")], due
        )
        await sender.send_messages(ServiceBusMessage("by property", scheduled_enqueue_time_utc=due))
        assert len(set(numbers)) == 2
        assert broker.count(queue, "ScheduledMessageCount") == 3
        assert broker.count(queue) == 0
        assert await nothing_comes(receiver)
        await bus.pass_time(LATER_S + 0.1)
        received = await receive(receiver, 3)
        assert sorted(str(message) for message in received) == ["by property", "one", "two"]
        for message in received:
            assert abs(message.scheduled_enqueue_time_utc - due) < datetime.timedelta(milliseconds=2)
            assert message.enqueued_time_utc.timestamp() >= due.timestamp() - 0.002
            assert message.state is ServiceBusMessageState.ACTIVE
            await receiver.complete_message(message)
    assert broker.queue(queue)["MessageCount"] == "0"


@pytest.mark.feature("schedule")
@both
async def test_a_cancelled_message_never_comes(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue, due = new_queue(), soon(broker)
    async with together(bus.sender(queue), bus.receiver(queue)) as (sender, receiver):
        (single,) = await sender.schedule_messages(ServiceBusMessage("single"), due)
        cancelled = await sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], due)
        (kept,) = await sender.schedule_messages(ServiceBusMessage("kept"), due)
        assert kept not in (single, *cancelled)
        await sender.cancel_scheduled_messages(single)
        await sender.cancel_scheduled_messages(cancelled)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(single)
        assert broker.count(queue, "ScheduledMessageCount") == 1
        await bus.pass_time(LATER_S + 0.1)
        message = await receive_one(receiver)
        assert str(message) == "kept"
        await receiver.complete_message(message)
        assert await nothing_comes(receiver)


@pytest.mark.feature("schedule")
@both
async def test_a_message_scheduled_for_the_past_is_there_at_once(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    async with together(bus.sender(queue), bus.receiver(queue)) as (sender, receiver):
        await sender.schedule_messages(ServiceBusMessage("m"), soon(broker, -600))
        message = await receive_one(receiver)
        await receiver.complete_message(message)


@pytest.mark.feature("schedule")
@both
async def test_scheduling_without_a_session_id_on_a_session_queue_is_refused(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue(RequiresSession=True)
    async with bus.sender(queue) as sender:
        with pytest.raises(ServiceBusError, match="session"):
            await sender.schedule_messages([ServiceBusMessage("m")], soon(broker, 600))
        (number,) = await sender.schedule_messages(ServiceBusMessage("m", session_id="s"), soon(broker, 600))
        assert broker.count(queue, "ScheduledMessageCount") == 1
        await sender.cancel_scheduled_messages(number)
