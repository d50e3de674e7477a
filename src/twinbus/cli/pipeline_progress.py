"""How a syphon on Spark is shown: a bar on a terminal, plain lines elsewhere, JSON for scripts; the last line always.

The numbers are `twinbus.pipeline.syphoning.progress`'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress

from twinbus.cli.output import Output
from twinbus.cli.showing import clean

if TYPE_CHECKING:
    from twinbus.pipeline.syphoning.progress import Progress

LOOK_S = 0.25
LINE_S = 5.0  # Where there is no terminal a line is enough every so often.


async def show(look: Callable[[], Progress], until: asyncio.Future[Progress], output: Output) -> None:
    """Show how it gets on, until it ends; then how it was in the end."""
    console = Console(stderr=True)
    if console.is_terminal and not output.as_json:
        bar = _bar(console)
        task = bar.add_task("moved", total=None, words="looks what is there")
        with bar:
            while not await _over(until, LOOK_S):
                _update(bar, task, look())
            _update(bar, task, look())
    else:
        loop = asyncio.get_running_loop()
        shown_at, problem = loop.time(), None
        while not await _over(until, LOOK_S):
            found = look()
            if found.problem != problem or loop.time() - shown_at >= LINE_S:
                shown_at, problem = loop.time(), found.problem
                _tell(output, found, ended=False)
    _tell(output, look(), ended=True)


async def _over(until: asyncio.Future[Progress], wait_s: float) -> bool:
    with suppress(TimeoutError, Exception):  # Whoever made it looks at how it ended.
        async with asyncio.timeout(wait_s):
            await asyncio.shield(until)
    return until.done()


def _bar(console: Console) -> RichProgress:
    return RichProgress(
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.fields[words]}", markup=False),  # A path may look like markup.
        console=console,
        transient=True,
    )


def _update(bar: RichProgress, task: TaskID, found: Progress) -> None:
    total = None if found.left is None else max(found.total, 1)
    bar.update(task, completed=found.moved + found.dead, total=total, words=words(found))


def words(found: Progress) -> str:
    """All of it in a line."""
    dead = f", dead {found.dead:,}" if found.dead else ""
    left = "" if found.left is None else f", left {found.left:,}"
    speed = f", {found.rate:,.0f}/s" if found.rate else ""
    eta = f", {span(found.eta_s)} to go" if found.left and found.eta_s is not None else ""
    problem = f"; {clean(found.problem)}" if found.problem else ""
    return f"moved {found.moved:,}{dead}{left}{speed}{eta}{problem}"


def last_words(found: Progress) -> str:
    """What became of everything."""
    lost = found.lost_tasks
    at_least = "" if not lost else f" or more ({lost} task{'' if lost == 1 else 's'} lost before telling)"
    left = "unknown" if found.left is None else f"{found.left:,}"
    doubled = f", sent twice under the same id {found.doubled:,}" if found.doubled else ""
    return f"moved {found.moved:,}{at_least}, dead {found.dead:,}, left {left}{doubled}"


def span(seconds: float) -> str:
    """A time as people say it."""
    whole = int(seconds + 0.5)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _tell(output: Output, found: Progress, ended: bool) -> None:
    if output.as_json:
        output.record(
            {
                "moved": found.moved,
                "dead": found.dead,
                "left": found.left,
                "rate": round(found.rate, 1),
                "eta_s": None if found.eta_s is None else round(found.eta_s, 1),
                "doubled": found.doubled,
                "lost_tasks": found.lost_tasks,
                "problem": found.problem,
                "ended": ended,
            }
        )
    else:
        output.line(last_words(found) if ended else words(found))
    output.flush()
