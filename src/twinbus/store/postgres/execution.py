"""One transaction of the PostgreSQL store: which rows it takes, in which order its commands run, and how it ends.

The rules of each command are the operations' own. What happens when a transaction fails is `store`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from twinbus.model.errors import BusError, Fault
from twinbus.model.failpoints import failpoint
from twinbus.model.message import ReceiveMode
from twinbus.sql.postgres import Connection, integers
from twinbus.store import (
    commands,
    lifecycle,
    pinging,
    publishing,
    quarantine,
    range_commands,
    ranges,
    reading,
    removing,
    sending,
    sessions,
    settling,
    transferring,
)
from twinbus.store.answering import call
from twinbus.store.commands import Command, Hints
from twinbus.store.journal import JournalPage
from twinbus.store.postgres import acquiring, dialect, surveying, sweeping
from twinbus.store.postgres.loading import Loader, Needs, entity_of, names_of
from twinbus.store.postgres.waking import payload_of
from twinbus.store.postgres.work import OWNER_BITS, GatewayTokens, PostgresWork
from twinbus.store.postgres.writing import Statement, counts_of
from twinbus.store.surveying import Survey
from twinbus.store.sweeping import CHUNK
from twinbus.store.volatile import Entity, Memory

_LIFECYCLE: dict[type[Command], Callable[[Any, Any], None]] = {}
_CHANGES: dict[type[Command], Callable[[Any, Any], None]] = {
    commands.Complete: settling.complete,
    commands.Settle: settling.settle,
    commands.DropLocks: lifecycle.drop_locks,
    commands.CancelScheduled: removing.cancel_scheduled,
    commands.DeleteBatch: removing.delete_batch,
    commands.Forget: transferring.forget,
    commands.Ping: pinging.ping,
    commands.Introduce: lifecycle.introduce,
    quarantine.Witness: quarantine.witness,
    range_commands.CloseRange: ranges.close,
    range_commands.FinishRange: ranges.finish,
    range_commands.Trim: ranges.trim,
    commands.AcceptSession: sessions.accept,
    commands.RenewSession: sessions.renew,
    commands.ReleaseSession: sessions.release,
    commands.SetSessionState: sessions.set_state,
}
_READS: dict[type[Command], Callable[[Any, Any], None]] = {
    commands.Peek: reading.peek,
    commands.Inspect: reading.inspect,
    commands.Count: reading.count,
    commands.GetSessionState: sessions.get_state,
    commands.ListSessions: sessions.list_sessions,
    Survey: surveying.survey,
    quarantine.Remember: quarantine.remember,
}
# What need not be on disk when it is answered; a sweep only if it has changed something.
_UNSYNCED = (
    commands.Forget,
    commands.Renew,
    commands.Record,
    commands.AcceptSession,
    commands.RenewSession,
    commands.Sweep,
    commands.Introduce,
    quarantine.Witness,
    range_commands.FinishRange,
    range_commands.Trim,
    *_READS,
)


class Setting(NamedTuple):
    """What all transactions of a store have in common."""

    schema: str
    gateway: int
    locks: GatewayTokens
    retention_ms: int | None  # None: whoever exports the journal trims it.


class Done(NamedTuple):
    """What a transaction has come to."""

    hints: Hints
    now_ms: int
    due_ms: int | None
    synced: bool
    changed: set[int]  # Entities whose rows say that something may have become available.
    journal: JournalPage


class Transaction:
    """One group of commands on its way into the database."""

    def __init__(self, connection: Connection, setting: Setting, group: list[Command], memory: Memory) -> None:
        self._connection = connection
        self._setting = setting
        self._group = group
        self._memory = memory
        self._needs = Needs(group)

    def run(self, now_ms: Callable[[int], int], others: bool, housekeeping: bool) -> Done:
        """Execute the commands and commit. `now_ms` makes the commit's instant from the server's."""
        needs = self._needs
        if not needs.writes:
            work = self._load([], now_ms)
            work.is_writable = False
            self._execute(work, housekeeping)
            return Done(work.hints, work.now_ms, None, False, set(), work.journal)
        work = self._begin(now_ms, housekeeping) if needs.sweeps or needs.owners else self._load([_BEGIN], now_ms)
        self._execute(work, housekeeping)
        return self._commit(work, others)

    # Before: the rows.

    def _begin(self, now_ms: Callable[[int], int], housekeeping: bool) -> PostgresWork:
        """Find out first which entities are concerned, because their rows must be taken in order."""
        work = self._load([_BEGIN], now_ms, whole=False)
        needs = self._needs
        if needs.sweeps:
            needs.entities |= sweeping.due_entities(work, self._setting.schema, housekeeping)
        if needs.owners:
            owners = integers([work.shared(owner) for owner in needs.owners])
            [rows] = work.run([(dialect.ENTITIES_OF_OWNERS, (owners, owners))])
            needs.entities |= {row[0] for row in rows}
        swept = work.swept
        work = self._load([], now_ms)
        work.swept = swept
        return work

    def _load(self, first: list[Statement], now_ms: Callable[[int], int], whole: bool = True) -> PostgresWork:
        """Take the rows of the entities, then look at the clock, then read what the commands are about."""
        needs, setting = self._needs, self._setting
        memory = self._memory
        work = PostgresWork(self._connection, memory, 0, setting.gateway, setting.locks)
        loader = Loader(work, needs)
        batch = list(first)
        holds: list[Statement] = []
        locks: list[Statement] = []
        ids = sorted(needs.entities) if whole else []
        if ids:
            batch.append((dialect.HOLD_ENTITIES if needs.writes else dialect.READ_ENTITIES, (integers(ids),)))
        batch.append((dialect.NOW, ()))
        if whole:
            holds, locks = loader.holds(), loader.locks()
        answers = work.run([*batch, *holds, *locks])[len(first) :]
        if ids:
            for row in answers.pop(0):
                entity = entity_of(row)
                memory.add(entity)
                work.counts[entity.id] = counts_of(entity)
        work.now_ms = now_ms(answers.pop(0)[0][0])
        loader.take_holds(row for rows in answers[: len(holds)] for row in rows)
        loader.take_locks(row for rows in answers[len(holds) :] for row in rows)
        if whole and needs.free_sessions_in:
            self._load_ended_sessions(work, loader)
        return work

    def _load_ended_sessions(self, work: PostgresWork, loader: Loader) -> None:
        """Whoever asks for any free session may be the first to notice that some are."""
        entities = integers([queue >> 2 for queue in self._needs.free_sessions_in])
        [holds] = work.run([(dialect.HOLDS_EXPIRED, (work.now_ms, entities, CHUNK))])
        ended = loader.take_holds(holds)
        if ended:
            names = [(queue.id, name) for queue in work.memory.queues.values() for name in queue.holds]
            [locks] = work.run([(dialect.LOCKS_OF_SESSIONS, names_of(names))])
            loader.take_locks(locks)

    # In between: the commands.

    def _execute(self, work: PostgresWork, housekeeping: bool) -> None:
        phases: tuple[list[Command], ...] = ([], [], [], [], [])
        for command in self._group:
            phases[_PHASES[type(command)]].append(command)
        for command in phases[0]:
            call(_LIFECYCLE[type(command)], work, command)
        self._send(work, phases[1])
        for command in phases[2]:
            if isinstance(command, commands.Sweep):
                loader = Loader(work, self._needs)
                sweeping.sweep(work, command, loader, self._setting.retention_ms, housekeeping)
            elif isinstance(command, commands.Record):
                for note in command.notes:
                    work.journal.note(note, command.origin)
            else:
                call(_CHANGES[type(command)], work, command)
        takes = [command for command in phases[3] if isinstance(command, commands.Acquire)]
        if takes:
            acquiring.acquire(work, takes)
        for command in phases[3]:
            if isinstance(command, commands.AcquireDeferred):
                call(acquiring.acquire_deferred, work, command)
        for command in phases[4]:
            call(_READS[type(command)], work, command)

    def _send(self, work: PostgresWork, group: list[Command]) -> None:
        sends = [command for command in group if isinstance(command, commands.Send)]
        plain = [command for command in sends if not command.transfers]
        moves = [command for command in sends if command.transfers]
        publishes = [command for command in group if isinstance(command, commands.Publish)]
        if plain:
            sending.send(work, plain)
        if moves:
            transferring.send(work, moves)
        if publishes:
            publishing.publish(work, publishes)

    # After: the commit.

    def _commit(self, work: PostgresWork, others: bool) -> Done:
        hints = work.hints
        ready = hints.ready | set(hints.sessions)
        batch = work.closing(ready)
        has_journal = bool(work.journal)
        if has_journal:
            values = (work.now_ms, work.journal.encode(work.now_ms), self._setting.gateway)
            batch.append((dialect.JOURNAL, values))
        payload = payload_of(self._setting.gateway, hints) if others else None
        if payload is not None:
            batch.append((dialect.NOTIFY, (self._setting.schema, payload)))
        synced = any(map(_is_synced, self._group)) or (self._needs.sweeps and has_journal)
        if not synced:
            batch.append(("SET LOCAL synchronous_commit TO off", ()))
        failpoint("store.commit.before_sync")
        self._finish(batch)
        failpoint("store.commit.after_sync")
        hints.lost_sessions = [entry for entry in hints.lost_sessions if not entry[2] >> OWNER_BITS]
        return Done(hints, work.now_ms, self._memory.due_ms, synced, {queue >> 2 for queue in ready}, work.journal)

    def _finish(self, batch: list[Statement]) -> None:
        """Send the last statements and the commit together. Only the server's own word COMMIT means success."""
        warnings: list[str] = []
        handler = _warnings_into(warnings)
        self._connection.add_notice_handler(handler)
        try:
            with self._connection.pipeline():
                for statement in batch:
                    self._connection.execute(*statement)
                end = self._connection.execute("COMMIT")
        finally:
            self._connection.remove_notice_handler(handler)
        if end.statusmessage != "COMMIT":
            raise psycopg.DatabaseError(f"The transaction ended with {end.statusmessage}.")
        if warnings:
            # The server says so when it did not wait for its standby to the end.
            self._connection.close()
            raise psycopg.OperationalError(f"The commit is not certain: {warnings[0]}")


_BEGIN: Statement = ("BEGIN", ())


def create(work: PostgresWork, command: commands.Create) -> None:
    """Make an entity's queues; an entity that exists is left as it is."""
    entity_id = command.queue >> 2
    known = work.memory.entities.get(entity_id)
    if known is not None:
        if known.dropped:
            raise BusError(Fault.ENTITY_DELETED, "The entity was deleted, and its number is not used again.")
        if known.aside:
            raise BusError(Fault.ENTITY_EXISTS, "The number belongs to an entity that is set aside.")
        return
    entity = Entity(entity_id, command.settings)
    counts = counts_of(entity)
    work.run([(dialect.CREATE_ENTITY, (entity_id, lifecycle.settings_text(command.settings), counts))])
    work.memory.add(entity)
    work.counts[entity_id] = counts
    if command.name is not None:
        lifecycle.name(work, {entity_id: command.name})


def drop(work: PostgresWork, command: commands.Drop) -> None:
    """An entity is gone at once, with its locks; its rows follow."""
    for queue in lifecycle.to_drop(work, command).queues:
        for token, lock in list(queue.locks.items()):
            work.unlock(queue, token, lock, True)
    lifecycle.drop(work, command)


def renew(work: PostgresWork, command: commands.Renew) -> None:
    """Extend message locks, in memory and in their rows."""
    settling.renew(work, command)
    work.renewed(work.memory.queues[command.queue], command.tokens)


_LIFECYCLE.update(
    {
        commands.Create: create,
        commands.Configure: lifecycle.configure,
        commands.Drop: drop,
        quarantine.SetAside: quarantine.set_aside,
    }
)
_CHANGES[commands.Renew] = renew
# Phases of a commit, in order; within a phase commands run as they arrived.
_PHASES: dict[type[Command], int] = {
    **dict.fromkeys(_LIFECYCLE, 0),
    commands.Send: 1,
    commands.Publish: 1,
    **dict.fromkeys(_CHANGES, 2),
    commands.Sweep: 2,
    commands.Record: 2,
    commands.Acquire: 3,
    commands.AcquireDeferred: 3,
    **dict.fromkeys(_READS, 4),
}


def _is_synced(command: Command) -> bool:
    if isinstance(command, commands.Acquire | commands.AcquireDeferred):
        return command.mode is ReceiveMode.RECEIVE_AND_DELETE
    return not isinstance(command, _UNSYNCED)


def _warnings_into(warnings: list[str]) -> Callable[[psycopg.errors.Diagnostic], None]:
    def handler(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warnings.append(notice.message_primary or "")

    return handler
