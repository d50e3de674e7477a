"""`twinbus bench`: throughput and latency of a broker, alone or against a peer on the same machine.

The load is `client.load`'s, the figures are shown by `benchmark.report`; this reads the options and runs the phases.
"""

from __future__ import annotations

import json as json_format
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from twinbus.cli.benchmark.broker import BrokerFailedError, OwnBroker
from twinbus.cli.benchmark.machine import look_at
from twinbus.cli.benchmark.report import PHASES, Report, Run, show
from twinbus.cli.interruption import temporary_directory
from twinbus.cli.running import blocking_command, run_to_end
from twinbus.client import Authentication, ClientError, ConnectionString, connect, load

Phase = Callable[[load.Place, load.Load, load.Progress], Awaitable[load.Figures]]
_PHASES: dict[str, Phase] = {
    "alone": load.send_one_by_one,
    "send": load.send,
    "receive": load.receive,
    "both": load.both,
}


@blocking_command
def bench(
    connection_string: Annotated[
        str | None, typer.Option(help="Measure this broker; by default one is started for the purpose.")
    ] = None,
    queue: Annotated[str, typer.Option(help="The queue to use; it must be empty.")] = "bench",
    messages: Annotated[int, typer.Option(min=1, help="Messages in each phase.")] = 60_000,
    size: Annotated[int, typer.Option(min=0, help="Bytes of a message's body.")] = 1024,
    window: Annotated[int, typer.Option(min=1, help="Messages on their way at the same time, by connection.")] = 500,
    connections: Annotated[int, typer.Option(min=1, help="Sending connections, and as many receiving.")] = 1,
    data: Annotated[
        Path | None, typer.Option(help="Where the started broker keeps its data for the time; a temporary directory.")
    ] = None,
    peer: Annotated[str | None, typer.Option(help="host:port of another AMQP 1.0 broker to compare with.")] = None,
    peer_queue: Annotated[str | None, typer.Option(help="The address of an empty queue there.")] = None,
    user: Annotated[str | None, typer.Option(help="SASL PLAIN at the peer; ANONYMOUS without.")] = None,
    password: Annotated[str, typer.Option(help="Password at the peer.", envvar="TWINBUS_PEER_PASSWORD")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure settled sends, receives, both at once, and latencies."""
    work = load.Load(messages, size, window, connections)
    console = Console(stderr=json)
    try:
        with ExitStack() as stack:
            directory = stack.enter_context(temporary_directory("twinbus-bench-", data))
            report = Report(work, look_at(directory), own_broker=connection_string is None)
            broker = None
            if connection_string is None:
                broker = OwnBroker(directory, queue)
                stack.callback(broker.stop)
                connection_string = broker.connection_string
            places = {"twinbus": _our_place(connection_string, queue)}
            if peer is not None:
                places["peer"] = _peer_place(peer, peer_queue or queue, user, password)
            with _progress(console) as progress:
                run_to_end(_measure(places, report, broker, progress))
    except (ClientError, BrokerFailedError, load.NotEmptyError, OSError, ValueError) as problem:
        typer.echo(f"twinbus: {problem}", err=True)
        raise typer.Exit(1) from None
    if json:
        typer.echo(json_format.dumps(report.as_json(), indent=2))
    else:
        show(report, console)


def _our_place(connection_string: str, queue: str) -> load.Place:
    return load.Place(partial(connect, ConnectionString.parse(connection_string)), queue)


def _peer_place(peer: str, queue: str, user: str | None, password: str) -> load.Place:
    host, _, port = peer.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--peer {peer}: host:port is needed")
    target = ConnectionString(host, int(port), tls=False, policy=user, key=password)
    authentication = Authentication.ANONYMOUS if user is None else Authentication.PLAIN
    return load.Place(partial(connect, target, authentication=authentication), queue, settle_first=True)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


async def _measure(places: dict[str, load.Place], report: Report, broker: OwnBroker | None, progress: Progress) -> None:
    """Phase by phase, broker after broker in each, so that both see the machine in the same mood."""
    for place in places.values():
        await load.check_empty(place)
    report.runs = {name: {} for name in places}
    for phase, run in _PHASES.items():
        for name, place in places.items():
            title = f"{name}: {PHASES[phase].format(window=report.load.window)}"
            total = load.ALONE_COUNT if phase == "alone" else report.load.messages
            task = progress.add_task(title, total=total)
            watched = broker if name == "twinbus" else None
            cpu_s = watched.cpu_s() if watched else 0.0
            syncs = watched.synced_commits() if watched else None
            figures = await run(place, report.load, partial(progress.advance, task))
            done = report.runs[name][phase] = Run(figures)
            if watched:
                done.broker_cpu_s = watched.cpu_s() - cpu_s
                synced = watched.synced_commits()
                done.syncs = None if syncs is None or synced is None else synced - syncs
            if phase == "alone":
                await load.receive(place, replace(report.load, messages=figures.messages), lambda count: None)
            progress.remove_task(task)
