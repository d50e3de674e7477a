"""`twinbus verify`: whether a namespace is whole, on stopped files, in databases, or through the broker that runs.

What is checked, and how, is told in docs/store.md; the exit code is 0 if all is well, 1 if something was found, and 2
if it could not be looked at.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, Namespace, namespace
from twinbus.cli.output import Output, progress_bar
from twinbus.cli.running import PromptError, command, fail, words
from twinbus.cli.showing import clean
from twinbus.client import ClientError

FOUND, CANNOT = 1, 2
DATABASE = re.compile("postgres(ql)?://")
DOOR = re.compile("https?://")
ASK_S = 0.2

TargetArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[DIRECTORY|URL]...",
        help="A stopped broker's data directory, or postgresql:// addresses of stores. Without, a broker is asked.",
        show_default=False,
    ),
]


@command
async def verify(
    target: TargetArgument = None,
    namespace_name: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAME", help="Which one, if a database has several.", show_default=False),
    ] = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Check that a namespace is whole: pages, records, counts, journal, catalog against stores. Changes nothing."""
    from twinbus.broker.settings import SettingsError
    from twinbus.model.errors import BusError

    targets = target or []
    try:
        if targets and all(DATABASE.match(each) for each in targets):
            report = _verify_databases(targets, namespace_name)
        elif not targets or DOOR.match(targets[0]):
            report = await _ask(*targets, connection_string=connection_string, ca=ca, http_port=http_port)
        elif len(targets) == 1:
            report = _verify_files(Path(targets[0]))
        else:
            raise SettingsError("Give one data directory, or the databases of one namespace, or neither.")
    except (SettingsError, BusError, PromptError) as problem:
        fail(str(problem), CANNOT)
    except ClientError as error:
        fail(words(error), CANNOT)
    show(Output(json), report)
    if not report["whole"]:
        raise typer.Exit(FOUND)


def _verify_files(directory: Path) -> dict[str, Any]:
    from twinbus.broker.verifying import verify_directory

    with progress_bar("Verifying", None) as bar:
        return verify_directory(directory, Bar(bar)).document()


async def _ask(
    door: str | None = None, *, connection_string: str | None, ca: Path | None, http_port: int | None
) -> dict[str, Any]:
    place = namespace(connection_string, ca, http_port)
    if door is not None:
        place = replace(place, http_address=door.rstrip("/"))
    state = await examined(place, "verify")
    report: dict[str, Any] = state["result"]
    return report


async def examined(place: Namespace, what: str, destination: str | None = None) -> dict[str, Any]:
    """Have the broker do something that takes a while, and show how far it is; how it ended. Raises why it failed."""
    from twinbus.client import upkeep

    async with place.administer() as administration:
        state = await upkeep.begin_examination(administration, what, destination)
        with progress_bar(what.capitalize(), None) as bar:
            shown = Bar(bar)
            while state["state"] == "running":
                shown.show(state["progress"])
                await asyncio.sleep(ASK_S)
                state = await upkeep.examination(administration, what)
    if state["result"] is None:
        raise PromptError(clean(state["why"]))
    return state


def _verify_databases(urls: list[str], namespace_name: str | None) -> dict[str, Any]:
    from twinbus.broker.verifying_shared import verify_databases  # psycopg is for those who use it.

    with progress_bar("Verifying", None) as bar:
        return verify_databases(urls, namespace_name, Bar(bar)).document()


class Bar:
    """Shows on a terminal how far it is."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.task_ids[0]

    def begin(self, what: str, total: int) -> None:
        """The next part of the work begins."""
        self._bar.reset(self._task, description=what, total=total)

    def advance(self, by: int) -> None:
        """So many more rows or bytes are done."""
        self._bar.advance(self._task, by)

    def show(self, progress: Mapping[str, Any] | None) -> None:
        """How far another process says that it is."""
        if progress is not None:
            done, total = progress["done"], progress["total"]
            self._bar.update(self._task, description=progress["step"], completed=done, total=total)


def show(output: Output, report: Mapping[str, Any]) -> None:
    """A report, for people or for scripts."""
    if output.as_json:
        output.record(report)
        return
    for finding in report["findings"]:
        output.line(f"{finding['where']}: {clean(finding['text'])}  [{finding['check']}]")
        for example in finding["examples"]:
            output.line(f"    {clean(example)}")
        output.line(f"  {finding['means']}")
        output.line(f"  {finding['advice']}")
        output.line()
    for unchecked in report["unchecked"]:
        output.remark(f"Not checked: {unchecked['check']} of {unchecked['where']}, because {clean(unchecked['why'])}.")
    stores = report["stores"]
    messages, rows = (sum(store[what] for store in stores) for what in ("messages", "journal_rows"))
    held = f"{report['entities']:,} entities, {messages:,} messages and {rows:,} rows of the journal"
    findings = len(report["findings"])
    verdict = (
        "whole" if not findings else "not whole: 1 finding" if findings == 1 else f"not whole: {findings} findings"
    )
    output.line(f"{len(stores)} stores with {held}: {verdict}.")
