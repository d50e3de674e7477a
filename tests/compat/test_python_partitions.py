"""Partitioned queues and topics with the official client: keys and fragments, and that nothing else is different.

Stores that are down are in `tests/faults`, slow ones in `test_overtaking`.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections import Counter
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from support.broker import SOON_S, BrokerProcess, HttpError, NewQueue
from support.gateways import LATER_S
from support.sdk import Bus, both, detach_link, nothing_comes, receive, receive_one, receiving, until
from support.topics import Topics, bodies, receiver, send, sender, taken_by
from twinbus.entities.partitions import FRAGMENTS, fragment_of

pytest_plugins = ["compat.conftest_admin", "compat.conftest_topics"]
pytestmark = pytest.mark.feature("partitions")

HOUR = datetime.timedelta(hours=1)
DEAD = ServiceBusSubQueue.DEAD_LETTER
DELETING = ServiceBusReceiveMode.RECEIVE_AND_DELETE
MOVABLE_CLOCK = True
BROKER_OPTIONS = ("--stores", "4")


@pytest.fixture(scope="module")
def broker(admin_endpoint: Any) -> BrokerProcess:
    found: BrokerProcess = admin_endpoint.broker
    return found


def fragment(message: ServiceBusReceivedMessage) -> int:
    assert message.sequence_number is not None
    return message.sequence_number >> 48


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


async def peek_all(one: Any, page: int = 7) -> list[ServiceBusReceivedMessage]:
    """Everything that is there, in pages, as the client's own documentation does it."""
    found: list[ServiceBusReceivedMessage] = []
    while True:
        start = found[-1].sequence_number + 1 if found and found[-1].sequence_number else 1
        more = await one.peek_messages(max_message_count=page, sequence_number=start)
        if not more:
            return found
        found += more


# Queues


@both
async def test_messages_without_a_key_go_to_all_fragments_and_come_once(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    names = [f"{bus.flavour}{n}" for n in range(2 * FRAGMENTS)]
    async with bus.sender(queue) as out:
        for name in names:
            await out.send_messages(ServiceBusMessage(name))
    async with bus.receiver(queue) as one:
        peeked = await peek_all(one)
        assert sorted({fragment(m) for m in peeked}) == list(range(FRAGMENTS))
        assert [m.sequence_number for m in peeked] == sorted({m.sequence_number for m in peeked})
        assert {str(m) for m in peeked} >= set(names)


@both
async def test_a_key_chooses_the_fragment_and_its_messages_stay_in_order(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    keys = [f"{bus.flavour}-{n}" for n in range(5)]
    async with bus.sender(queue) as out:
        for n in range(4):
            for key in keys:
                await out.send_messages(ServiceBusMessage(f"{key} {n}", partition_key=key))
    async with bus.receiver(queue) as one:
        mine = [m for m in await peek_all(one) if m.partition_key in keys]
    assert {(str(m.partition_key), fragment(m)) for m in mine} == {(key, fragment_of(key)) for key in keys}
    for key in keys:
        assert [str(m) for m in mine if m.partition_key == key] == [f"{key} {n}" for n in range(4)]


@both
async def test_messages_are_settled_in_every_way(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    await bus.send(queue, *[ServiceBusMessage(f"{n}", partition_key=f"key {n}") for n in range(8)])
    async with bus.receiver(queue) as one, bus.receiver(queue, sub_queue=DEAD) as dead:
        messages = await receive(one, 8)
        assert {fragment(m) for m in messages} == {fragment_of(f"key {n}") for n in range(8)}
        by_body = {str(message): message for message in messages}
        await one.complete_message(by_body["0"])
        await one.abandon_message(by_body["1"])
        await one.dead_letter_message(by_body["2"], reason="why", error_description="because")
        await one.defer_message(by_body["3"])
        before = by_body["4"].locked_until_utc
        assert await one.renew_message_lock(by_body["4"]) >= before
        again = await receive_one(one)
        assert (str(again), again.delivery_count) == ("1", 1)
        letter = await receive_one(dead)
        assert (str(letter), letter.dead_letter_reason) == ("2", "why")
        assert fragment(letter) == fragment_of("key 2")
        await dead.complete_message(letter)
        number = by_body["3"].sequence_number
        (deferred,) = await one.receive_deferred_messages(number)
        assert (str(deferred), deferred.sequence_number) == ("3", number)
        await one.complete_message(deferred)
        with pytest.raises(MessageNotFoundError):
            await one.receive_deferred_messages(number)


@both
async def test_a_lock_is_settled_through_management_when_its_link_is_gone(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    await bus.send(queue, ServiceBusMessage(bus.flavour, partition_key="far"))
    async with bus.receiver(queue) as one:
        message = await receive_one(one)
        await detach_link(one)
        await one.complete_message(message)
        message._settled = False
        with pytest.raises(MessageLockLostError):
            await one.complete_message(message)


@both
async def test_deferred_messages_of_several_fragments_come_in_one_call(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    keys = [f"{bus.flavour} {n}" for n in range(6)]
    async with bus.receiver(queue) as one:
        await bus.send(queue, *[ServiceBusMessage(key, partition_key=key) for key in keys])
        messages = await receive(one, 6)
        for message in messages:
            await one.defer_message(message)
        numbers = [message.sequence_number for message in messages]
        deferred = await one.receive_deferred_messages(numbers)
        assert [m.sequence_number for m in deferred] == numbers
        for message in deferred:
            await one.complete_message(message)


@both
async def test_receive_and_delete_takes_no_more_than_was_asked_for(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    await bus.send(queue, *[ServiceBusMessage(str(n)) for n in range(40)])
    async with bus.receiver(queue, receive_mode=DELETING) as one:
        some = await receive(one, 3)
    async with bus.receiver(queue, receive_mode=DELETING) as one:
        rest = await receive(one, 37)
    assert sorted(int(str(m)) for m in some + rest) == list(range(40))


@both
async def test_scheduled_messages_have_numbers_of_their_fragments_and_can_be_cancelled(
    bus: Bus, new_queue: NewQueue
) -> None:
    queue = new_queue(EnablePartitioning=True)
    keys = ["a", "b", "c", "d"]
    async with bus.sender(queue) as out, bus.receiver(queue) as one:
        later = [ServiceBusMessage(key, partition_key=key) for key in keys]
        numbers = await out.schedule_messages(later, now() + HOUR)
        assert [number >> 48 for number in numbers] == [fragment_of(key) for key in keys]
        peeked = await peek_all(one)
        assert {(str(m), m.sequence_number) for m in peeked} == set(zip(keys, numbers, strict=True))
        assert {m.state for m in peeked} == {ServiceBusMessageState.SCHEDULED}
        await out.cancel_scheduled_messages(numbers[:3])
        (left,) = await peek_all(one)
        assert left.sequence_number == numbers[3]
        with pytest.raises(ServiceBusError):
            await out.cancel_scheduled_messages(numbers[0])
        await out.schedule_messages(ServiceBusMessage("soon"), now())
        assert str(await receive_one(one)) == "soon"


@both
async def test_a_batch_goes_whole_to_one_fragment(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    async with bus.sender(queue) as out, bus.receiver(queue) as one:
        await out.send_messages([ServiceBusMessage(str(n)) for n in range(10)])
        await out.send_messages([ServiceBusMessage(str(n), partition_key="k") for n in range(10)])
        found = Counter(fragment(m) for m in await peek_all(one))
        assert sum(found.values()) == 20
        assert found[fragment_of("k")] >= 10
        assert len(found) <= 2


@both
async def test_a_batch_with_different_keys_and_a_message_with_two_are_refused(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    async with bus.sender(queue) as out:
        batch = [ServiceBusMessage(key, partition_key=key) for key in ("a", "b")]
        with pytest.raises(ServiceBusError, match="same SessionId or PartitionKey"):
            await out.send_messages(batch)
        message = ServiceBusMessage("two keys", session_id="b")
        message.raw_amqp_message.annotations = {"x-opt-partition-key": "a"}  # Its setter would compare the two.
        with pytest.raises(ServiceBusError, match="or only one of them"):
            await out.send_messages(message)


@both
async def test_duplicates_have_the_same_id_and_the_same_key(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True, RequiresDuplicateDetection=True)
    ids = [f"id {n}" for n in range(4)]
    first = [ServiceBusMessage("", message_id=each) for each in ids]
    other = [ServiceBusMessage("", message_id=each, partition_key="k") for each in ids]
    await bus.send(queue, *first, *other, *first, *other)
    async with bus.receiver(queue) as one:
        found = await peek_all(one)
    assert sorted((m.message_id, m.partition_key or "") for m in found) == sorted(
        (each, key) for each in ids for key in ("", "k")
    )
    assert {fragment(m) for m in found if m.partition_key is None} == {fragment_of(each) for each in ids}


@both
async def test_a_thousand_messages_none_lost(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    await bus.put(queue, *[str(n) for n in range(1000)])
    got: list[int] = []

    async def work(prefetch: int) -> None:
        async with bus.receiver(queue, prefetch_count=prefetch, receive_mode=DELETING) as one:
            while len(got) < 1000:
                messages = await one.receive_messages(max_message_count=50, max_wait_time=1)
                got.extend(int(str(message)) for message in messages)

    await asyncio.gather(work(0), work(100))
    assert sorted(got) == list(range(1000))
    async with bus.receiver(queue) as one:
        assert await nothing_comes(one)


@both
async def test_a_waiting_receiver_is_woken_by_a_message_in_any_fragment(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    async with bus.receiver(queue) as one:
        for key in ("x", "y", "z"):
            waiting = asyncio.create_task(receive_one(one))
            await receiving(one)
            await asyncio.sleep(0.05)
            await bus.send(queue, ServiceBusMessage(key, partition_key=key))
            message = await waiting
            assert str(message) == key
            await one.complete_message(message)


# Sessions


@both
async def test_a_session_is_in_its_fragment_with_order_and_state(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True, RequiresSession=True)
    for name in ("a", "b", "c"):
        await bus.put(queue, *[f"{name}{n}" for n in range(3)], session_id=name)
    async with bus.receiver(queue, session_id="b") as one:
        await one.session.set_state(b"half way")
        messages = await receive(one, 3)
        assert bodies(messages) == ["b0", "b1", "b2"]
        assert {fragment(m) for m in messages} == {fragment_of("b")}
        assert await one.session.renew_lock() is not None
        for message in messages[:2]:
            await one.complete_message(message)
        assert bodies(await one.peek_messages(10, sequence_number=1)) == ["b2"]
    await bus.closed()
    async with bus.receiver(queue, session_id="b") as one:
        assert await one.session.get_state() == b"half way"
        assert bodies(await receive(one, 1)) == ["b2"]


@both
async def test_any_session_means_one_of_every_fragment_in_turn(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True, RequiresSession=True)
    names = [f"s{n}" for n in range(3)]
    for name in names:
        await bus.put(queue, name, session_id=name)
    seen = []
    for _ in names:
        async with bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as one:
            message = await receive_one(one)
            assert one.session.session_id == str(message)
            await one.complete_message(message)
            seen.append(str(message))
        await bus.closed()
    assert sorted(seen) == names


@both
async def test_who_waits_for_any_session_gets_the_first_that_comes(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True, RequiresSession=True)
    waiting = bus.client().get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SOON_S)
    opening = asyncio.create_task(waiting.__aenter__())
    await asyncio.sleep(0.1)
    await bus.put(queue, "here", session_id="late")
    await opening
    assert waiting.session.session_id == "late"
    assert str(await receive_one(waiting)) == "here"
    bus._close(waiting)


@both
async def test_a_message_without_a_session_is_refused(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True, RequiresSession=True)
    async with bus.sender(queue) as out:
        with pytest.raises(ServiceBusError, match="requires sessions"):
            await out.send_messages(ServiceBusMessage("lost", partition_key="k"))


# Topics


@both
async def test_a_message_is_in_the_same_fragment_of_every_subscription(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", "b", enable_partitioning=True)
    keys = [f"k{n}" for n in range(6)]
    await send(bus, topic, *[ServiceBusMessage(key, partition_key=key) for key in keys], ServiceBusMessage("none"))
    copies = await taken_by(bus, topic, {"a": 7, "b": 7})
    for copy in copies:
        assert {(str(m), fragment(m)) for m in copy if m.partition_key} == {(k, fragment_of(k)) for k in keys}
    free = [[fragment(m) for m in copy if not m.partition_key] for copy in copies]
    assert free[0] == free[1]


@both
async def test_rules_and_actions_hold_in_every_fragment(bus: Bus, topics: Topics) -> None:
    topic = topics.new(enable_partitioning=True)
    topics.subscribe_to(topic, "some", ("odd", "n % 2 = 1", "SET seen = 'yes'"))
    messages = [ServiceBusMessage(str(n), application_properties={"n": n}) for n in range(20)]
    await send(bus, topic, *messages)
    (copies,) = await taken_by(bus, topic, {"some": 10})
    assert sorted(int(str(m)) for m in copies) == list(range(1, 20, 2))
    assert all(m.application_properties and m.application_properties[b"seen"] == b"yes" for m in copies)
    assert len({fragment(m) for m in copies}) > 3


@both
async def test_scheduled_messages_are_published_from_their_fragment(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", enable_partitioning=True)
    async with sender(bus, topic) as one:
        soon = bus.broker.now() + datetime.timedelta(seconds=LATER_S)
        numbers = await one.schedule_messages([ServiceBusMessage(k, partition_key=k) for k in ("x", "y", "z")], soon)
        assert [number >> 48 for number in numbers] == [fragment_of(k) for k in ("x", "y", "z")]
        await one.cancel_scheduled_messages(numbers[2])
    await bus.pass_time(LATER_S + 0.1)
    (copies,) = await taken_by(bus, topic, {"a": 2})
    assert {(str(m), fragment(m)) for m in copies} == {(k, fragment_of(k)) for k in ("x", "y")}


@both
async def test_an_action_that_changes_the_session_leaves_the_copy_in_reach(bus: Bus, topics: Topics) -> None:
    topic = topics.new(enable_partitioning=True)
    topics.subscribe_to(topic, "s", ("all", "1 = 1", "SET sys.SessionId = 'new'"), requires_session=True)
    await send(bus, topic, *[ServiceBusMessage(f"m{n}", session_id=f"old {n}") for n in range(3)])
    got: list[str] = []
    while len(got) < 3:
        async with receiver(bus, topic, "s", session_id=NEXT_AVAILABLE_SESSION) as one:
            assert one.session.session_id == "new"
            for message in await one.receive_messages(max_message_count=3, max_wait_time=0.5):
                await one.session.set_state(b"known")
                await one.complete_message(message)
                got.append(str(message))
    assert sorted(got) == ["m0", "m1", "m2"]


# Administration


def test_partitioning_is_shown(admin: ServiceBusAdministrationClient) -> None:
    made = admin.create_queue("partitioned", enable_partitioning=True, max_size_in_megabytes=2048)
    assert made.enable_partitioning
    found = admin.get_queue("partitioned")
    assert (found.enable_partitioning, found.availability_status) == (True, "Available")
    assert admin.create_topic("partitioned-topic", enable_partitioning=True).enable_partitioning
    assert admin.get_topic("partitioned-topic").enable_partitioning


def test_partitioning_cannot_be_changed(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    broker.update_queue(queue, MaxDeliveryCount=3)
    assert broker.queue(queue)["EnablePartitioning"] == "true"
    with pytest.raises(HttpError, match="EnablePartitioning is fixed"):
        broker.update_queue(queue, EnablePartitioning=False)


@both
async def test_an_update_holds_in_every_fragment_and_a_deletion_frees_them(
    bus: Bus, broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue(EnablePartitioning=True)
    broker.update_queue(queue, MaxDeliveryCount=1)
    await bus.send(queue, *[ServiceBusMessage(str(n), partition_key=str(n)) for n in range(3)])
    assert broker.count(queue) == 3
    async with bus.receiver(queue) as one:
        for message in await receive(one, 3):
            await one.abandon_message(message)
    await until(lambda: broker.count(queue, "DeadLetterMessageCount") == 3, "all are dead letters")
    broker.delete_queue(queue)
    with pytest.raises(HttpError):
        broker.queue(queue)
    broker.create_queue(queue, EnablePartitioning=True)
    assert broker.count(queue, "MessageCount") == 0


# What the broker does by itself


@both
async def test_forwarding_keeps_keys_and_loses_nothing(bus: Bus, new_queue: NewQueue) -> None:
    last = new_queue(EnablePartitioning=True)
    first = new_queue(EnablePartitioning=True, ForwardTo=last)
    keys = [f"k{n}" for n in range(8)]
    await bus.send(first, *[ServiceBusMessage(key, partition_key=key) for key in keys])
    await bus.send(first, *[ServiceBusMessage(f"free {n}") for n in range(20)])
    async with bus.receiver(last) as one:
        messages = await receive(one, 28)
        for message in messages:
            await one.complete_message(message)
        assert {(str(m), fragment(m)) for m in messages if m.partition_key} == {(k, fragment_of(k)) for k in keys}
        assert sorted(str(m) for m in messages if not m.partition_key) == sorted(f"free {n}" for n in range(20))
        assert await nothing_comes(one)


@both
async def test_purge_and_redrive_reach_every_fragment(bus: Bus, broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    await bus.send(queue, *[ServiceBusMessage(str(n), partition_key=str(n)) for n in range(10)])
    async with bus.receiver(queue) as one:
        for message in await receive(one, 10):
            await one.dead_letter_message(message)
    assert broker.count(queue, "DeadLetterMessageCount") == 10
    status, text = broker.request("POST", "/$api/redrive", json.dumps({"entity": queue}))
    assert status == 200, text
    assert (broker.count(queue), broker.count(queue, "DeadLetterMessageCount")) == (10, 0)
    status, text = broker.request("POST", "/$api/purge", json.dumps({"entity": queue}))
    assert status == 200, text
    assert broker.count(queue, "MessageCount") == 0
