"""What is set aside in the stores: listed, taken up again, moved, saved to a file, or given up.

The broker does it; what it means is told in docs/store.md.
"""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, namespace
from twinbus.cli.output import Output, Table
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean

OrphanArgument = Annotated[
    str, typer.Argument(metavar="ORPHAN", help="Its number, or its name if only one has it.", show_default=False)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
SUB_QUEUES = ("main", "dead-letter", "transfer-dead-letter")


@command
async def orphans(
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """List what stores hold and the catalog does not know, and rows of the catalog that cannot be read."""
    from twinbus.client import upkeep

    async with namespace(connection_string, ca, http_port).administer() as administration:
        found = await upkeep.orphans(administration)
    output = Output(json)
    if json:
        output.record(found)
        return
    if not found["orphans"] and not found["unreadable"]:
        output.line("Nothing is set aside.")
        return
    table = Table(output, ["NUMBER", "NAME", "KIND", "MESSAGES", "BYTES", "STORES"], numbers=["NUMBER", "MESSAGES"])
    table.rows(
        [
            [
                str(each["number"]),
                clean(each["name"] or "?"),
                each["kind"] or "?",
                f"{each['messages']:,}",
                f"{each['bytes']:,}",
                ", ".join(sorted({str(part["store"]) for part in each["parts"]})),
            ]
            for each in found["orphans"]
        ]
    )
    for each in found["unreadable"]:
        output.line(f"The catalog's row of '{clean(each['name'])}' cannot be read: {clean(each['reason'])}")


def _chosen(found: dict[str, Any], wanted: str) -> dict[str, Any]:
    matching = [
        each
        for each in found["orphans"]
        if wanted == str(each["number"]) or wanted.lower() == (each["name"] or "").lower()
    ]
    if len(matching) != 1:
        many = "several have this name: give a number" if matching else "nothing of this name or number is set aside"
        raise PromptError(f"'{clean(wanted)}': {many}. `twinbus store orphans` lists them.")
    return dict(matching[0])


@command
async def adopt(
    orphan: OrphanArgument,
    name: Annotated[str | None, typer.Option("--as", help="Another name; it is a queue then.")] = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Make what is set aside an entity again, with all its messages, as it was described."""
    from twinbus.client import upkeep

    async with namespace(connection_string, ca, http_port).administer() as administration:
        chosen = _chosen(await upkeep.orphans(administration), orphan)
        made = await upkeep.adopt(administration, chosen["number"], name=name)
    output = Output(json)
    if json:
        output.record({"name": made})
    else:
        output.line(f"'{clean(made)}' is there again, with {chosen['messages']:,} messages.")


@command
async def move(
    orphan: OrphanArgument,
    target: Annotated[str, typer.Argument(metavar="ENTITY", help="A queue or topic.", show_default=False)],
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Have the messages and dead letters of what is set aside forwarded to another entity.

    It becomes a queue that forwards; when it is empty, it can be deleted. Deferred messages go as ordinary ones, those
    that are scheduled when their time comes; what its transfer dead-letter queue has, and the state of sessions, stay.
    """
    from twinbus.client import upkeep

    async with namespace(connection_string, ca, http_port).administer() as administration:
        chosen = _chosen(await upkeep.orphans(administration), orphan)
        name = f"set-aside/{(chosen['name'] or 'entity').replace('/', '.')}-{chosen['number']}"
        made = await upkeep.adopt(administration, chosen["number"], name=name, forward_to=target)
    left = sum(part.get("transfer_dead_letter", 0) for part in chosen["parts"])
    output = Output(json)
    if json:
        output.record({"name": made, "forwards_to": target, "messages": chosen["messages"] - left, "left": left})
        return
    output.line(f"'{clean(made)}' forwards {chosen['messages'] - left:,} messages to '{clean(target)}'.")
    if left:
        output.line(f"{left:,} that could not be forwarded before stay in its transfer dead-letter queue.")


@command
async def save(
    orphan: OrphanArgument,
    file: Annotated[Path, typer.Argument(help="A file for one JSON object on each line.", show_default=False)],
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Write all messages of what is set aside to a file; nothing is taken away.

    Each has its AMQP sections in base64 (`amqp`), from which any AMQP library makes the message again.
    """
    from twinbus.client import upkeep

    count = 0
    async with namespace(connection_string, ca, http_port).administer() as administration:
        chosen = _chosen(await upkeep.orphans(administration), orphan)
        try:
            with file.open("x", encoding="utf-8") as lines:
                for part in chosen["parts"]:
                    for sub_queue in SUB_QUEUES:
                        start: int | None = 0
                        while start is not None:
                            page = await upkeep.orphan_messages(
                                administration, chosen["number"], part["number"], sub_queue, start
                            )
                            for message in page["messages"]:
                                told = {"part": part["number"], "sub_queue": sub_queue, **message}
                                lines.write(json_format.dumps(told) + "\n")
                            count += len(page["messages"])
                            start = page["next"]
        except FileExistsError:
            raise PromptError(f"{file} is there already.") from None
        except OSError as problem:
            raise PromptError(f"{file} cannot be written: {problem.strerror}.") from None
    Output(False).line(f"{count:,} messages are in {file}.")


@command
async def drop(
    orphan: OrphanArgument,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Delete what is set aside, with all its messages, for good."""
    from twinbus.client import upkeep

    async with namespace(connection_string, ca, http_port).administer() as administration:
        chosen = _chosen(await upkeep.orphans(administration), orphan)
        title = chosen["name"] or str(chosen["number"])
        confirm(f"Delete '{clean(title)}' with {chosen['messages']:,} messages for good?", yes)
        done = await upkeep.drop_orphan(administration, chosen["number"], title)
    output = Output(json)
    if json:
        output.record(done)
    else:
        output.line(f"'{clean(title)}' is gone, with {done['messages']:,} messages.")
