"""`twinbus pipeline release`: what a query with claimMode=defer has set aside, and nobody will read, is given back.

The giving back is done in `twinbus.pipeline.reading.deferring`; no Spark is started for it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, JsonOption, namespace
from twinbus.cli.output import Output
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean, counted


@command
async def release(
    queues: Annotated[list[str], typer.Argument(metavar="QUEUE...", help="The queues.", show_default=False)],
    claim: Annotated[
        str, typer.Option("--claim", metavar="NAME", help="The claimName of the query.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Give back what an abandoned query has set aside: each message is sent anew under its id, then completed."""
    from twinbus.pipeline.errors import PipelineError
    from twinbus.pipeline.options import Subscribed, Target
    from twinbus.pipeline.reading.deferring import release as give_back

    namespace(connection_string, ca)  # Says what is missing, or will not do.
    target = Target(connection_string=connection_string, ca=None if ca is None else str(ca))
    confirm(f"Does no query with the claimName '{clean(claim)}' run any more?", yes)
    output = Output(json)
    try:
        counts = await give_back(target, Subscribed(names=tuple(queues)), claim)
    except PipelineError as problem:
        raise PromptError(clean(str(problem))) from None
    for queue, count in counts.items():
        if json:
            output.record({"queue": queue, "released": count})
        else:
            output.line(f"{clean(queue)}: {counted(count)} given back")
