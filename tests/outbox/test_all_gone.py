"""Both namespaces are down: what is sent is kept on disk, through the application's death, and arrives in order."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from support.order import SessionReader
from support.pair_scene import QUICK, Scene, until
from support.storage import fill
from twinbus.drill.history import judge
from twinbus.pair import OutboxFullError, State
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.outbox.outbox import Outbox
from twinbus.pair.outbox.rows import Counts, Queued

TESTS = Path(__file__).parents[1]


class Application:
    """The program of `support.outbox_application`, for a test to kill."""

    def __init__(self, scene: Scene, queue: str, directory: Path, **options: str) -> None:
        self.outbox = directory / "outbox.db"
        self.log = directory / "application.jsonl"
        self._scene = scene
        self._queue = queue
        chosen = {**{key: json.dumps(value) for key, value in QUICK.items()}, **options}
        self._options = [f"{key}={value}" for key, value in chosen.items()]
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *args: object) -> None:
        for process in self._started:
            process.kill()
            process.communicate()

    def start(self, count: int) -> subprocess.Popen[str]:
        primary, secondary = self._scene.primary.connection_string(), self._scene.secondary.connection_string()
        words = [primary, secondary, self._scene.name, self._queue, str(self.outbox), str(self.log), str(count)]
        process = subprocess.Popen(
            [sys.executable, "-m", "support.outbox_application", *words, *self._options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}"},
        )
        self._started.append(process)
        return process


@pytest.mark.timeout(240)  # Two processes are started, and wait for brokers.
@pytest.mark.parametrize("ordered", ["true", "false"])
async def test_an_application_killed_with_a_full_outbox_loses_nothing(
    scene: Scene, tmp_path: Path, ordered: str
) -> None:
    queue = scene.queue(RequiresSession=True, RequiresDuplicateDetection=True)
    options = {"failover_interval": "0", "enable_syphon": "true", "ordered": ordered}
    with Application(scene, queue, tmp_path, **options) as application:
        process = application.start(1000)
        assert process.stdout is not None
        sent = [await asyncio.to_thread(process.stdout.readline) for _ in range(20)]
        scene.primary.kill()
        scene.secondary.kill()
        told: list[str] = []
        while sum(line.startswith("queued ") for line in told) < 60:
            told.append(await asyncio.to_thread(process.stdout.readline))
            assert told[-1], "the application has ended"
        process.kill()
        process.wait()
        assert all(line.startswith("sent ") for line in sent)

        await asyncio.to_thread(scene.primary.start)
        await asyncio.to_thread(scene.secondary.start)
        async with scene.client(enable_syphon=True, poll=2), SessionReader(scene, queue) as reader:
            again = application.start(0)
            assert await asyncio.to_thread(again.wait, 120) == 0
            await until(lambda: not judge(application.log, scene.received).lost, "arrival", 60)

        assert scene.settle(application.log).acknowledged >= 80
        assert reader.disorder() == []


def paired(scene: Scene, outbox: Any, **options: Any) -> PairedServiceBusClient:
    wanted = {**QUICK, "failover_interval": 0, "enable_syphon": True, "poll": 2, **options}
    return PairedServiceBusClient.from_connection_strings(
        scene.connection_string(),
        scene.secondary.connection_string(),
        SendAvailabilityOptions(**wanted),
        primary_name=scene.name,
        on_change=scene.changes.append,
        on_diverted=scene._was_diverted,
        outbox=outbox,
        on_queued=scene.queued.append,
    )


async def test_the_outbox_is_used_only_when_all_are_gone_and_the_application_is_told(
    scene: Scene, tmp_path: Path
) -> None:
    queue = scene.queue(RequiresDuplicateDetection=True)
    async with paired(scene, tmp_path / "outbox.db") as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "healthy")
        scene.primary.kill()
        assert await scene.send(sender, "diverted")
        assert scene.diverted == {"diverted"}
        assert scene.queued == []
        scene.secondary.kill()
        scene.log.attempted("kept", queue, 0)
        told = await sender.send_messages(ServiceBusMessage(b"x", message_id="kept"))
        scene.log.acknowledged("kept", 0, False)
        assert told == Queued(queue, ["kept"], [1])
        assert scene.queued == [told]
        await asyncio.to_thread(scene.secondary.start)
        await asyncio.to_thread(scene.primary.start)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        kept = client._core.outbox
        assert kept is not None
        await until(lambda: kept.dispatcher.progress.sent == 1, "dispatching")
        assert await scene.send(sender, "after")
        await scene.receive(queue, 4)

    verdict = scene.settle()
    assert verdict.received == verdict.acknowledged == 4


@pytest.mark.parametrize("by", ["a sender", "the application"])
async def test_what_is_put_while_a_send_counts_the_outbox_is_not_overtaken(
    scene: Scene, tmp_path: Path, by: str
) -> None:
    """The count was made before, and its answer comes after: it must not say that the outbox is empty."""
    queue = scene.queue(RequiresSession=True)
    may_answer, may_dispatch, asked = asyncio.Event(), asyncio.Event(), asyncio.Event()
    with Outbox(tmp_path / "outbox.db") as outbox:
        async with paired(scene, outbox) as client:
            kept = client._core.outbox
            assert kept is not None
            deliver, use = kept.dispatcher._deliver, outbox.use

            async def deliver_later(*arguments: Any) -> None:
                await may_dispatch.wait()
                await deliver(*arguments)

            def use_later(run: Any, *, reads: bool = False) -> Any:
                answer = use(run, reads=reads)
                if not reads or asked.is_set() or asyncio.current_task() is not counting:
                    return answer
                late: Future[Any] = Future()

                async def hand_on() -> None:
                    found = await asyncio.wrap_future(answer)
                    if isinstance(found, Counts):
                        asked.set()
                        await may_answer.wait()
                    late.set_result(found)

                handing_on.append(asyncio.create_task(hand_on()))
                return late

            handing_on: list[asyncio.Task[None]] = []
            kept.dispatcher._deliver, outbox.use = deliver_later, use_later  # type: ignore[method-assign]
            sender, first = client.get_queue_sender(queue), client.get_queue_sender(queue, always=True)
            counting = asyncio.create_task(scene.send(sender, "other.0", session_id="other"))
            await asked.wait()
            if by == "a sender":
                assert await scene.send(first, "s.0", session_id="s")
            else:
                scene.log.attempted("s.0", "s", 0)
                await outbox.put_async(ServiceBusMessage(b"x", message_id="s.0", session_id="s"), queue)
                scene.log.acknowledged("s.0", 0, False)
            may_answer.set()
            assert await counting
            assert await scene.send(sender, "s.1", session_id="s")
            may_dispatch.set()
            async with SessionReader(scene, queue) as reader:
                await until(lambda: reader.count == 3, "arrival")
    assert reader.seen["s"] == [0, 1]
    scene.settle()


async def test_a_full_backlog_leads_to_the_outbox(scene: Scene, tmp_path: Path) -> None:
    queue = scene.queue(RequiresDuplicateDetection=True)
    async with paired(scene, tmp_path / "outbox.db", backlog_queue_count=1, enable_syphon=False):
        pass
    await asyncio.to_thread(fill, scene.secondary, f"{scene.name}/x-servicebus-transfer/0", 5120)
    async with paired(scene, tmp_path / "outbox.db", backlog_queue_count=1, enable_syphon=False) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        scene.primary.kill()
        for number in range(5):
            assert await scene.send(sender, f"kept-{number}")
        assert len(scene.queued) == 5
        await asyncio.to_thread(scene.primary.start)
        kept = client._core.outbox
        assert kept is not None
        await until(lambda: kept.dispatcher.progress.sent == 5, "dispatching")
        await scene.receive(queue, 6)

    verdict = scene.settle()
    assert verdict.received == verdict.acknowledged == 6


async def test_at_its_limit_the_outbox_refuses_and_nothing_is_half_done(scene: Scene, tmp_path: Path) -> None:
    queue = scene.queue()
    with Outbox(tmp_path / "outbox.db", max_messages=3) as outbox:
        async with paired(scene, outbox) as client:
            sender = client.get_queue_sender(queue, always=True)
            scene.primary.kill()
            scene.secondary.kill()
            for number in range(3):
                assert await scene.send(sender, f"kept-{number}")
            with pytest.raises(OutboxFullError, match="holds 3 messages and may hold 3"):
                await sender.send_messages(ServiceBusMessage(b"x", message_id="too many"))
            assert [entry.message_id for entry in outbox.look()] == ["kept-0", "kept-1", "kept-2"]
