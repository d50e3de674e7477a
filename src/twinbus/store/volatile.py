"""What a store keeps in memory: locks, cursors, held sessions, counts, and records that are about to be delivered.

Everything here is volatile by design and can be made anew from the database, except that locks are then lost. It knows
no SQL; the operations change it and write the lasting part through `store.plan`.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

from twinbus.model.address import SubQueue
from twinbus.store.commands import QueueSettings

RETURNED_LIMIT = 10_000
RECORD_OVERHEAD = 512  # What a record in memory costs beside its own bytes.
DAMAGED = 3  # Beside the values of MessageState: the body does not match its checksum.


class Stored(NamedTuple):
    """A message at rest, without its record. The order is that of `statements`' JSON arrays."""

    seq: int
    body: int
    message_id: str
    size: int
    delivery_count: int
    enqueued_at_ms: int
    expires_at_ms: int | None = None
    session: str | None = None
    state: int = 0
    due_at_ms: int | None = None
    overlay: bytes | None = None
    reason: str | None = None
    description: str | None = None


class Claim:
    """The locks that one commit gave out in one queue, as one row; the row goes when the last lock has gone."""

    __slots__ = ("count", "id", "queue")

    def __init__(self, claim_id: int, queue: int) -> None:
        self.id = claim_id
        self.queue = queue
        self.count = 0


class Line:
    """The messages of a queue, or of one session in it, in the order in which they are handed out.

    `ready` holds records in front of the receiver: everything available below `read_to` is there, in `returned`, or
    locked. From `read_to` on it is still to be read, unless `caught_up` says that there is nothing.
    """

    __slots__ = ("caught_up", "high", "read_to", "ready", "ready_bytes", "returned", "session")

    def __init__(self, session: str | None = None) -> None:
        self.session = session
        self.ready: deque[tuple[Stored, bytes]] = deque()
        self.ready_bytes = 0
        self.read_to = 1
        self.high = 1  # Nothing from here on was ever handed out.
        self.caught_up = False
        self.returned: list[int] = []

    def give_back(self, seq: int) -> None:
        """A message below `read_to` is available again; one above it will be found by reading."""
        if seq >= self.read_to:
            self.caught_up = False
            return
        heapq.heappush(self.returned, seq)
        if len(self.returned) > RETURNED_LIMIT:
            self.rewind(self.returned[0])

    def rewind(self, seq: int) -> None:
        """Forget what was read from a number on; it will be read again, past the locked ones."""
        if self.ready:
            seq = min(seq, self.ready[0][0].seq)
        if self.returned:
            seq = min(seq, self.returned[0])
        self.read_to = min(seq, self.read_to)
        self.caught_up = False
        self.ready.clear()
        self.ready_bytes = 0
        self.returned.clear()

    def forget(self, seq: int) -> None:
        """A message leaves otherwise than through this line; it must not be handed out from memory."""
        if self.ready and self.ready[0][0].seq <= seq < self.read_to:
            self.rewind(self.ready[0][0].seq)

    @property
    def has_more(self) -> bool:
        """Whether another acquire may find something."""
        return bool(self.ready or self.returned or not self.caught_up)


class Hold(Line):
    """A session that a link holds, with its own line of messages."""

    __slots__ = ("holder", "owner", "tokens", "until_ms")

    def __init__(self, session: str, owner: int, holder: int, until_ms: int) -> None:
        super().__init__(session)
        self.owner = owner
        self.holder = holder
        self.until_ms = until_ms
        self.tokens: set[bytes] = set()


class Lock:
    """One locked message. In a session its end is the session's."""

    __slots__ = ("claim", "hold", "message", "owned", "until_ms")

    def __init__(self, message: Stored, until_ms: int, owned: set[bytes], claim: Claim, hold: Hold | None) -> None:
        self.message = message
        self.until_ms = until_ms
        self.owned = owned  # The tokens of the same owner in the same queue.
        self.claim = claim
        self.hold = hold


class Queue:
    """One queue's row and its volatile state."""

    __slots__ = (
        "active",
        "bytes",
        "damaged",
        "deferred",
        "disk_tail",
        "entity",
        "holds",
        "id",
        "line",
        "locks",
        "next_seq",
        "owners",
        "scheduled",
        "sub",
    )

    def __init__(self, queue_id: int, entity: Entity) -> None:
        self.id = queue_id
        self.sub = queue_id & 3
        self.entity = entity
        self.next_seq = 1
        self.disk_tail = 1  # Rows from here on are not in the database yet.
        self.active = self.deferred = self.scheduled = self.damaged = self.bytes = 0
        self.line = Line()
        # In order of expiry, because a lock that is taken or renewed goes to the end and the duration is the same.
        self.locks: dict[bytes, Lock] = {}
        self.owners: dict[int, set[bytes]] = {}
        self.holds: dict[str, Hold] = {}

    @property
    def in_sessions(self) -> bool:
        """Whether messages are handed out by session only; a dead-letter queue never does that."""
        return self.entity.settings.requires_session and self.sub == SubQueue.MAIN

    def line_of(self, session: str | None) -> Line | None:
        """The line in which a message waits; None for a session that nobody holds."""
        if not self.in_sessions:
            return self.line
        return self.holds.get(session) if session is not None else None

    def locked_numbers(self) -> set[int]:
        """The sequence numbers that are locked; for what happens seldom, so that the hot path need not keep them."""
        return {lock.message.seq for lock in self.locks.values()}

    def count(self, state: int, change: int) -> None:
        """Keep the count by state."""
        if state == 0:
            self.active += change
        elif state == 1:
            self.deferred += change
        elif state == 2:
            self.scheduled += change
        else:
            self.damaged += change

    def row(self) -> list[int]:
        """The row as `statements` writes it."""
        return [self.id, self.next_seq, self.active, self.deferred, self.scheduled, self.damaged, self.bytes]


class Entity:
    """The queues that share settings and a quota."""

    __slots__ = ("aside", "dropped", "id", "queues", "settings")

    def __init__(self, entity_id: int, settings: QueueSettings) -> None:
        self.id = entity_id
        self.settings = settings
        self.dropped = False
        self.aside = False  # The catalog does not know it: it stays as it is.
        self.queues = tuple(Queue(entity_id * 4 + sub, self) for sub in range(3))

    @property
    def bytes(self) -> int:
        """What counts against the quota."""
        return sum(queue.bytes for queue in self.queues)


class Memory:
    """All of a store's volatile state, and the counters that survive only because nothing reuses their numbers."""

    def __init__(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        self.cached = 0
        self.entities: dict[int, Entity] = {}
        self.queues: dict[int, Queue] = {}
        self.next_body = 1
        self.next_shared = -1  # Bodies that copies share are numbered downwards.
        self.next_journal = 1
        self.next_claim = 1
        self.due_ms: int | None = None

    def add(self, entity: Entity) -> None:
        """Take up an entity."""
        self.entities[entity.id] = entity
        for queue in entity.queues:
            self.queues[queue.id] = queue

    def due(self, at_ms: int | None) -> None:
        """Something will want a sweep at an instant."""
        if at_ms is not None and (self.due_ms is None or at_ms < self.due_ms):
            self.due_ms = at_ms

    def make_room(self, line: Line, size: int) -> bool:
        """Whether a line may keep more in memory. When the cache is full, the lines that hold most give theirs up.

        A line that is itself the largest is told no: what it holds is what its receivers will want first.
        """
        if self.cached + size <= self.cache_bytes:
            return True
        lines = [line for queue in self.queues.values() for line in (queue.line, *queue.holds.values()) if line.ready]
        self.cached = sum(line.ready_bytes for line in lines)
        for largest in sorted(lines, key=lambda line: line.ready_bytes, reverse=True):
            if largest is line or self.cached + size <= self.cache_bytes:
                break
            self.cached -= largest.ready_bytes
            largest.rewind(largest.ready[0][0].seq)
        return self.cached + size <= self.cache_bytes
