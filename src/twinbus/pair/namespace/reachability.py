"""Whether a namespace answers. While it does not, it is looked for once for all who wait, every half second.

A look opens a connection and closes it again; it sends nothing, so that nothing is billed. Who finds that a namespace
is away says so (`lost`); what else to do meanwhile is decided by them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twinbus.client.errors import ClientError
from twinbus.pair.namespace.port import BrokerFacts, RemoteNamespace

LOOK_S = 0.5
# Behind a load balancer without a backend an attempt hangs for ever, also when the backend is there again: the next
# ones are begun without waiting for it. One that has taken so many looks is given up.
LOOKS_AT_ONCE = 10


class Reachability:
    """One namespace; used on one loop."""

    def __init__(self, namespace: RemoteNamespace, on_change: Callable[[], None] | None = None) -> None:
        self._namespace = namespace
        self._on_change = on_change
        self.problem: str | None = None  # Why it counts as away; None while it answers.
        self._next_look_at = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._waiters = 0
        self._sign = asyncio.Event()

    @property
    def is_lost(self) -> bool:
        """Whether it counts as away."""
        return self.problem is not None

    def lost(self, problem: ClientError) -> None:
        """Nobody answered there."""
        was_lost, self.problem = self.is_lost, problem.text
        if not was_lost:
            self._changed()

    def found(self) -> None:
        """It answers."""
        was_lost, self.problem = self.is_lost, None
        if was_lost:
            self._changed()

    def wake(self) -> None:
        """It may be back: look at once."""
        self._sign.set()

    def next_look_s(self) -> float | None:
        """How long until the next look; None while nobody waits for it."""
        if self._looking is None:
            return None
        return max(0.0, self._next_look_at - asyncio.get_running_loop().time())

    async def back(self) -> None:
        """Wait until it answers; returns at once while it does."""
        while self.is_lost:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look())
            self._waiters += 1
            try:
                await asyncio.shield(self._looking)
            finally:
                self._waiters -= 1
                if not self._waiters:
                    await self._end_looking()

    async def _end_looking(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        clock = asyncio.get_running_loop().time
        attempts: list[asyncio.Task[BrokerFacts]] = []
        try:
            while self.is_lost:
                self._sign.clear()
                self._next_look_at = clock() + LOOK_S
                attempts.append(asyncio.create_task(self._namespace.ask()))
                if len(attempts) > LOOKS_AT_ONCE:
                    attempts.pop(0).cancel()
                while self.is_lost and not self._sign.is_set() and (left_s := self._next_look_at - clock()) > 0:
                    attempts = await self._heard(attempts, left_s)
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)

    async def _heard(self, attempts: list[asyncio.Task[BrokerFacts]], wait_s: float) -> list[asyncio.Task[BrokerFacts]]:
        """Wait for an answer, a sign, or the next look; the attempts that go on."""
        sign = asyncio.create_task(self._sign.wait())
        try:
            await asyncio.wait([sign, *attempts], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sign.cancel()
        for attempt in attempts:
            if attempt.done() and not attempt.cancelled():
                problem = attempt.exception()
                if problem is None:
                    self.found()
                elif isinstance(problem, ClientError):
                    self.problem = problem.text if self.is_lost else None
                else:
                    raise problem
        return [attempt for attempt in attempts if not attempt.done()]

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()
