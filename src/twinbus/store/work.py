"""One commit in the making: the time, what is planned, what is journaled, and how to read while things are planned.

The operations decide on memory and fill the plan; this writes it. Which operation runs when is `store.sqlite`'s choice.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.model.failpoints import failpoint
from twinbus.model.logged import EventLog
from twinbus.model.message import Origin
from twinbus.store.commands import Command, Hints
from twinbus.store.journal import JournalPage
from twinbus.store.plan import Plan
from twinbus.store.volatile import DAMAGED, Claim, Lock, Memory, Queue, Stored

_log = EventLog(__name__)

BROKER = Origin("", "broker")  # Who is journaled where time or the store itself did something.

Readout = list[tuple[Stored, bytes]]


class Page(NamedTuple):
    """Messages as the database gave them."""

    messages: Readout
    damaged: list[Stored]
    cut: bool  # More were there, but they would have been too many bytes.
    short: bool  # Fewer were there than asked for.


class Work:
    """What the operations of one commit share."""

    def __init__(self, database: apsw.Connection, memory: Memory, now_ms: int, tokens: TokenSource) -> None:
        self.database = database
        self.memory = memory
        self.now_ms = now_ms
        self.tokens = tokens
        self.hints = Hints()
        self.journal = JournalPage()
        self.plan = Plan(memory.next_body, memory.next_shared)
        self._began = False
        self._reclaimed: set[Claim] = set()

    def queue_of(self, command: Command) -> Queue:
        """The queue that a command is about, or the reason why there is none."""
        queue = self.memory.queues.get(command.queue)
        if queue is None:
            raise BusError(Fault.ENTITY_NOT_FOUND, f"The store holds no queue with number {command.queue}.")
        if queue.entity.dropped:
            raise BusError(Fault.ENTITY_DELETED, "The entity was deleted.")
        return queue

    # Writing.

    def touch(self, queue: Queue) -> None:
        """A queue's row must be written."""
        self.plan.dirty[queue.id] = queue

    def execute(self, statement: str, values: Any = ()) -> Any:
        """Run a statement of a rare operation inside the commit, after what is planned; its first value if any."""
        self.flush()
        self._begin()
        return self.database.execute(statement, values).get

    def flush(self) -> None:
        """Write what is planned so far, so that reading sees it. The commit itself comes later."""
        if self.plan or self._reclaimed:
            self._begin()
            self._apply(None)

    def finish(self) -> bool:
        """Write the rest with the journal and commit; False when there was nothing to write.

        Without a transaction of several steps this is one step.
        """
        if not (self.plan or self._reclaimed or self.journal or self._began):
            return False
        failpoint("store.commit.before_sync")
        if self.plan or self._reclaimed or self.journal:
            self._apply(self.journal.encode(self.now_ms) if self.journal else None)
        if self._began:
            self.database.execute("COMMIT")
            self._began = False
        failpoint("store.commit.after_sync")
        return True

    def _begin(self) -> None:
        if not self._began:
            self.database.execute("BEGIN IMMEDIATE")
            self._began = True

    def _apply(self, journal: bytes | None) -> None:
        plan, memory = self.plan, self.memory
        self._rewrite_claims()
        self.database.execute(*plan.statement(self.now_ms, memory.next_journal, journal))
        memory.next_body += len(plan.cuts)
        memory.next_shared -= len(plan.shared_cuts)
        if journal is not None:
            memory.next_journal += 1
        for queue in plan.dirty.values():
            queue.disk_tail = queue.next_seq
        self.plan = Plan(memory.next_body, memory.next_shared)

    # Claims.

    def claim(self, queue: Queue, messages: list[Stored]) -> Claim:
        """Enter messages that are about to be locked in the queue's claim of this commit."""
        entry = self.plan.claims.get(queue.id)
        if entry is None:
            entry = self.plan.claims[queue.id] = (Claim(self.memory.next_claim, queue.id), [])
            self.memory.next_claim += 1
        claim, held = entry
        claim.count += len(messages)
        held.extend([(message.seq, message.delivery_count) for message in messages])
        return claim

    def unlock(self, queue: Queue, token: bytes, lock: Lock, counted: bool) -> None:
        """A lock ends. Uncounted, its claim must no longer say that the message was out."""
        del queue.locks[token]
        lock.owned.discard(token)
        if lock.hold is not None:
            lock.hold.tokens.discard(token)
        claim = lock.claim
        claim.count -= 1
        if claim.count == 0:
            self.plan.unclaimed.append(claim.id)
            self._reclaimed.discard(claim)
        elif not counted:
            self._reclaimed.add(claim)

    def _rewrite_claims(self) -> None:
        if not self._reclaimed:
            return
        for claim in self._reclaimed:
            held = [
                (lock.message.seq, lock.message.delivery_count)
                for lock in self.memory.queues[claim.queue].locks.values()
                if lock.claim is claim
            ]
            self.plan.unclaimed.append(claim.id)
            self.plan.claims[-claim.id] = (claim, held)
        self._reclaimed.clear()

    # Reading.

    def read(self, queue: Queue, statement: str, **values: Any) -> Page:
        """Messages with their records. One that does not match its checksum is left out and set aside."""
        states, blob, count, candidates = self.row(statement, {"queue": queue.id, **values})
        candidates = candidates or 0
        page = Page([], [], count < candidates, candidates < values["limit"])
        at = 0
        for state in json.loads(states):
            message = stored(state)
            end = at + 4 + message.size
            record = blob[at + 4 : end]
            if zlib.crc32(record) == int.from_bytes(blob[at : at + 4], "big"):
                page.messages.append((message, record))
            else:
                page.damaged.append(message)
            at = end
        if page.damaged:
            self._set_aside(queue, page.damaged)
        return page

    def row(self, statement: str, values: Any) -> tuple[Any, ...]:
        """The one row of an aggregating statement."""
        row = self.database.execute(statement, values).fetchone()
        assert isinstance(row, tuple)
        return row

    def states(self, queue: Queue, statement: str, **values: Any) -> list[Stored]:
        """Messages without their records."""
        text = self.database.execute(statement, {"queue": queue.id, **values}).get
        return [stored(state) for state in json.loads(text)]

    def due_states(self, statement: str, limit: int) -> list[tuple[int, Stored]]:
        """Messages of any queue that are due, without their records, each with its queue."""
        text = self.database.execute(statement, {"now_ms": self.now_ms, "limit": limit}).get
        return [(row[0], stored(row[1:])) for row in json.loads(text)]

    def _set_aside(self, queue: Queue, messages: list[Stored]) -> None:
        """Mark messages whose records are damaged, so that they stay as evidence and do not stop the queue.

        A locked one is left to its receiver, who has a good copy or none.
        """
        locked = queue.locked_numbers()
        for message in messages:
            _log.error(
                "message.damaged",
                "queue {queue}: message {number} does not match its checksum",
                queue=queue.id,
                number=message.seq,
            )
            if message.seq in locked:
                continue
            line = queue.line_of(message.session)
            if line is not None:
                line.forget(message.seq)
            queue.count(message.state, -1)
            queue.count(DAMAGED, 1)
            self.touch(queue)
            self.plan.replace(queue.id, message.seq, queue.id, message._replace(state=DAMAGED))
            self.journal.add("damaged", queue.id, BROKER, columns_of([message]))


class TokenSource:
    """Gives out lock tokens: the store's epoch and a counter, so that no token is ever given out twice.

    The ninth byte is always zero: there a partitioned entity notes the fragment.
    """

    __slots__ = ("_counter", "_epoch")

    def __init__(self, epoch: bytes) -> None:
        if len(epoch) != 8:
            raise ValueError("an epoch has 8 bytes")
        self._epoch = epoch
        self._counter = 0

    def take(self, count: int) -> list[bytes]:
        """The next tokens, 16 bytes each."""
        first = self._counter + 1
        self._counter += count
        epoch = self._epoch
        return [epoch + number.to_bytes(8, "big") for number in range(first, first + count)]


def stored(state: list[Any]) -> Stored:
    """A message from its JSON array."""
    if state[10] is not None:
        state[10] = bytes.fromhex(state[10])
    return Stored._make(state)


def columns_of(messages: list[Stored]) -> tuple[list[str], list[int], list[int], list[int]]:
    """The journal's columns: ids, numbers, delivery counts, sizes."""
    return (
        [message.message_id for message in messages],
        [message.seq for message in messages],
        [message.delivery_count for message in messages],
        [message.size for message in messages],
    )
