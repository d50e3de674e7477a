"""The pump: the syphon's steps run for ever, one task for each backlog queue, beside an application or alone.

Idle, it makes one long receive after the other; when the primary fails again it stops for a while, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from twinbus.client import ReceivedMessage, Receiver
from twinbus.client.errors import ClientError
from twinbus.pair import syphon
from twinbus.pair.half import Half

_log = logging.getLogger(__name__)

BLOCKED_S = 5.0  # How long a destination that takes nothing is passed over before it is tried again.
PAUSE_MAX_S = 30.0


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
            try:
                receiver = await self._secondary.receiver(queue)
                try:
                    await self._drain(queue, receiver)
                finally:
                    with suppress(ClientError):
                        await receiver.close()
                pause_s = self._pause_s
            except ClientError as problem:
                self.problem = f"{queue}: {problem.text}"
                _log.warning("the syphon of '%s' waits %g s: %s", queue, pause_s, problem.text)
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
        blocked: dict[str, float] = {}  # Destinations that are passed over, and until when.
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
                blocked[path] = loop.time() + BLOCKED_S
                _log.warning("'%s' takes nothing at present: %s", path, error.text)
            if moved.primary_gone:
                raise next(iter(moved.blocked.values()))
            if moved.moved:
                self.problem = None

    def _count(self, moved: syphon.Moved) -> None:
        self.moved += moved.moved
        self.dead += moved.dead
        self.doubled += moved.doubled
