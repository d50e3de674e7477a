"""Where an outbox lives, run by a thread of its own: what arrives during one commit is the next (`sql.group`).

Work is any use of the tables; it is done in a transaction, and its outcome is known when that is durable. What is
asked of the tables is left to `outbox`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, TypeVar

from twinbus.model.clock import Clock
from twinbus.model.errors import BusError
from twinbus.pair.errors import OutboxError, OutboxFullError
from twinbus.pair.outbox.rows import Tables
from twinbus.pair.outbox.sqlite import SqliteTables
from twinbus.sql import shared_sqlite
from twinbus.sql.group import Committer, GroupCommit

T = TypeVar("T")

CACHE_KIB = 16 * 1024
OWNER_ONLY = 0o600


class Work(Generic[T]):
    """Something to be done with the tables, at an instant; `done` has its result when that is durable, or an error."""

    def __init__(self, run: Callable[[Tables, int], T], *, reads: bool = False, size: int = 0) -> None:
        self.run = run
        self.reads = reads
        self.size = size
        self.error: BusError | None = None  # Set by the thread when it was not even tried.
        self.problem: BaseException | None = None
        self.done: Future[T] = Future()
        self._result: T | None = None

    def attempt(self, tables: Tables, now_ms: int) -> None:
        """Do it; a refusal of its own is nobody else's."""
        try:
            self._result = self.run(tables, now_ms)
        except OutboxError as problem:
            self.problem = problem

    def finish(self) -> None:
        """The transaction is over."""
        problem = self.problem or self.error
        if self.done.cancelled():
            return
        if problem is not None:
            self.done.set_exception(problem if isinstance(problem, OutboxError) else OutboxError(str(problem)))
        else:
            self.done.set_result(self._result)  # type: ignore[arg-type]


class SqliteHome:
    """A SQLite file; the application's own database, or one for the outbox alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._closed: OutboxError | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, OWNER_ONLY))  # Messages are for their owner alone.
            self._database = shared_sqlite.connect(str(path), CACHE_KIB)
        except OSError as error:
            raise OutboxError(f"The outbox {path} cannot be opened: {error.strerror or error}.") from error
        except BusError as error:
            raise OutboxError(f"The outbox {path} cannot be opened: {error}.") from error
        tables = SqliteTables(self._database)
        try:
            self._database.execute("BEGIN IMMEDIATE")
            tables.create()
            self._database.execute("COMMIT")
        except BaseException as error:
            self._database.close()
            raise self._explain(error) if isinstance(error, sqlite3.Error) else error from error
        self._tables = tables

    def commit(self, group: list[Work[Any]], now_ms: int) -> None:
        """One transaction for all; one that only reads makes nobody wait for the disk."""
        database = self._database
        try:
            if self._closed is not None:
                raise self._closed
            database.execute("BEGIN" if all(work.reads for work in group) else "BEGIN IMMEDIATE")
            for work in group:
                work.attempt(self._tables, now_ms)
            database.execute("COMMIT")
        except Exception as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            problem = error if isinstance(error, OutboxError) else self._explain(error)
            for work in group:
                work.problem = problem
            if shared_sqlite.is_fatal(error):
                self._closed = problem  # Nobody knows what is on the disk: only a new start may judge.

    def checkpoint_due(self) -> bool:
        """Never: the log is moved back by the commit of the thousandth page."""
        return False

    def checkpoint(self) -> bool:
        """Nothing is left to do."""
        return True

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    def _explain(self, error: BaseException) -> OutboxError:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            return OutboxFullError(f"There is no room left on the disk of the outbox {self._path}.")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return OutboxError(f"Somebody else keeps the outbox {self._path} busy: {error}.")
        return OutboxError(f"The outbox {self._path} cannot be used: {error}.")


class Home:
    """A thread that does the work; use from any thread."""

    def __init__(self, committer: Committer[Work[Any], None], clock: Clock, name: str) -> None:
        self._group: GroupCommit[Work[Any], None] = GroupCommit(
            committer, clock, lambda callback: callback(), _finish, lambda: None, name=name
        )

    def submit(self, work: Work[T]) -> Future[T]:
        """Have work done."""
        try:
            self._group.submit(work, size=work.size)
        except BusError:
            raise OutboxError("The outbox is closed.") from None
        return work.done

    def close(self) -> None:
        """Finish what was begun, and close."""
        self._group.close()


def _finish(group: list[Work[Any]], _: None) -> None:
    for work in group:
        work.finish()
