"""`twinbus dlq`: dead letters listed, shown, sent back to their queue, or removed.

Moving them is `client.redrive`'s work; this reads the options and tells how it went.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated
from uuid import uuid4

import typer

from twinbus.cli.address import parse_address, path_of
from twinbus.cli.connection import (
    CaOption,
    ConnectionOption,
    EntityArgument,
    HttpPortOption,
    JsonOption,
    Namespace,
    complete_entity,
    namespace,
)
from twinbus.cli.entity import YesOption
from twinbus.cli.nearest import finding
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
from twinbus.model.topic import SubscriptionDescription

PURGE_LOT = 500
SILENCE_S = 2.0
UPKEEP_S = 3600.0
# Removes what was enqueued before then; far enough ahead that the broker's clock does not matter.
AHEAD_MS = 24 * 3_600_000

dlq = typer.Typer(no_args_is_help=True, help="Look at dead letters, send them back, or remove them.")

ReasonOption = Annotated[str | None, typer.Option(help="Dead letters with this reason alone; capitals do not matter.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most so many messages.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]
NewIdsOption = Annotated[
    bool, typer.Option("--new-ids", help="Send under new message ids, which no duplicate detection knows.")
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--filter", metavar="SQL", help="Dead letters that a condition of the rule language chooses; Twinbus only."
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="ENTITY", help="Send to this queue or topic.", autocompletion=complete_entity),
]
UncheckedOption = Annotated[
    bool,
    typer.Option("--no-duplicate-check", help="Do not ask whether messages would be dropped as duplicates."),
]


@dlq.command("list")
@command
async def list_dead(
    entity: EntityArgument,
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
    path, place = path_of(entity, dead_letters=True), namespace(connection_string, ca)
    async with finding(place, entity), place.connect() as connection:
        management = await connection.management(path)
        async for page in management.peek_all(start, count):
            view.show([read(payload) for payload in page])
            found += len(page)
    if not found:
        output.remark("No dead letters.")


@dlq.command("show")
@command
async def show_dead(
    entity: EntityArgument,
    number: Annotated[int, typer.Argument(min=0, metavar="NUMBER", help="Its sequence number.", show_default=False)],
    raw: RawOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
) -> None:
    """Show one dead letter with everything that is known about it."""
    path, place = path_of(entity, dead_letters=True), namespace(connection_string, ca)
    async with finding(place, entity), place.connect() as connection:
        management = await connection.management(path)
        found = [read(payload) for payload in await management.peek(number, 1)]
    if not found or found[0].sequence_number != number:
        raise PromptError(f"'{entity}' has no dead letter {number}; `twinbus dlq list {entity}` shows which there are.")
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
    entity: EntityArgument,
    to: ToOption = None,
    limit: LimitOption = None,
    reason: ReasonOption = None,
    where: WhereOption = None,
    dry_run: DryRunOption = False,
    new_ids: NewIdsOption = False,
    no_duplicate_check: UncheckedOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Send dead letters back to their queue, or elsewhere: each is sent, acknowledged, and only then removed."""
    place = namespace(connection_string, ca, http_port)
    if where is not None or (parse_address(entity).subscription and to is None):
        others = {"--to": to, "--reason": reason, "--dry-run": dry_run, "--new-ids": new_ids}
        await _redrive_on_server(place, entity, where, limit, Output(json), [o for o, given in others.items() if given])
        return
    source, destination = path_of(entity, dead_letters=True), _destination(entity, to)
    window_ms = None
    if not new_ids and not no_duplicate_check:
        window_ms = await _duplicate_window_ms(place, destination)
    leave = leaving(reason, window_ms, int(time.time() * 1000))
    output = Output(json)
    async with finding(place, entity), place.connect() as connection:
        management = await connection.management(source)
        until = await management.last_sequence_number()
        if dry_run:
            _tell(output, await _foreseen(management, leave, until or 0, limit), would=True)
            return
        result = Redriven()
        if until is not None:
            result = await _redrive(connection, (source, destination), until, leave, limit, new_ids)
    _tell(output, result)
    if result.seen_to < (until or 0) and (limit is None or result.moved < limit) and result.error is None:
        output.remark(
            "Not all dead letters could be had: a receiver holds some, or locks ended on the way. Run it again."
        )
    if result.error is not None:
        output.remark(f"twinbus: stopped: {words(result.error)}")
        raise typer.Exit(FAILED)


async def _redrive_on_server(
    place: Namespace, entity: str, where: str | None, limit: int | None, output: Output, others: list[str]
) -> None:
    """The broker moves them itself, also to one subscription alone; only Twinbus can."""
    asks = "--filter" if where is not None else "Sending back to one subscription"
    if others:
        raise PromptError(f"{asks} is the broker's work, which knows no {' and no '.join(others)}.")
    from twinbus.client import upkeep  # aiohttp takes a quarter of a second, and few commands need it.

    async with finding(place, entity), place.administer(timeout_s=UPKEEP_S) as administration:
        if not await upkeep.is_offered(administration):
            raise PromptError(
                f"{asks} is something that only Twinbus offers, to a policy with the Manage right.\n"
                "  Elsewhere: --to QUEUE or TOPIC, and --reason."
            )
        done = await upkeep.redrive(administration, parse_address(entity).path, where=where, limit=limit)
    if output.as_json:
        output.record({"redriven": done["moved"], "kept": done["kept"]})
    else:
        output.line(f"{counted(done['moved'])} sent back, {counted(done['kept'])} left.")


async def _redrive(
    connection: Connection, way: tuple[str, str], until: int, leave: Leave, limit: int | None, new_ids: bool
) -> Redriven:
    source, destination = way
    sender = await connection.sender(destination)
    with progress_bar("sending back", limit) as progress:
        redrive = Redrive(
            lambda: connection.receiver(source, credit=0),
            sender,
            until=until,
            leave=leave,
            new_id=(lambda: uuid4().hex) if new_ids else None,
            progress=lambda done: progress.advance(progress.task_ids[0], done),
        )
        return await redrive.run(limit)


def _destination(entity: str, to: str | None) -> str:
    """Where dead letters go: to their queue, or where somebody says."""
    if to is not None:
        if parse_address(to).subscription:
            raise PromptError(f"--to: nobody sends to a subscription such as '{to}': name a queue or a topic.")
        return parse_address(to).path
    return parse_address(entity).path


async def _duplicate_window_ms(place: Namespace, entity: str) -> int | None:
    """How long the destination remembers ids; None if it does not. It would accept a known id, and drop the message."""
    try:
        async with finding(place, entity), place.administer() as administration:
            description = (await administration.entity(entity)).description
    except ClientError as error:
        raise PromptError(
            f"Whether '{entity}' detects duplicates cannot be asked: {words(error)}\n"
            "  It would drop messages that come again under their ids. Use a policy with the Manage right, send\n"
            "  under --new-ids, or, if you know that it does not, --no-duplicate-check."
        ) from None
    if isinstance(description, SubscriptionDescription) or not description.requires_duplicate_detection:
        return None
    return description.duplicate_window_ms


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
    entity: EntityArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
) -> None:
    """Remove all dead letters of a queue or subscription, for good."""
    output = Output(json)
    place = namespace(connection_string, ca)
    if not dry_run:
        confirm(f"Remove all dead letters of '{entity}'? They cannot be brought back.", yes)
    path = path_of(entity, dead_letters=True)
    async with finding(place, entity), place.connect() as connection:
        management = await connection.management(path)
        if dry_run:
            await _count(output, management)
            return
        removed = await _purge(connection, management, path)
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
