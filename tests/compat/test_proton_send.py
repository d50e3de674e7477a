"""Sending with a plain AMQP client: unsettled, settled and pre-settled transfers, large ones, many at once.

Service Bus knowledge is on the broker's side alone; what the official client adds is in `test_python_send`.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from proton import (
    Array,
    Data,
    Delivery,
    Described,
    Link,
    Message,
    byte,
    char,
    decimal64,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, LinkDetached, SendException

from support.broker import BrokerProcess, NewQueue, wait_for
from support.peer import Modes, Receiver, connected, pump, pump_until


def send(sender: Any, body: Any = "m", **fields: Any) -> Delivery:
    """Put a message on the link without waiting for its outcome."""
    delivery: Delivery = sender.link.send(Message(body=body, **fields))
    return delivery


def dropped(broker: BrokerProcess) -> float:
    return sum(value for name, value in broker.metrics().items() if "presettled_dropped" in name)


def wait_until_settled(connection: BlockingConnection, deliveries: list[Delivery]) -> None:
    pump_until(connection, lambda: all(delivery.settled for delivery in deliveries), "outcomes")


@pytest.mark.feature("amqp-send")
def test_an_unsettled_transfer_is_accepted_when_it_is_stored(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        delivery = connection.create_sender(queue).send(Message(body="m"))
        assert delivery.remote_state == Delivery.ACCEPTED
        assert delivery.settled
        assert broker.count(queue) == 1


@pytest.mark.feature("amqp-send")
def test_many_transfers_in_flight_are_all_accepted_in_order(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        sender = connection.create_sender(queue)
        pump_until(connection, lambda: sender.link.credit >= 500, "credit")
        deliveries = [send(sender, number) for number in range(500)]
        wait_until_settled(connection, deliveries)
        assert {delivery.remote_state for delivery in deliveries} == {Delivery.ACCEPTED}
        receiver = Receiver(connection, queue, credit=500, options=Modes(snd=Link.SND_SETTLED))
        assert [receiver.take()[0].body for _ in range(500)] == list(range(500))


@pytest.mark.feature("amqp-send")
def test_a_refused_transfer_is_rejected_with_its_condition_and_the_link_goes_on(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        sender = connection.create_sender(queue)
        delivery = send(sender, bytes(300 * 1024))
        wait_until_settled(connection, [delivery])
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:link:message-size-exceeded"
        assert broker.refusals(queue)[0].tracking_id in delivery.remote.condition.description
        sender.send(Message(body="small"))
        with pytest.raises(SendException):
            sender.send(Message(body=bytes(300 * 1024)))
    assert broker.count(queue) == 1


@pytest.mark.feature("amqp-pre-settled")
def test_a_pre_settled_transfer_is_stored_and_never_answered(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        sender = connection.create_sender(queue, options=AtMostOnce())
        deliveries = [send(sender, number) for number in range(20)]
        pump_until(connection, lambda: broker.count(queue) == 20, "storage")
        assert not any(delivery.updated for delivery in deliveries)
        assert {delivery.remote_state for delivery in deliveries} == {0}


@pytest.mark.feature("amqp-pre-settled")
def test_a_refused_pre_settled_transfer_is_dropped_counted_and_logged_and_its_link_goes_on(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue(RequiresSession=True)
    before = dropped(broker)
    with connected(broker) as connection:
        sender = connection.create_sender(queue, options=AtMostOnce())
        refused = [send(sender, "without a session"), send(sender, bytes(300 * 1024))]
        send(sender, "good", group_id="s")
        pump_until(connection, lambda: broker.count(queue) == 1, "storage")
        wait_for(lambda: dropped(broker) == before + 2, "the count of what was dropped")
        assert not any(delivery.updated for delivery in refused)
        assert sender.link.state & sender.link.REMOTE_ACTIVE
    assert {refusal.fault for refusal in broker.refusals(queue)} == {"not-allowed", "message-too-large"}


@pytest.mark.feature("amqp-send")
@pytest.mark.parametrize("mode", [Link.RCV_FIRST, Link.RCV_SECOND], ids=["first", "second"])
def test_both_receiver_settle_modes_of_a_sender_get_one_settled_outcome(
    broker: BrokerProcess, new_queue: NewQueue, mode: int
) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        sender = connection.create_sender(queue, options=Modes(snd=Link.SND_UNSETTLED, rcv=mode))
        delivery = send(sender)
        wait_until_settled(connection, [delivery])
        assert delivery.remote_state == Delivery.ACCEPTED


@pytest.mark.feature("amqp-multi-frame")
def test_a_large_message_goes_in_many_frames_both_ways(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    body = bytes(range(256)) * 900
    with connected(broker, max_frame_size=4096) as connection:
        sender = connection.create_sender(queue)
        encoded = Message(body=body, id="large").encode()
        delivery = sender.link.delivery("large")
        for start in range(0, len(encoded), 30_000):
            sender.link.stream(encoded[start : start + 30_000])
            pump(connection, 0.01)
        sender.link.advance()
        wait_until_settled(connection, [delivery])
        assert delivery.remote_state == Delivery.ACCEPTED
        receiver = Receiver(connection, queue, credit=1, options=Modes(snd=Link.SND_SETTLED))
        message, _ = receiver.take()
        assert (message.id, bytes(message.body)) == ("large", body)


@pytest.mark.feature("amqp-multi-frame")
def test_a_delivery_that_is_aborted_or_cut_off_is_not_stored(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        sender = connection.create_sender(queue)
        encoded = Message(body=bytes(100_000)).encode()
        delivery = sender.link.delivery("aborted")
        sender.link.stream(encoded[:50_000])
        pump(connection, 0.1)
        delivery.abort()
        sender.send(Message(body="whole"))
        sender.link.delivery("cut off")
        sender.link.stream(encoded[:50_000])
        pump(connection, 0.1)
    assert broker.count(queue) == 1


@pytest.mark.feature("message-properties")
def test_values_of_every_type_pass_through_unchanged(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    values = {
        "null": None,
        "true": True,
        "ubyte": ubyte(255),
        "ushort": ushort(65535),
        "uint": uint(2**32 - 1),
        "ulong": ulong(2**64 - 1),
        "byte": byte(-128),
        "short": short(-32768),
        "int": int32(-(2**31)),
        "long": -(2**63),
        "float": float32(0.5),
        "double": 2.25,
        "decimal64": decimal64(12345),
        "char": char("ß"),
        "timestamp": timestamp(1_700_000_000_123),
        "uuid": uuid.UUID(int=7),
        "string": "grün",
        "symbol": symbol("sym"),
    }
    body = {
        "nested": [1, {"map": [None, True]}],
        "array": Array(None, Data.INT, 1, 2, 3),
        "described": Described(symbol("own:type"), ["x"]),
        "binary": b"\x00\xff",
    }
    message = Message(
        body=body,
        id=ulong(42),
        correlation_id=uuid.UUID(int=1),
        user_id=b"me",
        address="to",
        subject="subject",
        reply_to="reply",
        content_type=symbol("text/plain"),
        content_encoding=symbol("utf-8"),
        group_id="group",
        group_sequence=5,
        reply_to_group_id="reply group",
        priority=9,
        durable=True,
        properties=values,
        annotations={symbol("x-own"): ulong(3)},
    )
    with connected(broker) as connection:
        connection.create_sender(queue).send(message)
        receiver = Receiver(connection, queue, credit=1, options=Modes(snd=Link.SND_SETTLED))
        received, _ = receiver.take()
    for name in (
        "body",
        "id",
        "correlation_id",
        "user_id",
        "address",
        "subject",
        "reply_to",
        "content_type",
        "content_encoding",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
        "priority",
        "durable",
        "properties",
    ):
        assert getattr(received, name) == getattr(message, name), name
    assert {name: type(value) for name, value in received.properties.items()} == {
        name: type(value) for name, value in values.items()
    }
    assert received.annotations[symbol("x-own")] == ulong(3)


@pytest.mark.feature("message-annotations")
def test_what_only_the_broker_may_say_is_not_taken_from_a_sender(broker: BrokerProcess, new_queue: NewQueue) -> None:
    """A message that was received elsewhere and is sent on as it is must not keep the old queue's stamps."""
    queue = new_queue()
    forged = {
        "x-opt-sequence-number": 999,
        "x-opt-enqueued-time": timestamp(1),
        "x-opt-locked-until": timestamp(2),
        "x-opt-message-state": int32(1),
        "x-opt-own": "kept",
    }
    message = Message(
        body="m",
        delivery_count=7,
        annotations={symbol(name): value for name, value in forged.items()},
        instructions={symbol("x-opt-lock-token"): uuid.UUID(int=5)},
    )
    with connected(broker) as connection:
        connection.create_sender(queue).send(message)
        receiver = Receiver(connection, queue, credit=1, options=Modes(snd=Link.SND_SETTLED))
        received, _ = receiver.take()
        annotations = {str(name): value for name, value in received.annotations.items()}
        assert annotations.keys() == {"x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-own"}
        assert (annotations["x-opt-sequence-number"], annotations["x-opt-own"]) == (1, "kept")
        assert annotations["x-opt-enqueued-time"] > 1_700_000_000_000
        assert received.delivery_count == 0
        assert not received.instructions


@pytest.mark.feature("message-bodies")
def test_an_empty_transfer_is_a_message_without_anything(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        sender = connection.create_sender(queue)
        delivery = sender.link.delivery("empty")
        sender.link.advance()
        wait_until_settled(connection, [delivery])
        assert delivery.remote_state == Delivery.ACCEPTED
        receiver = Receiver(connection, queue, credit=1, options=Modes(snd=Link.SND_SETTLED))
        message, _ = receiver.take()
        assert message.body is None
        assert len(message.id) == 32


@pytest.mark.feature("amqp-send")
def test_bytes_that_are_not_a_message_are_rejected_and_the_link_goes_on(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        sender = connection.create_sender(queue)
        deliveries = []
        for number, payload in enumerate((b"nonsense", b"\x00\x53\x73\xd0\xff\xff\xff\xff\x00", b"\x00\x53\x10\x45")):
            deliveries.append(sender.link.delivery(str(number)))
            sender.link.stream(payload)
            sender.link.advance()
        wait_until_settled(connection, deliveries)
        assert {delivery.remote_state for delivery in deliveries} == {Delivery.REJECTED}
        assert {delivery.remote.condition.name for delivery in deliveries} == {"amqp:decode-error"}
        sender.send(Message(body="m"))
    assert broker.count(queue) == 1


@pytest.mark.feature("dead-letter-queue")
def test_nobody_sends_to_a_dead_letter_queue(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        with pytest.raises(LinkDetached) as caught:
            connection.create_sender(f"{queue}/$DeadLetterQueue")
        assert caught.value.condition == "amqp:not-allowed"
