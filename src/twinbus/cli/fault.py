"""`twinbus fault`: faults on purpose in a namespace that was started with --faults, begun, listed and lifted.

The broker does it; what each of them means is told in docs/faults.md.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, namespace
from twinbus.cli.output import Output, Table
from twinbus.cli.running import command
from twinbus.cli.showing import clean
from twinbus.cli.values import Duration, parse_duration
from twinbus.model.disturbance import Disturbance

fault = typer.Typer(no_args_is_help=True, help="Cause faults on purpose, in a namespace that was started for it.")

NameArgument = Annotated[
    Disturbance, typer.Argument(metavar="FAULT", help="What is to happen; `fault list` names all.", show_default=False)
]


@fault.command("list")
@command
async def list_faults(
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """List all faults, and since when and until when one is going on."""
    from twinbus.client import upkeep  # aiohttp takes a quarter of a second, and few commands need it.

    async with namespace(connection_string, ca, http_port).administer() as administration:
        _show(Output(json), await upkeep.faults(administration))


@fault.command("begin")
@command
async def begin(
    name: NameArgument,
    lasting: Annotated[
        Duration | None,
        typer.Option("--for", parser=parse_duration, metavar="DURATION", help="How long; else until it is lifted."),
    ] = None,
    delay: Annotated[
        Duration | None,
        typer.Option(parser=parse_duration, metavar="DURATION", help="How slow or late, where a fault delays (1s)."),
    ] = None,
    store: Annotated[int | None, typer.Option(min=0, help="Which messaging store, where one is meant (0).")] = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Begin a fault, for a time or until it is lifted."""
    from twinbus.client import upkeep

    async with namespace(connection_string, ca, http_port).administer() as administration:
        found = await upkeep.begin_fault(administration, name.value, for_ms=lasting, delay_ms=delay, store=store)
        _show(Output(json), found)


@fault.command("lift")
@command
async def lift(
    name: Annotated[Disturbance | None, typer.Argument(metavar="[FAULT]", help="Which one; else all.")] = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """End a fault, or all of them."""
    from twinbus.client import upkeep

    async with namespace(connection_string, ca, http_port).administer() as administration:
        lifted = await upkeep.lift_faults(administration, None if name is None else name.value)
    output = Output(json)
    if json:
        output.record({"lifted": lifted})
    else:
        output.line(f"{lifted} fault{'' if lifted == 1 else 's'} lifted" if lifted else "nothing was going on")


def _show(output: Output, found: dict[str, Any]) -> None:
    if output.as_json:
        output.record(found)
        return
    rows = []
    for known in found["known"]:
        for one in [one for one in found["faults"] if one["name"] == known["name"]] or [None]:
            rows.append((clean(known["name"]), _state(one), _until(one), clean(known["meaning"])))
    Table(output, ("fault", "state", "until", "meaning")).rows(rows)
    if not found["allowed"]:
        output.remark("This namespace is not for faults on purpose: start the broker with --faults.")


def _state(one: dict[str, Any] | None) -> str:
    if one is None:
        return "-"
    where = f" (store {one['store']})" if "store" in one else ""
    by = f" by {one['delay']}" if "delay" in one else ""
    return f"since {one['since']}{where}{by}"


def _until(one: dict[str, Any] | None) -> str:
    return "-" if one is None else one["until"] or "lifted"
