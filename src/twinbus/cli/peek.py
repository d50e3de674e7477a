"""`twinbus peek`: messages looked at without being taken.

How they are shown is `showing`'s business.
"""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.cli.address import path_of
from twinbus.cli.connection import CaOption, ConnectionOption, EntityArgument, JsonOption, namespace
from twinbus.cli.nearest import finding
from twinbus.cli.output import Output
from twinbus.cli.running import command
from twinbus.cli.showing import MessageView
from twinbus.client.messages import read

CountOption = Annotated[int, typer.Option(min=1, help="At most so many messages.")]
FromOption = Annotated[int, typer.Option("--from", min=0, help="Begin at this sequence number.")]
RawOption = Annotated[bool, typer.Option("--raw", help="Print bodies alone, byte for byte, each with a line end.")]


@command
async def peek(
    entity: EntityArgument,
    start: FromOption = 0,
    count: CountOption = 10,
    dlq: Annotated[bool, typer.Option("--dlq", help="Look into the dead-letter queue.")] = False,
    session: Annotated[str | None, typer.Option(help="Show messages of this session alone.")] = None,
    raw: RawOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
) -> None:
    """Look at messages: active, deferred and scheduled ones, in the order of their numbers."""
    output = Output(json)
    view = MessageView(output, raw=raw, dead=dlq)
    found = 0
    path, place = path_of(entity, dlq), namespace(connection_string, ca)
    async with finding(place, entity), place.connect() as connection:
        management = await connection.management(path)
        async for page in management.peek_all(start, count, session):
            view.show([read(payload) for payload in page])
            found += len(page)
    if not found:
        output.remark("No messages.")
