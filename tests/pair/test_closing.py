"""Closing and faulting: in a process that runs the syphon, one half does not outlive the other; elsewhere it may."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage

from support.pair_scene import Scene, until
from twinbus.pair import PartnerError
from twinbus.pair.namespace.port import ClientState


@pytest.mark.parametrize("closed_first", ["primary", "secondary"])
async def test_with_a_syphon_the_other_half_is_faulted_after_the_grace(scene: Scene, closed_first: str) -> None:
    queue = scene.queue()
    async with scene.client(enable_syphon=True, partner_grace=5, poll=1) as client:
        other = "secondary" if closed_first == "primary" else "primary"
        sender = client.get_queue_sender(queue)
        receiver = client.get_queue_receiver(queue)
        await sender.send_messages(ServiceBusMessage(b"x", message_id="m"))
        assert [m.message_id for m in await receiver.receive_messages(1, max_wait_time=30)] == ["m"]
        await getattr(client, closed_first).close()
        assert client.status().namespaces[closed_first] == "closed"
        assert client.status().namespaces[other] == "open"
        await until(lambda: client.status().namespaces[other] == "faulted", "the fault")
        if other == "primary":
            with pytest.raises(PartnerError, match="secondary namespace of the pair is closed"):
                await sender.send_messages(ServiceBusMessage(b"x"))
            with pytest.raises(PartnerError):
                await receiver.receive_messages(1, max_wait_time=1)
        pump = client._core.background.syphon
        assert pump is not None
        await until(lambda: not pump.is_running, "the end of the pump")


async def test_a_half_that_faults_takes_the_other_with_it_at_once(scene: Scene) -> None:
    async with scene.client(enable_syphon=True, partner_grace=30, poll=1) as client:
        client._core.secondary.fault(RuntimeError("the key was taken away"))
        await until(lambda: client.status().namespaces["primary"] == "faulted", "the fault")

        assert "the key was taken away" in str(client._core.primary.reason)


async def test_both_closed_within_the_grace_is_no_fault(scene: Scene) -> None:
    async with scene.client(enable_syphon=True, partner_grace=6, poll=1) as client:
        pump = client._core.background.syphon
        assert pump is not None
        await client.primary.close()
        await client.secondary.close()
        await until(lambda: not pump.is_running, "the end of the grace, and of the watch")

        assert client.status().namespaces == {"primary": "closed", "secondary": "closed"}


async def test_a_process_without_a_syphon_is_left_alone(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(partner_grace=0) as client:
        await client.secondary.close()
        await asyncio.sleep(0.5)
        assert client._core.primary.state is ClientState.OPEN
        await client.get_queue_sender(queue).send_messages(ServiceBusMessage(b"x"))


async def test_closing_ends_pings_and_pumps_and_does_not_hang(scene: Scene) -> None:
    queue = scene.queue()
    client = scene.client(enable_syphon=True, failover_interval=0, ping_primary_interval=1)
    async with asyncio.timeout(45):
        await client.pair()
        scene.primary.kill()
        assert await scene.send(client.get_queue_sender(queue), "diverted")
        await client.close()
    pings = client.status().pings
    await asyncio.sleep(1.5)

    assert client.status().pings == pings
    left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("syphon")]
    assert left == []
