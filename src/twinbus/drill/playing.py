"""One drill from beginning to end: the stage is set, the scenario plays on it, record and report are written.

What happens is told by the scenarios; how it looks while it runs, by the command line.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from twinbus.drill.course import Course
from twinbus.drill.ending import Ending
from twinbus.drill.proof import Prover
from twinbus.drill.record import Record
from twinbus.drill.report import write_report
from twinbus.drill.scenarios import SCENARIOS
from twinbus.drill.stage import Plan, on_own_brokers
from twinbus.drill.standing import BreachError, Readiness, on_a_pair, rehearse, watch
from twinbus.pair.description import PairDescription


@dataclass(frozen=True, slots=True)
class Papers:
    """Where a drill leaves what."""

    directory: Path  # Data, logs, the send log; new and empty.
    report: Path  # HTML.
    record: Path | None = None  # JSON, while it runs.


async def play(
    plan: Plan, course: Course, papers: Papers, *, spark: bool = False, pair: PairDescription | None = None
) -> Ending:
    """Play a scenario on brokers of its own, or on a pair that is up. BreachError if it must not begin or go on."""
    async with AsyncExitStack() as stack:
        record = Record(papers.record or papers.directory / "record.json", plan, course)
        await stack.enter_async_context(record)
        try:
            if pair is None:
                ending = await _on_own_brokers(plan, course, papers, spark)
            else:
                ending = await _on_a_pair(plan, course, papers, pair)
        except BreachError as breach:
            record.aborted(str(breach))
            raise
        record.ended(ending)
        if ending.proof is None:
            write_report(papers.report, plan, course, ending)
        return ending


async def _on_own_brokers(plan: Plan, course: Course, papers: Papers, spark: bool) -> Ending:
    scenario = SCENARIOS[plan.scenario]
    async with AsyncExitStack() as stack:
        prover = Prover(papers.directory, papers.report, course.say) if spark else None
        if prover is not None:
            await stack.enter_async_context(prover)
        setting = on_own_brokers(
            papers.directory, plan, course, options=scenario.options, configs=scenario.configs, prover=prover
        )
        return await scenario.play(await stack.enter_async_context(setting))


async def _on_a_pair(plan: Plan, course: Course, papers: Papers, pair: PairDescription) -> Ending:
    """Watched all the time: the drill is ended if others suffer."""
    run = secrets.token_hex(3)
    try:
        async with on_a_pair(papers.directory, plan, course, pair, run) as stage:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch(pair, course, run))
                ending = await SCENARIOS[plan.scenario].play(stage)
                watching.cancel()
            return ending
    except* BreachError as breaches:
        raise BreachError("; ".join(str(breach) for breach in breaches.exceptions)) from None


async def rehearsed(plan: Plan, pair: PairDescription, path: Path | None) -> Readiness:
    """Look at a pair that is up and say what a drill would do; nothing is changed, and it is recorded if asked."""
    course = Course(plan.scenario)
    if path is None:
        return await rehearse(pair, plan)
    async with Record(path, plan, course, dry_run=True) as record:
        readiness = await rehearse(pair, plan)
        for step in readiness.steps:
            course.say(f"would {step}")
        record.state, record.why = ("failed" if readiness.obstacles else "held"), "; ".join(readiness.obstacles) or None
    return readiness
