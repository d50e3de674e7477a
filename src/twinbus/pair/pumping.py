"""The pump: the syphon's steps run for ever, one task for each backlog queue, beside an application or alone.

Idle, it makes one long receive after the other; when the primary fails again it stops for a while, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from twinbus.client import ReceivedMessage, Receiver
from twinbus.client.errors import ClientError
from twinbus.model.logged import EventLog
from twinbus.pair import syphon
from twinbus.pair.half import Half, answers

_log = EventLog(__name__)

BLOCKED_S = 5.0  # How long a destination that takes nothing is passed over at first, before it is tried again.
PAUSE_MAX_S = 30.0  # Shorter than a lock of a backlog queue.


class Pump:
    """Brings home what is in the given backlog queues."""

    def __init__(
        self,
        primary: Half,
        secondary: Half,
        queues: Sequence[str],
        *,
        batch: int,
        poll_s: float,
        pause_s: float,
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._queues = list(queues)
        self._batch = batch
        self._poll_s = poll_s
        self._pause_s = pause_s
        self._healed = asyncio.Event()
        self._is_gone = False  # The primary, when it was last sent to.
        self._tasks: list[asyncio.Task[None]] = []
        self.moved: Counter[str] = Counter()
        self.dead = 0
        self.doubled = 0
        self.problem: str | None = None  # Why it does not move anything at present.

    @property
    def is_running(self) -> bool:
        """Whether it is at work."""
        return bool(self._tasks)

    def start(self) -> None:
        """Begin, one task for each queue."""
        self._tasks = [asyncio.create_task(self._run(queue), name=f"syphon {queue}") for queue in self._queues]

    def wake(self) -> None:
        """The primary may take messages again: do not wait any longer."""
        self._healed.set()

    async def stop(self) -> None:
        """End; what is under way is finished first, so that nothing is sent twice without need."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, queue: str) -> None:
        pause_s = self._pause_s
        while True:
            before = self.moved.total()
            try:
                if self._is_gone:
                    await answers(self._primary)
                    self._is_gone = False
                receiver = await self._secondary.receiver(queue)
                try:
                    await self._drain(queue, receiver)
                finally:
                    with suppress(ClientError):
                        await receiver.close()
            except ClientError as problem:
                pause_s = self._pause_s if self.moved.total() > before else pause_s
                self.problem = f"{queue}: {problem.text}"
                _log.warning(
                    "syphon.paused",
                    "the syphon of '{entity}' waits {pause_s:g} s: {error}",
                    entity=queue,
                    pause_s=pause_s,
                    error=problem.text,
                )
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _pause(self, pause_s: float) -> None:
        self._healed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._healed.wait()

    async def _drain(self, queue: str, receiver: Receiver) -> None:
        """Step after step on one link, until the primary fails."""
        loop = asyncio.get_running_loop()
        blocked: dict[str, float] = {}  # Destinations that are passed over, and until when,
        pauses: dict[str, float] = {}  # and for how long.
        held: dict[str, list[ReceivedMessage]] = {}
        while True:
            now = loop.time()
            blocked = {path: until for path, until in blocked.items() if until > now}
            await syphon.give_back(receiver, {path: held.pop(path) for path in list(held) if path not in blocked})
            wait_s = min([self._poll_s, *(until - now for until in blocked.values())])
            moved = await syphon.step(
                receiver, self._primary, limit=self._batch, wait_s=max(wait_s, 0.1), blocked=list(blocked)
            )
            self._count(moved)
            for path, waiting in moved.held.items():
                held.setdefault(path, []).extend(waiting)
            for path, error in moved.blocked.items():
                self.problem = f"{path}: {error.text}"
                pauses[path] = min(pauses.get(path, BLOCKED_S / 2) * 2, PAUSE_MAX_S)
                blocked[path] = loop.time() + pauses[path]
                _log.warning(
                    "syphon.blocked", "'{entity}' takes nothing at present: {error}", entity=path, error=error.text
                )
            for path in moved.moved:
                pauses.pop(path, None)
            if moved.primary_gone:
                self._is_gone = True
                raise next(iter(moved.blocked.values()))
            if moved.moved:
                self.problem = None

    def _count(self, moved: syphon.Moved) -> None:
        self.moved += moved.moved
        self.dead += moved.dead
        self.doubled += moved.doubled
