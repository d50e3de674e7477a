"""A syphon that is killed again and again in the middle of its work, judged by what arrives."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys

import pytest

from support.pair_scene import Scene
from support.repetition import times
from twinbus.client import connect, messages
from twinbus.client.diverting import divert

MESSAGES = 3_000
KILLS = times(3, 10)


@pytest.mark.timeout(300)
async def test_whoever_is_killed_leaves_nothing_behind_and_nothing_twice(scene: Scene) -> None:
    """The destination detects duplicates: what was sent and not completed is sent again, and dropped there."""
    queue = scene.queue(RequiresDuplicateDetection=True)
    async with scene.client() as client:
        backlogs = client.status().backlog_queues
    ids = [f"m{number}" for number in range(MESSAGES)]
    async with connect(scene.secondary.connection_string()) as connection:
        for index, backlog in enumerate(backlogs):
            payloads = [divert(messages.build(b"x" * 200, message_id=each), queue) for each in ids[index::2]]
            await (await connection.sender(backlog)).send(payloads)
    await _killed_often(scene)
    await asyncio.to_thread(_run, scene, ["--once"])
    await scene.receive(queue, MESSAGES, timeout_s=120)

    assert scene.received == dict.fromkeys(ids, 1)
    assert set(scene.backlog().values()) == {0}


async def _killed_often(scene: Scene) -> None:
    choose = random.Random(7)
    for _ in range(KILLS):
        process = subprocess.Popen(_command(), env=_environment(scene), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        line = await asyncio.to_thread(process.stderr.readline)  # It says when it begins.
        assert "watches" in line, line
        await asyncio.sleep(choose.uniform(0, 0.15))
        process.kill()
        process.wait()
        process.stderr.close()


def _run(scene: Scene, options: list[str]) -> None:
    subprocess.run([*_command(), *options], env=_environment(scene), check=True, timeout=150, capture_output=True)


def _command() -> list[str]:
    return [sys.executable, "-m", "twinbus", "syphon"]


def _environment(scene: Scene) -> dict[str, str]:
    return {
        **os.environ,
        "TWINBUS_PRIMARY": scene.primary.connection_string(),
        "TWINBUS_SECONDARY": scene.secondary.connection_string(),
        "TWINBUS_PRIMARY_NAME": scene.name,
        "TWINBUS_PAIR_BACKLOG_QUEUE_COUNT": "2",
    }
