"""The outbox: a durable queue on this side of the network. A message that was put is on disk, whatever comes.

`put` from any thread, `put_async` from an event loop, `put(…, connection=…)` within the application's own transaction.
Getting messages to where they belong is the dispatcher's work (`dispatch`).
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from twinbus.client.errors import ClientError
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError
from twinbus.pair.errors import OutboxError, OutboxFullError
from twinbus.pair.outbox.rows import (
    MAX_AGE_S,
    MAX_BYTES,
    MAX_MESSAGES,
    Counts,
    Entry,
    Lease,
    Limits,
    Queued,
    Row,
    Tables,
    Wanted,
    Work,
    order_group_of,
    rows_of,
)
from twinbus.pair.outbox.sqlite import SqliteHome, SqliteTables
from twinbus.pair.sdk import messages as sdk
from twinbus.sql.group import Committer, GroupCommit

__all__ = ["Outbox", "OutboxError", "OutboxFullError", "Queued"]

T = TypeVar("T")

POSTGRESQL = ("postgresql://", "postgres://")
CHECK_S = 1.0  # How long a look at how full a database's outbox is holds good for the application's transactions.
LOOK_S = 0.05  # How often it is looked whether the outbox is empty.


def _is_empty(counts: Counts) -> bool:
    return counts.messages == counts.aside


class WallClock:
    """The time of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


class Outbox:
    """A durable client-side queue in a SQLite file, or in the application's database.

    `where` is a file (made if it is missing) or the address of a PostgreSQL database. Opening it a second time, in
    this process or another, is safe.
    """

    def __init__(
        self,
        where: str | Path,
        *,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
        max_age: float | timedelta = MAX_AGE_S,
        clock: Clock | None = None,
    ) -> None:
        self.where = str(where)
        self.limits = Limits(max_messages, max_bytes, max_age)
        self._clock = clock or WallClock()
        self._listeners: list[Callable[[], None]] = []
        self._checked: tuple[float, Counts] | None = None
        self._group: GroupCommit[Work[Any], None] = GroupCommit(
            _home_at(where), self._clock, lambda callback: callback(), _finish, lambda: None, name="outbox"
        )

    # Putting

    def put(
        self,
        messages: sdk.Sendable | Sequence[bytes],
        path: str,
        *,
        key: str | None = None,
        connection: Any = None,
        encoded: bool = False,
    ) -> Queued:
        """Put messages for an entity; they are safe when this returns.

        Messages of one session, partition key or `key` leave in this order. With the application's own connection
        (of `sqlite3` or `psycopg`) they are part of its transaction, and safe when that is committed. `encoded`
        messages are bytes as they go over the wire.
        """
        rows = self._rows(messages, path, key, encoded)
        if connection is not None:
            return self._put_within(connection, rows, path)
        numbers = self._submit(self._putting(rows)).result()
        return self._queued(rows, path, numbers)

    async def put_async(
        self,
        messages: sdk.Sendable | Sequence[bytes],
        path: str,
        *,
        key: str | None = None,
        encoded: bool = False,
    ) -> Queued:
        """As `put`, for an event loop."""
        rows = self._rows(messages, path, key, encoded)
        numbers = await asyncio.wrap_future(self._submit(self._putting(rows)))
        return self._queued(rows, path, numbers)

    @staticmethod
    def create_tables(connection: Any) -> None:
        """Make the tables in the application's database, within its transaction."""
        tables_of(connection).create()

    def _rows(self, messages: Any, path: str, key: str | None, encoded: bool) -> list[Row]:
        payloads = messages if encoded else sdk.encoded(sdk.repeatable(messages))
        try:
            return rows_of(payloads, path, key, lambda: uuid4().hex)
        except ClientError as problem:
            raise ValueError(problem.text) from problem

    def _putting(self, rows: list[Row]) -> Work[list[int]]:
        size = sum([len(row.payload) for row in rows])

        def run(tables: Tables, now_ms: int) -> list[int]:
            if not rows:
                return []
            self.limits.check(tables.counts(), len(rows), size, now_ms)
            return tables.put(rows, now_ms)

        return Work(run, size=size)

    def _put_within(self, connection: Any, rows: list[Row], path: str) -> Queued:
        """Counting is no part of the application's transaction more than once a second."""
        tables = tables_of(connection)
        now = time.monotonic()
        if self._checked is None or now - self._checked[0] > CHECK_S:
            self._checked = now, tables.counts()
        now_ms = self._clock.now_ms()
        self.limits.check(self._checked[1], len(rows), sum(len(row.payload) for row in rows), now_ms)
        return Queued(path, [row.message_id for row in rows], tables.put(rows, now_ms) if rows else [])

    def _queued(self, rows: list[Row], path: str, numbers: list[int]) -> Queued:
        self.wake()
        return Queued(path, [row.message_id for row in rows], numbers)

    def listen(self, listener: Callable[[], None]) -> None:
        """Hear, in any thread, that something may have been put."""
        self._listeners.append(listener)

    def wake(self) -> None:
        """Tell senders and the dispatcher of this process, as after a commit of the application's; others look."""
        for listener in self._listeners:
            listener()

    # Looking, and what operators do

    def counts(self) -> Counts:
        """How full it is."""
        return self.use(lambda tables, _: tables.counts(), reads=True).result()

    def wait_until_empty(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing waits any more, but for what was set aside; False when the time is over before."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not _is_empty(self.counts()):
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return True

    async def wait_until_empty_async(self, timeout_s: float | None = None) -> bool:
        """As `wait_until_empty`, for an event loop."""
        try:
            async with asyncio.timeout(timeout_s):
                while not _is_empty(await asyncio.wrap_future(self.use(lambda tables, _: tables.counts(), reads=True))):
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            return False
        return True

    def look(self, limit: int = 100, from_number: int = 0, aside: bool | None = None) -> list[Entry]:
        """Messages in their order: all, or only those that wait (False), or that were set aside (True)."""
        return self.use(lambda tables, _: tables.look(limit, from_number, aside), reads=True).result()

    def lease(self) -> Lease | None:
        """Who dispatches, or did last."""
        return self.use(lambda tables, _: tables.lease(), reads=True).result()

    def retry(self, numbers: Sequence[int] | None = None) -> int:
        """Have messages that were set aside tried again; how many."""
        count = self.use(lambda tables, _: tables.bring_back(numbers)).result()
        self.wake()
        return count

    def drop(self, numbers: Sequence[int]) -> int:
        """Give messages up for good; how many."""
        return self.use(lambda tables, _: tables.remove(numbers)).result()

    # For the dispatcher and for senders

    async def take(self, wanted: Wanted) -> list[Entry]:
        """The first messages that a dispatcher has room for."""
        return await asyncio.wrap_future(self.use(lambda tables, _: tables.take(wanted), reads=True))

    async def settle(self, sent: Sequence[int], refused: Sequence[tuple[int, str]]) -> None:
        """Forget what was acknowledged, and set aside what will never be."""

        def run(tables: Tables, now_ms: int) -> None:
            if sent:
                tables.remove(sent)
            if refused:
                tables.set_aside(refused, now_ms)

        await asyncio.wrap_future(self.use(run))

    async def holds(self, path: str, key: str) -> bool:
        """Whether messages of a key wait here, so that later ones must queue behind them."""
        order_group = order_group_of(path, key)
        assert order_group is not None
        return await asyncio.wrap_future(self.use(lambda tables, _: tables.holds(order_group), reads=True))

    def use(self, run: Callable[[Tables, int], T], *, reads: bool = False) -> Future[T]:
        """Have something done with the tables."""
        return self._submit(Work(run, reads=reads))

    def _submit(self, work: Work[T]) -> Future[T]:
        try:
            self._group.submit(work, size=work.size)
        except BusError:
            raise OutboxError("The outbox is closed.") from None
        return work.done

    def close(self) -> None:
        """Finish what was begun, and release the file."""
        self._group.close()

    def __enter__(self) -> Outbox:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def _home_at(where: str | Path) -> Committer[Work[Any], None]:
    """Where an outbox lives: what arrives during one commit is the next."""
    if str(where).startswith(POSTGRESQL):
        from twinbus.pair.outbox.postgres import PostgresHome  # psycopg is for those who use it.

        return PostgresHome(str(where))
    return SqliteHome(Path(where))


def _finish(group: list[Work[Any]], _: None) -> None:
    for work in group:
        work.finish()


def tables_of(connection: Any) -> Tables:
    """The tables as the application's own connection sees them; a TypeError for anything else."""
    if isinstance(connection, sqlite3.Connection):
        return SqliteTables(connection)
    if type(connection).__module__.partition(".")[0] == "psycopg" or hasattr(connection, "pgconn"):
        from twinbus.pair.outbox.postgres import PostgresTables

        return PostgresTables(connection)
    raise TypeError(
        f"An outbox can join the transactions of sqlite3 and psycopg, not of a {type(connection).__module__}"
        f".{type(connection).__qualname__}; a file must not be open through two SQLite libraries in one process."
    )
