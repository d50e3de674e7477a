"""A message on its way in, at rest and on its way out, as the store and the entities see it.

The record's bytes are opaque here: `wire.message` makes them from AMQP sections and turns them back.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class MessageState(IntEnum):
    """What a message at rest is waiting for; the numbers are those of `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class ReceiveMode(Enum):
    """PEEK_LOCK hands a message out under a lock; RECEIVE_AND_DELETE removes it before it leaves."""

    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


class Outcome(Enum):
    """What a receiver decided about a message that it holds."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"  # Given back untouched; counts no delivery.
    TRANSFER_DEAD_LETTER = "transfer-dead-letter"  # It could not be forwarded; only the broker decides so.


# The sequence number that a ping has for who scheduled it: it was never stored, and can be cancelled all the same.
PING_NUMBER = (1 << 63) - 1


class Incoming(NamedTuple):
    """A message that a sender wants stored."""

    record: bytes
    message_id: str
    session_id: str | None = None
    ttl_ms: int | None = None
    due_at_ms: int | None = None  # The scheduled enqueue time, if the sender gave one.
    partition_key: str | None = None
    is_ping: bool = False  # Checked and billed like any message, and never stored.

    def delayed_until(self, due_at_ms: int) -> Incoming:
        """The same message, not to be received before that."""
        return self._replace(due_at_ms=max(self.due_at_ms or 0, due_at_ms))


class Delivered(NamedTuple):
    """A message that leaves the store: locked, removed, or only looked at."""

    sequence_number: int
    record: bytes
    message_id: str
    delivery_count: int
    enqueued_at_ms: int
    state: MessageState = MessageState.ACTIVE
    token: bytes = b""  # The lock token in the byte order of a delivery tag; empty when nothing is locked.
    locked_until_ms: int = 0
    session_id: str | None = None
    overlay: bytes | None = None  # Replaces the application-properties section.
    reason: str | None = None  # Why the message was dead-lettered.
    description: str | None = None


class Settlement(NamedTuple):
    """One receiver's decision about one locked message."""

    token: bytes
    outcome: Outcome
    overlay: bytes | None = None
    reason: str | None = None
    description: str | None = None
    delay_ms: int = 0  # Abandoned with a delay, it waits as a scheduled message does, and then joins the end.


class SessionGrant(NamedTuple):
    """The exclusive hold of one receiver on one session."""

    session_id: str
    locked_until_ms: int


class Counts(NamedTuple):
    """How many messages an entity holds, by state, and their bytes."""

    active: int = 0
    deferred: int = 0
    scheduled: int = 0
    dead_letter: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0


class Origin(NamedTuple):
    """Who asked, for the journal."""

    connection: str
    client: str = ""
