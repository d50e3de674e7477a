"""The primary goes away in each of the ways in which primaries do, and everything acknowledged arrives."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import pytest

from support.pair_scene import Scene, until
from twinbus.faults.frames import Says
from twinbus.faults.proxy import Mode, Toward
from twinbus.pair import State

Fault = Callable[[Scene], Awaitable[None]]

# One that is silent is waited for so long, twice: longer than one that is only slow would need.
PATIENT = {"attempt_timeout": 4}


async def kill(scene: Scene) -> None:
    scene.primary.kill()


async def start(scene: Scene) -> None:
    await asyncio.to_thread(scene.primary.start)


async def freeze(scene: Scene) -> None:
    assert scene.primary.process is not None
    scene.primary.process.send_signal(signal.SIGSTOP)


async def thaw(scene: Scene) -> None:
    assert scene.primary.process is not None
    scene.primary.process.send_signal(signal.SIGCONT)


async def blackhole(scene: Scene) -> None:
    scene.proxy.set(Mode.BLACKHOLE)


async def refuse(scene: Scene) -> None:
    scene.proxy.set(Mode.REFUSE)


async def silence(scene: Scene) -> None:
    scene.proxy.set(Mode.SILENT)
    scene.proxy.reset()


async def heal(scene: Scene) -> None:
    scene.proxy.set(Mode.PASS)
    scene.proxy.reset()


@pytest.mark.parametrize(
    ("breaks", "heals"),
    [(kill, start), (freeze, thaw), (blackhole, heal), (refuse, heal), (silence, heal)],
    ids=["killed", "stopped", "blackholed", "resetting", "silent"],
)
async def test_a_primary_that_is(scene: Scene, breaks: Fault, heals: Fault) -> None:
    queue = scene.queue(RequiresDuplicateDetection=True)
    async with scene.client(enable_syphon=True, poll=2, **PATIENT) as client:
        sender = client.get_queue_sender(queue)
        for number in range(3):
            assert await scene.send(sender, f"before-{number}")
        await breaks(scene)
        assert not await scene.send(sender, "during")
        await until(lambda: scene.changes[-1].after is State.FAILED_OVER, "the failover")
        for number in range(5):
            assert await scene.send(sender, f"diverted-{number}")
        await heals(scene)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        for number in range(3):
            assert await scene.send(sender, f"after-{number}")
        pump = client._core.background.syphon
        assert pump is not None
        await until(lambda: pump.progress.moved.total() >= len(scene.diverted), "draining")
    await scene.receive(queue, scene.verdict().acknowledged)

    verdict = scene.verdict()
    print(verdict.line())
    assert verdict.lost == ()
    assert verdict.duplicated == ()
    assert verdict.recovered == verdict.diverted >= 5
    states = [change.after for change in scene.changes]
    assert states == [State.SUSPECT, State.FAILED_OVER, State.HEALTHY]


async def test_an_answer_that_is_lost_after_the_commit_makes_no_second_message(scene: Scene) -> None:
    """The send is diverted although it had arrived; the destination knows its id."""
    queue = scene.queue(RequiresDuplicateDetection=True)
    async with scene.client(enable_syphon=True, failover_interval=0, poll=2, attempts=1) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "first")
        scene.proxy.cut(Says.DISPOSITION, Toward.CLIENT)
        assert await scene.send(sender, "answered-twice")
        assert scene.diverted == {"answered-twice"}
        pump = client._core.background.syphon
        assert pump is not None
        await until(lambda: pump.progress.moved.total() == 1, "draining")
    await scene.receive(queue, 2)

    assert scene.received == {"first": 1, "answered-twice": 1}


async def test_a_slow_primary_is_not_given_up(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client() as client:
        sender = client.get_queue_sender(queue)
        scene.proxy.latency_s = 0.1
        for number in range(5):
            assert await scene.send(sender, f"slow-{number}")

    assert scene.changes == []
    assert scene.diverted == set()


async def test_both_namespaces_down_is_told_within_a_bounded_time(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0, attempts=1, attempt_timeout=10, divert_timeout=10) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        scene.primary.kill()
        scene.secondary.kill()
        async with asyncio.timeout(2 * (10 + 10)):  # Two sends, an attempt and a diversion each.
            assert not await scene.send(sender, "nowhere")
            assert not await scene.send(sender, "nowhere-either")
        await start(scene)
        await asyncio.to_thread(scene.secondary.start)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        assert await scene.send(sender, "after")
    await scene.receive(queue, 2)

    assert scene.verdict().lost == ()
