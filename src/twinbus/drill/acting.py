"""A client at work on the stage: traffic flows through it, and receivers suppress second copies by the ledger.

For the time of an `async with` block; at its end nothing more is sent, and everything has arrived or is missing. Which
client it is, `paired` and `replicated` say, and what happens meanwhile the scenarios.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from twinbus.drill.ending import Ending
from twinbus.drill.history import Known, SendLog, judge
from twinbus.drill.proof import Proof
from twinbus.drill.stage import Stage
from twinbus.drill.traffic import Destination, Pace, Traffic
from twinbus.pair.aio import Ledger
from twinbus.pair.ledger.ledger import records

CALM_S = 3.0  # Everything is healthy for so long before something happens, and after it.
SAMPLE_S = 0.25
LOOK_S = 0.02
PATIENCE_S = 60.0
FLOWING = 20  # Messages.


async def until(happened: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Wait for something that should happen; whether it did."""
    deadline = time.monotonic() + patience_s
    while not happened():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(LOOK_S)
    return True


class Act(ABC):
    """Use it with `async with`; afterwards ask for its `ending`."""

    def __init__(self, stage: Stage, **ledger: Any) -> None:
        """`ledger` are settings of the ledger that are not as usual."""
        self._stage = stage
        self._course = stage.course
        self._stack = AsyncExitStack()
        self._log = SendLog(stage.directory / "sent.jsonl")
        self._ledger_path = stage.directory / "ledger.db"
        self._ledger_settings = ledger
        self.ledger: Ledger
        self.condemned: frozenset[str] = frozenset()  # See `history.Known`.
        self.kept: frozenset[str] = frozenset()
        pace = Pace(rate=stage.plan.rate, seed=stage.plan.seed, id_prefix=stage.id_prefix)
        self.traffic = Traffic(self._course, self._log, pace, stage.destinations)
        self._proof: Proof | None = None
        self._suppressed = 0

    @abstractmethod
    async def _open(self, stack: AsyncExitStack) -> Any:
        """The client, opened for the time of a stack."""

    @abstractmethod
    def _receiver(self, destination: Destination, settings: dict[str, Any]) -> Any:
        """A receiver of a destination through the ledger."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._log)
            self.ledger = await stack.enter_async_context(Ledger(self._ledger_path, **self._ledger_settings))
            client = await self._open(stack)
            stack.push_async_callback(self.traffic.stop)
            sampling = asyncio.create_task(self._sample())
            stack.callback(sampling.cancel)
            self.traffic.receive_by(self._receiver)
            self.traffic.send_by(client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._stack:
            if error is not None:
                return
            await self.traffic.enough()
            await self.traffic.settle(self.condemned | self.kept)
            self._suppressed = self.ledger.metrics()["suppressed"]
            self._course.sample()
            if self._stage.prover is not None:
                self._course.say("reconciling")
                self._proof = await self._stage.prover.prove(self._log.path, self._ledger_path)

    def ending(self, *remarks: str, broken: tuple[str, ...] = ()) -> Ending:
        """How it ended; ask after the block."""
        times = self._course.times()
        known = Known(frozenset(self._course.diverted), self.kept, self.condemned)
        verdict = judge(self._log.path, self._course.received, known)
        verdict = replace(verdict, divert_s=times["divert"], heal_s=times["heal"], drain_s=times["drain"])
        return Ending(verdict, self._suppressed, self._proof, remarks, broken)

    def suppressed(self) -> frozenset[str]:
        """Messages of which the ledger kept a second copy from being worked on; ask after the block."""
        return frozenset(row.tag for row in records(str(self._ledger_path)) if row.suppressed)

    async def flowing(self, count: int = FLOWING) -> None:
        """Wait until so many more messages have been received, or for a while; a busy machine takes its time."""
        enough = len(self._course.received) + count
        await until(lambda: len(self._course.received) >= enough)

    async def calm(self, seconds: float = CALM_S) -> None:
        """Let traffic flow, and nothing happen."""
        await asyncio.sleep(seconds)

    async def _sample(self) -> None:
        while True:
            self._course.sample()
            await asyncio.sleep(SAMPLE_S)
