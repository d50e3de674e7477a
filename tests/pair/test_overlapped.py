"""Overlapped sends: bounded, fast over a slow line, and nothing forgotten."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError

from support.pair_scene import Scene
from twinbus.client.overlapped import UncollectedError
from twinbus.faults.frames import Says
from twinbus.faults.proxy import Mode, Toward


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


async def attaches(scene: Scene, sends: Awaitable[object]) -> int:
    """How many links to the primary are opened while sends run; two more belong to each connection's token."""
    before = Counter(scene.proxy.seen)
    await sends
    found = Counter(scene.proxy.seen) - before
    assert found[Toward.BROKER, Says.OPEN] == 1
    return found[Toward.BROKER, Says.ATTACH]


async def test_first_sends_at_once_open_one_link(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client() as client:
        await client.get_queue_sender(queue).send_messages(ServiceBusMessage(b"x"))  # What is asked once is asked.
        many, one_by_one, batches = (client.get_queue_sender(queue) for _ in range(3))
        assert await attaches(scene, many.send_many(messages(50), max_in_flight=50)) == 3
        assert await attaches(scene, asyncio.gather(*map(one_by_one.send_messages, messages(50)))) == 3
        assert await attaches(scene, asyncio.gather(*(batches.create_message_batch() for _ in range(50)))) == 3

    assert scene.primary.count(queue) == 101


async def test_first_sends_at_once_fail_together(scene: Scene) -> None:
    """All wait for one attempt at the link, and for no other's afterwards."""
    queue = scene.queue()
    scene.proxy.set(Mode.SILENT)
    async with scene.client(attempt_timeout=1, attempts=1, failover_interval=0) as client:
        began = time.monotonic()
        await asyncio.gather(*map(client.get_queue_sender(queue).send_messages, messages(50)))
        assert time.monotonic() - began < 5

    assert len(scene.diverted) == 50


async def test_a_sender_stays_with_one_backlog_queue(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0, backlog_queue_count=10) as client:
        scene.proxy.set(Mode.REFUSE)
        sender = client.get_queue_sender(queue)
        await sender.send_many(messages(20))
        async with sender.overlapped() as window:
            for message in messages(20):
                await window.submit(message)
        await sender.send_messages(ServiceBusMessage(b"x"))

    counts = [scene.secondary.count(f"{scene.name}/x-servicebus-transfer/{index}") for index in range(10)]
    assert sorted(counts) == [0] * 9 + [41]
