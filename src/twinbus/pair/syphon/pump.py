"""The pump: backlog queues drained for ever, one task for each, in an application's process or in one of its own.

Idle, it makes one long receive after the other; while a namespace is away it is looked for, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

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


class QueuePump(ABC):
    """Brings home what is in the backlog queues that are found: a task for each, and one that looks for more.

    A client that makes more of them, or another kind, may come later than the syphon.
    """

    kind: ClassVar[str]  # What a problem of finding them is called by.

    def __init__(
        self,
        home: Home,
        secondary: RemoteNamespace,
        find: Callable[[], Awaitable[list[str]]],
        progress: Progress,
        *,
        poll_s: float,
        pause_s: float,
        queues: Sequence[str] = (),
    ) -> None:
        """`find` says which queues there are; `queues` are known already."""
        self._home = home
        self._secondary = secondary
        self._find = find
        self._progress = progress
        self._poll_s = poll_s
        self._pause_s = pause_s
        self._queues = list(queues)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin."""
        self._spawn(self._watch())
        for queue in self._queues:
            self._spawn(self._run(queue))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        while True:
            is_found = True
            try:
                new = [queue for queue in await self._find() if queue not in self._queues]
                self._queues += new
                for queue in new:
                    self._spawn(self._run(queue))
                if new:
                    self._home.changed()
                self._progress.problems.pop(self.kind, None)
            except ClientError as problem:
                self._progress.problems[self.kind] = problem.text
                is_found = False
            await asyncio.sleep(self._look_s(is_found))

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
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks.difference_update(tasks)

    async def drain(self) -> None:
        """Bring home what is there now; returns when nothing is left that can be moved."""
        try:
            await asyncio.gather(*map(self._drain, await self._find()))
        except ClientError as problem:
            self._progress.problems[self.kind] = problem.text

    @abstractmethod
    def _look_s(self, is_found: bool) -> float:
        """How long until it looks for more queues, after a look that showed which there are, or failed."""

    @abstractmethod
    async def _run(self, queue: str) -> None:
        """Empty one queue for ever."""

    @abstractmethod
    async def _drain(self, queue: str) -> None:
        """Empty one queue once."""


class Pump(QueuePump):
    """Brings home what was diverted without order."""

    kind = QUEUES

    def __init__(self, home: Home, secondary: RemoteNamespace, *args: Any, batch: int, **kwargs: Any) -> None:
        super().__init__(home, secondary, *args, **kwargs)
        self.reachability = Reachability(secondary)  # Of the secondary.
        self._batch = batch

    def _look_s(self, is_found: bool) -> float:
        return LOOK_S if self._queues else LOOK_SOON_S

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
