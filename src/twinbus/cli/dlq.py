"""`twinbus dlq`: dead letters listed, shown, sent back to their queue, or removed.

Moving them is `client.redrive`'s work; this reads the options and tells how it went.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated
from uuid import uuid4

import typer

from twinbus.cli.connection import (
    CaOption,
    ConnectionOption,
    HttpPortOption,
    JsonOption,
    Namespace,
    QueueArgument,
    namespace,
    path_of,
)
from twinbus.cli.entity import YesOption
from twinbus.cli.output import Output, progress_bar
from twinbus.cli.peek import CountOption, FromOption, RawOption
from twinbus.cli.running import FAILED, PromptError, command, confirm, words
from twinbus.cli.sending import ranges
from twinbus.cli.showing import MessageView, body_text, clean, clean_lines, counted, document, facts, raw_body
from twinbus.client import ClientError, Connection, ReceivedMessage
from twinbus.client.management import Management
from twinbus.client.messages import read
from twinbus.client.redrive import DUPLICATE, Leave, Redrive, Redriven, leaving
from twinbus.model.message import ReceiveMode

PURGE_LOT = 500
SILENCE_S = 2.0
# Removes what was enqueued before then; far enough ahead that the broker's clock does not matter.
AHEAD_MS = 24 * 3_600_000

dlq = typer.Typer(no_args_is_help=True, help="Look at dead letters, send them back, or remove them.")

ReasonOption = Annotated[str | None, typer.Option(help="Dead letters with this reason alone; capitals do not matter.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most so many messages.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]
NewIdsOption = Annotated[
    bool, typer.Option("--new-ids", help="Send under new message ids, which no duplicate detection knows.")
]
UncheckedOption = Annotated[
    bool,
    typer.Option("--no-duplicate-check", help="Do not ask whether the queue would drop messages as duplicates."),
]


@dlq.command("list")
@command
async def list_dead(
    queue: QueueArgument,
    start: FromOption = 0,
    count: CountOption = 10,
    raw: RawOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
) -> None:
    """List dead letters and why they are dead."""
    output = Output(json)
    view = MessageView(output, raw=raw, dead=True)
    found = 0
    async with namespace(connection_string, ca).connect() as connection:
        management = await connection.management(path_of(queue, True))
        async for page in management.peek_all(start, count):
            view.show([read(payload) for payload in page])
            found += len(page)
    if not found:
        output.remark("No dead letters.")


@dlq.command("show")
@command
async def show_dead(
    queue: QueueArgument,
    number: Annotated[int, typer.Argument(min=0, metavar="NUMBER", help="Its sequence number.", show_default=False)],
    raw: RawOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
) -> None:
    """Show one dead letter with everything that is known about it."""
    async with namespace(connection_string, ca).connect() as connection:
        management = await connection.management(path_of(queue, True))
        found = [read(payload) for payload in await management.peek(number, 1)]
    if not found or found[0].sequence_number != number:
        raise PromptError(f"'{queue}' has no dead letter {number}; `twinbus dlq list {queue}` shows which there are.")
    output = Output(json)
    if raw:
        output.bytes(raw_body(found[0]))
    elif json:
        output.record(document(found[0]))
    else:
        output.facts(facts(found[0]))
        output.line()
        output.line(clean_lines(body_text(found[0])))


@dlq.command("redrive")
@command
async def redrive_dead(
    queue: QueueArgument,
    limit: LimitOption = None,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    new_ids: NewIdsOption = False,
    no_duplicate_check: UncheckedOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Send dead letters back to their queue: each is sent, acknowledged, and only then removed."""
    place = namespace(connection_string, ca, http_port)
    window_ms = None
    if not new_ids and not no_duplicate_check:
        window_ms = await _duplicate_window_ms(place, queue)
    leave = leaving(reason, window_ms, int(time.time() * 1000))
    output = Output(json)
    async with place.connect() as connection:
        management = await connection.management(path_of(queue, True))
        until = await management.last_sequence_number()
        if dry_run:
            _tell(output, await _foreseen(management, leave, until or 0, limit), would=True)
            return
        result = Redriven()
        if until is not None:
            result = await _redrive(connection, queue, until, leave, limit, new_ids)
    _tell(output, result)
    if result.seen_to < (until or 0) and (limit is None or result.moved < limit) and result.error is None:
        output.remark(
            "Not all dead letters could be had: a receiver holds some, or locks ended on the way. Run it again."
        )
    if result.error is not None:
        output.remark(f"twinbus: stopped: {words(result.error)}")
        raise typer.Exit(FAILED)


async def _redrive(
    connection: Connection, queue: str, until: int, leave: Leave, limit: int | None, new_ids: bool
) -> Redriven:
    destination = await connection.sender(queue)
    with progress_bar("sending back", limit) as progress:
        redrive = Redrive(
            lambda: connection.receiver(path_of(queue, True), credit=0),
            destination,
            until=until,
            leave=leave,
            new_id=(lambda: uuid4().hex) if new_ids else None,
            progress=lambda done: progress.advance(progress.task_ids[0], done),
        )
        return await redrive.run(limit)


async def _duplicate_window_ms(place: Namespace, queue: str) -> int | None:
    """How long the queue remembers ids; None if it does not. It would accept a known id, and drop the message."""
    try:
        async with place.administer() as administration:
            description = (await administration.queue(queue)).description
    except ClientError as error:
        raise PromptError(
            f"Whether '{queue}' detects duplicates cannot be asked: {words(error)}\n"
            "  It would drop messages that come again under their ids. Use a policy with the Manage right, send\n"
            "  under --new-ids, or, if you know that it does not, --no-duplicate-check."
        ) from None
    return description.duplicate_window_ms if description.requires_duplicate_detection else None


async def _foreseen(management: Management, leave: Leave, until: int, limit: int | None) -> Redriven:
    """What a redrive would do."""
    result = Redriven()
    async for page in management.peek_all():
        for message in map(read, page):
            why = leave(message)
            if message.sequence_number > until or (limit is not None and result.moved >= limit):
                return result
            if why is None:
                result.moved += 1
            else:
                result.left[why] += 1
    return result


def _tell(output: Output, result: Redriven, would: bool = False) -> None:
    if output.as_json:
        output.record(
            {
                "redriven": result.moved,
                "left": dict(result.left),
                "refused": result.refused,
                "in_both": result.doubled,
                "dry_run": would,
            }
        )
        return
    output.line(f"{counted(result.moved)} {'would be sent back' if would else 'sent back'}.")
    for why, count in result.left.items():
        output.line(f"{counted(count)} left: {why}.")
    if result.left[DUPLICATE]:
        output.remark("  Wait until the duplicate detection window is over, or send under --new-ids.")
    if result.refused:
        output.remark(f"twinbus: not accepted, and still dead: {ranges(result.refused)}.")
    if result.doubled:
        output.remark(f"twinbus: sent, perhaps, and still among the dead letters: {ranges(result.doubled)}.")


@dlq.command("purge")
@command
async def purge_dead(
    queue: QueueArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
) -> None:
    """Remove all dead letters of a queue, for good."""
    output = Output(json)
    place = namespace(connection_string, ca)
    if not dry_run:
        confirm(f"Remove all dead letters of '{queue}'? They cannot be brought back.", yes)
    async with place.connect() as connection:
        management = await connection.management(path_of(queue, True))
        if dry_run:
            await _count(output, management)
            return
        removed = await _purge(connection, management, path_of(queue, True))
        left = bool(await management.peek(0, 1))
    if json:
        output.record({"removed": removed, "some_left": left, "dry_run": False})
    else:
        output.line(f"{counted(removed, 'dead letter')} removed.")
    if left:
        output.remark("Some are left: a receiver holds them, they are deferred, or they came just now.")


async def _count(output: Output, management: Management) -> None:
    reasons: Counter[str] = Counter()
    async for page in management.peek_all():
        reasons.update(read(payload).dead_letter_reason or "no reason" for payload in page)
    if output.as_json:
        output.record({"removed": reasons.total(), "reasons": dict(reasons), "dry_run": True})
        return
    output.line(f"{counted(reasons.total(), 'dead letter')} would be removed.")
    output.facts({clean(reason): f"{count:,}" for reason, count in reasons.most_common()})


async def _purge(connection: Connection, management: Management, path: str) -> int:
    """Removes by batches where the broker offers that, and by receiving where it does not."""
    removed = 0
    with progress_bar("removing", None) as progress:
        before_ms = int(time.time() * 1000) + AHEAD_MS
        try:
            while done := await management.delete(PURGE_LOT, before_ms):
                removed += done
                progress.advance(progress.task_ids[0], done)
            return removed
        except ClientError as error:
            if removed or error.transient:
                raise
        receiver = await connection.receiver(path, mode=ReceiveMode.RECEIVE_AND_DELETE, credit=PURGE_LOT)
        lot: list[ReceivedMessage] = await receiver.receive(PURGE_LOT, SILENCE_S)
        while lot:
            removed += len(lot)
            progress.advance(progress.task_ids[0], len(lot))
            lot = await receiver.receive(PURGE_LOT, SILENCE_S)
    return removed
