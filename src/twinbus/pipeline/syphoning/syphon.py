"""The syphon on Spark: rounds of one short batch job each, driven from here until the backlog is empty, or for ever.

Each task of a round receives, sends, waits for the acknowledgement and completes, for ten seconds (`movement`); then
the secondary is asked what is left, and the next round is planned by that (`rounds`).

Why rounds, and neither a streaming query nor one long job: a round that is lost with its executors is simply followed
by the next one, planned for the executors that there are then. A primary that fails again ends a round, and nothing is
received from the backlog until it is back. Whoever stops the driver waits for the end of a round and leaves no locks;
where tasks and driver share a machine, a file ends it early. Tasks whose driver was killed end by themselves. Counts
come home with the results, over no port of our own. There is no checkpoint: the only state is which messages are in
the backlog, and the secondary keeps that.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from twinbus.client.errors import ClientError
from twinbus.model.address import ORDERED_BACKLOG_PART
from twinbus.model.extras import needing
from twinbus.pair.backlog.making import Paired, pair
from twinbus.pair.description import PairDescription
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.presence import Presence
from twinbus.pair.syphon.missing import Seen
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.session import is_local
from twinbus.pipeline.syphoning import movement
from twinbus.pipeline.syphoning.movement import Done
from twinbus.pipeline.syphoning.progress import Meter, Progress, Waiting
from twinbus.pipeline.syphoning.rounds import Share, plan

with needing("pyspark"):
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import TaskContext
    from pyspark.errors import PySparkException, PythonException
    from pyspark.sql import SparkSession

ROUND_S = 10.0  # Between two rounds up to half a second is lost; who stops the driver waits for the end of one.
LOOK_S = 1.0  # How often the secondary is asked during a round.
IDLE_S = 2.0  # How often it is asked when there is nothing to do.
PAUSE_S, PAUSE_MAX_S = 0.5, 5.0  # After a round that moved nothing.
GROUP = "twinbus syphon"


class SparkSyphon:
    """Brings home what is in the backlog queues of a pair; use it with `async with`."""

    def __init__(
        self,
        spark: SparkSession,
        description: PairDescription,
        *,
        receivers: int | None = None,
        rate_limit: float | None = None,
        round_s: float = ROUND_S,
    ) -> None:
        self._spark = spark
        self._description = description
        self._receivers = receivers
        self._rate_limit = rate_limit
        self._round_s = round_s
        self.primary, self.secondary = description.namespaces()
        self.paired: Paired | None = None
        self.rounds = 0
        self._missing: Seen = {}  # Entities that the primary does not have, from round to round.
        self._meter = Meter(time.monotonic())
        self._stopping = asyncio.Event()
        self._presence: Presence | None = None
        self._announcing: asyncio.Task[None] | None = None
        is_here = is_local(spark.sparkContext.master or "")
        self._place = tempfile.TemporaryDirectory(prefix="twinbus-syphon-") if is_here else None
        self._stop_file = None if self._place is None else Path(self._place.name, "stop")

    async def __aenter__(self) -> SparkSyphon:
        return self

    async def __aexit__(self, *args: object) -> None:
        if self._place is not None:
            self._place.cleanup()
        if self._announcing is not None and self._presence is not None:
            self._announcing.cancel()
            await asyncio.gather(self._announcing, return_exceptions=True)
            await self._presence.end()
        await asyncio.gather(self.primary.close(), self.secondary.close(), return_exceptions=True)

    async def pair(self) -> None:
        """Find the backlog queues, and make those that are missing; a PairingError if there is none in the end."""
        options = self._description.options
        self.paired = await pair(
            self.primary, self.secondary, options.backlog_queue_count, self._description.primary.name
        )
        if options.announce:
            self._presence = Presence("syphon", self.paired.primary, (self.primary, self.secondary), self._record)
            self._announcing = asyncio.create_task(self._presence.run())

    def progress(self) -> Progress:
        """How far it is."""
        return self._meter.progress(time.monotonic())

    def stop(self) -> None:
        """End after this round, which ends early where its tasks can see that it should."""
        self._stopping.set()
        if self._stop_file is not None:
            self._stop_file.touch()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    async def drain(self, patience_s: float) -> Progress:
        """Until nothing that can be received is left, or until nothing has moved for so long."""
        return await self._go(patience_s)

    async def watch(self) -> Progress:
        """Until it is told to stop."""
        return await self._go(None)

    async def _go(self, patience_s: float | None) -> Progress:
        self._meter = Meter(time.monotonic())
        await self._round_after_round(patience_s)
        if self.progress().left != 0:
            await self._ask()  # What the last round left.
        return self.progress()

    async def _round_after_round(self, patience_s: float | None) -> None:
        """With patience it ends when there is nothing to do, or when nothing has moved for so long."""
        moving_at, pause_s, least = time.monotonic(), PAUSE_S, None
        while not self._stopping.is_set():
            waiting = await self._ask()
            if waiting is not None and not waiting.receivable:
                self._meter.problem = None
                if patience_s is not None:
                    return
                moving_at, pause_s, least = time.monotonic(), PAUSE_S, None
                await self.rest(IDLE_S)
                continue
            ended = 0
            if waiting is not None and await self._primary_answers():
                ended = await self._round(waiting)
            left = waiting.left if waiting is not None else None
            # Somebody else's syphon is as good as ours.
            fewer = left is not None and least is not None and left < least
            least = left if least is None or fewer else least
            if ended or fewer:
                moving_at, pause_s = time.monotonic(), PAUSE_S
                continue
            if patience_s is not None and time.monotonic() - moving_at >= patience_s:
                return
            await self.rest(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def rest(self, pause_s: float) -> None:
        """Do nothing for a while, or until it is told to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    # What is there

    async def _ask(self) -> Waiting | None:
        """What is in all backlog queues; None if the secondary does not tell."""
        assert self.paired is not None
        mine = {path.lower(): path for path in self.paired.drained}  # Whoever made them may have spelt them otherwise.
        prefix = f"{self.paired.primary}{ORDERED_BACKLOG_PART}".lower()
        queues, ordered, unreceivable = {}, {}, 0
        try:
            async with await self.secondary.administer() as administration:
                async for entry in administration.queues():
                    name, counts = entry.description.name, entry.counts
                    if name.lower() in mine:
                        queues[mine[name.lower()]] = counts.active
                    elif name.lower().startswith(prefix) and entry.description.requires_session:
                        ordered[name] = counts.active
                    else:
                        continue
                    unreceivable += counts.deferred + counts.scheduled
        except ClientError as problem:
            self._meter.problem = f"the secondary does not tell what is left: {problem.text}"
            return None
        waiting = Waiting(queues, ordered, unreceivable)
        self._meter.looked(waiting.left, time.monotonic())
        return waiting

    async def _primary_answers(self) -> bool:
        """Before the first round and after one with a problem: the backlog is left alone until the primary is there."""
        if self.rounds and self._meter.problem is None:
            return True
        try:
            async with self.primary.fresh():
                return True
        except ClientError as problem:
            self._meter.problem = f"the primary is gone: {problem.text}"
            return False

    async def _look(self, before: Waiting) -> None:
        """During a round: ask again and again those queues that had something."""
        busy = [name for name, count in {**before.queues, **before.ordered}.items() if count]
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(ClientError):
                async with await self.secondary.administer() as administration:
                    entries = [(await administration.entity(name)).counts for name in busy]
                left = sum(counts.active for counts in entries) + before.unreceivable
                self._meter.looked(left, time.monotonic())

    # A round

    async def _round(self, waiting: Waiting) -> int:
        """One job; how many messages it brought out of the backlog."""
        context = self._spark.sparkContext
        shares = plan(
            waiting.queues,
            waiting.ordered,
            tasks=context.defaultParallelism,
            receivers=self._receivers,
            batch=movement.lot_of(self._description.options),
            rate=self._rate_limit,
        )
        shares = [replace(share, missing=self._missing) for share in shares]
        self._meter.begins()
        looking = asyncio.create_task(self._look(waiting))
        running = asyncio.ensure_future(asyncio.to_thread(self._run, shares))
        problem: str | None = None
        try:
            tasks = await asyncio.shield(running)
        except asyncio.CancelledError:
            context.cancelJobGroup(GROUP)
            await asyncio.gather(running, return_exceptions=True)
            raise
        except (Py4JJavaError, PySparkException) as failure:
            self._demand_spark(failure)
            tasks, problem = [], f"a round was lost: {_first_line(failure)}"
        except (Py4JError, OSError) as failure:
            raise PipelineError(f"Spark is gone: {failure}") from failure
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        self.rounds += 1
        ended = self._meter.returned(tasks, time.monotonic())
        self._meter.problem = problem or _problem(tasks)
        # A primary that was away may come back without any entity: the wait for them begins anew.
        self._missing = {} if any(task.primary_gone for task in tasks) else _missing(tasks)
        return ended

    def _run(self, shares: list[Share]) -> list[Done]:
        """In a thread, as it waits for Spark. Secrets go with the code of a task, which no file is made of."""
        context = self._spark.sparkContext
        context.setJobGroup(GROUP, "brings messages home", interruptOnCancel=True)
        work = partial(_task, self._description, self._round_s, self._stop_file)
        return context.parallelize(shares, len(shares)).mapPartitions(work).collect()

    def _demand_spark(self, failure: Exception) -> None:
        """A round may be lost with its executors; what will not pass by itself is told as a PipelineError."""
        if isinstance(failure, PythonException):
            raised = re.findall(r"(?m)^[\w.]+(?:Error|Exception): .*$", str(failure))
            raise PipelineError(f"A task failed on its executor: {raised[-1] if raised else failure}") from failure
        try:
            stopped = bool(self._spark.sparkContext._jsc.sc().isStopped())
        except (Py4JError, OSError, AttributeError):
            stopped = True
        if stopped:
            raise PipelineError(f"Spark is gone: {_first_line(failure)}") from failure

    def _record(self) -> dict[str, Any]:
        found = self.progress()
        namespaces: tuple[OwnClientNamespace, OwnClientNamespace] = (self.primary, self.secondary)
        return {
            "namespaces": {namespace.role: namespace.state.value for namespace in namespaces},
            "syphon": {"moved": found.moved, "dead": found.dead, "problem": (found.problem or "")[:300] or None},
        }


def _task(
    description: PairDescription, round_s: float, stop_file: Path | None, shares: Iterator[Share]
) -> Iterator[Done]:
    """On an executor."""
    context = TaskContext.get()
    for share in shares:
        done = movement.run(description, round_s, share, stop_file)
        done.attempt = context.attemptNumber() if context is not None else 0
        yield done


def _missing(tasks: list[Done]) -> dict[str, tuple[float, float]]:
    """The entities that no task found, with the latest word of each."""
    seen: dict[str, tuple[float, float]] = {}
    for task in tasks:
        for path, (first, last) in task.missing.items():
            if path not in seen or last > seen[path][1]:
                seen[path] = (first, last)
    return {path: times for path, times in seen.items() if not any(task.moved[path] for task in tasks)}


def _problem(tasks: list[Done]) -> str | None:
    """The first thing that a task was told; that the primary is gone before anything else."""
    told = [(not done.primary_gone, where, text) for done in tasks for where, text in done.problems.items()]
    if not told:
        return None
    elsewhere, where, text = min(told)
    return f"{where}: {text}" if elsewhere else f"the primary is gone ({where}: {text})"


def _first_line(failure: Exception) -> str:
    return next(iter(str(failure).splitlines()), type(failure).__name__)
