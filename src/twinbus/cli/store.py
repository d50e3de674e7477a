"""`twinbus store`: the messaging stores of a namespace listed, taken down and brought up again.

The broker does it; what the states mean is told in docs/stores.md.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, namespace
from twinbus.cli.output import Output, Table
from twinbus.cli.running import command
from twinbus.cli.showing import clean
from twinbus.cli.store_journal import journal

store = typer.Typer(no_args_is_help=True, help="See the messaging stores, take one down, bring it up again.")

NumberArgument = Annotated[int, typer.Argument(min=0, metavar="NUMBER", help="The store's number.", show_default=False)]


@store.command("list")
@command
async def list_stores(
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """List the messaging stores and their states."""
    from twinbus.client import upkeep  # aiohttp takes a quarter of a second, and few commands need it.

    async with namespace(connection_string, ca, http_port).administer() as administration:
        show_stores(Output(json), await upkeep.stores(administration))


@store.command("down")
@command
async def take_down(
    number: NumberArgument,
    reason: Annotated[str | None, typer.Option(help="Why; clients and the list are told.")] = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Take a store down: it finishes what it has begun and releases its file; its entities are not available."""
    from twinbus.client import upkeep

    async with namespace(connection_string, ca, http_port).administer() as administration:
        show_stores(Output(json), [await upkeep.take_down(administration, number, reason)])


@store.command("up")
@command
async def bring_up(
    number: NumberArgument,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Bring a store up again, whether it was taken down or has failed."""
    from twinbus.client import upkeep

    async with namespace(connection_string, ca, http_port).administer() as administration:
        show_stores(Output(json), [await upkeep.bring_up(administration, number)])


store.command("journal")(journal)


def show_stores(output: Output, stores: list[dict[str, Any]]) -> None:
    """Stores as a table, or one object for each."""
    if output.as_json:
        for found in stores:
            output.record(found)
        return
    table = Table(output, ["STORE", "STATE", "SINCE", "ENTITIES", "REASON"], numbers=["STORE", "ENTITIES"])
    table.rows(
        [
            [str(found["number"]), found["state"], found["since"], str(found["entities"]), clean(found["reason"])]
            for found in stores
        ]
    )
