"""A ledger as applications and receivers use it: opened by name, kept on a thread of its own, trimmed, and counted.

What is decided is in `decisions`, what is stored in `sqlite` and `postgres`. The shells at the end
(`Ledger`, and the one for asyncio in `aio`) only wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

from twinbus.model.errors import BusError
from twinbus.pair.errors import AlreadyDoneError, LedgerError
from twinbus.pair.ledger import sqlite as ledger_sqlite
from twinbus.pair.ledger.decisions import Copy, Decision, Key, State
from twinbus.pair.ledger.joining import Joining
from twinbus.pair.ledger.storage import Claim, Command, Extend, Mark, Record, Storage, Trim
from twinbus.pair.ledger.tags import Tag
from twinbus.sql.group import GroupCommit

KEEP = timedelta(days=7)
LEASE_S = 60.0
LEASE_MAX_S = 300.0  # No lock of the service is longer.
ENTRIES_MAX = 20_000_000
TRIM_S = 60.0
POSTGRES = ("postgresql://", "postgres://")

_COUNTED = {
    Decision.HAND_OUT: "handed_out",
    Decision.HOLD: "held",
    Decision.SUPPRESS: "suppressed",
    Decision.DEAD_LETTER: "dead_lettered_again",
}


class _WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class LedgerCore:
    """What both shells share. Everything durable is done on the ledger's thread, what arrives together at once."""

    def __init__(
        self,
        where: Path | str,
        *,
        keep: timedelta | float = KEEP,
        lease: timedelta | float = LEASE_S,
        entries_max: int = ENTRIES_MAX,
        tag: Tag | str = "message_id",
        clock: Any = None,
        storage: Storage | None = None,
    ) -> None:
        """A file by its path, or a PostgreSQL database by its address.

        `keep` is how long a tag is known, `lease` how long a claim holds at least without a sign of life.
        """
        self.where = str(where)
        self.tag = Tag.parse(tag)
        self.keep_ms = int(_seconds(keep) * 1000)
        self.lease_ms = int(_seconds(lease) * 1000)
        self.entries_max = entries_max
        self.counts: Counter[str] = Counter()
        self._clock = clock or _WallClock()
        self._storage: Storage = storage or open_storage(self.where)
        self._joining = Joining(self.where)
        self._trimmed_at = 0.0
        self._waiting: dict[Command, Future[Any]] = {}
        self._listeners: list[Callable[[Key], None]] = []
        self._group: GroupCommit[Command, None] = GroupCommit(
            self._storage,
            self._clock,
            lambda callback: callback(),
            self._committed,
            lambda: None,
            name="ledger",
        )

    # What receivers ask. The answers are futures, so that asynchronous and synchronous callers wait in their own way.

    def claim(self, claims: Sequence[Claim]) -> list[Future[Claim]]:
        """Copies arrived; each is answered by itself, and all are decided in one transaction."""
        self._trim_when_due()
        return [self._submit(command) for command in claims]

    def extend(self, key: Key, copy: Copy, lock_s: float) -> Future[Extend]:
        """A lock was renewed for so many seconds."""
        return self._submit(Extend(key, copy, self.lease_of(lock_s)))

    def mark(self, key: Key, copy: Copy, state: State) -> Future[Mark]:
        """A copy was worked on, dead-lettered or deferred; durable when the future is done."""
        return self._submit(Mark(key, copy, state))

    def lease_of(self, lock_s: float | None) -> int:
        """How long a claim holds whose copy is locked for so long; a broker's clock may be far off."""
        return max(self.lease_ms, int(min(lock_s or 0.0, LEASE_MAX_S) * 1000))

    def listen(self, listener: Callable[[Key], None]) -> None:
        """Hear of marks made here, on the ledger's thread."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[Key], None]) -> None:
        """Hear no more of it."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    # What operators ask.

    def metrics(self) -> dict[str, int]:
        """Counts since it was opened."""
        names = [*_COUNTED.values(), "marked", "marked_before", "trimmed", "untagged"]
        return {name: self.counts[name] for name in names}

    def export(self, scope: str | None = None) -> Iterator[Record]:
        """Every row, read while others write; for reconciling."""
        return records(self.where, scope)

    # The inside.

    def _submit(self, command: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting[command] = future
        try:
            self._group.submit(command)
        except BusError as error:
            del self._waiting[command]
            future.set_exception(LedgerError(error.text))
        return future

    def _committed(self, commands: list[Command], hints: None) -> None:
        for command in commands:
            self._count(command)
            future = self._waiting.pop(command, None)
            if future is None or not future.set_running_or_notify_cancel():
                continue
            if command.error is not None:
                future.set_exception(LedgerError(command.error.text))
            else:
                future.set_result(command)

    def _count(self, command: Command) -> None:
        if command.error is not None:
            self.counts["errors"] += 1
        elif isinstance(command, Claim):
            self.counts[_COUNTED[command.decision]] += 1
        elif isinstance(command, Mark):
            self.counts["marked" if command.changed else "marked_before"] += 1
            self._wake(command.key)
        elif isinstance(command, Trim):
            self.counts["trimmed"] += command.removed

    def _wake(self, key: Key) -> None:
        for listener in list(self._listeners):
            listener(key)

    def _trim_when_due(self) -> None:
        now = time.monotonic()
        if self._trimmed_at and now - self._trimmed_at < TRIM_S:
            return
        self._trimmed_at = now
        self._trim_from(0)

    def _trim_from(self, after: int) -> None:
        """One chunk, then the next one behind whatever came meanwhile."""
        trimming = self._submit(Trim(self.keep_ms, self.entries_max, after))
        trimming.add_done_callback(self._trimmed)

    def _trimmed(self, done: Future[Trim]) -> None:
        if done.exception() is None and (after := done.result().next_after) is not None:
            self._trim_from(after)

    def _trim_chunk(self, after: int) -> Future[Trim]:
        return self._submit(Trim(self.keep_ms, self.entries_max, after))

    def _end(self) -> None:
        self._group.close()


class Ledger(LedgerCore):
    """A ledger for synchronous applications."""

    def done(self, message: Any, *, connection: Any = None) -> None:
        """The work on a message is done: durable when this returns, or, with a connection, with its transaction.

        In a transaction it raises AlreadyDoneError where somebody else has done the work, so that it is rolled back.
        """
        found = _handed(message)
        if connection is None:
            self.mark(*found, State.DONE).result()
        elif not self._joining.mark(connection, *found, self._clock.now_ms()):
            raise AlreadyDoneError(f"The work on {found[0].tag!r} was done before; roll the transaction back.")

    def trim(self) -> int:
        """Forget what is older than `keep`, now; how many rows that were."""
        removed = 0
        after: int | None = 0
        while after is not None:
            done = self._trim_chunk(after).result()
            removed, after = removed + done.removed, done.next_after
        return removed

    def close(self) -> None:
        """Finish what is under way, and release the database."""
        self._end()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class AsyncLedger(LedgerCore):
    """A ledger for applications with an event loop."""

    async def done(self, message: Any, *, connection: Any = None) -> None:
        """As `Ledger.done`; a psycopg connection may be an asynchronous one."""
        found = _handed(message)
        if connection is None:
            await asyncio.wrap_future(self.mark(*found, State.DONE))
        elif not await self._joining.mark_async(connection, *found, self._clock.now_ms()):
            raise AlreadyDoneError(f"The work on {found[0].tag!r} was done before; roll the transaction back.")

    async def close(self) -> None:
        """Finish what is under way, and release the database."""
        await asyncio.to_thread(self._end)

    async def __aenter__(self) -> AsyncLedger:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()


def remember(message: Any, key: Key, copy: Copy) -> None:
    """Write it on a received message."""
    message._twinbus_handed = (key, copy)


def handed(message: Any) -> tuple[Key, Copy] | None:
    """What was written on it; None if nothing was."""
    found: tuple[Key, Copy] | None = getattr(message, "_twinbus_handed", None)
    return found


def _handed(message: Any) -> tuple[Key, Copy]:
    found = handed(message)
    if found is None:
        raise ValueError("The message was not handed out by a receiver with this ledger, or has no tag.")
    return found


def is_postgres(where: str) -> bool:
    """Whether a ledger's place is a database's address, and not a file."""
    return where.startswith(POSTGRES)


def open_storage(where: str) -> Storage:
    """The storage that a name means."""
    try:
        if is_postgres(where):
            from twinbus.pair.ledger.postgres import PostgresStorage  # psycopg is not needed for a file.

            return PostgresStorage(where)
        return ledger_sqlite.SqliteStorage(where)
    except BusError as error:
        raise LedgerError(error.text) from error


def records(where: str, scope: str | None = None) -> Iterator[Record]:
    """Every row of a ledger."""
    if is_postgres(where):
        from twinbus.pair.ledger.postgres import records as from_postgres

        return from_postgres(where, scope)
    return ledger_sqlite.records(where, scope)


def _seconds(duration: timedelta | float) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
