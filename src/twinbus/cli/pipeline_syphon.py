"""`twinbus pipeline syphon`: diverted messages are brought home by jobs on Spark.

The moving is done in `twinbus.pipeline.syphoning.syphon`; here it is started, shown, and ended by a signal.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import interruption
from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output
from twinbus.cli.pairing import PairOption, PrimaryOption, SecondaryOption, described
from twinbus.cli.pipeline_progress import show
from twinbus.cli.pipeline_running import starts
from twinbus.cli.pipeline_session import MasterOption, SettingOption, session
from twinbus.cli.running import INTERRUPTED, PromptError, command
from twinbus.cli.showing import clean, counted
from twinbus.cli.values import Duration, parse_duration
from twinbus.pipeline.java import require_spark

if TYPE_CHECKING:
    from twinbus.pipeline.syphoning.progress import Progress
    from twinbus.pipeline.syphoning.syphon import SparkSyphon

RETRY_S, RETRY_MAX_S = 1.0, 30.0
PATIENCE_S = 15.0  # For the round that is under way, with all that comes after it.

ReceiversOption = Annotated[
    int | None,
    typer.Option(min=1, max=1000, show_default=False, help="Receivers in all tasks together; four for each core."),
]
RateOption = Annotated[
    int | None,
    typer.Option("--rate-limit", min=1, show_default=False, help="Messages a second at most, in all tasks together."),
]
PatienceOption = Annotated[
    Duration | None,
    typer.Option(
        parser=parse_duration,
        metavar="DURATION",
        show_default=False,
        help="How long a drain waits for a primary that takes nothing; 5m.",
    ),
]


@command
async def syphon(
    watch: Annotated[
        bool, typer.Option("--watch/--drain", help="Go on for ever, instead of ending when the backlog is empty.")
    ] = False,
    pair: PairOption = None,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    rate_limit: RateOption = None,
    receivers: ReceiversOption = None,
    patience: PatienceOption = None,
    master: MasterOption = None,
    conf: SettingOption = None,
    json: JsonOption = False,
) -> None:
    """Bring diverted messages home in parallel: many backlog queues at once, and several receivers on a deep one."""
    require_spark(os.environ)
    description = described(pair, primary, secondary)
    output = Output(json)
    starts(output)
    with session("twinbus syphon", master, conf) as spark:
        from twinbus.pipeline.errors import PipelineError
        from twinbus.pipeline.syphoning.syphon import SparkSyphon

        try:
            async with SparkSyphon(spark, description, receivers=receivers, rate_limit=rate_limit) as run:
                patience_s = 300.0 if patience is None else patience / 1000
                told = await _until_told(run, _move(run, output, None if watch else patience_s), output)
        except PipelineError as problem:
            raise PromptError(clean(str(problem))) from None
        found = run.progress()
    if watch:
        return
    if told and found.left != 0:
        raise typer.Exit(INTERRUPTED)
    if found.left or found.left is None or found.problem:
        raise PromptError(_what_is_left(found))


def _what_is_left(found: Progress) -> str:
    left = "The backlog could not be read" if found.left is None else f"{counted(found.left)} left in the backlog"
    return f"{left}{f': {clean(found.problem)}' if found.problem else '.'}"


async def _until_told(run: SparkSyphon, work: Coroutine[None, None, None], output: Output) -> bool:
    """Work to its end, or until a signal comes: the first ends it after the round, the second at once."""
    loop = asyncio.get_running_loop()
    told = False

    def end() -> None:
        nonlocal told
        told = True
        loop.call_soon_threadsafe(run.stop)
        output.remark("Ends with this round, within ten seconds; once more ends it at once.")

    with interruption.asking(end, PATIENCE_S):
        await work
    return told


async def _move(run: SparkSyphon, output: Output, patience_s: float | None) -> None:
    """Pair, then drain with patience or watch without; shown from beginning to end."""
    if not await _paired(run, output, patience_s):
        return
    assert run.paired is not None
    for queue, count in run.paired.extra.items():
        if count:
            output.remark(f"'{clean(queue)}' is beyond the count, and is emptied, too: {counted(count)}.")
    moving = asyncio.create_task(run.watch() if patience_s is None else run.drain(patience_s))
    try:
        await show(run.progress, moving, output)
        await moving
    finally:
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)


async def _paired(run: SparkSyphon, output: Output, patience_s: float | None) -> bool:
    """Whoever starts before the namespaces are there waits for them, with patience; whether they came."""
    from twinbus.pair.errors import PairingError

    loop = asyncio.get_running_loop()
    began, pause_s = loop.time(), RETRY_S
    while not run.is_stopping:
        try:
            await run.pair()
            return True
        except PairingError as problem:
            may_pass = bool(getattr(problem.__cause__, "transient", False))
            impatient = patience_s is not None and loop.time() - began + pause_s > patience_s
            if impatient or not may_pass:
                raise PromptError(clean(str(problem))) from None
            output.remark(f"{clean(str(problem))} Again in {pause_s:g} s.")
        await run.rest(pause_s)
        pause_s = min(pause_s * 2, RETRY_MAX_S)
    return False
