"""`twinbus verify`: whether a namespace is whole, on stopped files, in databases, or through the broker that runs.

What is checked, and how, is told in docs/store.md; the exit code is 0 if all is well, 1 if something was found, and 2
if it could not be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption
from twinbus.cli.output import Output, progress_bar
from twinbus.cli.running import command, fail
from twinbus.cli.showing import clean

FOUND, CANNOT = 1, 2

TargetArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[DIRECTORY|URL]...",
        help="A data directory whose broker is stopped. Without it, the broker of the connection string is asked.",
        show_default=False,
    ),
]


@command
async def verify(
    target: TargetArgument = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Check that a namespace is whole: pages, records, counts, journal, catalog against stores. Changes nothing."""
    from twinbus.broker.settings import SettingsError
    from twinbus.model.errors import BusError

    try:
        report = _verify_files(Path((target or [""])[0]))
    except (SettingsError, BusError) as problem:
        fail(str(problem), CANNOT)
    show(Output(json), report)
    if not report["whole"]:
        raise typer.Exit(FOUND)


def _verify_files(directory: Path) -> dict[str, Any]:
    from twinbus.broker.verifying import verify_directory

    with progress_bar("Verifying", None) as bar:
        return verify_directory(directory, Bar(bar)).document()


class Bar:
    """Shows on a terminal how far it is."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.task_ids[0]

    def begin(self, rows: int) -> None:
        """So many rows will be read."""
        self._bar.update(self._task, total=rows)

    def advance(self, rows: int) -> None:
        """So many more were read."""
        self._bar.advance(self._task, rows)


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
