"""One commit in the making on PostgreSQL: what its operations have planned, and the statements that write and read.

The operations of the store work on memory and a plan as in the embedded store; only that memory here lasts for one
commit, and holds what `loading` has read under the rows that rule the entities.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from twinbus.model.logged import EventLog
from twinbus.sql.postgres import Connection, Row, integers
from twinbus.store import statements
from twinbus.store.plan import Plan
from twinbus.store.postgres import dialect
from twinbus.store.postgres.dialect import DIALECT
from twinbus.store.postgres.text import from_json, from_text, stored, to_json, to_text
from twinbus.store.postgres.writing import Statement, counts_of, set_counts, statements_of
from twinbus.store.statements import SEQ_BITS
from twinbus.store.volatile import Claim, Hold, Lock, Memory, Queue, Stored
from twinbus.store.work import Page, TokenSource, Work

_log = EventLog(__name__)

OWNER_BITS = 32
_JSON_ASKED = {statements.KNOWN_DUPLICATES}  # Their values have texts inside of JSON.
_JSON_RESULTS = {
    statements.KNOWN_DUPLICATES,
    statements.KNOWN_TRANSFERS,
    statements.SESSIONS,
    statements.SESSIONS_CHANGED,
}


class GatewayTokens:
    """Gives out numbers for locks: the gateway's, which is never used again, and a counter."""

    def __init__(self, gateway: int) -> None:
        self._next = gateway << SEQ_BITS

    def take(self, count: int) -> range:
        """The next numbers."""
        self._next += count
        return range(self._next - count, self._next)


def token_of(lock_id: int, seq: int) -> bytes:
    """A lock's token names the lock and the message, so that it is found by the message's key."""
    return lock_id.to_bytes(8, "big") + seq.to_bytes(8, "big")


class Held(Lock):
    """A lock as its row says."""

    __slots__ = ("stored_until_ms",)

    def __init__(self, message: Stored, until_ms: int, owned: set[bytes], hold: Hold | None) -> None:
        super().__init__(message, until_ms, owned, _NO_CLAIM, hold)
        self.stored_until_ms = until_ms


_NO_CLAIM = Claim(0, 0)  # The row is the claim.


class _Answer:
    """The first row of an answer, in the manner in which the operations ask for it."""

    def __init__(self, row: Row | None, is_json: bool) -> None:
        self._row = row
        self._is_json = is_json

    @property
    def get(self) -> Any:
        value = None if self._row is None else self._row[0]
        if isinstance(value, str):
            return from_json(value) if self._is_json else from_text(value)
        return value

    def fetchone(self) -> Row | None:
        return self._row


class Reader:
    """The database as the operations see it: named statements, said in its own dialect."""

    def __init__(self, connection: Connection, memory: Memory) -> None:
        self._connection = connection
        self._memory = memory
        self._changes = 0

    def rows(self, statement: str, values: Any) -> list[Row]:
        """All rows of a named statement."""
        if statement in _JSON_ASKED:
            values = [to_json(json.loads(value)) for value in values]
        cursor = self._connection.execute(DIALECT[statement], self._values(values), binary=True)
        self._changes = cursor.rowcount
        return cursor.fetchall() if cursor.description is not None else []

    def execute(self, statement: str, values: Any = ()) -> _Answer:
        """The first row of a named statement."""
        rows = self.rows(statement, values)
        return _Answer(rows[0] if rows else None, statement in _JSON_RESULTS)

    def changes(self) -> int:
        """How many rows the last statement changed."""
        return self._changes

    def _values(self, values: Any) -> Any:
        if isinstance(values, dict):
            entities = integers(list(self._memory.entities))
            return {"entities": entities, **{name: _sent(value) for name, value in values.items()}}
        return [_sent(value) for value in values]


def _sent(value: Any) -> Any:
    return to_text(value) if isinstance(value, str) else value


class PostgresWork(Work):
    """What the operations of one commit share."""

    database: Any

    def __init__(self, connection: Connection, memory: Memory, now_ms: int, gateway: int, locks: GatewayTokens) -> None:
        super().__init__(Reader(connection, memory), memory, now_ms, TokenSource(bytes(8)))  # type: ignore[arg-type]
        self.connection = connection
        self.gateway = gateway
        self.is_writable = True  # Whether the commit holds its entities' rows.
        self.lock_ids = locks
        self.counts: dict[int, str] = {}  # As they are in the database.
        self.holds: dict[tuple[int, str], tuple[int, int, int]] = {}  # Likewise.
        self.swept = False  # Whether this commit won the right to sweep.
        self._unlocked: list[int] = []
        self._locked: list[tuple[int, int, int | None, int, str | None]] = []
        self._renewed: dict[int, list[int]] = {}

    # Numbers of connections and links are a gateway's own; in the rows they are told apart.

    def shared(self, number: int) -> int:
        """A connection's or link's number as the rows have it."""
        return self.gateway << OWNER_BITS | number if number < 1 << OWNER_BITS else number

    def own(self, number: int) -> int:
        """A number from a row; one of this gateway is as small as it was, one of another stays large."""
        return number & (1 << OWNER_BITS) - 1 if number >> OWNER_BITS == self.gateway else number

    # Locks.

    def unlock(self, queue: Queue, token: bytes, lock: Lock, counted: bool) -> None:
        """A lock ends."""
        del queue.locks[token]
        lock.owned.discard(token)
        if lock.hold is not None:
            lock.hold.tokens.discard(token)
        self._unlocked.append(queue.id << SEQ_BITS | lock.message.seq)

    def lock(self, queue: Queue, messages: list[Stored], owner: int, until_ms: int, hold: Hold | None) -> list[bytes]:
        """Messages are handed out; their tokens."""
        ids = self.lock_ids.take(len(messages))
        owner = self.shared(owner)
        session = None if hold is None else hold.session
        until = until_ms if hold is None else None
        name = queue.id << SEQ_BITS
        self._locked += [
            (name | message.seq, number, until, owner, session) for number, message in zip(ids, messages, strict=True)
        ]
        return [token_of(number, message.seq) for number, message in zip(ids, messages, strict=True)]

    def renewed(self, queue: Queue, tokens: list[bytes]) -> None:
        """Locks may last longer than their rows say."""
        for token in tokens:
            lock = queue.locks.get(token)
            if isinstance(lock, Held) and lock.hold is None and lock.until_ms != lock.stored_until_ms:
                lock.stored_until_ms = lock.until_ms
                self._renewed.setdefault(lock.until_ms, []).append(queue.id << SEQ_BITS | lock.message.seq)

    # Writing.

    def pending(self) -> list[Statement]:
        """What is planned and not written yet, except for the rows that rule the entities; afterwards nothing is."""
        plan, memory = self.plan, self.memory
        made = statements_of(plan, self.now_ms)
        if self._unlocked:
            made.append((dialect.UNLOCK, (integers(self._unlocked),)))
        if self._locked:
            names, ids, untils, owners, sessions = (list(column) for column in zip(*self._locked, strict=True))
            columns = (integers(names), integers(ids), integers(untils), integers(owners), to_json(sessions))
            made.append((dialect.LOCK, columns))
        for until_ms, names in self._renewed.items():
            made.append((dialect.RENEW, (until_ms, integers(names))))
        made += self._hold_changes()
        memory.next_body += len(plan.cuts)
        memory.next_shared -= len(plan.shared_cuts)
        self.plan = Plan(memory.next_body, memory.next_shared)
        self._unlocked, self._locked, self._renewed = [], [], {}
        return made

    def _hold_changes(self) -> list[Statement]:
        now = {
            (queue.id, session): (self.shared(hold.owner), self.shared(hold.holder), hold.until_ms)
            for queue in self.memory.queues.values()
            for session, hold in queue.holds.items()
        }
        ended = [key for key in self.holds if key not in now]
        changed = [(*key, *value) for key, value in now.items() if self.holds.get(key) != value]
        self.holds = now
        made: list[Statement] = []
        if ended:
            queues, sessions = zip(*ended, strict=True)
            made.append((dialect.END_HOLDS, (integers(queues), to_json(sessions))))
        if changed:
            queues, sessions, *numbers = zip(*changed, strict=True)
            made.append((dialect.SET_HOLDS, (integers(queues), to_json(sessions), *map(integers, numbers))))
        return made

    def run(self, batch: list[Statement]) -> list[list[Row]]:
        """Send statements together and wait once; their rows."""
        if not batch:
            return []
        if len(batch) == 1:
            cursor = self.connection.execute(*batch[0], binary=True)
            return [cursor.fetchall() if cursor.description is not None else []]
        with self.connection.pipeline():
            cursors = [self.connection.execute(*statement, binary=True) for statement in batch]
        return [cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]

    def execute(self, statement: str, values: Any = ()) -> Any:
        """Run a named statement of a rare operation, after what is planned; its first value if any."""
        self.flush()
        return self.database.execute(statement, values).get

    def flush(self) -> None:
        """Write what is planned so far, so that reading sees it."""
        self.run(self.pending())

    def closing(self, changed: set[int]) -> list[Statement]:
        """The rest, with the rows that rule the entities; `changed` are queues in which something may be available."""
        made = self.pending()
        entities = {queue >> 2 for queue in changed}
        dirty = [
            entity
            for entity in self.memory.entities.values()
            if self.counts.get(entity.id) != counts_of(entity) or entity.id in entities
        ]
        if dirty:
            made.append(set_counts(dirty, entities))
        return made

    # Reading.

    def read(self, queue: Queue, statement: str, **values: Any) -> Page:
        """Messages with their records. One that does not match its checksum is left out and set aside."""
        rows = self.database.rows(statement, {"queue": queue.id, **values})
        candidates = rows[0][-1] if rows else 0
        return self.page(queue, [row[:-1] for row in rows], candidates, values["limit"])

    def page(self, queue: Queue, rows: list[Row], candidates: int, limit: int) -> Page:
        """A page of rows that are a message's state and its body."""
        page = Page([], [], len(rows) < candidates, candidates < limit)
        for row in rows:
            message, data = stored(row[:-1]), row[-1]
            record = data[4:]
            if zlib.crc32(record) == int.from_bytes(data[:4], "big"):
                page.messages.append((message, record))
            else:
                page.damaged.append(message)
        if page.damaged:
            self._set_aside(queue, page.damaged)
        return page

    def _set_aside(self, queue: Queue, messages: list[Stored]) -> None:
        if self.is_writable:
            super()._set_aside(queue, messages)
        else:
            _log.error(
                "message.damaged",
                "queue {queue}: messages {numbers} do not match their checksums",
                queue=queue.id,
                numbers=[m.seq for m in messages],
            )

    def row(self, statement: str, values: Any) -> tuple[Any, ...]:
        """The one row of an aggregating statement."""
        row = self.database.execute(statement, values).fetchone()
        assert row is not None
        return tuple(row)

    def states(self, queue: Queue, statement: str, **values: Any) -> list[Stored]:
        """Messages without their records."""
        return [stored(row) for row in self.database.rows(statement, {"queue": queue.id, **values})]

    def due_states(self, statement: str, limit: int) -> list[tuple[int, Stored]]:
        """Messages of the entities that the commit holds that are due, each with its queue."""
        rows = self.database.rows(statement, {"now_ms": self.now_ms, "limit": limit})
        return [(row[0], stored(row[1:])) for row in rows]
