"""`twinbus up`, `down` and `logs`: a pair of namespaces on this machine for daily work.

`twinbus.local` starts and ends the processes; here they are shown.
"""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output, Table
from twinbus.cli.pair import show_pair
from twinbus.cli.running import PromptError, command
from twinbus.cli.showing import clean

if TYPE_CHECKING:
    from twinbus.local import LocalPair

FOLLOW_S = 0.2
PORT_STEP = 100  # From a port of the primary to the secondary's.
LINES = 40

DirectoryOption = Annotated[
    Path | None,
    typer.Option("--data", envvar="TWINBUS_UP", help="Where the pair is kept; ~/.twinbus if not given."),
]
AmqpOption = Annotated[int, typer.Option(min=1, max=65435, help="AMQP of the primary; the secondary's is 100 higher.")]
HttpOption = Annotated[int, typer.Option(min=1, max=65435, help="HTTP of the primary; the secondary's is 100 higher.")]

_PASTE = {
    "Python": "ServiceBusClient.from_connection_string({0})",
    "JavaScript": "new ServiceBusClient({0})",
    ".NET": "new ServiceBusClient({0})",
    "Java": "new ServiceBusClientBuilder().connectionString({0})",
}


def _pair(data: Path | None, amqp_port: int = 5672, http_port: int = 5300) -> LocalPair:
    from twinbus.local import LocalPair, Ports, StartError

    ports = {
        "primary": Ports(amqp_port, http_port),
        "secondary": Ports(amqp_port + PORT_STEP, http_port + PORT_STEP),
    }
    try:
        return LocalPair((data or Path.home() / ".twinbus").absolute(), ports)
    except StartError as problem:
        raise PromptError(clean(str(problem))) from None


def _journal() -> tuple[str, ...]:
    """The journal as files is part of the pair where it can be written, which needs the extra `parquet`."""
    return ("--journal", "default") if importlib.util.find_spec("pyarrow") else ()


@command
async def up(
    data: DirectoryOption = None,
    amqp_port: AmqpOption = 5672,
    http_port: HttpOption = 5300,
    faults: Annotated[bool, typer.Option("--faults", help="Let faults be caused on purpose.")] = False,
    json: JsonOption = False,
) -> None:
    """Start two paired namespaces and their syphon on this machine, or show them if they are there; data is kept."""
    from twinbus.local import StartError

    pair = _pair(data, amqp_port, http_port)
    output = Output(json)
    options = (*_journal(), *(("--faults",) if faults else ()))
    try:
        running = pair.up(options, lambda part: output.remark(f"Starting the {part} …"))
    except StartError as problem:
        raise PromptError(clean(str(problem))) from None
    found = {
        role: {
            "connection_string": pair.connection_string(role),
            "http": pair.http_address(role),
            "pid": running[role].pid,
        }
        for role in ("primary", "secondary")
    }
    if json:
        output.record({**found, "syphon": {"pid": running["syphon"].pid}, "pair": str(pair.description)})
        return
    for role, told in found.items():
        output.line(f"The {role} namespace: administration at {told['http']}, connection string")
        output.line(f"  {told['connection_string']}")
    output.line(f"The console, for a browser: {pair.http_address('primary')}/ and {pair.http_address('secondary')}/")
    output.line()
    output.line("In an application, for either of them:")
    for language, call in _PASTE.items():
        output.line(f"  {language:<11}" + call.format('"…"'))
    output.line()
    output.line("The pair, for PairedServiceBusClient.from_description and for the option --pair of the commands:")
    output.line(f"  {clean(str(pair.description))}")
    output.line("`twinbus pair status --pair FILE` tells how it stands, `twinbus down` ends it and keeps its data.")


@command
async def down(data: DirectoryOption = None, json: JsonOption = False) -> None:
    """End the pair that `twinbus up` started; its data is kept."""
    from twinbus.local import StartError

    output = Output(json)
    try:
        stopped = _pair(data).down(lambda part: output.remark(f"Ending the {part} …"))
    except StartError as problem:
        raise PromptError(clean(str(problem))) from None
    if json:
        output.record({"ended": stopped})
    elif not stopped:
        output.line("Nothing was running.")


@command
async def logs(
    part: Annotated[str, typer.Argument(metavar="PART", help="primary, secondary or syphon.")] = "primary",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as more is written.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines from the end.")] = LINES,
    data: DirectoryOption = None,
) -> None:
    """Show what a process of the local pair has written to its log."""
    from twinbus.local.pair import PARTS

    if part not in PARTS:
        raise PromptError(f"There is no '{clean(part)}': the parts are {', '.join(PARTS)}.")
    path = _pair(data).log(part)
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError:
        raise PromptError(f"There is no log at {clean(str(path))}: `twinbus up` starts the pair.") from None
    output = Output(False)
    with file:
        for line in file.readlines()[-lines:] if lines else ():
            output.line(clean(line.rstrip("\n")))
        file.seek(0, os.SEEK_END)
        while follow:
            output.flush()
            if line := file.readline():
                output.line(clean(line.rstrip("\n")))
            else:
                time.sleep(FOLLOW_S)


async def show_local(output: Output) -> bool:
    """The pair that `twinbus up` keeps here, if it is there: its processes, and how it stands."""
    from twinbus.local.pair import PARTS

    given = os.environ.get("TWINBUS_UP")
    pair = _pair(Path(given) if given else None)
    running = pair.running()
    if not running:
        return False
    if output.as_json:
        pids = {part: running[part].pid if part in running else None for part in PARTS}
        output.record({"pair": str(pair.description), "processes": pids})
        return True
    rows = [(part, str(running[part].pid) if part in running else "-", str(pair.log(part))) for part in PARTS]
    Table(output, ("process", "pid", "log")).rows(rows)
    output.line()
    await show_pair(output, pair.description)
    return True
