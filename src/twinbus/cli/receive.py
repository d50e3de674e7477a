"""`twinbus receive`: messages taken from a queue or a subscription, shown, and then settled.

In that order: what could not be shown is given back. How messages are shown is `showing`'s business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from twinbus.cli.address import path_of
from twinbus.cli.connection import CaOption, ConnectionOption, EntityArgument, JsonOption, Namespace, namespace
from twinbus.cli.nearest import finding
from twinbus.cli.output import Output
from twinbus.cli.peek import RawOption
from twinbus.cli.running import PromptError, command, words
from twinbus.cli.showing import MessageView, counted
from twinbus.client import ClientError, Connection, ReceivedMessage, Receiver, WantedSession
from twinbus.client.endpoint import to_its_end
from twinbus.client.management import Management
from twinbus.client.messages import read
from twinbus.model.message import Outcome, ReceiveMode

LOT = 100
NEXT = "next"
NO_SESSION = "com.microsoft:timeout"
NOT_ALLOWED = "amqp:not-allowed"
SESSION_LOST = "com.microsoft:session-lock-lost"
# A session's lock is renewed when half of its time is over, and no more often than this.
RENEW_S_MIN = 1.0
RECONNECT_S_MIN, RECONNECT_S_MAX = 0.25, 5.0

ModeOption = Annotated[ReceiveMode, typer.Option(help="Whether the broker locks messages or deletes them at once.")]
SessionOption = Annotated[
    str | None, typer.Option(metavar="ID|next", help="Take a session: this one, or the next that has messages.")
]
DeferredOption = Annotated[
    list[int] | None, typer.Option(help="Receive a deferred message by its sequence number; may be repeated.")
]


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of messages once they are shown; None when the broker deleted them already."""

    outcome: Outcome | None
    reason: str | None = None
    description: str | None = None


@command
async def receive(
    entity: EntityArgument,
    count: Annotated[int | None, typer.Option(min=1, help="At most so many messages; 1, or with --follow any.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the next message.")] = 5.0,
    mode: ModeOption = ReceiveMode.PEEK_LOCK,
    complete: Annotated[bool, typer.Option("--complete", help="Then remove messages; the default.")] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Then give messages back, a delivery counted.")] = False,
    release: Annotated[bool, typer.Option("--release", help="Then give messages back as they were.")] = False,
    defer: Annotated[bool, typer.Option("--defer", help="Then set messages aside, to be had by number.")] = False,
    dead_letter: Annotated[bool, typer.Option("--dead-letter", help="Then move messages to the dead letters.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why, with --dead-letter.")] = None,
    description: Annotated[str | None, typer.Option(help="In more words, with --dead-letter.")] = None,
    session: SessionOption = None,
    deferred: DeferredOption = None,
    dlq: Annotated[bool, typer.Option("--dlq", help="Receive from the dead-letter queue.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    raw: RawOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
) -> None:
    """Receive messages, show them and settle them."""
    chosen = {
        Outcome.COMPLETE: complete, Outcome.ABANDON: abandon, Outcome.RELEASE: release,
        Outcome.DEFER: defer, Outcome.DEAD_LETTER: dead_letter,
    }  # fmt: skip
    fate = _fate([outcome for outcome, is_chosen in chosen.items() if is_chosen], mode, reason, description)
    output = Output(json)
    taking = _Taking(output, MessageView(output, raw=raw, dead=dlq), mode, fate, count or (None if follow else 1), wait)
    path, place = path_of(entity, dlq), namespace(connection_string, ca)

    async def take(connection: Connection) -> None:
        if deferred:
            await taking.by_number(connection, path, deferred, session)
        elif session is None:
            await taking.from_queue(connection, path, follow)
        else:
            await taking.from_sessions(connection, path, None if session == NEXT else session, follow)

    try:
        async with finding(place, entity):
            await _connected(place, output, follow, take)
    except asyncio.CancelledError:
        if not follow:  # Ctrl-C is how following ends.
            raise
    taking.tell()


async def _connected(
    place: Namespace, output: Output, follow: bool, work: Callable[[Connection], Awaitable[None]]
) -> None:
    """Works over a connection; when following, over a new one for each that is lost."""
    pause_s = 0.0  # None has been lost yet.
    while True:
        try:
            async with place.connect() as connection:
                if pause_s:
                    output.remark("twinbus: connected again.")
                pause_s = RECONNECT_S_MIN
                await work(connection)
                return
        except ClientError as error:
            if not follow or not pause_s or not error.transient:
                raise
            if pause_s == RECONNECT_S_MIN:
                output.remark(f"twinbus: {words(error)}\n  Trying again until Ctrl-C.")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RECONNECT_S_MAX)


def _fate(chosen: list[Outcome], mode: ReceiveMode, reason: str | None, description: str | None) -> Fate:
    if len(chosen) > 1:
        raise PromptError("A message can have one fate only: choose one of --complete, --abandon, --release and so on.")
    if (reason or description) and chosen != [Outcome.DEAD_LETTER]:
        raise PromptError("--reason and --description belong to --dead-letter.")
    if mode is ReceiveMode.PEEK_LOCK:
        return Fate(chosen[0] if chosen else Outcome.COMPLETE, reason, description)
    if chosen:
        raise PromptError(
            "With receive-and-delete messages are gone when they come: nothing else can be done with them."
        )
    return Fate(None)


class _Taking:
    """Takes messages until there are enough, or none come."""

    def __init__(
        self, output: Output, view: MessageView, mode: ReceiveMode, fate: Fate, limit: int | None, wait_s: float
    ) -> None:
        self._output = output
        self._view = view
        self._mode = mode
        self._fate = fate
        self._limit = limit
        self._wait_s = wait_s
        self._taken = 0

    def tell(self) -> None:
        """How many there were, beside the messages themselves."""
        none = f"No messages within {self._wait_s:g} s."
        self._output.remark(f"{counted(self._taken)} received." if self._taken else none)

    @property
    def _left(self) -> int:
        return LOT if self._limit is None else min(LOT, self._limit - self._taken)

    async def from_queue(self, connection: Connection, path: str, follow: bool) -> None:
        """Receives from a queue without sessions."""
        try:
            receiver = await connection.receiver(path, mode=self._mode, credit=0)
        except ClientError as error:
            if error.condition == NOT_ALLOWED and "session" in error.text:
                raise PromptError(f"'{path}' has sessions: name one with --session ID, or --session next.") from None
            raise
        await self._until_silent(receiver, follow)

    async def from_sessions(self, connection: Connection, path: str, session: str | None, follow: bool) -> None:
        """Receives from one session; when following, from that one for ever, or from one after the other."""
        management = await connection.management(path)
        while self._left:
            try:
                receiver = await connection.receiver(
                    path, mode=self._mode, credit=0, session=WantedSession(session), session_wait_s=self._wait_s
                )
            except ClientError as error:
                if error.condition != NO_SESSION:
                    raise
                if not follow:
                    return
                continue
            try:
                async with _renewed(management, receiver):
                    await self._until_silent(receiver, follow and session is not None)
            except ClientError as error:
                if not follow or error.condition != SESSION_LOST:
                    raise
            await receiver.close()
            if not follow:
                return

    async def by_number(self, connection: Connection, path: str, numbers: list[int], session: str | None) -> None:
        """Receives deferred messages."""
        fate = self._fate
        if fate.outcome is Outcome.RELEASE:
            raise PromptError("A deferred message cannot be released: --abandon it, or look at it with `twinbus peek`.")
        management = await connection.management(path)
        held = await management.receive_deferred(numbers, self._mode, session)
        self._show([message.payload for message in held])
        if fate.outcome is not None:
            tokens = [message.token for message in held]
            await management.settle(
                tokens, fate.outcome, reason=fate.reason, description=fate.description, session_id=session
            )

    async def _until_silent(self, receiver: Receiver, follow: bool) -> None:
        while self._left:
            try:
                lot = await receiver.receive(self._left, self._wait_s)
            except asyncio.CancelledError:
                await self._rescue(receiver)
                raise
            if lot:
                await to_its_end(self._take(receiver, lot))
            elif not follow:
                return

    async def _take(self, receiver: Receiver, lot: list[ReceivedMessage]) -> None:
        try:
            self._show([message.payload for message in lot])
        except BaseException:
            if self._fate.outcome is not None:
                with suppress(ClientError):
                    await receiver.settle(lot, Outcome.RELEASE)
            raise
        fate = self._fate
        if fate.outcome is not None:
            await receiver.settle(lot, fate.outcome, reason=fate.reason, description=fate.description)

    async def _rescue(self, receiver: Receiver) -> None:
        """Shows what the broker deleted for us while we were told to stop: nobody else can have it."""
        if self._mode is ReceiveMode.RECEIVE_AND_DELETE:
            # The same request once more, without waiting, takes in what is on its way and takes back the rest.
            with suppress(ClientError):
                self._show([message.payload for message in await receiver.receive(self._left, 0)])

    def _show(self, payloads: Sequence[bytes]) -> None:
        self._view.show([read(payload) for payload in payloads])
        self._output.flush()
        self._taken += len(payloads)


@asynccontextmanager
async def _renewed(management: Management, receiver: Receiver) -> AsyncIterator[None]:
    """Keeps a session's lock while it is worked on."""
    renewal = asyncio.create_task(_renew(management, receiver))
    try:
        yield
    finally:
        renewal.cancel()
        with suppress(asyncio.CancelledError, ClientError):
            await renewal


async def _renew(management: Management, receiver: Receiver) -> None:
    until_ms = receiver.session_locked_until_ms
    while until_ms is not None:
        await asyncio.sleep(max(RENEW_S_MIN, (until_ms / 1000 - time.time()) / 2))
        until_ms = await management.renew_session_lock(receiver.session_id or "")
