"""`twinbus send`: messages from arguments, from a file, or from standard input line by line.

Keeping lots, bounds and books is `sending`'s work; this reads the options and tells how it went.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer

from twinbus.cli.address import parse_address
from twinbus.cli.connection import CaOption, ConnectionOption, JsonOption, complete_entity, namespace
from twinbus.cli.lines import read_all, read_lines
from twinbus.cli.nearest import finding
from twinbus.cli.output import Output, progress_bar
from twinbus.cli.running import FAILED, PromptError, command, words
from twinbus.cli.sending import Books, Numbered, Sending, ranges
from twinbus.cli.showing import counted
from twinbus.cli.values import Duration, Instant, parse_duration, parse_instant, parse_properties
from twinbus.client.messages import build

STANDARD_INPUT = "-"
TTL_MS_MAX = 0xFFFFFFFF


DestinationArgument = Annotated[
    str, typer.Argument(metavar="ENTITY", help="A queue or a topic.", autocompletion=complete_entity)
]
BodyArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="BODY", help="Bodies, one message each; `-` reads standard input, one message a line."),
]
FileOption = Annotated[
    Path | None, typer.Option(allow_dash=True, help="Take the body from a file; `-` is standard input as a whole.")
]
IdOption = Annotated[
    str | None, typer.Option(help="Message id. Of several messages each gets its number behind it: ID-1, ID-2, …")
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", metavar="NAME=TEXT", help="A property; NAME:=5 or NAME:=true are not texts."),
]
TtlOption = Annotated[
    Duration | None, typer.Option(parser=parse_duration, metavar="DURATION", help="Time to live, such as 30s.")
]
AtOption = Annotated[
    Instant | None,
    typer.Option(parser=parse_instant, metavar="TIME", help="Deliver then: a time, or a duration from now."),
]
BatchOption = Annotated[
    bool, typer.Option("--batch", help="Several messages in one transfer, accepted or refused as one.")
]


@command
async def send(
    entity: DestinationArgument,
    body: BodyArgument = None,
    file: FileOption = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line of the file is a message.")] = False,
    message_id: IdOption = None,
    session: Annotated[str | None, typer.Option(help="Session id.")] = None,
    subject: Annotated[str | None, typer.Option(help="Subject.")] = None,
    content_type: Annotated[str | None, typer.Option(help="Content type, such as application/json.")] = None,
    correlation_id: Annotated[str | None, typer.Option(help="Correlation id.")] = None,
    properties: PropertyOption = None,
    ttl: TtlOption = None,
    at: AtOption = None,
    count: Annotated[int, typer.Option(min=1, help="Send each body so many times.")] = 1,
    batch: BatchOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
) -> None:
    """Send messages to a queue or a topic."""
    if ttl is not None and not 0 < ttl <= TTL_MS_MAX:
        raise PromptError("--ttl is at most 49 days; without it a message lives as long as the entity says.")
    source = _Source(body or [], file, lines)
    place = namespace(connection_string, ca)
    options: dict[str, Any] = {
        "session_id": session, "subject": subject, "content_type": content_type, "correlation_id": correlation_id,
        "ttl_ms": ttl, "due_at_ms": _due_at_ms(at), "properties": parse_properties(properties or []),
    }  # fmt: skip
    many = count > 1 or source.is_many
    output = Output(json)
    path = _destination(entity)
    async with finding(place, entity), place.connect() as connection:
        sender = await connection.sender(path)
        with _progress(source, count) as advance:
            sending = Sending(sender, batches=batch, progress=advance)
            try:
                stopped_at = await _send_all(sending, source, count, _message_ids(message_id, many), options)
            except asyncio.CancelledError:
                await sending.stop()
                _tell(output, sending.books, source.noun, None)
                raise
    _tell(output, sending.books, source.noun, stopped_at)
    if sending.lost is not None and stopped_at is not None:
        output.remark(f"twinbus: {words(sending.lost)}")
    if sending.failed or stopped_at is not None:
        raise typer.Exit(FAILED)


def _destination(entity: str) -> str:
    address = parse_address(entity)
    if address.subscription:
        raise PromptError(f"Nobody sends to a subscription: send to its topic, '{address.entity}'.")
    return address.path


async def _send_all(
    sending: Sending, source: _Source, count: int, new_id: Callable[[], str], options: dict[str, Any]
) -> int | None:
    """Hands everything in; the number from which on nothing was sent, if the link was lost."""
    sent = 0
    async for lot in source.lots():
        for number, content in lot:
            for _ in range(count):
                sent += 1
                label = number if source.has_lines else sent
                if sending.lost is not None:
                    await sending.stop()
                    return label
                await sending.add(Numbered(label, build(content, message_id=new_id(), **options)))
        # What came is sent now: the next line may be long in coming.
        await sending.flush()
    await sending.stop()
    return None


class _Source:
    """Where bodies come from. Lines are numbered as they stand in their file."""

    def __init__(self, bodies: list[str], file: Path | None, lines: bool) -> None:
        if bodies and file is not None:
            raise PromptError("Bodies come either from arguments or from --file, not from both.")
        if STANDARD_INPUT in bodies and len(bodies) > 1:
            raise PromptError("`-` stands alone: bodies come either from standard input or from arguments.")
        if not bodies and file is None:
            raise PromptError("There is nothing to send: give bodies, --file FILE, or `-` for lines of standard input.")
        if lines and file is None:
            raise PromptError("--lines is for --file; `-` as the body reads standard input line by line.")
        self._bodies = bodies
        self._file = Path(STANDARD_INPUT) if bodies == [STANDARD_INPUT] else file
        self.has_lines = lines or bodies == [STANDARD_INPUT]
        self.is_many = self.has_lines or len(bodies) > 1
        self.noun = "line" if self.has_lines else "message"
        self.known = None if self.has_lines else max(len(bodies), 1)

    async def lots(self) -> AsyncIterator[list[tuple[int, bytes]]]:
        """Bodies with their numbers, as many as there are at a time."""
        if self._file is None:
            yield [(number, os.fsencode(text)) for number, text in enumerate(self._bodies, 1)]
            return
        with _opened(self._file) as descriptor:
            if not self.has_lines:
                yield [(1, await read_all(descriptor))]
                return
            number = 1
            async for lines in read_lines(descriptor):
                yield list(enumerate(lines, number))
                number += len(lines)


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    if str(file) == STANDARD_INPUT:
        yield sys.stdin.fileno()
        return
    try:
        with file.open("rb") as stream:
            yield stream.fileno()
    except OSError as problem:
        raise PromptError(f"'{file}' cannot be read: {problem.strerror}.") from None


@contextmanager
def _progress(source: _Source, count: int) -> Iterator[Callable[[int], None]]:
    total = None if source.known is None else source.known * count
    with progress_bar("sending", total) as progress:
        yield lambda done: progress.advance(progress.task_ids[0], done)


def _message_ids(message_id: str | None, many: bool) -> Callable[[], str]:
    """Where message ids come from: each message has its own, so that it can be told from a second copy."""
    if message_id is None:
        return lambda: uuid4().hex
    if not many:
        return lambda: message_id
    numbers = iter(range(1, sys.maxsize))
    return lambda: f"{message_id}-{next(numbers)}"


def _due_at_ms(at: Instant | None) -> int | None:
    if at is None:
        return None
    return int(time.time() * 1000) + int(at) if at.relative else int(at)


def _tell(output: Output, books: Books, noun: str, stopped_at: int | None) -> None:
    """How it went; what went wrong goes to standard error, by the numbers of lines or messages."""
    total = books.accepted + len(books.refused) + len(books.unknown)
    if output.as_json:
        output.record({"accepted": books.accepted, "refused": list(books.refused), "unknown": list(books.unknown)})
    elif books.accepted == total:
        output.line(f"{counted(total)} accepted.")
    else:
        output.line(f"{books.accepted:,} of {counted(total)} accepted.")
    for book, verdict in (
        (books.refused, "not accepted"),
        (books.unknown, "perhaps accepted, perhaps not; the answer did not come"),
    ):
        for condition in dict.fromkeys(error.condition for error in book.values()):
            numbers = [number for number, error in book.items() if error.condition == condition]
            plural = "" if len(numbers) == 1 else "s"
            output.remark(f"twinbus: {noun}{plural} {ranges(numbers)} {verdict}: {words(book[numbers[0]])}")
    if stopped_at is not None:
        output.remark(f"twinbus: nothing was sent from {noun} {stopped_at} on.")
