"""`twinbus peek`: messages looked at without being taken.

How they are shown is `showing`'s business.
"""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, JsonOption, QueueArgument, namespace, path_of
from twinbus.cli.output import Output
from twinbus.cli.running import command
from twinbus.cli.showing import MessageView
from twinbus.client.messages import read

CountOption = Annotated[int, typer.Option(min=1, help="At most so many messages.")]
FromOption = Annotated[int, typer.Option("--from", min=0, help="Begin at this sequence number.")]
RawOption = Annotated[bool, typer.Option("--raw", help="Print bodies alone, byte for byte, each with a line end.")]


@command
async def peek(
    queue: QueueArgument,
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
    async with namespace(connection_string, ca).connect() as connection:
        management = await connection.management(path_of(queue, dlq))
        async for page in management.peek_all(start, count, session):
            view.show([read(payload) for payload in page])
            found += len(page)
    if not found:
        output.remark("No messages.")
