"""The pump: backlog queues drained for ever, one task for each, in an application's process or in one of its own.

Idle, it makes one long receive after the other; while a namespace is away it is looked for, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from twinbus.client.errors import ClientError, is_local
from twinbus.model.logged import EventLog
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.namespace.reachability import Reachability
from twinbus.pair.syphon.drain import Drain, PassedOver
from twinbus.pair.syphon.home import PAUSE_MAX_S, Home, Progress

_log = EventLog(__name__)

BLOCKED_S = 0.5  # How long a destination that takes nothing is passed over at first, before it is tried again.
LOOK_S = 10.0  # How often it is looked for queues that were not there before.
LOOK_SOON_S = 1.0  # While there is none.
QUEUES = "backlog queues"
QUIET_S = 1.0  # A queue that gives nothing for so long is empty.


class Pump:
    """Brings home what is in the backlog queues that are found."""

    def __init__(
        self,
        home: Home,
        secondary: RemoteNamespace,
        queues: Sequence[str],
        find: Callable[[], Awaitable[list[str]]],
        progress: Progress,
        *,
        batch: int,
        poll_s: float,
        pause_s: float,
    ) -> None:
        self._home = home
        self._secondary = secondary
        self.reachability = Reachability(secondary)  # Of the secondary.
        self._find = find
        self._queues = list(queues)
        self._progress = progress
        self._batch = batch
        self._poll_s = poll_s
        self._pause_s = pause_s
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin, one task for each queue that is known, and later for those that are found."""
        self._tasks = [asyncio.create_task(self._watch(), name="syphon"), *map(self._begin, self._queues)]

    def _begin(self, queue: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._run(queue), name=f"syphon {queue}")

    async def _watch(self) -> None:
        """A client that was given a higher count may come later than the syphon, and make more queues."""
        while True:
            try:
                new = [queue for queue in await self._find() if queue not in self._queues]
                self._queues += new
                self._tasks += map(self._begin, new)
                if new:
                    self._home.changed()
                self._progress.problems.pop(QUEUES, None)
            except ClientError as problem:
                self._progress.problems[QUEUES] = problem.text
            await asyncio.sleep(LOOK_S if self._queues else LOOK_SOON_S)

    @property
    def queues(self) -> list[str]:
        """Those that it brings messages home from."""
        return list(self._queues)

    @property
    def is_running(self) -> bool:
        """Whether it is at work."""
        return bool(self._tasks)

    async def stop(self) -> None:
        """End; what is under way is finished first, so that nothing is sent twice without need."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, queue: str) -> None:
        progress, failures, clock = self._progress, 0, asyncio.get_running_loop().time
        while True:
            await self._home.back()
            await self.reachability.back()
            before, began = progress.ended, clock()
            problem = await self._go_on(queue)
            failures = 1 if progress.ended > before or clock() - began > PAUSE_MAX_S else failures + 1
            progress.problems[queue] = problem.text
            # What is away is looked for, without a pause; one that answers, and fails again, gets some time.
            pause_s = 0.0 if failures == 1 else min(self._pause_s * 2.0 ** min(failures - 2, 10), PAUSE_MAX_S)
            text = "the syphon of '{entity}' waits: {error}"
            _log.warning("syphon.paused", text, entity=queue, pause_s=pause_s, error=problem.text)
            if pause_s:
                await self._home.pause(pause_s)

    async def _go_on(self, queue: str) -> ClientError:
        """Bring home what comes, until that fails; why it did."""
        try:
            receiver = await self._secondary.receiver(queue)
            drain = Drain(receiver, self._home, PassedOver(BLOCKED_S, PAUSE_MAX_S), self._progress)
            self._progress.problems.pop(queue, None)
            try:
                told = self._progress.ended
                while not (moved := await drain.step(self._batch, self._poll_s)).is_gone:
                    if not moved.received and self._progress.ended > told:
                        told = self._progress.ended
                        self._home.changed()
                gone = [problem for problem in moved.blocked.values() if is_local(problem)]
                return next(iter([*gone, *moved.blocked.values()]))
            finally:
                await drain.close()
        except ClientError as problem:
            if is_local(problem):
                self.reachability.lost(problem)
            return problem

    async def drain(self) -> None:
        """Bring home what is there now; returns when nothing is left that can be moved."""
        try:
            await asyncio.gather(*map(self._drain, await self._find()))
        except ClientError as problem:
            self._progress.problems[QUEUES] = problem.text

    async def _drain(self, queue: str) -> None:
        try:
            receiver = await self._secondary.receiver(queue)
            drain = Drain(receiver, self._home, PassedOver.to_the_end(), self._progress)
            try:
                while (moved := await drain.step(self._batch, QUIET_S)).received:
                    self._progress.left += moved.received - moved.moved.total() - len(moved.set_aside)
                    if moved.is_gone:
                        return
            finally:
                await drain.close()
        except ClientError as problem:
            self._progress.problems[queue] = problem.text
