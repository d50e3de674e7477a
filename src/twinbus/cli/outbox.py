"""`twinbus outbox`: an application's outbox looked at and emptied from the prompt, beside the application or without.

The work is done in `twinbus.pair`; how messages are shown is `showing`'s business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, JsonOption, namespace
from twinbus.cli.output import Output, Table
from twinbus.cli.pairing import PairOption, described, require_for
from twinbus.cli.running import PromptError, command, confirm, ended_by_signal
from twinbus.cli.showing import body_text, clean, counted, document, iso, moment
from twinbus.client.messages import read

if TYPE_CHECKING:
    from twinbus.pair.outbox.dispatcher import Dispatcher
    from twinbus.pair.outbox.outbox import Outbox
    from twinbus.pair.outbox.rows import Entry

WATCH_S = 0.5

outbox = typer.Typer(
    name="outbox", help="Messages that wait on disk: look at them, send them, give them up.", no_args_is_help=True
)
WhereArgument = Annotated[
    str,
    typer.Argument(
        metavar="OUTBOX", help="The outbox's file, or the address of its PostgreSQL database.", show_default=False
    ),
]
NumbersArgument = Annotated[
    list[int] | None, typer.Argument(metavar="[NUMBER]...", help="Messages by their numbers.", show_default=False)
]


@outbox.command("show")
@command
async def show(where: WhereArgument, json: JsonOption = False) -> None:
    """How many messages wait, how many were set aside, and who dispatches."""
    with _opened(where) as box:
        counts, lease = box.counts(), box.lease()
    output = Output(json)
    now_ms = time.time_ns() // 1_000_000
    holder = lease.holder if lease is not None and lease.until_ms > now_ms else None
    told = {
        "waiting": counts.messages - counts.aside,
        "set_aside": counts.aside,
        "bytes": counts.bytes,
        "oldest": iso(counts.oldest_put_at_ms),
        "dispatcher": holder,
    }
    if json:
        output.record(told)
        return
    age = "" if counts.oldest_put_at_ms is None else f", for {(now_ms - counts.oldest_put_at_ms) / 1000:,.0f} s"
    output.facts(
        {
            "waiting": counted(counts.messages - counts.aside),
            "set aside": counted(counts.aside),
            "bytes": f"{counts.bytes:,}",
            "oldest": moment(counts.oldest_put_at_ms) + age,
            "dispatcher": clean(holder or "none"),
        }
    )
    if counts.aside:
        output.remark("`twinbus outbox peek --aside` shows why messages were set aside.")


@outbox.command("peek")
@command
async def peek(
    where: WhereArgument,
    start: Annotated[int, typer.Option("--from", min=0, help="Begin at this number.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="At most so many messages.")] = 10,
    aside: Annotated[bool, typer.Option("--aside", help="Only messages that were refused for good.")] = False,
    json: JsonOption = False,
) -> None:
    """Look at messages in their order."""
    with _opened(where) as box:
        entries = box.look(count, start, True if aside else None)
    output = Output(json)
    if json:
        for entry in entries:
            output.record(_document(entry))
        return
    table = Table(output, ["NUMBER", "PUT", "TO", "ID", "KEY", "STATE", "BODY"], numbers=("NUMBER",))
    table.rows([_row(entry) for entry in entries])
    if not entries:
        output.remark("No messages.")


@outbox.command("dispatch")
@command
async def dispatch(
    where: WhereArgument,
    pair: PairOption = None,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    json: JsonOption = False,
) -> None:
    """Send what is in the outbox and what comes, until told to end: through a pair, or to one namespace."""
    output = Output(json)
    async with AsyncExitStack() as stack:
        told = stack.enter_context(ended_by_signal())
        dispatcher = await _dispatcher(stack, where, pair, connection_string, ca)
        ending = asyncio.create_task(told.wait())
        running = asyncio.create_task(dispatcher.run())
        output.remark("Dispatching. Ctrl-C ends it, and nothing is lost.")
        await _watch(dispatcher, ending, output)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@outbox.command("drain")
@command
async def drain(
    where: WhereArgument,
    pair: PairOption = None,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    patience: Annotated[float, typer.Option(min=0, help="Give up when nothing is taken for so many seconds.")] = 10.0,
    json: JsonOption = False,
) -> None:
    """Send what is in the outbox now, and end when it is empty."""
    output = Output(json)
    async with AsyncExitStack() as stack:
        dispatcher = await _dispatcher(stack, where, pair, connection_string, ca)
        draining = asyncio.create_task(dispatcher.drain(patience))
        await _watch(dispatcher, draining, output)
        left = await draining
        problem = dispatcher.progress.problem
    if left:
        raise PromptError(f"{counted(left)} could not be sent. {clean(problem or 'Another dispatcher is at work.')}")


@outbox.command("retry")
@command
async def retry(
    where: WhereArgument,
    numbers: NumbersArgument = None,
    every: Annotated[bool, typer.Option("--all", help="All that were set aside.")] = False,
) -> None:
    """Have messages that were set aside tried again."""
    if bool(numbers) == every:
        raise PromptError("Name messages by their numbers, or give --all.")
    with _opened(where) as box:
        count = box.retry(numbers or None)
    Output().line(f"{counted(count)} will be tried again.")


@outbox.command("drop")
@command
async def drop(
    where: WhereArgument,
    numbers: NumbersArgument = None,
    aside: Annotated[bool, typer.Option("--aside", help="All that were set aside.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Give messages up for good. Nobody will receive them."""
    if bool(numbers) == aside:
        raise PromptError("Name messages by their numbers, or give --aside.")
    with _opened(where) as box:
        chosen = numbers or [entry.number for entry in box.look(1_000_000, 0, True)]
        confirm(f"Give up {counted(len(chosen))} for good?", yes)
        count = box.drop(chosen)
    Output().line(f"{counted(count)} given up.")


@contextmanager
def _opened(where: str) -> Iterator[Outbox]:
    """The outbox, if there is one: a wrong name shall not make a new one."""
    require_for(where)
    from twinbus.pair.errors import OutboxError  # The SDK takes half a second, and few commands need it.
    from twinbus.pair.outbox.outbox import POSTGRESQL, Outbox

    if not where.startswith(POSTGRESQL) and not Path(where).exists():
        raise PromptError(f"There is no outbox '{where}'.")
    try:
        with Outbox(where) as box:
            yield box
    except OutboxError as problem:
        raise PromptError(clean(str(problem))) from None


async def _dispatcher(
    stack: AsyncExitStack, where: str, pair: Path | None, connection_string: str | None, ca: Path | None
) -> Dispatcher:
    """The dispatcher of the outbox by the way that the options say."""
    box = stack.enter_context(_opened(where))
    from twinbus.pair.namespace.own_client import OwnClientNamespace
    from twinbus.pair.outbox.dispatcher import Dispatcher, alone

    if pair is not None:
        from twinbus.pair.aio import PairedServiceBusClient
        from twinbus.pair.errors import PairingError
        from twinbus.pair.outbox.behind_pair import through

        client = PairedServiceBusClient.from_description(described(pair, None, None))
        try:
            await stack.enter_async_context(client)
        except PairingError as problem:
            raise PromptError(clean(str(problem))) from None
        return through(client._core.carrier, box)
    place = namespace(connection_string, ca)
    remote = OwnClientNamespace("namespace", place.target, tls=place.tls)
    stack.push_async_callback(remote.close)
    return Dispatcher(box, alone(remote))


async def _watch(dispatcher: Dispatcher, until: asyncio.Task[object], output: Output) -> None:
    """A line whenever something has changed."""
    shown = None
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCH_S):
                await asyncio.shield(until)
        found = dispatcher.progress
        now = (found.sent, found.refused, found.problem)
        if now != shown and (now != (0, 0, None) or until.done()):
            shown = now
            if output.as_json:
                output.record({"sent": found.sent, "set_aside": found.refused, "problem": found.problem})
            else:
                problem = f"; {clean(found.problem)}" if found.problem else ""
                output.line(f"sent {found.sent:,}, set aside {found.refused:,}{problem}")
            output.flush()
        if until.done():
            return


def _row(entry: Entry) -> list[str]:
    state = "waiting" if entry.aside_at_ms is None else f"set aside: {entry.reason}"
    cells = [str(entry.number), moment(entry.put_at_ms), entry.path, entry.message_id, entry.key or "", state]
    return [clean(cell) for cell in [*cells, body_text(read(entry.payload))]]


def _document(entry: Entry) -> dict[str, object]:
    told = {
        key: value
        for key, value in document(read(entry.payload)).items()
        if key not in ("sequence_number", "enqueued_at", "state", "delivery_count", "locked_until")
        and not key.startswith("dead_letter")
    }
    return {
        "number": entry.number,
        "put_at": iso(entry.put_at_ms),
        "path": entry.path,
        "key": entry.key,
        "set_aside_at": iso(entry.aside_at_ms),
        "reason": entry.reason,
        **told,
    }
