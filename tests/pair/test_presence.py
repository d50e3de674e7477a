"""Paired clients are seen by operators while they live, and nobody waits for it."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from support.broker import BrokerProcess, wait_for
from support.pair_scene import Scene, until
from twinbus.faults.proxy import Mode
from twinbus.pair import PairedServiceBusClient, presence


def records(scene: Scene, broker: BrokerProcess) -> list[dict[str, Any]]:
    """What the namespace knows of this test's clients."""
    status, text = broker.request("GET", "/$api/clients")
    assert status == 200, text
    return [record for record in json.loads(text)["clients"] if record["pair"] == scene.name]


@pytest.fixture
def patient_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace that is slow to answer hears the goodbye, too."""
    monkeypatch.setattr(presence, "FAREWELL_S", 30.0)


@pytest.mark.usefixtures("patient_farewell")
async def test_both_namespaces_know_a_client_until_it_ends(scene: Scene) -> None:
    async with scene.client(enable_syphon=True):
        for broker in (scene.primary, scene.secondary):
            await until(lambda broker=broker: bool(records(scene, broker)), "a record")  # type: ignore[misc]
            (record,) = records(scene, broker)
            assert (record["kind"], record["process"]) == ("paired-client", os.getpid())
            syphon = record["state"]["syphon"]
            assert (syphon["moved"], syphon["dead"], syphon["problem"], syphon["waits_for"]) == (0, 0, None, None)
            assert syphon["queues"] == "0-1"
            assert record["state"]["ill"] == {}

    assert records(scene, scene.primary) == records(scene, scene.secondary) == []


async def test_a_change_is_told_soon(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0) as client:
        await until(lambda: bool(records(scene, scene.secondary)), "a record")
        scene.proxy.set(Mode.REFUSE)
        assert await scene.send(client.get_queue_sender(queue), "diverted")
        await until(lambda: records(scene, scene.secondary)[0]["state"]["diverted"] == 1, "the news")
        assert records(scene, scene.secondary)[0]["state"]["ill"] == {queue: "failed over"}


async def test_nobody_waits_for_a_namespace_that_does_not_take_records(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never answers: who waited for it would wait for ever."""
    asked: list[str] = []

    async def hang(administration: Any, *args: Any) -> None:
        asked.append(str(administration))
        await asyncio.Event().wait()

    monkeypatch.setattr(presence.upkeep, "put_client", hang)
    monkeypatch.setattr(presence, "ATTEMPT_S", 3600.0)
    queue = scene.queue()
    async with scene.client() as client:
        await until(lambda: len(asked) == 2, "both being asked")
        assert await scene.send(client.get_queue_sender(queue), "m")


async def test_who_does_not_want_to_be_seen_is_not(scene: Scene) -> None:
    async with scene.client(announce=False) as client:
        assert client._core.background._presence is None
        await asyncio.sleep(0.3)
        assert records(scene, scene.secondary) == []


@pytest.mark.usefixtures("patient_farewell")
def test_the_synchronous_client_is_seen_and_can_be_described(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = scene.queue()
    monkeypatch.setenv("TWINBUS_PRIMARY", scene.primary.connection_string())
    monkeypatch.setenv("TWINBUS_PRIMARY_NAME", scene.name)
    monkeypatch.setenv("TWINBUS_SECONDARY", scene.secondary.connection_string())
    monkeypatch.setenv("TWINBUS_PAIR_BACKLOG_QUEUE_COUNT", "1")
    with PairedServiceBusClient.from_description() as client:
        client.get_queue_sender(queue).send_messages(ServiceBusMessage(b"x"))
        wait_for(lambda: bool(records(scene, scene.secondary)), "a record")
        assert client.status().backlog_queues == [f"{scene.name}/x-servicebus-transfer/0"]

    assert scene.primary.count(queue) == 1
    assert records(scene, scene.secondary) == []
