"""What reaches which namespace in each state of health, as both journals tell it."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from support import journals
from support.pair_scene import Scene, until
from twinbus.faults.proxy import Mode
from twinbus.pair import State, background
from twinbus.pair.aio import PairedServiceBusClient
from twinbus.pair.route.health import Event
from twinbus.pair.route.health_board import Scope

ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><{}Description '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)


async def test_while_healthy_the_secondary_sees_nothing_and_nobody_pings(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(ping_primary_interval=1) as client:
        sender = client.get_queue_sender(queue)
        before = journals.count(scene.secondary, "send", "receive", "copy")
        for number in range(10):
            assert await scene.send(sender, f"m{number}")
        await asyncio.sleep(1.5)
        status = client.status()

    assert journals.count(scene.secondary, "send", "receive", "copy") == before
    sends = [entry for entry in journals.entries(scene.primary, queue) if entry.operation == "send"]
    assert [entry.message_id for entry in sends] == [f"m{number}" for number in range(10)]
    assert (status.pings, status.diverted, status.ill) == (0, 0, {})


async def test_while_healthy_the_bytes_are_the_sdks_own(scene: Scene) -> None:
    """Both send the same message; the broker stored as many bytes of each."""
    paired_queue, bare_queue = scene.queue(), scene.queue()
    message = ServiceBusMessage(b"same", message_id="m", subject="s", application_properties={"a": 1})
    async with scene.client() as client:
        await client.get_queue_sender(paired_queue).send_messages(message)
    async with ServiceBusClient.from_connection_string(scene.primary.connection_string()) as sdk:
        async with sdk.get_queue_sender(bare_queue) as sender:
            await sender.send_messages(message)
        received = []
        for queue in (paired_queue, bare_queue):
            async with sdk.get_queue_receiver(queue) as receiver:
                (got,) = await receiver.receive_messages(1, max_wait_time=30)
                received.append((got.raw_amqp_message.properties, got.application_properties, b"".join(got.body)))
                await receiver.complete_message(got)

    assert str(received[0]) == str(received[1])
    sizes = [journals.entries(scene.primary, queue)[0].bytes for queue in (paired_queue, bare_queue)]
    assert sizes[0] == sizes[1]


async def test_while_suspect_the_caller_sees_the_errors(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=600) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        scene.proxy.set(Mode.REFUSE)
        for number in range(3):
            assert not await scene.send(sender, f"during-{number}")
        assert client.status().ill == {queue: "suspect"}
        scene.proxy.set(Mode.PASS)
        assert await scene.send(sender, "after")
        assert client.status().ill == {}

    assert scene.diverted == set()
    assert [change.after for change in scene.changes] == [State.SUSPECT, State.HEALTHY]


async def test_while_failed_over_only_pings_reach_the_entity_and_none_after_healing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = scene.queue()
    may_ping, ping = asyncio.Event(), background.ping

    async def held_back(*args: Any) -> None:
        await may_ping.wait()
        await ping(*args)

    monkeypatch.setattr(background, "ping", held_back)
    async with scene.client(failover_interval=0, ping_primary_interval=1, backlog_queue_count=1) as client:
        first, second = client.get_queue_sender(queue), client.get_queue_sender(queue)
        assert await scene.send(first, "before")
        scene.proxy.set(Mode.REFUSE)
        assert await scene.send(first, "diverted-0")
        failed_over_at = scene.changes[-1].at
        scene.proxy.set(Mode.PASS)  # The primary is back, but nobody knows before a ping has told.
        for number, sender in enumerate((first, second, first), 1):
            assert await scene.send(sender, f"diverted-{number}")
        may_ping.set()
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        assert scene.changes[-1].at - failed_over_at >= 1.0
        for sender in (first, second):
            assert await scene.send(sender, f"after-{id(sender)}")
        pings = client.status().pings
        await asyncio.sleep(1.5)
        assert client.status().pings == pings == 1

    entries = journals.entries(scene.primary, queue)
    sends = [(entry.message_id, entry.outcome) for entry in entries if entry.operation == "send"]
    assert sends[0] == ("before", "")
    assert sends[1][1] == "ping"
    assert [outcome for _, outcome in sends[2:]] == ["", ""]
    assert scene.diverted == {f"diverted-{number}" for number in range(4)}


async def test_nobody_ever_receives_a_ping(scene: Scene) -> None:
    queue = scene.queue(RequiresSession=True)
    async with scene.client(failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        scene.proxy.set(Mode.REFUSE)
        assert await scene.send(sender, "diverted", session_id="s")
        scene.proxy.set(Mode.PASS)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")

    assert [entry.outcome for entry in journals.entries(scene.primary, queue) if entry.operation == "send"] == ["ping"]
    assert scene.primary.count(queue) == 0
    async with (
        ServiceBusClient.from_connection_string(scene.primary.connection_string()) as sdk,
        sdk.get_queue_receiver(queue, session_id="any") as receiver,
    ):
        assert await receiver.peek_messages(10) == []


async def test_entities_fail_over_one_by_one(scene: Scene) -> None:
    well, ill = scene.queue(), scene.queue()
    async with scene.client(failover_interval=0, preset="documents") as client:
        scene.primary.update_queue(ill, Status="SendDisabled")
        sender = client.get_queue_sender(ill)
        assert await scene.send(sender, "diverted")
        assert await scene.send(client.get_queue_sender(well), "direct")
        await until(lambda: client._core.background.pings_failed > 0, "a ping that is refused")
        assert await scene.send(sender, "still diverted")  # The documents know no state in which sends are refused.

    assert scene.diverted == {"diverted", "still diverted"}


async def test_nobody_receives_a_ping_that_comes_in_a_batch_over_rest_or_scheduled(scene: Scene) -> None:
    """Each is journaled as a ping; a message in the same batch is delivered."""
    queue, topic = scene.queue(), scene.name
    scene.primary.request("PUT", f"/{topic}?api-version=2021-05", ENTRY.format("Topic"))
    scene.primary.request("PUT", f"/{topic}/subscriptions/all?api-version=2021-05", ENTRY.format("Subscription"))

    def ping(message_id: str) -> ServiceBusMessage:
        return ServiceBusMessage(b"", content_type="application/vnd.ms-servicebus-ping", message_id=message_id)

    later = datetime.now(UTC) + timedelta(seconds=0.2)
    async with ServiceBusClient.from_connection_string(scene.primary.connection_string()) as client:
        for sender in (client.get_queue_sender(queue), client.get_topic_sender(topic)):
            async with sender:
                await sender.send_messages([ping("two-1"), ping("two-2")])
                await sender.send_messages([ping("mixed"), ServiceBusMessage("x", message_id="message")])
                numbers = await sender.schedule_messages([ping("scheduled-1"), ping("scheduled-2")], later)
                await sender.cancel_scheduled_messages(await sender.schedule_messages(ping("cancelled"), later))
                assert len(numbers) == 2
        for path in (queue, topic):
            content = {"Content-Type": "application/vnd.ms-servicebus-ping"}
            assert scene.primary.request("POST", f"/{path}/messages", "", content)[0] == 201
        receivers = client.get_queue_receiver(queue), client.get_subscription_receiver(topic, "all")
        for receiver in receivers:
            async with receiver:
                assert [m.message_id for m in await receiver.receive_messages(10, max_wait_time=1)] == ["message"]

    assert (scene.primary.count(queue), scene.primary.count(queue, "ScheduledMessageCount")) == (1, 0)
    sends = [entry for entry in journals.entries(scene.primary, queue) if entry.operation in ("send", "schedule")]
    assert Counter(entry.outcome for entry in sends) == {"ping": 7, "": 1}


def good_pings(client: PairedServiceBusClient) -> int:
    """Without those that went out while nobody answered."""
    beside = client._core.background
    return beside.pings - beside.pings_failed


async def test_a_flapping_primary_is_trusted_only_after_several_pings(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0, ping_primary_interval=1, heal_after_pings=3) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        scene.proxy.set(Mode.REFUSE)
        assert await scene.send(sender, "diverted")
        scene.proxy.set(Mode.PASS)
        began = asyncio.get_running_loop().time()
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        assert asyncio.get_running_loop().time() - began >= 2
        assert good_pings(client) == 3
        assert client.status().pings_by_entity == {queue: client.status().pings}


async def test_a_probe_leaves_nothing_behind(scene: Scene) -> None:
    """Where pings would be delivered, as at Azure: a message scheduled far ahead, and cancelled at once."""
    queue = scene.queue()
    async with scene.client(failover_interval=0, ping_with_probe=True) as client:
        sender = client.get_queue_sender(queue)
        scene.proxy.set(Mode.REFUSE)
        assert await scene.send(sender, "diverted")
        scene.proxy.set(Mode.PASS)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        assert good_pings(client) == 1

    told = [entry.operation for entry in journals.entries(scene.primary, queue) if entry.operation != "manage"]
    assert told == ["schedule", "cancel"]
    assert scene.primary.count(queue, "ScheduledMessageCount") == 0


async def test_a_dead_primary_is_dialled_for_all_entities_together(scene: Scene) -> None:
    """For two seconds each of 200 entities is pinged every second; one that is there heals when the primary is back."""
    queue = scene.queue()
    paths = [queue, *(f"{scene.name}-gone-{number}" for number in range(199))]
    async with scene.client(failover_interval=0, ping_primary_interval=1) as client:
        core = client._core
        await until(lambda: core.primary._facts is not None, "the first word of the primary")
        scene.proxy.set(Mode.REFUSE)
        for path in paths:
            core.background.look_up(path)
            core.health_board.record(Scope(path), Event.FAILED, "gone")
            await asyncio.sleep(0.002)  # They do not fail at the same instant, and are not due at the same.
        before = scene.proxy.connections
        await asyncio.sleep(2)
        assert 1 <= scene.proxy.connections - before <= 8
        assert core.background.pings >= 200
        scene.proxy.set(Mode.PASS)
        await until(lambda: Scope(queue) not in core.health_board.ill(), "healing")


async def test_links_that_are_opened_at_once_share_an_attempt_in_vain(scene: Scene) -> None:
    async with scene.client() as client:
        primary = client._core.primary
        scene.proxy.set(Mode.REFUSE)
        before = scene.proxy.connections
        sends = (primary.send(f"{scene.name}-{number}", [b""]) for number in range(50))
        failures = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(failure, Exception) for failure in failures)
        assert scene.proxy.connections - before <= 3
