"""Connections whose other end went away without a word, and a primary that hangs from the start.

Over new connections the namespaces answer: nothing may go on waiting for the old ones. An attempt is short only while
it is one that will be in vain, so that a slow machine is not taken for a dead connection.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from support.pair_scene import QUICK, Scene, until
from twinbus.client import ConnectionString
from twinbus.client.diverting import divert
from twinbus.client.errors import ClientError
from twinbus.client.messages import build
from twinbus.faults.frames import Says
from twinbus.faults.proxy import FaultProxy, Mode, Toward
from twinbus.pair import PairedServiceBusClient, SendAvailabilityOptions, State
from twinbus.pair.aio import PairedServiceBusClient as AsyncPaired
from twinbus.pair.namespace import own_client
from twinbus.pair.namespace.own_client import OwnClientNamespace

SHORT_S = 0.4
AT_ONCE: dict[str, Any] = {"failover_interval": 0}


def message(message_id: str) -> ServiceBusMessage:
    return ServiceBusMessage(b"x", message_id=message_id)


def blocking(scene: Scene, primary: str | None = None, **options: Any) -> PairedServiceBusClient:
    return PairedServiceBusClient.from_connection_strings(
        primary or scene.connection_string(),
        scene.secondary.connection_string(),
        SendAvailabilityOptions(**{**QUICK, **AT_ONCE, **options}),
        primary_name=scene.name,
        on_change=scene.changes.append,
        on_diverted=scene._was_diverted,
    )


@contextmanager
def in_vain(client: Any, sender: Any) -> Iterator[None]:
    """An attempt of the sender is short meanwhile."""
    carrier, config = client._core.carrier, sender._config
    before, attempt_s = carrier.patience, config.try_timeout
    carrier.patience, config.try_timeout = before._replace(primary_s=SHORT_S), SHORT_S
    yield
    carrier.patience, config.try_timeout = before, attempt_s


async def healed(scene: Scene) -> None:
    await until(lambda: bool(scene.changes) and scene.changes[-1].after is State.HEALTHY, "healing")


async def test_a_sender_does_not_go_back_to_a_dead_link(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(**AT_ONCE) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        scene.proxy.forget()
        with in_vain(client, sender):
            assert await scene.send(sender, "diverted")
        await healed(scene)
        assert await scene.send(sender, "after")
    assert scene.diverted == {"diverted"}


@pytest.mark.parametrize("was_open", [True, False], ids=["open", "being opened"])
async def test_a_blocking_sender_does_not_go_back_to_a_dead_link(scene: Scene, was_open: bool) -> None:
    """Nor does it wait for one that a load balancer without a backend took, when there is a backend again."""
    queue = scene.queue()
    client = await asyncio.to_thread(blocking(scene).__enter__)
    try:
        sender = client.get_queue_sender(queue)
        if was_open:
            await asyncio.to_thread(sender.send_messages, message("before"))
            scene.proxy.forget()
        else:
            scene.proxy.set(Mode.SILENT)
        with in_vain(client, sender):
            await asyncio.to_thread(sender.send_messages, message("diverted"))
            scene.proxy.set(Mode.PASS)
            await healed(scene)
        await asyncio.to_thread(sender.send_messages, message("after"))
    finally:
        await asyncio.to_thread(client.close)
    assert "diverted" in scene.diverted
    assert "after" not in scene.diverted


async def test_a_blocking_sender_takes_no_longer_for_a_list(scene: Scene) -> None:
    """The SDK asks for the limit of a list first, with attempts of its own."""
    queue, timeout = scene.queue(), 3.0
    client = await asyncio.to_thread(blocking(scene).__enter__)
    try:
        scene.proxy.set(Mode.BLACKHOLE)
        sender, began = client.get_queue_sender(queue), time.monotonic()
        await asyncio.to_thread(lambda: sender.send_messages([message("a"), message("b")], timeout=timeout))
        assert time.monotonic() - began < timeout + 0.5
        scene.proxy.set(Mode.PASS)
    finally:
        await asyncio.to_thread(client.close)
    assert scene.diverted == {"a", "b"}


async def test_the_syphon_does_not_wait_for_a_dead_connection(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(**AT_ONCE, enable_syphon=True, poll=1) as client:
        backlog, home = client.status().backlog_queues[0], client._core.background.syphon
        primary, secondary = client._core.primary, client._core.secondary
        assert home is not None
        await secondary.send(backlog, [divert(build(b"x", message_id="first"), queue)])
        await until(lambda: home.progress.moved.total() == 1, "the first")
        scene.proxy.forget()
        primary.timeout_s = SHORT_S
        await secondary.send(backlog, [divert(build(b"x", message_id="second"), queue)])
        await until(lambda: home.progress.moved.total() == 2, "the second", timeout_s=15)


async def test_the_syphon_sends_nothing_to_a_primary_that_hangs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would arrive when the primary goes on, and once more when it is sent again."""
    monkeypatch.setattr(own_client, "SURE_S", 0.0)
    queue = scene.queue()
    async with scene.client(**AT_ONCE, enable_syphon=True, poll=1) as client:
        backlog, home = client.status().backlog_queues[0], client._core.background.syphon
        primary, secondary = client._core.primary, client._core.secondary
        assert home is not None
        await secondary.send(backlog, [divert(build(b"x", message_id="first"), queue)])
        await until(lambda: home.progress.moved.total() == 1, "the first")
        long_s, primary.timeout_s = primary.timeout_s, SHORT_S
        scene.proxy.set(Mode.BLACKHOLE)
        await secondary.send(backlog, [divert(build(b"x", message_id="second"), queue)])
        await until(lambda: home.record()["waits_for"] == "primary", "finding that the primary hangs")
        primary.timeout_s = long_s
        scene.proxy.set(Mode.PASS)
        await until(lambda: home.progress.moved.total() == 2, "the second")
    assert scene.primary.count(queue) == 2


async def test_a_diverted_send_is_tried_again_when_its_connection_was_dead(scene: Scene) -> None:
    queue = scene.queue()
    async with FaultProxy(scene.secondary.amqp_port) as before_secondary:
        direct = scene.secondary.connection_string()
        behind = direct.replace(f":{scene.secondary.amqp_port};", f":{before_secondary.port};")
        scene.proxy.set(Mode.REFUSE)
        async with AsyncPaired.from_connection_strings(
            scene.connection_string(),
            behind,
            SendAvailabilityOptions(**{**QUICK, **AT_ONCE}),
            primary_name=scene.name,
        ) as client:
            sender = client.get_queue_sender(queue)
            assert await scene.send(sender, "diverted")
            before_secondary.forget()
            client._core.secondary.timeout_s = SHORT_S
            assert await scene.send(sender, "diverted, too")
            assert client.status().diverted == 2


async def test_an_answer_that_is_only_slow_is_not_a_dead_connection(scene: Scene) -> None:
    """Who sends again for it makes copies without end."""
    queue = scene.queue()
    namespace = OwnClientNamespace("primary", ConnectionString.parse(scene.connection_string()))
    try:
        await namespace.send(queue, [build(b"x")])
        before = await namespace.connection()
        namespace.timeout_s = 2.0  # After half of it nobody is sure any more, and after the other half nobody is there.
        scene.proxy.cut(Says.DISPOSITION, Toward.CLIENT, then_reset=False)  # As late as can be.
        with pytest.raises(ClientError, match=r"took longer than 2\.5 s"):
            await namespace.send(queue, [build(b"x")], timeout_s=2.5)
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
    attempt_s = 1.5
    client, began = blocking(scene, silent, attempt_timeout=attempt_s), time.monotonic()
    await asyncio.to_thread(client.__enter__)
    try:
        with await asyncio.to_thread(client.get_queue_sender, "orders") as sender:
            waited_s = time.monotonic() - began
            assert client.status().ill == {"orders": "failed over"}
            await asyncio.to_thread(sender.send_messages, message("diverted"))
    finally:
        await asyncio.to_thread(client.close)
    assert attempt_s <= waited_s < 2 * attempt_s
    assert scene.diverted == {"diverted"}


async def test_the_first_call_of_all_keeps_to_its_time(scene: Scene, silent: str) -> None:
    """It makes the pair, too."""
    client, timeout = blocking(scene, silent, attempt_timeout=5), 1.0
    sender = client.get_queue_sender("orders")
    try:
        while not scene.diverted:
            began = time.monotonic()
            try:
                await asyncio.to_thread(sender.send_messages, message("diverted"), timeout=timeout)
            except ServiceBusError:
                assert not scene.diverted
            assert time.monotonic() - began < timeout + 1
    finally:
        await asyncio.to_thread(client.close)
