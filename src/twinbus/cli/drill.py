"""`twinbus drill`: an outage on purpose, watched, and judged at the end.

What happens in a drill is told in `twinbus.drill`; here it is started and shown.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from twinbus.cli.output import Output


def drill(
    scenario: Annotated[str, typer.Argument(help="What happens: outage.")] = "outage",
    duration: Annotated[float, typer.Option("--for", min=1, max=3600, help="Seconds that the primary is away.")] = 10.0,
    rate: Annotated[float, typer.Option(min=1, max=1000, help="Messages in a second.")] = 50.0,
    directory: Annotated[
        Path | None, typer.Option("--keep", help="Keep data, logs and the send log in this new directory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Take a primary namespace away under a paired sender, bring it back, and count what became of every message."""
    from twinbus.drill.outage import Outage, Plan  # The SDK and Spark take a while, and other commands need neither.

    if scenario != "outage":
        raise typer.BadParameter(f"there is no drill '{scenario}'; try: outage")
    logging.getLogger("twinbus.pair").setLevel(logging.ERROR)  # The drill tells what happens in its own words.
    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinbus-drill-")))
        else:
            directory.mkdir(parents=True)
        console = Console(stderr=True)
        began = time.monotonic()
        run = Outage(
            directory, Plan(outage_s=duration, rate=rate), lambda line: _say(console, time.monotonic() - began, line)
        )
        verdict = asyncio.run(_watched(run, console) if console.is_terminal else run.run())
        if as_json:
            Output(as_json=True).record({**asdict(verdict), "holds": verdict.holds})
        else:
            typer.echo(verdict.line())
    if not verdict.holds:
        raise typer.Exit(1)


def _say(console: Console, at: float, line: str) -> None:
    console.print(f"{at:6.1f} s  {line}", highlight=False, markup=False)


async def _watched(run: Any, console: Console) -> Any:
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
