"""One numbered queue of a store, a main queue or a dead-letter queue, with everything a receiver can ask of it.

Each method is one named transaction of the store; `done` callbacks get one answer per item, also when the whole failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twinbus.entities.feed import Feed
from twinbus.entities.ports import StorePort
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin, ReceiveMode, Settlement
from twinbus.store.commands import (
    AcquireDeferred,
    CancelScheduled,
    Complete,
    DeleteBatch,
    GetSessionState,
    Inspect,
    ListSessions,
    Peek,
    Renew,
    RenewSession,
    SetSessionState,
    Settle,
)

Answers = list[BusError | None]
PEEK_BYTES_MAX = 1024 * 1024


class Settled(Protocol):
    """Who is told what came of settlements."""

    def __call__(self, answers: Answers, which: Sequence[int] | None = None, /) -> None:
        """One answer for each; or, called more than once, for those at the positions `which`."""
        ...


class Mailbox:
    """A queue as receivers see it."""

    def __init__(self, number: int, store: StorePort, store_index: int, feed: Feed | None = None) -> None:
        self.number = number
        self.store_index = store_index
        self.feed = Feed(number, store) if feed is None else feed
        self._store = store

    def feed_of(self, number: int) -> Feed:
        """Who is to hear what a store says about one of this mailbox's queues."""
        return self.feed

    def journaled_at(self) -> tuple[int, int]:
        """The number and the store under which the journal has what changed nothing here."""
        return self.number, self.store_index

    def feeds_on(self, store_index: int) -> list[Feed]:
        """Who is concerned when a store comes or goes."""
        return [self.feed] if self.store_index == store_index else []

    def places(self, session: str | None) -> list[tuple[int, Mailbox]]:
        """Where its messages, or those of a session, are to be looked for: fragments with their numbers."""
        return [(0, self)]

    # Settling: on the hot path, hence by callback.

    def complete(self, tokens: list[bytes], origin: Origin, done: Settled) -> None:
        """Remove locked messages."""

        def finished(command: Complete) -> None:
            done(command.result if command.error is None else [command.error] * len(tokens))

        self._store.submit(Complete(queue=self.number, origin=origin, tokens=tokens, done=finished))

    def settle(self, settlements: list[Settlement], origin: Origin, done: Settled) -> None:
        """Settle locked messages in any way."""

        def finished(command: Settle) -> None:
            done(command.result if command.error is None else [command.error] * len(settlements))

        self._store.submit(Settle(queue=self.number, origin=origin, settlements=settlements, done=finished))

    async def settle_all(self, settlements: list[Settlement], origin: Origin) -> None:
        """Settle and wait; raises the first fault."""
        command = Settle(queue=self.number, origin=origin, settlements=settlements)
        await self._store.call(command)
        for error in command.result:
            if error is not None:
                raise error

    # Reading and holding

    async def inspect(self, tokens: list[bytes], origin: Origin) -> list[Delivered | None]:
        """The locked messages themselves; None where the lock is lost."""
        return (await self._store.call(Inspect(queue=self.number, origin=origin, tokens=tokens))).result

    async def renew(self, tokens: list[bytes], origin: Origin) -> list[int]:
        """Extend locks; raises the first fault."""
        command = await self._store.call(Renew(queue=self.number, origin=origin, tokens=tokens))
        expirations = []
        for expiry in command.result:
            if isinstance(expiry, BusError):
                raise expiry
            expirations.append(expiry)
        return expirations

    async def peek(
        self,
        start: int,
        limit: int,
        session: str | None,
        origin: Origin,
        max_bytes: int = PEEK_BYTES_MAX,
        *,
        active_only: bool = False,
    ) -> list[Delivered]:
        """Look without taking."""
        command = Peek(
            queue=self.number,
            origin=origin,
            from_sequence_number=start,
            limit=limit,
            session=session,
            active_only=active_only,
            max_bytes=max_bytes,
        )
        return (await self._store.call(command)).result

    async def receive_deferred(
        self, numbers: list[int], mode: ReceiveMode, owner: int, session: str | None, origin: Origin
    ) -> list[Delivered]:
        """Take deferred messages by number, all or none."""
        command = AcquireDeferred(
            queue=self.number, origin=origin, sequence_numbers=numbers, mode=mode, owner=owner, session=session
        )
        return (await self._store.call(command)).result

    async def cancel_scheduled(self, numbers: list[int], origin: Origin) -> None:
        """Remove scheduled messages by number, all or none."""
        await self._store.call(CancelScheduled(queue=self.number, origin=origin, sequence_numbers=numbers))

    async def delete_batch(self, limit: int, before_ms: int, origin: Origin, *, every_state: bool = False) -> int:
        """Remove active messages, or all, that were enqueued before an instant; returns how many."""
        command = DeleteBatch(
            queue=self.number, origin=origin, limit=limit, before_ms=before_ms, every_state=every_state
        )
        return (await self._store.call(command)).result

    # Sessions

    async def renew_session(self, session: str, origin: Origin) -> int:
        """Extend the lock of a session that somebody holds."""
        return (await self._store.call(RenewSession(queue=self.number, origin=origin, session=session))).result

    async def get_session_state(self, session: str, origin: Origin) -> bytes | None:
        """The session's state; None if it has none."""
        return (await self._store.call(GetSessionState(queue=self.number, origin=origin, session=session))).result

    async def set_session_state(self, session: str, state: bytes | None, origin: Origin) -> None:
        """Replace or clear the session's state."""
        await self._store.call(SetSessionState(queue=self.number, origin=origin, session=session, state=state))

    async def list_sessions(self, updated_after_ms: int | None, skip: int, limit: int, origin: Origin) -> list[str]:
        """Session ids, a page at a time."""
        command = ListSessions(
            queue=self.number, origin=origin, updated_after_ms=updated_after_ms, skip=skip, limit=limit
        )
        return (await self._store.call(command)).result


def lock_error(error: BusError, has_sessions: bool) -> BusError:
    """In a session, a lost message lock means that the session's lock was lost."""
    if has_sessions and error.fault is Fault.LOCK_LOST:
        return BusError(Fault.SESSION_LOCK_LOST, error.text)
    return error
