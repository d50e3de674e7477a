"""Pairing: which backlog queues are made, accepted, left alone, and when it fails."""

from __future__ import annotations

import logging

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient

from support.broker import BrokerProcess, HttpError
from support.pair_scene import Scene, until
from twinbus.faults.proxy import Mode
from twinbus.pair import BacklogError, PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.aio import PairedServiceBusClient as AsyncPaired


async def test_missing_backlog_queues_are_made_as_documented(scene: Scene) -> None:
    async with scene.client(backlog_queue_count=3) as client:
        queues = client.status().backlog_queues

    assert queues == [f"{scene.name}/x-servicebus-transfer/{index}" for index in range(3)]
    for queue in queues:
        found = scene.secondary.queue(queue)
        assert found["MaxSizeInMegabytes"] == "5120"
        assert found["MaxDeliveryCount"] == "2147483647"
        assert found["LockDuration"] == "PT1M"
        assert found["DeadLetteringOnMessageExpiration"] == "true"
        assert found["EnableBatchedOperations"] == "true"
        assert found["DefaultMessageTimeToLive"].startswith("P10675199D")
        assert found["AutoDeleteOnIdle"].startswith("P10675199D")
        assert (found["RequiresSession"], found["RequiresDuplicateDetection"]) == ("false", "false")
        assert found["EnablePartitioning"] == "false"


async def test_pairing_again_makes_nothing_new(scene: Scene) -> None:
    for _ in range(2):
        async with scene.client() as client:
            paired = client._core.background.pairing.paired

    assert paired.created == []
    assert len(paired.queues) == 2


async def test_a_queue_that_differs_is_used_with_a_warning_for_each_difference(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    different = f"{scene.name}/x-servicebus-transfer/1"
    scene.secondary.create_queue(different, LockDuration="PT30S", MaxDeliveryCount=5)
    with caplog.at_level(logging.WARNING, "twinbus.pair"):
        async with scene.client() as client:
            status = client.status()

    assert different in status.backlog_queues
    said = " ".join(status.differing_queues[different])
    assert "lock_duration_ms is 30000 instead of 60000" in said
    assert "max_delivery_count is 5" in said
    assert different in caplog.text
    assert "lock_duration_ms" in caplog.text


async def test_an_extra_queue_is_left_alone_by_clients_and_emptied_by_the_syphon(scene: Scene) -> None:
    extra = scene.secondary.create_queue(f"{scene.name}/x-servicebus-transfer/17")
    queue = scene.queue()
    diverted = ServiceBusMessage(b"from another", message_id="m", application_properties={"x-ms-path": queue})
    with ServiceBusClient.from_connection_string(scene.secondary.connection_string()) as sdk:
        sdk.get_queue_sender(extra).send_messages(diverted)
    async with scene.client(backlog_queue_count=5, enable_syphon=True) as client:
        assert extra not in client.status().backlog_queues
        await until(lambda: scene.primary.count(queue) == 1, "the message of the extra queue")
    assert scene.secondary.count(extra) == 0


async def test_with_a_wrong_key_for_the_secondary_sends_go_on_until_they_are_diverted(scene: Scene) -> None:
    wrong = scene.secondary.connection_string(key="not-the-key")
    options = SendAvailabilityOptions(state_directory="", attempts=1)
    queue = scene.queue()
    async with AsyncPaired.from_connection_strings(scene.connection_string(), wrong, options) as client:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage(b"direct"))
        scene.proxy.set(Mode.REFUSE)
        with pytest.raises(BacklogError):
            await sender.send_messages(ServiceBusMessage(b"nowhere to go"))


async def test_the_primary_is_asked_for_its_name(scene: Scene) -> None:
    options = SendAvailabilityOptions(backlog_queue_count=1, state_directory="")
    async with AsyncPaired.from_connection_strings(
        scene.primary.connection_string(), scene.secondary.connection_string(), options
    ) as client:
        assert client.status().primary == "contoso"
        assert client.status().backlog_queues == ["contoso/x-servicebus-transfer/0"]


async def test_several_primaries_share_a_secondary(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> None:
    options = SendAvailabilityOptions(backlog_queue_count=1, state_directory="")
    with BrokerProcess(tmp_path_factory.mktemp("third"), namespace="northwind") as third:
        for primary in (scene.primary, third):
            async with AsyncPaired.from_connection_strings(
                primary.connection_string(), scene.secondary.connection_string(), options
            ) as client:
                assert client.status().backlog_queues == [f"{primary.namespace}/x-servicebus-transfer/0"]


def test_a_namespace_cannot_be_paired_with_itself(brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    text = brokers[0].connection_string()

    with pytest.raises(ValueError, match="same namespace"):
        PairedServiceBusClient.from_connection_strings(text, text)


async def test_two_sdk_clients_that_somebody_made_can_be_paired(scene: Scene) -> None:
    queue = scene.queue()
    first = AsyncClient.from_connection_string(scene.primary.connection_string())
    second = AsyncClient.from_connection_string(scene.secondary.connection_string())
    async with AsyncPaired(
        first, second, SendAvailabilityOptions(backlog_queue_count=1, state_directory=""), primary_name=scene.name
    ) as pair:
        await pair.get_queue_sender(queue).send_messages(ServiceBusMessage(b"x", message_id="m"))
    await scene.receive(queue, 1)

    assert scene.received == {"m": 1}


async def test_nothing_else_is_made_in_either_namespace(scene: Scene) -> None:
    async with scene.client():
        pass
    with pytest.raises(HttpError):
        scene.primary.queue(f"{scene.name}/x-servicebus-transfer/0")
