"""`twinbus status`, `purge`, `reset` and `clock`: what only Twinbus offers, through the broker's JSON API.

The broker does it; these commands read their options and tell how it went.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from twinbus.cli.address import parse_address
from twinbus.cli.connection import CaOption, ConnectionOption, EntityArgument, HttpPortOption, JsonOption, namespace
from twinbus.cli.entity import YesOption
from twinbus.cli.nearest import finding
from twinbus.cli.output import Output
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean, counted
from twinbus.cli.store import show_stores
from twinbus.cli.up import show_local
from twinbus.cli.values import parse_duration
from twinbus.model.limits import UNLIMITED_MS

UPKEEP_S = 3600.0


class SubQueueName(StrEnum):
    """The queues of one entity."""

    main = "main"
    dead_letter = "dead-letter"
    transfer_dead_letter = "transfer-dead-letter"


SubQueueOption = Annotated[SubQueueName, typer.Option("--sub-queue", help="Which of its queues.")]


@command
async def status(
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Show how a namespace is: its version, its clock, its entities, its stores. Without one, the pair of `up`."""
    from twinbus.client import upkeep  # aiohttp takes a quarter of a second, and few commands need it.

    if not connection_string and await show_local(Output(json)):
        return
    async with namespace(connection_string, ca, http_port).administer() as administration:
        found = await upkeep.status(administration)
    output = Output(json)
    if json:
        output.record(found)
        return
    entities = found["entities"]
    output.facts(
        {
            "Namespace": clean(found["namespace"]),
            "Id": clean(found.get("id") or "-"),
            "Datacenter": clean(found.get("datacenter") or "-"),
            "Version": clean(found["version"]),
            "Started": found["started_at"],
            "Now": found["now"] + (" (test clock)" if found["test_clock"] else ""),
            "Entities": ", ".join(f"{number:,} {kind}" for kind, number in entities.items()),
        }
    )
    if problem := found.get("catalog_problem"):
        output.remark(f"The catalog takes no changes: {clean(problem)}.")
    output.line()
    show_stores(output, found["stores"])


@command
async def purge(
    entity: EntityArgument,
    sub_queue: SubQueueOption = SubQueueName.main,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Remove all messages of a queue or subscription, deferred and scheduled ones too; what is locked stays."""
    from twinbus.client import upkeep

    place = namespace(connection_string, ca, http_port)
    what = "messages" if sub_queue is SubQueueName.main else f"{sub_queue.value} messages"
    confirm(f"Remove all {what} of '{entity}'? They cannot be brought back.", yes)
    async with finding(place, entity), place.administer(timeout_s=UPKEEP_S) as administration:
        removed = await upkeep.purge(administration, parse_address(entity).path, sub_queue.value)
    output = Output(json)
    if json:
        output.record({"removed": removed})
    else:
        output.line(f"{counted(removed)} removed.")


@command
async def reset(
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Empty a namespace, as between tests: all entities go, and those of the configuration are made again."""
    from twinbus.client import upkeep

    place = namespace(connection_string, ca, http_port)
    async with place.administer(timeout_s=UPKEEP_S) as administration:
        found = await upkeep.status(administration)
        name, entities = clean(found["namespace"]), sum(found["entities"].values())
        confirm(f"Delete all {entities} entities of '{name}' with their messages?", yes)
        done = await upkeep.reset(administration, found["namespace"])
    output = Output(json)
    if json:
        output.record(done)
    else:
        output.line(f"{done['deleted']:,} entities deleted, {done['created']:,} made again.")


clock = typer.Typer(no_args_is_help=True, help="See or move the clock of a namespace that was started for tests.")


@clock.command("show")
@command
async def show_clock(
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Show what time it is in the namespace."""
    from twinbus.client import upkeep

    async with namespace(connection_string, ca, http_port).administer() as administration:
        _show(Output(json), await upkeep.clock(administration))


@clock.command("advance")
@command
async def advance(
    duration: Annotated[
        str, typer.Argument(metavar="DURATION", help="How far, such as 30s, 5m or PT1H.", show_default=False)
    ],
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Set the clock forward: locks, times to live, schedules, windows and idle times obey it at once."""
    from twinbus.client import upkeep

    by_ms = parse_duration(duration)
    if by_ms >= UNLIMITED_MS:
        raise PromptError("A clock can be moved by a hundred years at a time.")
    async with namespace(connection_string, ca, http_port).administer() as administration:
        _show(Output(json), await upkeep.clock(administration, by_ms))


def _show(output: Output, found: dict[str, Any]) -> None:
    if output.as_json:
        output.record(found)
        return
    ahead = f", {found['ahead']} ahead" if found["movable"] else ", as on the machine; it cannot be moved"
    output.line(f"{found['now']}{ahead}")
