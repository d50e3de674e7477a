"""An outbox before one namespace, without a pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.order import SessionReader
from support.pair_scene import Scene, until
from twinbus.faults.frames import Says
from twinbus.faults.proxy import Mode, Toward
from twinbus.pair.aio import OutboxClient
from twinbus.pair.outbox import dispatcher as dispatch


async def test_what_was_put_while_the_namespace_was_down_arrives(scene: Scene, tmp_path: Path) -> None:
    queue = scene.queue(RequiresDuplicateDetection=True)
    async with OutboxClient(scene.connection_string(), tmp_path / "outbox.db") as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        await until(lambda: client.progress.sent == 1, "the first")
        scene.primary.kill()
        for number in range(50):
            assert await scene.send(sender, f"during-{number}")
        assert client.outbox.counts().messages == 50
        scene.primary.start()
        await until(lambda: client.progress.sent == 51, "dispatching")
        assert client.outbox.counts().messages == 0
    await scene.receive(queue, 51)

    verdict = scene.settle()
    assert (verdict.acknowledged, verdict.received) == (51, 51)


async def test_a_send_whose_answer_is_lost_is_repeated_under_its_id_and_in_its_place(
    scene: Scene, tmp_path: Path
) -> None:
    queue = scene.queue(RequiresSession=True, RequiresDuplicateDetection=True)
    async with (
        OutboxClient(scene.connection_string(), tmp_path / "outbox.db") as client,
        SessionReader(scene, queue) as reader,
    ):
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "a.0", session_id="a")
        await until(lambda: client.progress.sent == 1, "the first")
        scene.proxy.cut(Says.DISPOSITION, Toward.CLIENT)
        for number in range(1, 20):
            assert await scene.send(sender, f"a.{number}", session_id="a")
        await until(lambda: client.progress.sent == 20, "dispatching")
        await until(lambda: reader.count == 20, "arrival")

    scene.settle()
    assert reader.seen == {"a": list(range(20))}, reader.log


async def test_a_silent_namespace_holds_up_nobody_for_ever(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "TIMEOUT_S", 5.0)
    queue = scene.queue(RequiresDuplicateDetection=True)
    async with OutboxClient(scene.connection_string(), tmp_path / "outbox.db") as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        await until(lambda: client.progress.sent == 1, "the first")
        scene.proxy.set(Mode.BLACKHOLE)
        for number in range(5):
            assert await scene.send(sender, f"during-{number}")
        await until(lambda: "took longer than" in (client.progress.problem or ""), "the time-out")
        scene.proxy.set(Mode.PASS)
        await until(lambda: client.progress.sent == 6, "dispatching")
    await scene.receive(queue, 6)

    scene.settle()
