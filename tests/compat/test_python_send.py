"""Sending with the official client: what is accepted, in which shapes, and that it arrives as it was sent.

What is refused, and how that is told, stands in `test_python_rejections`.
"""

from __future__ import annotations

import asyncio
import datetime
import uuid
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from support.broker import BrokerProcess, NewQueue
from support.sdk import Bus, both, receive, receive_one, together

KIB = 1024


async def round_trip(bus: Bus, queue: str, message: Any) -> Any:
    async with together(bus.sender(queue), bus.receiver(queue)) as (sender, receiver):
        await sender.send_messages(message)
        received = await receive_one(receiver)
        await receiver.complete_message(received)
        return received


@pytest.mark.gateways
@pytest.mark.feature("send")
@both
async def test_single_messages_keep_their_order(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    await bus.send(queue, *[ServiceBusMessage(f"message {number}") for number in range(10)])
    async with bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        received = await receive(receiver, 10)
    assert [str(message) for message in received] == [f"message {number}" for number in range(10)]
    assert [message.sequence_number for message in received] == list(range(1, 11))


@pytest.mark.feature("send")
@both
async def test_several_senders_at_once_lose_and_double_nothing(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()

    async def send_ten(sender_number: int) -> None:
        await bus.send(queue, *[ServiceBusMessage(f"{sender_number}/{number}") for number in range(10)])

    await asyncio.gather(*[send_ten(number) for number in range(6)])
    assert broker.count(queue) == 60
    async with bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        received = [str(message) for message in await receive(receiver, 60)]
    assert sorted(received) == sorted(f"{sender}/{number}" for sender in range(6) for number in range(10))
    # What one sender sent stays in its order.
    assert [body for body in received if body.startswith("0/")] == [f"0/{number}" for number in range(10)]


@pytest.mark.gateways
@pytest.mark.feature("send-batch")
@both
async def test_a_list_and_a_batch_are_stored_message_by_message(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with together(bus.sender(queue), bus.receiver(queue)) as (sender, receiver):
        await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        batch = await sender.create_message_batch()
        for body in ("three", "four", "five"):
            batch.add_message(ServiceBusMessage(body))
        await sender.send_messages(batch)
        received = await receive(receiver, 5)
        assert len({message.lock_token for message in received}) == 5
        for message in received:
            await receiver.complete_message(message)
    assert [str(message) for message in received] == ["one", "two", "three", "four", "five"]


@pytest.mark.feature("send-batch")
@both
async def test_a_batch_is_filled_up_to_the_limit_of_the_broker_and_accepted(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    async with bus.sender(queue) as sender:
        batch = await sender.create_message_batch()
        assert batch.max_size_in_bytes == 256 * KIB
        while batch.size_in_bytes < 250 * KIB:
            batch.add_message(ServiceBusMessage(b"x" * 10 * KIB))
        added = len(batch)
        with pytest.raises(MessageSizeExceededError):
            batch.add_message(ServiceBusMessage(b"x" * 10 * KIB))
        await sender.send_messages(batch)
        with pytest.raises(ValueError, match="too large"):
            await sender.create_message_batch(max_size_in_bytes=256 * KIB + 1)
    assert added == 25
    assert broker.count(queue) == added


@pytest.mark.feature("send-batch")
@both
async def test_a_batch_with_one_bad_message_stores_none(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue(RequiresSession=True)
    good = [ServiceBusMessage(f"good {number}", session_id="s") for number in range(3)]
    async with bus.sender(queue) as sender:
        with pytest.raises(ServiceBusError, match="session"):
            await sender.send_messages([*good, ServiceBusMessage("without a session id")])
        assert broker.count(queue) == 0
        await sender.send_messages(good)
    assert broker.count(queue) == 3


@pytest.mark.feature("message-bodies")
@both
async def test_a_message_without_a_body_arrives(bus: Bus, new_queue: NewQueue) -> None:
    received = await round_trip(bus, new_queue(), ServiceBusMessage(None, message_id="bodiless"))
    assert received.message_id == "bodiless"
    assert list(received.body or []) in ([], [None])


@pytest.mark.feature("message-bodies")
@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (AmqpMessageBodyType.DATA, {"data_body": [b"first section", b"", b"third"]}),
        (AmqpMessageBodyType.SEQUENCE, {"sequence_body": [[1, 2, b"three"], [4, b"five"]]}),
        (AmqpMessageBodyType.VALUE, {"value_body": {b"nested": [1, {b"deep": True}], b"text": b"\xc3\xa4"}}),
        (AmqpMessageBodyType.VALUE, {"value_body": None}),
    ],
    ids=["data", "sequence", "value", "null"],
)
@both
async def test_every_type_of_body_arrives_as_it_was_sent(
    bus: Bus, new_queue: NewQueue, kind: AmqpMessageBodyType, sent: dict[str, Any]
) -> None:
    received = await round_trip(bus, new_queue(), AmqpAnnotatedMessage(**sent))
    (body,) = sent.values()
    assert received.body_type == kind
    assert (received.body if kind is AmqpMessageBodyType.VALUE else list(received.body)) == body


@pytest.mark.feature("large-messages")
@both
async def test_200_kib_and_the_largest_message_arrive_whole(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    body = bytes(range(256)) * 800
    received = await round_trip(bus, queue, ServiceBusMessage(body))
    assert b"".join(received.body) == body
    largest = bytes(256 * KIB - 400)
    received = await round_trip(bus, queue, ServiceBusMessage(largest, message_id="m"))
    assert b"".join(received.body) == largest


@pytest.mark.feature("message-properties")
@both
async def test_application_properties_of_all_types_arrive(bus: Bus, new_queue: NewQueue) -> None:
    identifier = uuid.uuid4()
    moment = datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=datetime.UTC)
    sent = {
        "text": "häßlich",
        "empty": "",
        "int": 2**31 - 1,
        "negative": -5,
        "float": 2.5,
        "true": True,
        "false": False,
        "none": None,
        "uuid": identifier,
        "moment": moment,
    }
    received = await round_trip(bus, new_queue(), ServiceBusMessage("m", application_properties=sent))
    expected = {
        **{name.encode(): value for name, value in sent.items()},
        b"text": "häßlich".encode(),
        b"empty": b"",
        b"moment": int(moment.timestamp() * 1000),
    }
    assert received.application_properties == expected


@pytest.mark.feature("message-properties")
@both
async def test_system_properties_arrive_as_they_were_sent(bus: Bus, new_queue: NewQueue) -> None:
    message = ServiceBusMessage(
        "m",
        message_id="the id",
        correlation_id="the correlation",
        content_type="application/json",
        subject="the subject",
        to="the destination",
        reply_to="the reply address",
        reply_to_session_id="the reply session",
        session_id="the session",
        partition_key="the session",
        time_to_live=datetime.timedelta(minutes=5),
    )
    before = datetime.datetime.now(datetime.UTC)
    received = await round_trip(bus, new_queue(), message)
    for name in (
        "message_id",
        "correlation_id",
        "content_type",
        "subject",
        "to",
        "reply_to",
        "reply_to_session_id",
        "session_id",
        "partition_key",
        "time_to_live",
    ):
        assert getattr(received, name) == getattr(message, name), name
    second = datetime.timedelta(seconds=1)
    assert before - second < received.enqueued_time_utc < datetime.datetime.now(datetime.UTC) + second
    assert received.expires_at_utc == received.enqueued_time_utc + datetime.timedelta(minutes=5)


@pytest.mark.feature("message-properties")
@both
async def test_a_message_without_an_id_gets_one_from_the_broker(bus: Bus, new_queue: NewQueue) -> None:
    received = await round_trip(bus, new_queue(), AmqpAnnotatedMessage(data_body=b"m"))
    assert len(received.message_id) == 32
    assert int(received.message_id, 16) > 0


@pytest.mark.feature("message-annotations")
@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode), ids=lambda mode: mode.name.lower())
@both
async def test_a_delivery_carries_the_documented_annotations_and_no_others(
    bus: Bus, new_queue: NewQueue, mode: ServiceBusReceiveMode
) -> None:
    queue = new_queue()
    await bus.send(queue, ServiceBusMessage("m", partition_key="pk"))
    async with bus.receiver(queue, receive_mode=mode) as receiver:
        received = await receive_one(receiver)
    raw = received.raw_amqp_message
    expected = {b"x-opt-enqueued-time", b"x-opt-sequence-number", b"x-opt-partition-key"}
    if mode is ServiceBusReceiveMode.PEEK_LOCK:
        expected.add(b"x-opt-locked-until")
        assert raw.delivery_annotations == {b"x-opt-lock-token": received.lock_token}
    else:
        assert raw.delivery_annotations == {}
        assert received.lock_token is None
    assert set(raw.annotations) == expected
    assert received.delivery_count == 0
    assert (raw.header.durable, raw.header.priority, raw.header.first_acquirer) == (None, None, None)
    assert raw.header.time_to_live is None


@pytest.mark.feature("message-properties")
@both
async def test_header_footer_and_own_annotations_pass_through(bus: Bus, new_queue: NewQueue) -> None:
    message = AmqpAnnotatedMessage(
        data_body=b"m",
        header=AmqpMessageHeader(durable=True, priority=7, time_to_live=60_000),
        properties=AmqpMessageProperties(message_id="id", user_id=b"somebody", group_sequence=3),
        annotations={"x-own": "kept", "x-number": 5},
        footer={"checksum": "abc"},
    )
    received = await round_trip(bus, new_queue(), message)
    raw = received.raw_amqp_message
    assert (raw.header.durable, raw.header.priority, raw.header.time_to_live) == (True, 7, 60_000)
    assert (raw.properties.user_id, raw.properties.group_sequence) == (b"somebody", 3)
    assert raw.annotations[b"x-own"] == b"kept"
    assert raw.annotations[b"x-number"] == 5
    assert raw.footer == {b"checksum": b"abc"}


@pytest.mark.feature("send-batch")
@both
async def test_a_batch_filled_to_the_last_byte_is_accepted(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    async with bus.sender(queue) as sender:
        batch = await sender.create_message_batch()
        size = 100_000
        while size:
            try:
                batch.add_message(ServiceBusMessage(bytes(size), message_id="m"))
            except MessageSizeExceededError:
                size //= 2
        assert batch.size_in_bytes > 256 * KIB - 100
        await sender.send_messages(batch)
    assert broker.count(queue) == len(batch)


@pytest.mark.feature("message-properties")
@both
async def test_a_received_message_can_be_sent_on_as_it_is(bus: Bus, new_queue: NewQueue) -> None:
    first, second = new_queue(), new_queue()
    properties = {"number": 1}
    await bus.put(second, "so that the numbers of the two queues differ")
    handlers = bus.sender(first), bus.receiver(first), bus.sender(second), bus.receiver(second)
    async with together(*handlers) as (first_sender, first_receiver, second_sender, second_receiver):
        await first_sender.send_messages(
            ServiceBusMessage("m", message_id="id", partition_key="pk", application_properties=properties)
        )
        received = await receive_one(first_receiver)
        await first_receiver.abandon_message(received)
        received = await receive_one(first_receiver)
        await second_sender.send_messages(received.raw_amqp_message)
        await first_receiver.complete_message(received)
        _, again = await receive(second_receiver, 2)
        assert (again.message_id, str(again), again.partition_key) == ("id", "m", "pk")
        assert again.application_properties == {b"number": 1}
        assert (again.sequence_number, again.delivery_count) == (2, 0)
        assert set(again.raw_amqp_message.annotations) == {
            b"x-opt-enqueued-time",
            b"x-opt-sequence-number",
            b"x-opt-locked-until",
            b"x-opt-partition-key",
        }
        await second_receiver.complete_message(again)
