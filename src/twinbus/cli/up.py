"""`twinbus up`, `down` and `logs`: a pair of namespaces on this machine for daily work.

`twinbus.local` starts and ends the processes; here they are shown.
"""

from __future__ import annotations

import os
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from twinbus.cli import interruption
from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output, Table
from twinbus.cli.pair import STRANDED, document, look_at, show
from twinbus.cli.running import PromptError, command
from twinbus.cli.showing import clean
from twinbus.model.extras import missing, require

if TYPE_CHECKING:
    from twinbus.local import LocalPair, StartError
    from twinbus.pair.survey import PairFound

FOLLOW_S = 0.2
LINES = 40

DirectoryOption = Annotated[
    Path | None,
    typer.Option("--data", envvar="TWINBUS_UP", help="Where the pair is kept; ~/.twinbus if not given."),
]
AmqpOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=65435, show_default=False, help="AMQP of the primary, 5672 at first; the secondary's is 100 higher."
    ),
]
HttpOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=65435, show_default=False, help="HTTP of the primary, 5300 at first; the secondary's is 100 higher."
    ),
]

_PASTE = {
    "Python": "ServiceBusClient.from_connection_string({0})",
    "JavaScript": "new ServiceBusClient({0})",
    ".NET": "new ServiceBusClient({0})",
    "Java": "new ServiceBusClientBuilder().connectionString({0})",
}


def _home() -> Path:
    return Path.home() / ".twinbus"


def _pair(data: Path | None, amqp_port: int | None = None, http_port: int | None = None) -> LocalPair:
    from twinbus.local import LocalPair, StartError

    try:
        return LocalPair((data or _home()).absolute(), amqp_port, http_port)
    except StartError as problem:
        raise PromptError(_words(problem)) from None


def _journal() -> tuple[str, ...]:
    """The journal as files is part of the pair where it can be written, which needs the extra `parquet`."""
    return ("--journal", "default") if not missing("pyarrow") else ()


@command
async def up(
    data: DirectoryOption = None,
    amqp_port: AmqpOption = None,
    http_port: HttpOption = None,
    faults: Annotated[bool, typer.Option("--faults", help="Let faults be caused on purpose.")] = False,
    json: JsonOption = False,
) -> None:
    """Start two paired namespaces and their syphon on this machine, or show them if they are there; data is kept."""
    from twinbus.local import StartError

    require("azure.servicebus")  # The processes of the pair need it, and nothing shall be begun in vain.
    pair = _pair(data, amqp_port, http_port)
    output = Output(json)
    options = (*_journal(), *(("--faults",) if faults else ()))
    try:
        with interruption.raising():
            running = pair.up(options, lambda part: output.remark(f"Starting the {part} …"), interruption.check)
    except StartError as problem:
        raise PromptError(_words(problem)) from None
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
        output.line(f"The {role} namespace, console at {told['http']}/, connection string")
        output.line(f"  {told['connection_string']}")
    output.line("The pair, for PairedServiceBusClient.from_description and for the option --pair of the commands")
    output.line(f"  {clean(str(pair.description))}")
    _say_what_next(output, pair)


def _say_what_next(output: Output, pair: LocalPair) -> None:
    """Lines to paste; they need nothing but what is installed."""
    output.line("In an application, with either connection string")
    for language, call in _PASTE.items():
        output.line(f"  {language:<11}" + call.format('"…"'))
    output.line("At this prompt")
    output.line(f'  export TWINBUS_CONNECTION_STRING="$(cat {_quoted(pair.directory / "primary.connection")})"')
    output.line("  twinbus entity create orders && twinbus send orders hello && twinbus receive orders")
    output.line(f"  twinbus pair status --pair {_quoted(pair.description)}")
    where = "" if pair.directory == _home() else f" --data {_quoted(pair.directory)}"
    output.line(f"  twinbus down{where}    # ends the pair and keeps its data")


def _words(problem: StartError) -> str:
    """What went wrong, line by line: several ports, or the end of a log."""
    return "\n".join(clean(line) for line in str(problem).splitlines())


def _quoted(path: Path) -> str:
    return shlex.quote(clean(str(path)))


@command
async def down(data: DirectoryOption = None, json: JsonOption = False) -> None:
    """End the pair that `twinbus up` started; its data is kept."""
    from twinbus.local import StartError

    output = Output(json)
    try:
        with interruption.raising():
            stopped = _pair(data).down(lambda part: output.remark(f"Ending the {part} …"))
    except StartError as problem:
        raise PromptError(_words(problem)) from None
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
        if follow:
            with suppress(KeyboardInterrupt), interruption.raising():  # Which is how following ends.
                _follow(file, output)


def _follow(file: TextIO, output: Output) -> None:
    while True:
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
        found = await look_at(pair.description)
        output.record({"pair": str(pair.description), "processes": pids, "status": document(found)})
        return _not_stranded(found)
    rows = [(part, str(running[part].pid) if part in running else "-", str(pair.log(part))) for part in PARTS]
    Table(output, ("process", "pid", "log")).rows(rows)
    output.line()
    found = await look_at(pair.description)
    show(output, found)
    return _not_stranded(found)


def _not_stranded(found: PairFound) -> bool:
    if found.stranded:
        raise typer.Exit(STRANDED)
    return True
