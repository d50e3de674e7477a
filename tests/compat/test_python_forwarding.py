"""Forwarding with the official client: along chains, across stores, out of dead-letter queues, and where it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import apsw
import psycopg
import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import EntityStatus

from support.broker import SOON_S, BrokerProcess
from support.gateways import Gateways
from support.sdk import Bus, both, nothing_comes, receive, receive_one, receiving
from support.topics import Topics, bodies, receiver, refusals, send, taken_by

pytest_plugins = ["compat.conftest_admin", "compat.conftest_topics"]
pytestmark = pytest.mark.feature("forwarding")

BROKER_OPTIONS = ("--stores", "2")
DEAD = ServiceBusSubQueue.DEAD_LETTER
UNDELIVERABLE = ServiceBusSubQueue.TRANSFER_DEAD_LETTER


@pytest.fixture(scope="module")
def broker(admin_endpoint: Any) -> BrokerProcess:
    found: BrokerProcess = admin_endpoint.broker
    return found


class Queues:
    """The queues of one test, placed where the test wants them."""

    def __init__(self, topics: Topics, broker: BrokerProcess) -> None:
        self.admin = topics.admin
        self._topics = topics
        self._broker = broker

    def new(self, **settings: Any) -> str:
        """A queue."""
        name = self._topics.name()
        self.admin.create_queue(name, **settings)
        return name

    def on_other_store(self, than: str, **settings: Any) -> str:
        """A queue on another store than an entity."""
        while (name := self.new(**settings)) and self.store_of(name) == self.store_of(than):
            pass
        return name

    def on_same_store(self, than: str, **settings: Any) -> str:
        """A queue on the same store as an entity."""
        while (name := self.new(**settings)) and self.store_of(name) != self.store_of(than):
            pass
        return name

    def store_of(self, name: str) -> int:
        """The store on which an entity lies, from the catalog."""
        if isinstance(self._broker, Gateways):
            with psycopg.connect(self._broker.stores[0]) as database:
                row = database.execute("SELECT store FROM twinbus_compat.entity WHERE name = %s", (name,)).fetchone()
            assert row is not None
            return int(row[0])
        catalog = apsw.Connection(str(self._broker.data / "catalog.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return int(catalog.execute("SELECT store FROM entity WHERE name = ?", (name,)).get)
        finally:
            catalog.close()


@pytest.fixture
def queues(topics: Topics, broker: BrokerProcess) -> Queues:
    return Queues(topics, broker)


async def taken(bus: Bus, queue: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
    """So many messages of a queue, received and completed."""
    async with bus.receiver(queue, **options) as one:
        messages = await receive(one, count)
        for message in messages:
            await one.complete_message(message)
        return messages


@both
async def test_a_queue_forwards_on_one_store_and_between_two(bus: Bus, queues: Queues) -> None:
    end = queues.new()
    near, far = queues.on_same_store(end, forward_to=end), queues.on_other_store(end, forward_to=end)
    message = ServiceBusMessage(
        "near", message_id="n", session_id="s", subject="l", application_properties={"a": 1}, correlation_id="c"
    )
    await bus.send(near, message)
    await bus.send(far, *[ServiceBusMessage(f"far {n}") for n in range(5)])
    found = await taken(bus, end, 6)
    assert sorted(bodies(found)) == [*[f"far {n}" for n in range(5)], "near"]
    [one] = [each for each in found if str(each) == "near"]
    assert (one.message_id, one.session_id, one.subject, one.correlation_id) == ("n", "s", "l", "c")
    assert one.application_properties == {b"a": 1}
    assert one.delivery_count == 0
    assert one.dead_letter_source is None
    for source in (near, far):
        assert queues.admin.get_queue_runtime_properties(source).total_message_count == 0


@both
async def test_the_first_number_stays_with_the_message_along_a_chain(bus: Bus, queues: Queues) -> None:
    end = queues.new()
    middle = queues.on_other_store(end, forward_to=end)
    first = queues.on_other_store(middle)
    await bus.send(first, *[ServiceBusMessage(str(n)) for n in range(3)])
    await bus.send(end, ServiceBusMessage("before"))
    settings = queues.admin.get_queue(first)
    settings.forward_to = middle
    queues.admin.update_queue(settings)
    found = await taken(bus, end, 4)
    assert [(str(m), m.sequence_number, m.enqueued_sequence_number) for m in found] == [
        ("before", 1, None),
        ("0", 2, 1),
        ("1", 3, 2),
        ("2", 4, 3),
    ]
    assert found[1]._raw_amqp_message.annotations is not None
    assert not [key for key in found[1]._raw_amqp_message.annotations if b"hop" in key]


@both
async def test_a_queue_forwards_to_a_topic_and_a_subscription_to_a_queue(
    bus: Bus, queues: Queues, topics: Topics
) -> None:
    ends = [queues.new() for _ in range(3)]
    topic = topics.new("stays")
    for number, end in enumerate(ends):
        topics.subscribe(topic, f"s{number}", forward_to=end)
    first = queues.on_other_store(topic, forward_to=topic)
    await bus.send(first, ServiceBusMessage("a"))
    await send(bus, topic, ServiceBusMessage("b"))
    [kept] = await taken_by(bus, topic, {"stays": 2})
    assert sorted(bodies(kept)) == ["a", "b"]
    for end in ends:
        assert sorted(bodies(await taken(bus, end, 2))) == ["a", "b"]


@both
async def test_dead_letters_are_forwarded_with_where_and_why_they_died(bus: Bus, queues: Queues) -> None:
    end = queues.new()
    source = queues.on_other_store(end, forward_dead_lettered_messages_to=end, default_message_time_to_live="PT2S")
    await bus.send(source, ServiceBusMessage("a", application_properties={"kept": "yes"}))
    async with bus.receiver(source) as one:
        message = await receive_one(one)
        await one.dead_letter_message(message, reason="broken", error_description="in two")
    async with bus.receiver(end) as one:
        found = await receive_one(one)
        assert (found.dead_letter_reason, found.dead_letter_error_description) == ("broken", "in two")
        assert found.dead_letter_source == source
        assert found.application_properties[b"kept"] == b"yes"
        assert found.enqueued_sequence_number == 1
        # The time to live that it had before does not end it here.
        assert found.time_to_live is None
        await one.complete_message(found)
    assert queues.admin.get_queue_runtime_properties(source).total_message_count == 0


@both
async def test_messages_that_expire_are_forwarded_too(bus: Bus, queues: Queues) -> None:
    end = queues.new()
    source = queues.new(
        forward_dead_lettered_messages_to=end,
        default_message_time_to_live="PT1S",
        dead_lettering_on_message_expiration=True,
    )
    await bus.put(source, "a")
    async with bus.receiver(end) as one:
        assert (await receive_one(one)).dead_letter_reason == "TTLExpiredException"


@both
async def test_after_four_hops_a_message_is_dead_lettered_where_it_is(bus: Bus, queues: Queues) -> None:
    chain = [queues.new()]
    for _ in range(5):
        chain.insert(0, queues.new(forward_to=chain[0]))
    await bus.put(chain[1], "four hops")
    await bus.put(chain[0], "five hops")
    assert bodies(await taken(bus, chain[5], 1)) == ["four hops"]
    [dead] = await taken(bus, chain[4], 1, sub_queue=DEAD)
    assert (str(dead), dead.dead_letter_reason) == ("five hops", "MaxTransferHopCountExceeded")
    async with bus.receiver(chain[5]) as one:
        assert await nothing_comes(one)


@both
async def test_a_destination_that_is_disabled_or_deleted_fills_the_transfer_dead_letter_queue(
    bus: Bus, queues: Queues
) -> None:
    gone, disabled = queues.new(), queues.new(status=EntityStatus.SEND_DISABLED)
    to_gone, to_disabled = queues.new(forward_to=gone), queues.new(forward_to=disabled)
    queues.admin.delete_queue(gone)
    await bus.put(to_gone, "a")
    await bus.put(to_disabled, "b")
    async with bus.receiver(to_gone, sub_queue=UNDELIVERABLE) as one:
        message = await receive_one(one)
        assert (str(message), message.dead_letter_reason) == ("a", "MessagingEntityNotFoundException")
        assert gone in (message.dead_letter_error_description or "")
        [peeked] = await one.peek_messages(sequence_number=1)
        assert peeked.sequence_number == message.sequence_number
        await one.abandon_message(message)
        message = await receive_one(one)
        await one.complete_message(message)
    assert queues.admin.get_queue_runtime_properties(to_gone).transfer_dead_letter_message_count == 0
    counts = queues.admin.get_queue_runtime_properties(to_disabled)
    assert (counts.transfer_dead_letter_message_count, counts.active_message_count) == (1, 0)
    async with bus.receiver(to_disabled, sub_queue=UNDELIVERABLE) as one:
        message = await receive_one(one)
        assert message.dead_letter_reason == "MessagingEntityDisabledException"
        await one.defer_message(message)
        [again] = await one.receive_deferred_messages(message.sequence_number)
        await one.complete_message(again)


@both
async def test_a_session_queue_takes_forwarded_messages_that_have_a_session(bus: Bus, queues: Queues) -> None:
    end = queues.new(requires_session=True)
    source = queues.new(forward_to=end)
    await bus.send(source, ServiceBusMessage("without"), ServiceBusMessage("with", session_id="s"))
    async with bus.receiver(end, session_id="s") as one:
        assert str(await receive_one(one)) == "with"
    [refused] = await taken(bus, source, 1, sub_queue=UNDELIVERABLE)
    assert (str(refused), refused.dead_letter_reason) == ("without", "Session id is null.")
    await bus.closed()


@both
async def test_a_duplicate_is_dropped_where_it_arrives(bus: Bus, queues: Queues) -> None:
    end = queues.new(requires_duplicate_detection=True)
    near, far = queues.on_same_store(end, forward_to=end), queues.on_other_store(end, forward_to=end)
    for source in (near, far, near, far):
        await bus.send(source, ServiceBusMessage("a", message_id="same"))
    assert len(await taken(bus, end, 1)) == 1
    async with bus.receiver(end) as one:
        assert await nothing_comes(one)
    for source in (near, far):
        assert queues.admin.get_queue_runtime_properties(source).total_message_count == 0


@both
async def test_nobody_else_receives_from_a_queue_that_forwards(bus: Bus, queues: Queues, topics: Topics) -> None:
    end = queues.new()
    both_ways = queues.new(forward_to=end, forward_dead_lettered_messages_to=end)
    topic = topics.new()
    topics.subscribe(topic, "s", forward_to=end)
    problems = await refusals(
        bus.receiver(both_ways), bus.receiver(both_ways, sub_queue=DEAD), receiver(bus, topic, "s")
    )
    assert all("forwards" in str(problem) and end in str(problem) for problem in problems)
    async with receiver(bus, topic, "s", sub_queue=DEAD) as one:
        assert await nothing_comes(one)


@both
async def test_a_receiver_is_told_when_its_queue_begins_to_forward(bus: Bus, queues: Queues) -> None:
    end, source = queues.new(), queues.new()
    async with bus.receiver(source) as one:
        waiting = asyncio.create_task(one.receive_messages(max_wait_time=SOON_S))
        await receiving(one)
        settings = queues.admin.get_queue(source)
        settings.forward_to = end
        queues.admin.update_queue(settings)
        with pytest.raises(ServiceBusError, match="forwards"):
            await waiting
    await bus.put(source, "a")
    assert bodies(await taken(bus, end, 1)) == ["a"]
    settings = queues.admin.get_queue(source)
    settings.forward_to = None
    queues.admin.update_queue(settings)
    await bus.put(source, "b")
    assert bodies(await taken(bus, source, 1)) == ["b"]


# Administration


def test_destinations_come_back_as_addresses_and_the_source_does_not_idle(queues: Queues, admin_endpoint: Any) -> None:
    end, dead = queues.new(), queues.new()
    source = queues.new(forward_to=end, forward_dead_lettered_messages_to=dead, auto_delete_on_idle="PT5M")
    found = queues.admin.get_queue(source)
    assert found.forward_to == f"sb://{admin_endpoint.host}/{end}"
    assert found.forward_dead_lettered_messages_to == f"sb://{admin_endpoint.host}/{dead}"
    assert found.auto_delete_on_idle.days > 10_000
    queues.admin.update_queue(found)
    found.forward_to = None
    queues.admin.update_queue(found)
    assert queues.admin.get_queue(source).forward_to is None


def test_a_subscription_tells_its_destination_too(queues: Queues, topics: Topics, admin_endpoint: Any) -> None:
    end, topic = queues.new(), topics.new()
    topics.subscribe(topic, "s", forward_to=end)
    found = topics.admin.get_subscription(topic, "s")
    assert found.forward_to == f"sb://{admin_endpoint.host}/{end}"
    topics.admin.update_subscription(topic, found)


def test_what_cannot_be_forwarded_is_refused(queues: Queues, topics: Topics) -> None:
    end = queues.new()
    middle = queues.new(forward_to=end)
    topic = topics.new()
    topics.subscribe(topic, "s", forward_to=middle)
    attempts = {
        "no queue or topic": {"forward_to": "nowhere"},
        "sessions": {"forward_to": end, "requires_session": True},
    }
    for text, settings in attempts.items():
        with pytest.raises(HttpResponseError, match=text):
            queues.new(**settings)
    for target in (middle, topic, end):
        settings = queues.admin.get_queue(end)
        settings.forward_to = target
        with pytest.raises(HttpResponseError, match=r"come back to|itself"):
            queues.admin.update_queue(settings)
    assert queues.admin.get_queue(end).forward_to is None


@both
async def test_partitioned_queues_forward_and_are_forwarded_to(bus: Bus, queues: Queues) -> None:
    end = queues.new(enable_partitioning=True)
    middle = queues.new(enable_partitioning=True, forward_to=end)
    first = queues.new(forward_to=middle)
    keyed = [ServiceBusMessage(f"k{n}", partition_key=f"key {n}") for n in range(20)]
    await bus.send(first, *keyed, *[ServiceBusMessage(f"p{n}") for n in range(20)])
    found = await taken(bus, end, 40)
    assert sorted(bodies(found)) == sorted(f"{kind}{n}" for kind in "kp" for n in range(20))
    assert len({(message.sequence_number or 0) >> 48 for message in found}) > 4
    assert sorted(message.enqueued_sequence_number or 0 for message in found) == list(range(1, 41))
    assert {message.partition_key for message in found if str(message) == "k7"} == {"key 7"}
    for source in (first, middle, end):
        assert queues.admin.get_queue_runtime_properties(source).total_message_count == 0
