"""Overlapped sends: bounded, fast over a slow line, and nothing forgotten."""

from __future__ import annotations

import asyncio
import time

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError

from support.pair_scene import Scene
from twinbus.client.overlapped import UncollectedError
from twinbus.faults.proxy import Mode


def messages(count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(b"x", message_id=f"m{number}") for number in range(count)]


async def test_a_hundred_messages_over_a_slow_line(scene: Scene) -> None:
    """0.4 s of round trip: one by one a message takes at least that, of ten at a time a tenth, and a little."""
    queue = scene.queue()
    async with scene.client() as client:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage(b"opens the link"))
        await sender.send_many(messages(1))
        scene.proxy.latency_s = 0.2
        began = time.monotonic()
        for message in messages(10):
            await sender.send_messages(message)
        one_by_one_s = (time.monotonic() - began) * 10
        began = time.monotonic()
        outcomes = await sender.send_many(messages(100))
        overlapped_s = time.monotonic() - began

    print(f"one by one {one_by_one_s:.1f} s, overlapped {overlapped_s:.1f} s")
    assert [outcome.error for outcome in outcomes] == [None] * 100
    assert one_by_one_s >= 40
    assert overlapped_s < one_by_one_s / 5


async def test_the_eleventh_waits_for_an_outcome(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client() as client:
        sender = client.get_queue_sender(queue)
        await sender.send_many(messages(1))
        scene.proxy.set(Mode.BLACKHOLE)
        async with sender.overlapped(max_in_flight=10) as window:
            for message in messages(10):
                await window.submit(message)
            assert window.under_way == 10
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await window.submit(ServiceBusMessage(b"the eleventh"))
            scene.proxy.set(Mode.PASS)
            await window.submit(ServiceBusMessage(b"the eleventh"))


async def test_a_failure_that_nobody_looked_at_is_raised_at_close(scene: Scene) -> None:
    async with scene.client() as client:
        sender = client.get_queue_sender("nobody-made-this")
        outcomes = await sender.send_many(messages(3))
        assert isinstance(outcomes[0].error, MessagingEntityNotFoundError)
        with pytest.raises(UncollectedError, match="2 sends failed"):
            await sender.close()


async def test_overlapped_sends_are_diverted_too(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0) as client:
        scene.primary.kill()
        outcomes = await client.get_queue_sender(queue).send_many(messages(20))
        assert [outcome.error for outcome in outcomes] == [None] * 20

    assert len(scene.diverted) == 20
