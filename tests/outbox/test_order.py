"""Order through an outage: a session's messages arrive as they were sent, whatever becomes of the primary meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from support.order import SessionReader
from support.pair_scene import Scene, until
from twinbus.faults.proxy import Mode
from twinbus.pair import State
from twinbus.pair.ordered import index_of, session_of

SESSIONS = 4


async def send_on(scene: Scene, sender: Any, name: str, enough: asyncio.Event) -> None:
    """One writer of one session: a message that was not taken is sent again before the next."""
    for number in itertools.count():
        while not await scene.send(sender, f"{name}.{number}", session_id=name):
            await asyncio.sleep(0.05)
        if enough.is_set():
            return
        await asyncio.sleep(0.02)


async def test_sessions_stay_in_order_while_the_primary_is_killed_and_restarted(scene: Scene) -> None:
    queue = scene.queue(RequiresSession=True, RequiresDuplicateDetection=True)
    enough = asyncio.Event()
    async with (
        scene.client(ordered=True, enable_syphon=True, failover_interval=0.3, poll=2) as client,
        SessionReader(scene, queue) as reader,
    ):
        sender = client.get_queue_sender(queue)
        writers = [asyncio.create_task(send_on(scene, sender, f"s{each}", enough)) for each in range(SESSIONS)]
        for _ in range(3):
            await asyncio.sleep(0.5)
            scene.primary.kill()
            before = len(scene.diverted)
            await until(lambda before=before: len(scene.diverted) > before + 10, "diverting")
            await asyncio.to_thread(scene.primary.start)
            await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        route = client._core.companion.ordered
        assert route is not None
        await until(lambda: route.behind == 0, "the return of all sessions", 20)
        enough.set()
        await asyncio.gather(*writers)
        await until(lambda: not scene.verdict().lost, "arrival")

    verdict = scene.verdict()
    print(verdict.line())
    assert verdict.lost == verdict.duplicated == ()
    assert verdict.recovered == verdict.diverted > 30
    assert len(reader.seen) == SESSIONS
    assert reader.disorder() == []


async def test_a_healthy_primary_waits_while_the_backlog_holds_earlier_messages(scene: Scene) -> None:
    """Nobody syphons: the session must not return, however healthy the primary is; nor after a restart."""
    queue = scene.queue(RequiresSession=True)
    async with scene.client(ordered=True, failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "a.0", session_id="a")
        scene.proxy.set(Mode.REFUSE)
        assert await scene.send(sender, "a.1", session_id="a")
        assert scene.diverted == {"a.1"}
        scene.proxy.set(Mode.PASS)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        assert await scene.send(sender, "a.2", session_id="a")
        assert await scene.send(sender, "b.0", session_id="b")
        assert scene.diverted == {"a.1", "a.2"}
    async with scene.client(ordered=True, failover_interval=0) as client:
        assert await scene.send(client.get_queue_sender(queue), "a.3", session_id="a")
        assert scene.diverted == {"a.1", "a.2", "a.3"}
    async with (
        scene.client(ordered=True, enable_syphon=True, failover_interval=0, poll=2) as client,
        SessionReader(scene, queue) as reader,
    ):
        pump = client._core.companion.ordered_pump
        assert pump is not None
        await until(lambda: pump.moved.total() == 3, "draining")
        assert await scene.send(client.get_queue_sender(queue), "a.4", session_id="a")
        assert scene.diverted == {"a.1", "a.2", "a.3"}
        await until(lambda: reader.count == 6, "arrival")

    assert reader.seen == {"a": [0, 1, 2, 3, 4], "b": [0]}
    assert scene.verdict().lost == scene.verdict().duplicated == ()


async def test_a_backlog_queue_that_is_down_is_told_as_no_other_may_stand_in(scene: Scene) -> None:
    queue = scene.queue(RequiresSession=True)
    async with scene.client(ordered=True, failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "a.0", session_id="a")
        down = f"{scene.name}/x-servicebus-transfer-ordered/{index_of(session_of(queue, 'a'), 2)}"
        scene.secondary.update_queue(down, RequiresSession=True, LockDuration="PT1M", Status="SendDisabled")
        scene.proxy.set(Mode.REFUSE)

        assert not await scene.send(sender, "a.1", session_id="a")
        assert "ordered backlog queue" in scene.log.path.read_text()
