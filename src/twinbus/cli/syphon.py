"""`twinbus syphon`: the pump that brings diverted messages home, as a process of its own.

The moving is done in `twinbus.pair`; here it is started, watched, and ended by a signal.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from twinbus.cli import interruption
from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output
from twinbus.cli.pairing import PairOption, PrimaryOption, SecondaryOption, described
from twinbus.cli.running import PromptError, command, ended_by_signal
from twinbus.cli.showing import clean, counted

if TYPE_CHECKING:
    from twinbus.pair.errors import PairingError
    from twinbus.pair.syphon.home import Progress
    from twinbus.pair.syphon.standalone import StandaloneSyphon

LOOK_S = 0.5
RETRY_S = 1.0
RETRY_MAX_S = 30.0


@command
async def syphon(
    once: Annotated[bool, typer.Option("--once", help="End when the backlog is empty, instead of going on.")] = False,
    pair: PairOption = None,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Answer Prometheus on this port of 127.0.0.1.", min=1, max=65535)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Bring diverted messages home from the backlog queues until the process is told to end."""
    with interruption.at_once():  # The SDK takes half a second, and few commands need it.
        from twinbus.pair.errors import PairingError
        from twinbus.pair.syphon.standalone import StandaloneSyphon

    output, description = Output(json), described(pair, primary, secondary)
    if not once:
        with ended_by_signal() as told:
            async with StandaloneSyphon(description) as run:
                _answer_prometheus(run, metrics_port)
                await _go_on(run, output, told)
        return
    async with StandaloneSyphon(description) as run:
        _answer_prometheus(run, metrics_port)
        try:
            await run.pair()
        except PairingError as problem:
            raise PromptError(clean(str(problem))) from None
        draining = asyncio.create_task(run.drain())
        await _watch(run, draining, output)
        done = await draining
        remaining = await run.remaining()
    _judge(output, done, remaining)


def _judge(output: Output, done: Progress, remaining: dict[str, int] | None) -> None:
    """A single run has done its work if nothing is left, and nothing died."""
    for (queue, said), count in done.dead_letters.items():
        output.remark(f"{counted(count)} dead in '{clean(queue)}': {clean(said)}")
    problems = []
    if done.dead:
        problems.append(f"{counted(done.dead)} went to the dead letters of the backlog queues: see `twinbus dlq list`.")
    left = done.left if remaining is None else sum(remaining.values())
    if done.problem is not None:
        what = f"{counted(left)} could not be moved" if left else "The backlog could not be read"
        problems.append(f"{what}: {clean(done.problem)}")
    elif left:
        where = ", ".join(f"'{clean(queue)}' {count:,}" for queue, count in (remaining or {}).items())
        why = "they came meanwhile, are scheduled or deferred, or another syphon has them"
        problems.append(f"{counted(left)} left in the backlog ({where}): {why}.")
    if problems:
        raise PromptError(" ".join(problems))


def _answer_prometheus(run: StandaloneSyphon, port: int | None) -> None:
    """On a thread that ends with the process, if a port was given."""
    if port is None:
        return
    from prometheus_client import CollectorRegistry, start_http_server

    from twinbus.pair.metrics import SyphonMetrics

    registry = CollectorRegistry()
    registry.register(SyphonMetrics(run))
    try:
        start_http_server(port, "127.0.0.1", registry)
    except OSError as problem:
        why = "is in use" if problem.errno == errno.EADDRINUSE else f"cannot be opened ({problem.strerror})"
        raise PromptError(f"Port {port} (metrics) {why}; choose another with --metrics-port.") from None


async def _go_on(run: StandaloneSyphon, output: Output, told: asyncio.Event) -> None:
    """Until it is told to end. Whoever starts before the namespaces are there waits for them."""
    ending = asyncio.create_task(told.wait())
    starting = asyncio.create_task(_start(run, output))
    try:
        await asyncio.wait([ending, starting], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await _watch(run, ending, output)
    finally:
        for task in (ending, starting):
            task.cancel()
        await asyncio.gather(ending, starting, return_exceptions=True)


async def _start(run: StandaloneSyphon, output: Output) -> None:
    from twinbus.pair.errors import PairingError

    pause_s = RETRY_S
    while run.paired is None:
        try:
            await run.pair()
        except PairingError as problem:
            if not _may_pass(problem):
                raise PromptError(clean(str(problem))) from None
            output.remark(f"{clean(str(problem))} Again in {pause_s:g} s, or when the primary answers.")
            await _until_it_answers(run, pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)
    run.start()
    count = len(run.paired.queues)
    output.remark(f"The syphon watches {count} backlog queue{'' if count == 1 else 's'} of '{run.paired.primary}'.")


async def _until_it_answers(run: StandaloneSyphon, most_s: float) -> None:
    """What was diverted meanwhile does not wait for a pause to end."""
    from twinbus.client.errors import ClientError

    with suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            while True:
                await asyncio.sleep(LOOK_S)
                with suppress(ClientError):
                    await run.primary.ask_together()
                    return


def _may_pass(problem: PairingError) -> bool:
    return bool(getattr(problem.__cause__, "transient", False))


async def _watch(run: StandaloneSyphon, until: asyncio.Task[object], output: Output) -> None:
    """Show how it gets on: a table that changes on a terminal, elsewhere a line when something has."""
    console = Console(stderr=True)
    if console.is_terminal and not output.as_json:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            await _each_look(run, until, lambda found, waits: live.update(_table(found, waits), refresh=True))
        _line(output, run.progress, run.waits_for)
    else:
        await _each_look(run, until, lambda found, waits: _line(output, found, waits))


async def _each_look(
    run: StandaloneSyphon, until: asyncio.Task[object], show: Callable[[Progress, str | None], None]
) -> None:
    """Shows what has changed now and then, and how it was in the end."""
    shown = None
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await asyncio.shield(until)
        found, waits = run.progress, run.waits_for
        now = (dict(found.moved), found.dead, found.problem, waits)
        if now != shown and (shown is not None or now != ({}, 0, None, None) or until.done()):
            show(found, waits)
            shown = now
        if until.done():
            return


def _line(output: Output, found: Progress, waits_for: str | None) -> None:
    if output.as_json:
        told = {"moved": dict(found.moved), "dead": found.dead, "left": found.left, "problem": found.problem}
        output.record({**told, "waits_for": waits_for})
    else:
        each = ", ".join(f"{clean(path)} {count:,}" for path, count in sorted(found.moved.items()))
        problem = f"; {_problem(found, waits_for)}" if found.problem or waits_for else ""
        output.line(f"moved {found.moved.total():,}{f' ({each})' if each else ''}, dead {found.dead:,}{problem}")
    output.flush()


def _problem(found: Progress, waits_for: str | None) -> str:
    waits = f"waits for the {waits_for}, looking for it all the time" if waits_for else ""
    return ": ".join(filter(None, (waits, clean(found.problem or ""))))


def _table(found: Progress, waits_for: str | None) -> RichTable:
    table = RichTable("destination", "moved", caption=Text(_problem(found, waits_for)))
    table.columns[1].justify = "right"
    for path, count in sorted(found.moved.items()):
        table.add_row(Text(clean(path)), f"{count:,}")  # A path may look like markup.
    table.add_section()
    table.add_row("all", f"{found.moved.total():,}")
    table.add_row("dead", f"{found.dead:,}")
    return table
