"""`twinbus store`: the messaging stores of a namespace listed, taken down, brought up, accepted and replaced.

The broker does it; what the states mean is told in docs/stores.md.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, namespace
from twinbus.cli.output import Output, Table
from twinbus.cli.running import command, confirm
from twinbus.cli.showing import clean
from twinbus.cli.store_journal import journal
from twinbus.cli.store_migrate import migrate
from twinbus.cli.store_orphans import YesOption, adopt, drop, move, orphans, save

store = typer.Typer(
    no_args_is_help=True,
    help="See the messaging stores, take one down, bring it up again, and what is set aside in them.",
)

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


@store.command("accept")
@command
async def accept(
    number: NumberArgument,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Serve a store that is set aside because it is older, or another one; entities that it lacks are made anew."""
    from twinbus.client import upkeep

    confirm(f"Serve what lies in the place of store {number}, although newer messages may be missing?", yes)
    async with namespace(connection_string, ca, http_port).administer() as administration:
        show_stores(Output(json), [await upkeep.accept_store(administration, number)])


@store.command("replace")
@command
async def replace(
    number: NumberArgument,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Give up a store that is not up: what lies there is moved away, and its entities are made anew, empty."""
    from twinbus.client import upkeep

    confirm(f"Give up the messages of store {number}?", yes)
    async with namespace(connection_string, ca, http_port).administer() as administration:
        replaced = await upkeep.replace_store(administration, number)
    output = Output(json)
    show_stores(output, [replaced])
    if replaced["moved_to"] and not json:
        output.line(f"What was there is kept as {clean(replaced['moved_to'])}.")


store.command("journal")(journal)
store.command("orphans")(orphans)
store.command("adopt")(adopt)
store.command("move")(move)
store.command("export")(save)
store.command("drop")(drop)
store.command("migrate")(migrate)


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
