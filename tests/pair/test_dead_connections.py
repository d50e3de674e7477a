"""Connections whose other end went away without a word, and a primary that hangs from the start.

Over new connections the namespaces answer: nothing may go on waiting for the old ones.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from support.pair_scene import QUICK, Scene, until
from twinbus.client import ConnectionString
from twinbus.client.diverting import divert
from twinbus.client.errors import ClientError
from twinbus.client.messages import build
from twinbus.faults.frames import Says
from twinbus.faults.proxy import FaultProxy, Mode, Toward
from twinbus.pair import PairedServiceBusClient, SendAvailabilityOptions, State
from twinbus.pair.aio import PairedServiceBusClient as AsyncPaired
from twinbus.pair.namespace.own_client import OwnClientNamespace

ATTEMPT_S = 0.5
SHORT: dict[str, Any] = {"failover_interval": 0, "attempt_timeout": ATTEMPT_S, "primary_timeout": ATTEMPT_S}


def message(message_id: str) -> ServiceBusMessage:
    return ServiceBusMessage(b"x", message_id=message_id)


def blocking(scene: Scene, primary: str | None = None) -> PairedServiceBusClient:
    return PairedServiceBusClient.from_connection_strings(
        primary or scene.connection_string(),
        scene.secondary.connection_string(),
        SendAvailabilityOptions(**{**QUICK, **SHORT}),
        primary_name=scene.name,
        on_change=scene.changes.append,
        on_diverted=scene._was_diverted,
    )


async def healed(scene: Scene) -> None:
    await until(lambda: bool(scene.changes) and scene.changes[-1].after is State.HEALTHY, "healing")


async def test_a_sender_does_not_go_back_to_a_dead_link(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(**SHORT) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        scene.proxy.forget()
        assert await scene.send(sender, "diverted")
        await healed(scene)
        assert await scene.send(sender, "after")
    assert scene.diverted == {"diverted"}


@pytest.mark.parametrize("was_open", [True, False], ids=["open", "being opened"])
async def test_a_blocking_sender_does_not_go_back_to_a_dead_link(scene: Scene, was_open: bool) -> None:
    """Nor does it wait for one that a load balancer without a backend took, when there is a backend again."""
    queue = scene.queue()
    with await asyncio.to_thread(lambda: blocking(scene).__enter__()) as client:
        sender = client.get_queue_sender(queue)
        if was_open:
            await asyncio.to_thread(sender.send_messages, message("before"))
            scene.proxy.forget()
        else:
            scene.proxy.set(Mode.SILENT)
        await asyncio.to_thread(sender.send_messages, message("diverted"))
        scene.proxy.set(Mode.PASS)
        await healed(scene)
        await asyncio.to_thread(sender.send_messages, message("after"))
        await asyncio.to_thread(client.close)
    assert scene.diverted == {"diverted"}


async def test_a_blocking_sender_takes_no_longer_for_a_list(scene: Scene) -> None:
    """The SDK asks for the limit of a list first, with attempts of its own."""
    queue = scene.queue()
    with await asyncio.to_thread(lambda: blocking(scene).__enter__()) as client:
        scene.proxy.set(Mode.BLACKHOLE)
        sender, began = client.get_queue_sender(queue), time.monotonic()
        await asyncio.to_thread(lambda: sender.send_messages([message("a"), message("b")], timeout=2 * ATTEMPT_S))
        assert time.monotonic() - began < 2 * ATTEMPT_S + 0.2
        scene.proxy.set(Mode.PASS)
        await asyncio.to_thread(client.close)
    assert scene.diverted == {"a", "b"}


async def test_the_syphon_does_not_wait_for_a_dead_connection(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(**SHORT, enable_syphon=True, poll=1) as client:
        backlog = client.status().backlog_queues[0]
        home = client._core.background.syphon
        assert home is not None
        secondary = client._core.secondary
        await secondary.send(backlog, [divert(build(b"x", message_id="first"), queue)])
        await until(lambda: home.progress.moved.total() == 1, "the first")
        scene.proxy.forget()
        await secondary.send(backlog, [divert(build(b"x", message_id="second"), queue)])
        await until(lambda: home.progress.moved.total() == 2, "the second", timeout_s=10)


async def test_a_diverted_send_is_tried_again_when_its_connection_was_dead(scene: Scene) -> None:
    queue = scene.queue()
    async with FaultProxy(scene.secondary.amqp_port) as before_secondary:
        direct = scene.secondary.connection_string()
        behind = direct.replace(f":{scene.secondary.amqp_port};", f":{before_secondary.port};")
        options = SendAvailabilityOptions(**{**QUICK, **SHORT})
        scene.proxy.set(Mode.REFUSE)
        async with AsyncPaired.from_connection_strings(
            scene.connection_string(), behind, options, primary_name=scene.name
        ) as client:
            sender = client.get_queue_sender(queue)
            assert await scene.send(sender, "diverted")
            before_secondary.forget()
            assert await scene.send(sender, "diverted, too")
            assert client.status().diverted == 2


async def test_an_answer_that_is_only_slow_is_not_a_dead_connection(scene: Scene) -> None:
    """Who sends again for it makes copies without end."""
    queue = scene.queue()
    namespace = OwnClientNamespace("primary", ConnectionString.parse(scene.connection_string()), timeout_s=0.2)
    try:
        await namespace.send(queue, [build(b"x")])
        before = await namespace.connection()
        scene.proxy.cut(Says.DISPOSITION, Toward.CLIENT, then_reset=False)  # As late as can be.
        with pytest.raises(ClientError, match="took longer than 1 s"):
            await namespace.send(queue, [build(b"x")], timeout_s=1)
        assert await namespace.connection() is before
        assert namespace.slow_s > 20
    finally:
        await namespace.close()


@pytest.fixture
def silent(scene: Scene) -> Iterator[str]:
    """A primary that takes connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        yield scene.primary.connection_string().replace(f":{scene.primary.amqp_port};", f":{port};")


async def test_a_primary_that_hangs_from_the_start_is_waited_for_once(scene: Scene, silent: str) -> None:
    """Not by the start, by a sender that opens its link, and by its first send, one after the other."""
    client = blocking(scene, silent)
    began = time.monotonic()
    with (
        await asyncio.to_thread(client.__enter__),
        await asyncio.to_thread(client.get_queue_sender, "orders") as sender,
    ):
        waited_s = time.monotonic() - began
        assert client.status().ill == {"orders": "failed over"}
        sender.send_messages(message("diverted"))
    assert ATTEMPT_S <= waited_s < 2 * ATTEMPT_S
    assert scene.diverted == {"diverted"}


async def test_the_first_call_of_all_keeps_to_its_time(scene: Scene, silent: str) -> None:
    """It makes the pair, too."""
    client = blocking(scene, silent)
    sender, timeout = client.get_queue_sender("orders"), 0.4
    for expected in ("failed", "diverted"):
        began = time.monotonic()
        try:
            await asyncio.to_thread(sender.send_messages, message(expected), timeout=timeout)
        except Exception:
            assert expected == "failed"
        assert time.monotonic() - began < timeout + 0.2
    await asyncio.to_thread(client.close)
    assert scene.diverted == {"diverted"}
