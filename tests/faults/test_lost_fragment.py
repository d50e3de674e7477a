"""A store of a partitioned entity is lost and returns: the others go on, only what is pinned to it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from faults.disk import BROKEN, HANGING
from faults.faulty import FaultyBroker
from support.broker import HttpError
from support.sdk import told
from twinbus.entities.partitions import FRAGMENTS, fragment_of

STORES = 4
LOST = 2
# The first partitioned entity of a namespace has its fragments on the stores in turn.
CONFIG = """
[[queues]]
Name = "parts"
EnablePartitioning = true
[[queues]]
Name = "sessions"
EnablePartitioning = true
RequiresSession = true
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyBroker]:
    directory = tmp_path_factory.mktemp("lost-fragment")
    process = FaultyBroker(directory, namespace="faults", config=CONFIG, options=("--stores", str(STORES)))
    try:
        yield process.start()  # type: ignore[misc]
        assert "Traceback" not in process.log, process.log[-6000:]
    finally:
        process.kill()


@pytest.fixture
def client(broker: FaultyBroker) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0) as made:
        yield made


@pytest.fixture
def lost(broker: FaultyBroker) -> Iterator[None]:
    broker.down(LOST)
    yield
    broker.up(LOST)


def keys(lost: bool, count: int) -> list[str]:
    """Keys whose fragments lie on the store that is lost, or on the others."""
    named = (f"key {n}" for n in range(10_000))
    found = (key for key in named if (fragment_of(key) % STORES == LOST) is lost)
    return [next(found) for _ in range(count)]


def take(receiver: ServiceBusReceiver, count: int) -> list[Any]:
    """So many messages, completed."""
    found: list[Any] = []
    while len(found) < count:
        messages = receiver.receive_messages(max_message_count=count - len(found), max_wait_time=30)
        assert messages, f"{len(found)} of {count} came"
        for message in messages:
            receiver.complete_message(message)
        found += messages
    return found


def transient(problem: ServiceBusError) -> bool:
    """Whether the client would try again by itself."""
    return bool(problem._retryable)


def test_messages_without_a_key_go_to_the_others_and_all_come_when_the_store_is_back(
    broker: FaultyBroker, client: ServiceBusClient
) -> None:
    with client.get_queue_sender("parts") as sender, client.get_queue_receiver("parts") as receiver:
        for n in range(FRAGMENTS):
            sender.send_messages(ServiceBusMessage(f"before {n}"))
        broker.down(LOST)
        try:
            for n in range(2 * FRAGMENTS):
                sender.send_messages(ServiceBusMessage(f"during {n}"))
            assert broker.queue("parts")["EntityAvailabilityStatus"] == "Limited"
            assert broker.count("parts") == 2 * FRAGMENTS + FRAGMENTS - FRAGMENTS // STORES
            peeked = receiver.peek_messages(100, sequence_number=1)
            assert LOST not in {
                (message.sequence_number >> 48) % STORES for message in peeked if message.sequence_number
            }
            assert len(peeked) == broker.count("parts")
            during = take(receiver, len(peeked))
        finally:
            broker.up(LOST)
        assert broker.queue("parts")["EntityAvailabilityStatus"] == "Available"
        after = take(receiver, FRAGMENTS // STORES)
    sent = {f"before {n}" for n in range(FRAGMENTS)} | {f"during {n}" for n in range(2 * FRAGMENTS)}
    assert sorted(map(str, during + after)) == sorted(sent)
    assert {message.sequence_number >> 48 & 3 for message in after} == {LOST}


def test_what_is_pinned_to_the_lost_store_is_refused_and_nothing_else(client: ServiceBusClient, lost: None) -> None:
    [here], [there] = keys(True, 1), keys(False, 1)
    with client.get_queue_sender("parts") as sender, client.get_queue_receiver("parts") as receiver:
        with pytest.raises(ServiceBusError, match="is down") as refused:
            sender.send_messages(ServiceBusMessage("refused", partition_key=here))
        assert transient(refused.value), told(refused.value)
        with pytest.raises(ServiceBusError):
            receiver.receive_deferred_messages([LOST << 48 | 1])
    with client.get_queue_sender("parts") as sender, client.get_queue_receiver("parts") as receiver:
        sender.send_messages(ServiceBusMessage("taken", partition_key=there))
        assert [str(message) for message in take(receiver, 1)] == ["taken"]


def test_sessions_of_other_fragments_go_on(client: ServiceBusClient, lost: None) -> None:
    [here], [there] = keys(True, 1), keys(False, 1)
    with client.get_queue_sender("sessions") as sender:
        sender.send_messages(ServiceBusMessage("there", session_id=there))
    with pytest.raises(ServiceBusError) as refused:
        client.get_queue_receiver("sessions", session_id=here, max_wait_time=30).__enter__()
    assert "is down" in told(refused.value)
    with client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30) as receiver:
        assert receiver.session.session_id == there
        assert len(take(receiver, 1)) == 1


def test_management_waits_for_all_stores(broker: FaultyBroker, lost: None) -> None:
    for manage in (
        lambda: broker.create_queue("another", EnablePartitioning=True),
        lambda: broker.update_queue("parts", MaxDeliveryCount=3),
        lambda: broker.delete_queue("parts"),
    ):
        with pytest.raises(HttpError) as refused:
            manage()
        assert refused.value.status == 503
    with pytest.raises(HttpError):
        broker.queue("another")
    assert broker.queue("parts")["MaxDeliveryCount"] == "10"


def test_a_receiver_that_waits_gets_what_the_store_held_when_it_is_back(
    broker: FaultyBroker, client: ServiceBusClient
) -> None:
    with client.get_queue_sender("parts") as sender, client.get_queue_receiver("parts") as receiver:
        sender.send_messages(ServiceBusMessage("kept", partition_key=keys(True, 1)[0]))
        broker.down(LOST)
        assert receiver.receive_messages(max_wait_time=0.5) == []
        broker.up(LOST)
        assert [str(message) for message in take(receiver, 1)] == ["kept"]


@pytest.mark.parametrize("fault", [BROKEN, HANGING])
def test_nothing_accepted_is_missing_when_a_disk_fails_under_sends(
    broker: FaultyBroker, client: ServiceBusClient, fault: str
) -> None:
    accepted: list[str] = []
    refused: list[ServiceBusError] = []
    with client.get_queue_sender("parts") as sender, broker.fault(LOST, fault):
        for n in range(4 * FRAGMENTS):
            try:
                sender.send_messages(ServiceBusMessage(f"{fault} {n}"))
                accepted.append(f"{fault} {n}")
            except ServiceBusError as problem:
                refused.append(problem)
                sender.__enter__()
    # One send found out; those after it went elsewhere.
    assert len(refused) <= 1
    assert all(map(transient, refused)), refused
    if broker.state(LOST) != "up":
        if fault == BROKEN:
            broker.up(LOST)
        broker.until(LOST, "up")
    with client.get_queue_receiver("parts") as receiver:
        found = []
        while broker.count("parts"):
            for message in receiver.receive_messages(max_message_count=100, max_wait_time=1):
                receiver.complete_message(message)
                found.append(str(message))
    assert set(found) >= set(accepted)
    assert len(found) == len(set(found))
