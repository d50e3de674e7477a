"""`twinbus store journal`: how far a namespace's journal is in files, and having all of it written now.

The broker does it; what is in the files is told in docs/journal.md.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, namespace
from twinbus.cli.output import Output, Table
from twinbus.cli.running import command
from twinbus.cli.showing import clean

EXPORT_S = 600.0


@command
async def journal(
    export: Annotated[bool, typer.Option("--export", help="Have everything written first that was committed.")] = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Show where the journal's files are, and how far each store's journal is in them."""
    from twinbus.client import upkeep  # aiohttp takes a quarter of a second, and few commands need it.

    async with namespace(connection_string, ca, http_port).administer(timeout_s=EXPORT_S) as administration:
        found = await (upkeep.export_journal if export else upkeep.journal)(administration)
    _show(Output(json), found)


def _show(output: Output, found: dict[str, Any]) -> None:
    if output.as_json:
        output.record(found)
        return
    if not found["export"]:
        output.line("The journal is not exported: serve with --journal.")
        return
    output.facts(
        {"Directory": clean(found["directory"]), "Files": f"{found['files']:,} with {found['file_bytes']:,} bytes"}
    )
    output.line()
    heads = ["STORE", "WRITER", "IN FILES", "WAITING", "PROBLEM"]
    table = Table(output, heads, numbers=heads[:-1])
    table.rows(
        [
            [
                str(store["store"]),
                str(writer["writer"]),
                f"{writer['exported']:,}",
                f"{writer['waiting_rows']:,}",
                clean(store["problem"]),
            ]
            for store in found["stores"]
            for writer in store["writers"]
        ]
    )
