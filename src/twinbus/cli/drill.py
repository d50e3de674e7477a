"""`twinbus drill`: an outage on purpose, watched, and judged at the end.

What happens in a drill is told in `twinbus.drill`; here it is started and shown.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from twinbus.cli.output import Output

if TYPE_CHECKING:
    from twinbus.drill.history import Verdict
    from twinbus.drill.outage import Outage, Plan


def drill(
    scenario: Annotated[str, typer.Argument(help="What happens: outage.")] = "outage",
    duration: Annotated[float, typer.Option("--for", min=1, max=3600, help="Seconds that the primary is away.")] = 10.0,
    rate: Annotated[float, typer.Option(min=1, max=1000, help="Messages in a second.")] = 50.0,
    lost_answers: Annotated[
        int,
        typer.Option(min=0, max=100, help="How often an answer is lost before the outage, and its message sent twice."),
    ] = 0,
    directory: Annotated[
        Path | None, typer.Option("--keep", help="Keep data, logs and the send log in this new directory.")
    ] = None,
    spark: Annotated[
        bool, typer.Option(help="Drain the backlog with Spark, and prove the result from the journals.")
    ] = True,
    report: Annotated[Path, typer.Option(help="Where Spark's report is written, one HTML file.")] = Path(
        "twinbus-drill.html"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Take a primary namespace away under a paired sender, bring it back, and count what became of every message."""
    from twinbus.drill.outage import Plan  # The SDK and Spark take a while, and other commands need neither.

    if scenario != "outage":
        raise typer.BadParameter(f"there is no drill '{scenario}'; try: outage")
    logging.getLogger("twinbus.pair").setLevel(logging.ERROR)  # The drill tells what happens in its own words.
    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinbus-drill-")))
        else:
            directory.mkdir(parents=True)
        console = Console(stderr=True)
        plan = Plan(outage_s=duration, rate=rate, lost_answers=lost_answers)
        run, verdict = asyncio.run(_run(directory, plan, console, report if spark else None))
        holds = verdict.holds and (run.proof is None or run.proof.holds)
        if as_json:
            told = {} if run.proof is None else {"report": str(report), "proof": run.proof.findings.document()}
            document = {**asdict(verdict), "suppressed": run.suppressed, "holds": holds, **told}
            Output(as_json=True).record(document)
        else:
            for line in [] if run.proof is None else run.proof.lines():
                typer.echo(line)
            typer.echo(f"suppressed by the ledger {run.suppressed}")
            typer.echo(verdict.line())
    if not holds:
        raise typer.Exit(1)


async def _run(directory: Path, plan: Plan, console: Console, report: Path | None) -> tuple[Outage, Verdict]:
    """The drill, with Spark if there is to be a report."""
    from twinbus.drill.outage import Outage
    from twinbus.drill.proof import Prover

    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"{time.monotonic() - began:6.1f} s  {line}", highlight=False, markup=False)

    async with AsyncExitStack() as stack:
        prover = None
        if report is not None:
            if importlib.util.find_spec("pyspark") is None:
                raise typer.BadParameter("Spark is not installed: pip install 'twinbus[spark]', or use --no-spark.")
            prover = await stack.enter_async_context(Prover(directory, report, say))
        run = Outage(directory, plan, say, prover)
        return run, await (_watched(run, console) if console.is_terminal else run.run())


async def _watched(run: Outage, console: Console) -> Verdict:
    """The run with bars that grow: what was acknowledged, what was diverted, what has arrived."""
    columns = (
        TextColumn("{task.description:>14}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bars = {name: progress.add_task(name, total=None) for name in ("acknowledged", "diverted", "received")}
        running = asyncio.ensure_future(run.run())
        while not running.done():
            for name, bar in bars.items():
                total = max(run.acknowledged, 1)
                progress.update(bar, total=total, completed=getattr(run, name))
            await asyncio.wait([running], timeout=0.2)
        return running.result()
