"""What a group of commands needs to know before it is decided, read in one go under the rows that rule its entities.

Whoever changes anything of an entity holds its row, taken in order of ids; so what is read here stays true until the
commit, and no two gateways wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable

from twinbus.sql.postgres import Row, integers
from twinbus.store import commands, range_commands
from twinbus.store.commands import Command, Publish, Send
from twinbus.store.lifecycle import settings_of
from twinbus.store.postgres import dialect
from twinbus.store.postgres.schema import COUNTERS
from twinbus.store.postgres.text import from_text, stored, to_json
from twinbus.store.postgres.work import Held, PostgresWork, token_of
from twinbus.store.postgres.writing import Statement
from twinbus.store.quarantine import Remember, SetAside, Witness
from twinbus.store.surveying import Survey
from twinbus.store.volatile import Entity, Hold, Queue

_IN_SESSION = (
    commands.Acquire,
    commands.AcquireDeferred,
    commands.RenewSession,
    commands.SetSessionState,
)
_WITH_SESSION_LOCKS = (commands.AcceptSession, commands.ReleaseSession)
_READS = (
    commands.Peek,
    commands.Inspect,
    commands.Count,
    commands.GetSessionState,
    commands.ListSessions,
    Survey,
    Remember,
)
_OF_NO_QUEUE = (
    Survey,
    commands.DropLocks,
    commands.Sweep,
    commands.Record,
    commands.Forget,
    commands.Introduce,
    SetAside,
    Remember,
    Witness,
    range_commands.CloseRange,
    range_commands.FinishRange,
    range_commands.Trim,
)


class Needs:
    """The rows that a group of commands is about."""

    def __init__(self, group: Iterable[Command]) -> None:
        self.entities: set[int] = set()
        self.tokens: set[tuple[int, bytes]] = set()
        self.sessions: set[tuple[int, str]] = set()
        self.ending_sessions: set[tuple[int, str]] = set()
        self.free_sessions_in: set[int] = set()
        self.whole: set[int] = set()
        self.owners: set[int] = set()
        self.writes = False
        self.sweeps = False
        for command in group:
            self._add(command)

    def _add(self, command: Command) -> None:
        queue = command.queue
        if not isinstance(command, _READS):
            self.writes = True
        if not isinstance(command, _OF_NO_QUEUE):
            self.entities.add(queue >> 2)
        if isinstance(command, Send | Publish):
            self._transfers(command)
        elif isinstance(command, commands.Complete | commands.Renew | commands.Inspect):
            self.tokens.update((queue, token) for token in command.tokens)
        elif isinstance(command, commands.Settle):
            self.tokens.update((queue, settlement.token) for settlement in command.settlements)
        elif isinstance(command, _IN_SESSION):
            if command.session is not None:
                self.sessions.add((queue, command.session))
        elif isinstance(command, _WITH_SESSION_LOCKS):
            if command.session is None:
                self.free_sessions_in.add(queue)
            else:
                self.ending_sessions.add((queue, command.session))
        elif isinstance(command, commands.Configure | commands.Drop):
            self.whole.add(queue >> 2)
        elif isinstance(command, SetAside | Remember):
            self.entities.update(command.entities)
        elif isinstance(command, commands.DropLocks):
            self.owners.add(command.owner)
        elif isinstance(command, commands.Sweep):
            self.sweeps = True

    def _transfers(self, command: Send | Publish) -> None:
        for transfer in command.transfers:
            if transfer.token:
                self.entities.add(transfer.queue >> 2)
                self.tokens.add((transfer.queue, transfer.token))
        if isinstance(command, Publish):
            self.entities.update(
                copy.queue >> 2 for unit in command.units for publication in unit for copy in publication.copies
            )


def entity_of(row: Row) -> Entity:
    """An entity from the row that rules it."""
    entity_id, settings, dropped, counts, *more = row
    entity = Entity(entity_id, settings_of(settings))
    entity.dropped = dropped
    entity.aside = bool(more and more[0])
    for queue in entity.queues:
        at = queue.sub * len(COUNTERS)
        queue.next_seq, queue.active, queue.deferred, queue.scheduled, queue.damaged, queue.bytes, head = counts[
            at : at + len(COUNTERS)
        ]
        queue.line.read_to = queue.line.high = head
    return entity


class Loader:
    """Fills a commit's memory."""

    def __init__(self, work: PostgresWork, needs: Needs) -> None:
        self._work = work
        self._needs = needs

    def locks(self) -> list[Statement]:
        """The statements that find the locks which the commands name, or may end."""
        needs = self._needs
        made: list[Statement] = []
        keys = [(queue, *_parts(token)) for queue, token in needs.tokens if _is_token(token)]
        if keys:
            made.append((dialect.LOCKS_BY_TOKEN, tuple(integers(column) for column in zip(*keys, strict=True))))
        if needs.owners:
            owners = integers([self._work.shared(owner) for owner in needs.owners])
            made.append((dialect.LOCKS_OF_OWNERS, (owners, integers(list(needs.entities)))))
        if needs.whole:
            made.append((dialect.LOCKS_OF_ENTITIES, (integers(list(needs.whole)),)))
        if needs.ending_sessions:
            made.append((dialect.LOCKS_OF_SESSIONS, names_of(needs.ending_sessions)))
        return made

    def holds(self) -> list[Statement]:
        """The statements that find the held sessions which the commands name, or may end."""
        needs = self._needs
        made: list[Statement] = []
        names = needs.sessions | needs.ending_sessions
        if names:
            made.append((dialect.HOLDS_BY_NAME, names_of(names)))
        if needs.owners:
            owners = integers([self._work.shared(owner) for owner in needs.owners])
            made.append((dialect.HOLDS_OF_OWNERS, (owners, integers(list(needs.entities)))))
        if needs.whole:
            made.append((dialect.HOLDS_OF_ENTITIES, (integers(list(needs.whole)),)))
        return made

    def take_holds(self, rows: Iterable[Row]) -> list[Hold]:
        """Put held sessions into memory; those that were not there yet."""
        new: list[Hold] = []
        for queue_id, name, owner, holder, until_ms in rows:
            queue = self._queue(queue_id)
            session = from_text(name)
            if queue is None or session in queue.holds:
                continue
            hold = Hold(session, self._work.own(owner), self._work.own(holder), until_ms)
            queue.holds[session] = hold
            self._work.holds[queue_id, session] = (owner, holder, until_ms)
            new.append(hold)
        return new

    def take_locks(self, rows: Iterable[Row]) -> None:
        """Put locks into memory, behind the holds that they belong to."""
        orphans: list[tuple[Queue, bytes, Row]] = []
        for row in rows:
            queue = self._queue(row[0])
            if queue is None:
                continue
            token = token_of(row[1], row[5])
            if token in queue.locks:
                continue
            session = None if row[4] is None else from_text(row[4])
            if session is not None and session not in queue.holds:
                orphans.append((queue, token, row))
            else:
                self._put(queue, token, row, None if session is None else queue.holds[session])
        if orphans:
            names = {(queue.id, from_text(row[4])) for queue, _, row in orphans}
            [holds] = self._work.run([(dialect.HOLDS_BY_NAME, names_of(names))])
            self.take_holds(holds)
            for queue, token, row in orphans:
                # A lock without its hold should not be; it is over.
                self._put(queue, token, row, queue.holds.get(from_text(row[4])))

    def _put(self, queue: Queue, token: bytes, row: Row, hold: Hold | None) -> None:
        _, _, until_ms, owner, _, *state = row
        owned = queue.owners.setdefault(self._work.own(owner), set())
        owned.add(token)
        if hold is not None:
            hold.tokens.add(token)
            until_ms = hold.until_ms
        queue.locks[token] = Held(stored(tuple(state)), until_ms or 0, owned, hold)

    def _queue(self, queue_id: int) -> Queue | None:
        return self._work.memory.queues.get(queue_id)


def _is_token(token: bytes) -> bool:
    return len(token) == 16 and token[8] == 0 and token[0] < 0x80


def _parts(token: bytes) -> tuple[int, int]:
    """The message's number and the lock's."""
    return int.from_bytes(token[8:], "big"), int.from_bytes(token[:8], "big")


def names_of(names: Iterable[tuple[int, str]]) -> tuple[str, str]:
    queues, sessions = zip(*names, strict=True)
    return integers(queues), to_json(sessions)
