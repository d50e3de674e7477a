"""The synchronous client: the same behaviour, from an application without an event loop."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import AutoLockRenewer, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError

from support.broker import BrokerProcess, wait_for
from support.pair_scene import QUICK
from twinbus.pair import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.route.health_board import Change

Brokers = tuple[BrokerProcess, BrokerProcess]


def paired(brokers: Brokers, name: str, changes: list[Change], **options: Any) -> PairedServiceBusClient:
    primary, secondary = brokers
    return PairedServiceBusClient.from_connection_strings(
        primary.connection_string(),
        secondary.connection_string(),
        SendAvailabilityOptions(**{**QUICK, **options}),
        primary_name=name,
        on_change=changes.append,
    )


@pytest.fixture
def running(brokers: Brokers) -> Any:
    yield brokers
    for broker in brokers:
        if broker.process is None:
            broker.start()


def test_an_outage_from_end_to_end(running: Brokers) -> None:
    primary, _ = running
    queue = primary.create_queue("sync-outage", RequiresDuplicateDetection=True)
    changes: list[Change] = []
    acknowledged: set[str] = set()

    def send(sender: Any, message_id: str) -> None:
        try:
            sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))
        except ServiceBusError:
            return
        acknowledged.add(message_id)

    with paired(running, "sync-outage", changes, enable_syphon=True, poll=1) as client:
        with client.get_queue_sender(queue) as sender:
            send(sender, "before")
            primary.kill()
            number = 0
            while client.status().diverted < 5:
                send(sender, f"during-{number}")
                number += 1
            primary.start()
            wait_for(lambda: client.status().ill == {}, "healing")
            send(sender, "after")
        received: list[str] = []
        with client.get_queue_receiver(queue) as receiver:
            while not acknowledged <= set(received) or primary.count(queue):
                for message in receiver.receive_messages(10, max_wait_time=1):
                    received.append(str(message.message_id))
                    receiver.complete_message(message)

    assert {"before", "after"} <= acknowledged
    assert set(received) >= acknowledged
    assert len(received) == len(set(received))
    assert [change.after.value for change in changes] == ["suspect", "failed over", "healthy"]


def test_senders_in_several_threads_share_the_health_of_an_entity(
    running: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, secondary = running
    tried: list[str] = []
    open_link = ServiceBusSender._open

    def noted(sender: ServiceBusSender, *args: Any, **kwargs: Any) -> None:
        tried.append(sender.entity_name)
        open_link(sender, *args, **kwargs)

    monkeypatch.setattr(ServiceBusSender, "_open", noted)
    queue = primary.create_queue("sync-threads")
    changes: list[Change] = []
    with paired(running, "sync-threads", changes, failover_interval=0) as client:
        primary.kill()
        client.get_queue_sender(queue).send_messages(ServiceBusMessage(b"x"))
        assert set(tried) == {queue}
        first = len(tried)
        threads = [
            threading.Thread(target=lambda: client.get_queue_sender(queue).send_messages(ServiceBusMessage(b"x")))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.status().diverted == 5

    assert len(tried) == first  # Nobody tried the primary again.
    assert sum(secondary.count(f"sync-threads/x-servicebus-transfer/{index}") for index in range(2)) == 5


def test_the_sdks_lock_renewer_works_on_paired_receivers(running: Brokers) -> None:
    primary, _ = running
    queue = primary.create_queue("sync-renewer", LockDuration="PT8S")
    with paired(running, "sync-renewer", []) as client, AutoLockRenewer() as renewer:
        client.get_queue_sender(queue).send_messages(ServiceBusMessage(b"x", message_id="m"))
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=30)
            first_until = message.locked_until_utc
            assert first_until is not None
            renewer.register(receiver, message, max_lock_renewal_duration=60)
            time.sleep((first_until - datetime.now(UTC)).total_seconds() + 0.5)  # Its first lock is over.
            receiver.complete_message(message)

    assert primary.count(queue) == 0


def test_overlapped_sends_tell_every_outcome(running: Brokers) -> None:
    primary, _ = running
    queue = primary.create_queue("sync-overlapped")
    with paired(running, "sync-overlapped", []) as client:
        sender = client.get_queue_sender(queue)
        outcomes = sender.send_many(ServiceBusMessage(b"x", message_id=f"m{number}") for number in range(50))
        assert [outcome.error for outcome in outcomes] == [None] * 50
        assert [outcome.message.message_id for outcome in outcomes] == [f"m{number}" for number in range(50)]

    assert primary.count(queue) == 50
