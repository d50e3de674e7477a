"""The embedded messaging store: one SQLite file, one writer, many commands per transaction.

It decides the order of execution inside a commit and what happens when a commit fails; the rules of each command are in
the modules beside it, and threads are `sql.group`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.model.failpoints import failpoint
from twinbus.model.logged import EventLog
from twinbus.model.message import ReceiveMode
from twinbus.sql import sqlite
from twinbus.store import (
    acquiring,
    commands,
    identity_file,
    lifecycle,
    pinging,
    publishing,
    quarantine,
    range_commands,
    ranges,
    reading,
    recovery,
    removing,
    schema,
    sending,
    sessions,
    settling,
    statements,
    surveying,
    sweeping,
    transferring,
)
from twinbus.store.answering import GROWING, call, clear, full, merge, refuse
from twinbus.store.balance import Scales
from twinbus.store.commands import Command, Hints
from twinbus.store.file_watch import FileWatch
from twinbus.store.identity import Belonging, StoreIdentity
from twinbus.store.journal import JournalRow
from twinbus.store.room import LOG_BYTES, Room
from twinbus.store.sums import Sums
from twinbus.store.volatile import Memory
from twinbus.store.work import TokenSource, Work

_log = EventLog(__name__)

CACHE_BYTES = 32 * 1024 * 1024
CHECKPOINT_BYTES = 16 * 1024 * 1024
JOURNAL_RETENTION_MS = 7 * 24 * 3600 * 1000

# Phases of a commit, in order; within a phase commands run as they arrived.
_LIFECYCLE: dict[type[Command], Callable[[Work, Any], None]] = {
    commands.Create: lifecycle.create,
    commands.Configure: lifecycle.configure,
    commands.Drop: lifecycle.drop,
    quarantine.SetAside: quarantine.set_aside,
}
_CHANGES: dict[type[Command], Callable[[Work, Any], None]] = {
    commands.Complete: settling.complete,
    commands.Settle: settling.settle,
    commands.Renew: settling.renew,
    commands.DropLocks: lifecycle.drop_locks,
    commands.CancelScheduled: removing.cancel_scheduled,
    commands.DeleteBatch: removing.delete_batch,
    commands.Forget: transferring.forget,
    commands.Ping: pinging.ping,
    commands.Introduce: lifecycle.introduce,
    quarantine.Witness: quarantine.witness,
    quarantine.Position: quarantine.position,
    range_commands.CloseRange: ranges.close,
    range_commands.FinishRange: ranges.finish,
    range_commands.Trim: ranges.trim,
    commands.AcceptSession: sessions.accept,
    commands.RenewSession: sessions.renew,
    commands.ReleaseSession: sessions.release,
    commands.SetSessionState: sessions.set_state,
}
_TAKES: dict[type[Command], Callable[[Work, Any], None]] = {
    commands.Acquire: acquiring.acquire,
    commands.AcquireDeferred: acquiring.acquire_deferred,
}
_READS: dict[type[Command], Callable[[Work, Any], None]] = {
    commands.Peek: reading.peek,
    commands.Inspect: reading.inspect,
    commands.Count: reading.count,
    commands.GetSessionState: sessions.get_state,
    commands.ListSessions: sessions.list_sessions,
    surveying.Survey: surveying.survey,
    quarantine.Remember: quarantine.remember,
}
# What need not be on disk when it is answered: a lock must be written before its message leaves, but a power cut drops
# all locks anyway. A transfer that is not forgotten is remembered a while longer, a range that is not known to be
# finished is written once more, and names are told at every start.
_UNSYNCED = (
    commands.Forget,
    commands.Renew,
    commands.Record,
    commands.AcceptSession,
    commands.RenewSession,
    commands.Introduce,
    quarantine.Witness,
    range_commands.FinishRange,
    range_commands.Trim,
    commands.Weigh,
    *_READS,
)


class SqliteStore:
    """A messaging store in one file. Used by one thread at a time, except for `checkpoint`."""

    def __init__(
        self,
        path: str,
        *,
        epoch: bytes,
        now_ms: int,
        number: int = 0,
        cache_bytes: int = CACHE_BYTES,
        journal_retention_ms: int | None = JOURNAL_RETENTION_MS,
        vfs: str | None = None,
        belonging: Belonging | None = None,
    ) -> None:
        self.number = number
        self.identity: StoreIdentity | None = None
        self.synced_commits, self.sums = 0, Sums()  # For the metrics.
        # Hears of the journal's last row when it is on the disk, before anybody is answered.
        self.reached: Callable[[int], None] = lambda journal: None
        self._cache_bytes = cache_bytes
        self._retention_ms = journal_retention_ms
        self._tokens = TokenSource(epoch)
        self._failure: BusError | None = None
        self._room = Room(path, number, now_ms)
        self._has_claims = False  # Of locks that are gone, which a full disk kept from being counted.
        self._closed, self._synced = False, True
        # Pages written to the log, of these moved into the database, and there when that was last tried.
        self._pages = self._checkpointed_pages = self._tried_pages = 0
        self._scales: Scales | None = None  # What happens at the start is in what it begins with.
        self._room.before_opening()
        try:
            self._open(path, vfs, now_ms, belonging)
        except (apsw.Error, BusError) as problem:
            self._room.explain(problem)
            raise

    def _open(self, path: str, vfs: str | None, now_ms: int, belonging: Belonging | None) -> None:
        self._database = sqlite.connect(path, vfs)
        try:
            schema.prepare(self._database)
            failpoint("store.open")
            self._checkpointer = sqlite.connect(path, vfs, cache_kib=1024)
            self._room.opened(self._database)
            if belonging is not None:
                self.identity = identity_file.claim(self._database, belonging, self.number)
            self._memory = self._load(now_ms)
            self._scales = Scales(self._memory, now_ms)
            self._watch = FileWatch(path)
        except BaseException:
            sqlite.leave_log(self._database)  # What is wrong with it may be put right by other files.
            self._database.close()
            raise

    @property
    def failure(self) -> BusError | None:
        """Why it takes no more commands; it has to be closed, and may be opened anew."""
        return self._failure

    @property
    def is_full(self) -> bool:
        """Whether its disk is full, so that it hands messages out but takes none."""
        return self._room.is_full

    # The Store protocol.

    def commit(self, group: list[Command], now_ms: int) -> Hints:
        """Execute the commands in one transaction; if it fails, one by one, so that only the culprit fails."""
        if self._failure is not None:
            return refuse(group, self._failure)
        if self._room.is_full or self._has_claims:
            group = self._without_growth(group, now_ms)
            if not group:
                return Hints()
        if any(type(command) is quarantine.Position for command in group) and self._is_moved(now_ms):
            assert self._failure is not None
            return refuse(group, self._failure)
        if len(group) == 1:
            return self._run_alone(group[0], now_ms)
        try:
            return self._run(group, now_ms)
        except Exception as error:
            hints = self._recover(error, now_ms)
            if self._failure is not None:
                return refuse(group, self._failure)
            _log.warning("commit.replayed", "{size} commands are replayed alone: {error}", size=len(group), error=error)
            for command in group:
                clear(command)
                merge(hints, self._run_alone(command, now_ms))
            return hints

    def due_at_ms(self) -> int | None:
        """When the next Sweep will have something to do. May be early, is never late."""
        return self._memory.due_ms if self._failure is None else None

    def close(self) -> None:
        """Move the log into the database and release both; after a failure the log is left as it is."""
        if self._closed:
            return
        self._closed = True
        if self._failure is None:
            self._failure = BusError(Fault.STORE_UNAVAILABLE, "The messaging store is closed.")
            try:
                sqlite.checkpoint(self._checkpointer, truncate=True)
            except apsw.Error as error:
                text = "store {store}: the last checkpoint failed, the next start will do it: {error}"
                _log.warning("checkpoint.failed", text, store=self.number, error=error)
        else:
            sqlite.leave_log(self._database, self._checkpointer)
        self._checkpointer.close()
        self._database.close()
        self._watch.close()

    # What the thread around it needs.

    def checkpoint_due(self) -> bool:
        """Whether the log has grown so much that it should be moved into the database."""
        if self._failure is not None:
            return False
        self._pages = sqlite.pages_written(self._database)
        log_bytes = (self._pages - self._checkpointed_pages) * sqlite.PAGE_BYTES
        if not self._room.covers(log_bytes, self._database):
            self._checkpointed_pages = self._tried_pages = self._pages
            return False
        untried_bytes = (self._pages - self._tried_pages) * sqlite.PAGE_BYTES
        return untried_bytes > (LOG_BYTES if self._room.is_full else CHECKPOINT_BYTES)

    def checkpoint(self) -> bool:
        """Move what it can of the log into the database, on a connection of its own; True when nothing is left.

        May run on another thread beside commits, so it keeps off the writer's connection. Only one that runs between
        commits can move everything, after which the log starts anew.
        """
        if self._failure is not None:
            return True
        # Whoever reads at one instant for long, as a backup does, keeps the log: then trying at each commit is no help.
        self._tried_pages = self._pages
        try:
            failpoint("store.checkpoint")
            if self._room.is_full and not self._room.may_move(self._checkpointer):
                return True
            moved_all = sqlite.checkpoint(self._checkpointer)
        except apsw.Error as error:
            _log.error("checkpoint.failed", "store {store}: {error}", store=self.number, error=error)
            if sqlite.is_fatal(error):
                self._fail(error)
            return True
        if moved_all:
            self._checkpointed_pages = self._pages
            self._room.moved()
        return moved_all

    def entities(self) -> list[int]:
        """The entities that the file holds, those being dropped left out."""
        return [entity.id for entity in self._memory.entities.values() if not entity.dropped]

    def held(self) -> list[quarantine.Held]:
        """The same, with what a start must know of each."""
        return [
            quarantine.Held(entity, bool(aside), bool(used), bool(published), path or "", kind or "", fragment or 0)
            for entity, aside, used, published, path, kind, fragment in self._database.execute(statements.HELD)
        ]

    # The journal.

    def journal_after(self, row_id: int, limit: int) -> list[JournalRow]:
        """Committed journal rows behind a number, for the exporter."""
        return [JournalRow(*row) for row in self._database.execute(statements.JOURNAL_AFTER, (row_id, limit))]

    # One transaction.

    def _run(self, group: list[Command], now_ms: int) -> Hints:
        self._set_synced(any(_needs_sync(command) for command in group))
        work = Work(self._database, self._memory, now_ms, self._tokens)
        phases: tuple[list[Command], ...] = ([], [], [], [], [], [])
        for command in group:
            phases[_PHASES[type(command)]].append(command)
        for command in phases[0]:
            call(_LIFECYCLE[type(command)], work, command)
        if phases[1]:
            sends = [c for c in phases[1] if type(c) is commands.Send and not c.transfers]
            if sends:
                sending.send(work, sends)
            if len(sends) < len(phases[1]):
                transferring.send(work, [c for c in phases[1] if type(c) is commands.Send and c.transfers])
                publishing.publish(work, [c for c in phases[1] if type(c) is commands.Publish])
        for command in phases[2]:
            if isinstance(command, commands.Sweep):
                sweeping.sweep(work, command, self._retention_ms)
            elif isinstance(command, commands.Record):
                for note in command.notes:
                    work.journal.note(note, command.origin)
            else:
                call(_CHANGES[type(command)], work, command)
        for command in phases[3]:
            call(_TAKES[type(command)], work, command)
        for command in phases[4]:
            call(_READS[type(command)], work, command)
        if work.finish():
            if self._synced:
                self.synced_commits += 1
                self.reached(self._memory.next_journal - 1)
            self.sums.add(work.journal)
        assert self._scales is not None
        self._scales.take(work.journal)
        for command in phases[5]:
            assert isinstance(command, commands.Weigh)
            command.result = self._scales.balance(self._memory)
        return work.hints

    def _run_alone(self, command: Command, now_ms: int) -> Hints:
        if self._failure is not None:
            return refuse([command], self._failure)
        if self._room.is_full and isinstance(command, GROWING):
            return refuse([command], full())
        try:
            return self._run([command], now_ms)
        except Exception as error:
            hints = self._recover(error, now_ms)
            clear(command)
            if self._failure is not None:
                command.error = self._failure
            elif isinstance(error, apsw.FullError):
                command.error = full(isinstance(command, GROWING))
            else:
                name = type(command).__name__
                _log.exception("command.failed", "store {store}: a {command} failed", store=self.number, command=name)
                command.error = BusError(Fault.INTERNAL, f"The messaging store could not do this: {error}")
            return hints

    def _recover(self, error: Exception, now_ms: int) -> Hints:
        """Roll back, and make memory anew from the database as after a restart. Locks are lost."""
        hints = Hints()
        for queue in self._memory.queues.values():
            hints.lost_sessions.extend((queue.id, hold.session or "", hold.holder) for hold in queue.holds.values())
        try:
            if sqlite.is_fatal(error):
                raise error
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            if isinstance(error, apsw.FullError):
                self._room.run_out(self._database)
            self._memory = self._load(now_ms)
        except Exception as fatal:
            self._fail(fatal)
        hints.ready.update(self._memory.queues)
        return hints

    def _without_growth(self, group: list[Command], now_ms: int) -> list[Command]:
        """What is done although the disk is full; everything, if it no longer is. Looks for room once a second."""
        if self._room.is_to_be_looked_for(now_ms):
            if self._has_claims:
                self._memory = self._load(now_ms)
            if not self._has_claims and self._room.has_returned(self._database):
                return group
        taken = tuple(_READS) if self._has_claims else (Command,)
        done = [command for command in group if isinstance(command, taken) and not isinstance(command, GROWING)]
        refuse([command for command in group if command not in done], full())
        return done

    def _fail(self, error: Exception | str) -> None:
        """Close the store for good: what is on the disk is no longer known."""
        text = "store {store} failed and takes no more commands until it is opened anew: {error}"
        _log.critical("store.failed", text, store=self.number, error=error)
        self._failure = BusError(Fault.STORE_UNAVAILABLE, f"The messaging store failed and was closed: {error}")

    def _is_moved(self, now_ms: int) -> bool:
        """Whether it has failed, because somebody took its files away while it was served."""
        is_removed = self._watch.look()
        if is_removed is None:
            return False
        if not is_removed:
            self._fail("its files were moved to another place while it was served; put them back")
            return True
        try:
            name = self._watch.save(self._database, now_ms)
        except (apsw.Error, OSError) as error:
            # Closing it would lose what it holds, so that it goes on and tries again.
            text = "store {store}: its files were removed or replaced while it is served, and cannot be saved: {error}"
            _log.critical("store.failed", text, store=self.number, error=error)
            return False
        self._fail(
            "its files were removed or replaced while it was served. Everything that it held was saved as"
            f" {name}: put that in its place, without a -wal beside it"
        )
        return True

    def _load(self, now_ms: int) -> Memory:
        """What is in the database, with claims counted; on a disk that is too full for that, for readers alone."""
        memory = self._read(now_ms)
        self._set_synced(True)
        work = Work(self._database, memory, now_ms, self._tokens)
        try:
            recovery.count_claims(work)
            work.finish()
        except apsw.FullError:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._room.run_out(self._database)
            self._has_claims = True
            return self._read(now_ms)
        self._has_claims = False
        if self._scales is not None:
            self._scales.take(work.journal)
        return memory

    def _read(self, now_ms: int) -> Memory:
        memory = Memory(self._cache_bytes)
        for entity in lifecycle.load(json.loads(self._database.execute(statements.QUEUES).get)):
            memory.add(entity)
        memory.next_body = max(self._database.execute(statements.LAST_BODY).get or 0, 0) + 1
        memory.next_shared = min(self._database.execute(statements.LAST_SHARED).get or 0, 0) - 1
        memory.next_journal = (self._database.execute(statements.LAST_JOURNAL).get or 0) + 1
        memory.due_ms = now_ms
        return memory

    def _set_synced(self, synced: bool) -> None:
        if synced != self._synced:
            sqlite.set_synced(self._database, synced)
            self._synced = synced


_PHASES: dict[type[Command], int] = {
    **dict.fromkeys(_LIFECYCLE, 0),
    commands.Send: 1,
    commands.Publish: 1,
    **dict.fromkeys(_CHANGES, 2),
    commands.Sweep: 2,
    commands.Record: 2,
    **dict.fromkeys(_TAKES, 3),
    **dict.fromkeys(_READS, 4),
    commands.Weigh: 5,
}


def _needs_sync(command: Command) -> bool:
    if isinstance(command, commands.Acquire | commands.AcquireDeferred):
        return command.mode is ReceiveMode.RECEIVE_AND_DELETE
    return not isinstance(command, _UNSYNCED)
