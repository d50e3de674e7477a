"""Each use of the mover, stopped between any two of its steps and started again: nothing is lost, nothing stays behind.

The destination detects duplicates, so that a message which was sent twice is there once.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from support.filled_backlog import FilledBacklog
from support.movers import USES, Lines, Place
from support.pair_scene import Scene
from twinbus.client import connect, messages
from twinbus.client.diverting import divert
from twinbus.model.failpoints import armed
from twinbus.model.message import Outcome
from twinbus.pair import Outbox

SESSIONS = ["a", "b", "c"]
IDS = [f"{session}.{number}" for session in SESSIONS for number in range(4)]
UNDELIVERABLE = "undeliverable"
STEPS = ["mover.before_send", "mover.before_complete", "mover.after_complete"]
ASIDE = ["mover.before_set_aside", "mover.after_set_aside"]
GAPS = [
    (use, step) for use in USES for step in (*STEPS, *ASIDE) if not (use in ("ordered", "redrive") and step in ASIDE)
]


class StoppedError(BaseException):
    """Nothing that a program handles."""


class Stage:
    """What there is to move, and what became of it."""

    def __init__(self, scene: Scene, use: str, directory: Path) -> None:
        self._scene = scene
        self._use = use
        self._backlog = FilledBacklog(scene, queues=1)
        backlog, ordered = (f"{scene.name}/x-servicebus-transfer{kind}/0" for kind in ("", "-ordered"))
        self._outbox = directory / "outbox.db"
        destination = scene.queue(RequiresDuplicateDetection=True, RequiresSession=use == "ordered")
        self.place = Place(
            scene.primary.connection_string(),
            scene.secondary.connection_string(),
            scene.name,
            destination,
            backlog,
            ordered,
            scene.queue() if use == "redrive" else "",
            str(self._outbox),
        )

    async def fill(self) -> None:
        place = self.place
        if self._use == "ordered":
            await self._backlog.fill(["a.0"], [place.destination])  # Makes the pair; it will arrive as a duplicate.
            await self._backlog.fill_in_order(place.destination, SESSIONS, 4, queues=1)
        elif self._use == "redrive":
            await self._bury()
        elif self._use.startswith("outbox"):
            with Outbox(self._outbox) as box:
                for session in SESSIONS:
                    some = [ServiceBusMessage(b"x", message_id=each) for each in IDS if each.startswith(session)]
                    box.put(some, place.destination, key=session if session == "a" else None)
                box.put(ServiceBusMessage(b"x", message_id=UNDELIVERABLE), "nowhere")
        else:
            await self._backlog.fill(IDS, [place.destination])
            nowhere = divert(messages.build(b"x", message_id=UNDELIVERABLE), "nowhere")
            await self._backlog.put(place.backlog, [UNDELIVERABLE], [nowhere])

    async def _bury(self) -> None:
        queue = self.place.dead_letters
        async with connect(self.place.primary) as connection:
            await (await connection.sender(queue)).send([messages.build(b"x", message_id=each) for each in IDS])
            receiver = await connection.receiver(queue, credit=0)
            left = len(IDS)
            while left:
                lot = await receiver.receive(left, 5.0)
                await receiver.settle(lot, Outcome.DEAD_LETTER)
                left -= len(lot)

    async def run(self, lines: Lines) -> None:
        await USES[self._use](self.place, lines)

    async def check(self) -> None:
        """Everything is where it belongs, once, and nothing is left at the source."""
        arrived = await self._backlog.arrived(self.place.destination)
        assert sorted(arrived) == IDS
        if self._use == "redrive":
            assert self._scene.primary.count(self.place.dead_letters, "DeadLetterMessageCount") == 0
        elif self._use == "ordered":
            assert self._scene.secondary.count(self.place.ordered) == 0
            for session in SESSIONS:
                assert [each for each in arrived if each.startswith(session)] == [
                    each for each in IDS if each[0] == session
                ]
        elif self._use.startswith("outbox"):
            with Outbox(self._outbox) as box:
                assert [entry.message_id for entry in box.look()] == [UNDELIVERABLE]
                assert box.counts().aside == 1
        else:
            assert (self._backlog.left(), self._backlog.dead()) == (0, 1)


@pytest.mark.parametrize(("use", "step"), GAPS)
async def test_stopped_between_two_steps_and_started_again(scene: Scene, tmp_path: Path, use: str, step: str) -> None:
    stage = Stage(scene, use, tmp_path)
    await stage.fill()
    lines = Lines()
    running = asyncio.create_task(stage.run(lines))
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        running.cancel()
        lines.cut()
        raise StoppedError

    # The second lot, where there are several.
    nth = 2 if step in STEPS and use not in ("redrive", "spark") else 1
    with armed(step, stop, nth), suppress(StoppedError, asyncio.CancelledError):
        await running
    assert stopped
    await stage.run(Lines())
    await stage.check()


@pytest.mark.parametrize("use", USES)
async def test_killed_before_what_arrived_is_completed(scene: Scene, tmp_path: Path, use: str) -> None:
    stage = Stage(scene, use, tmp_path)
    await stage.fill()
    file = tmp_path / "place.json"
    file.write_text(json.dumps(stage.place))
    command = [sys.executable, "-m", "support.movers", use, "mover.before_complete", "1", str(file)]
    killed = await asyncio.to_thread(subprocess.run, command, cwd=Path(__file__).parents[1], timeout=60)
    assert killed.returncode == -9
    await stage.run(Lines())
    await stage.check()
