"""The named transactions of a messaging store, as values: what is asked, and what came of it.

A command is filled in by `Store.commit`, which leaves either `result` or `error` in it; who waits for a command and how
is the caller's business (`sql.group` hands finished commands back).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from twinbus.model.errors import BusError
from twinbus.model.message import Counts, Delivered, Incoming, Origin, ReceiveMode, SessionGrant, Settlement

NOBODY = Origin("")
ACQUIRE_BYTES_MAX = 4 * 1024 * 1024


class QueueSettings(NamedTuple):
    """The part of an entity's description that its store enforces."""

    lock_duration_ms: int = 30_000
    max_delivery_count: int = 10
    dead_letter_on_expiry: bool = False
    duplicate_window_ms: int = 0  # 0: no duplicate detection.
    requires_session: bool = False
    max_size_bytes: int = 1024 * 1024 * 1024
    keyed_duplicates: bool = False  # A duplicate has the same id and the same partition key (partitioned entities).


@dataclass(slots=True, eq=False, kw_only=True)
class Command:
    """What every command has: the queue it is about, who asked, and who is told when it is durable."""

    queue: int  # The entity's id times four, plus its SubQueue.
    origin: Origin = NOBODY
    done: Callable[[Any], None] | None = None
    error: BusError | None = None


class EntityName(NamedTuple):
    """What the journal's readers call an entity, or one fragment of a partitioned one."""

    path: str
    kind: str  # queue, topic, subscription or hybrid.
    fragment: int = 0
    document: str | None = None  # As the catalog describes it; None before it is there.


@dataclass(slots=True, eq=False, kw_only=True)
class Create(Command):
    """Make an entity's queues (main and dead-letter); creating it twice is a no-op."""

    settings: QueueSettings
    name: EntityName | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class Introduce(Command):
    """Keep the names of entities for the journal's readers; one that has a name keeps it. `queue` is ignored.

    Those that are `gone` are forgotten when the journal speaks of them no more, as dropped ones are by themselves.
    """

    names: dict[int, EntityName] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class Configure(Command):
    """Change an entity's settings. Its locks are dropped and a delivery is counted for each."""

    settings: QueueSettings


@dataclass(slots=True, eq=False, kw_only=True)
class Drop(Command):
    """Remove an entity with all its messages; the rows are freed by later sweeps in chunks."""

    only_aside: bool = False  # Refuse one that is served: whoever asks has seen it set aside, and may be late.


@dataclass(slots=True, eq=False, kw_only=True)
class Count(Command):
    """Tell how many messages the entity holds (main queue and dead-letter queue together).

    Besides, for whoever watches it: the number that its last message got, and how many are locked as far as this
    store knows in memory.
    """

    result: Counts | None = None
    last_number: int = 0
    locked: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Weigh(Command):
    """Tell what the store created, ended and holds since it was opened (`balance.Balance`). `queue` is ignored.

    For stores of one process; one that several gateways share knows only what it did itself.
    """

    result: Any = None


class Transfer(NamedTuple):
    """The message that a unit was made from: it moves here from another queue, and must neither be lost nor doubled.

    With a token its queue is on this store: the lock is completed in the same transaction, or the unit is refused
    because the lock is lost. Without one it is on another store: this store remembers queue and number with the
    message, and the same transfer once more changes nothing (its number is then 0) until `Forget`. Duplicate detection
    applies to what comes from another entity (a duplicate leaves its source, too), not to a move inside of one.
    """

    queue: int
    sequence_number: int
    token: bytes = b""


@dataclass(slots=True, eq=False, kw_only=True)
class Send(Command):
    """Store the deliveries of one link. Each unit is stored whole or refused whole.

    A result is the list of the unit's sequence numbers (0 for a message dropped as a duplicate) or the reason for the
    refusal. With transfers, one for each unit, each unit is one message.
    """

    units: list[list[Incoming]]
    transfers: list[Transfer] = field(default_factory=list)
    result: list[list[int] | BusError] = field(default_factory=list)


class Copy(NamedTuple):
    """Where one copy of a published message goes, and how it differs from what was sent."""

    queue: int  # A subscription's queue, or its dead-letter queue when a filter failed.
    message_id: str
    session_id: str | None = None
    ttl_ms: int | None = None
    overlay: bytes | None = None
    record: bytes | None = None  # A record of its own, where more than application properties changed.
    reason: str | None = None
    description: str | None = None


class Publication(NamedTuple):
    """One message of a topic with its copies; their records are stored once.

    With a due time and no copies it waits in the topic's own queue, even if its time came on the way to the store.
    """

    message: Incoming
    copies: list[Copy]


@dataclass(slots=True, eq=False, kw_only=True)
class Publish(Command):
    """Store the deliveries of one link to a topic. `queue` is the topic's own; all copies are on the same store.

    Each unit is stored whole or refused whole; results as in Send, numbers being those of the topic's own queue. A
    transfer out of the topic's own queue is a scheduled message whose time has come; it keeps its number.
    """

    units: list[list[Publication]]
    transfers: list[Transfer] = field(default_factory=list)
    result: list[list[int] | BusError] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class Ping(Command):
    """Show that a message of a size could be stored now: everything is checked and journaled, and nothing kept."""

    message_id: str
    size: int


@dataclass(slots=True, eq=False, kw_only=True)
class Forget(Command):
    """Transfers from `queue`, which is on another store, are complete there; they need not be remembered any more."""

    sequence_numbers: list[int]


@dataclass(slots=True, eq=False, kw_only=True)
class Acquire(Command):
    """Hand out up to `limit` available messages in order of sequence number, locked for `owner` or removed.

    With `frame_bytes` the limit is of frames: a message takes one for every so many bytes, and the last one may take
    more than are left. One that was `withdrawn` before its turn hands out nothing.
    """

    limit: int
    mode: ReceiveMode
    owner: int  # The connection's number: its locks fall when it breaks off.
    session: str | None = None
    holder: int = 0  # The link that must hold the session.
    max_bytes: int = ACQUIRE_BYTES_MAX
    frame_bytes: int = 0
    withdrawn: bool = False  # Set by who asked, on another thread, when nobody is there any more to take it.
    truncated: bool = False  # Set by the store: fewer than `limit`, although more may be available.
    result: list[Delivered] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class AcquireDeferred(Command):
    """Hand out deferred messages by number: all of them or, if one is missing or locked, none and MESSAGE_NOT_FOUND."""

    sequence_numbers: list[int]
    mode: ReceiveMode
    owner: int
    session: str | None = None
    result: list[Delivered] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class Complete(Command):
    """Remove locked messages. The result has None or the fault for each token, in order."""

    tokens: list[bytes]
    result: list[BusError | None] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class Settle(Command):
    """Settle locked messages in other ways than completing (or mixed). Results as in Complete."""

    settlements: list[Settlement]
    result: list[BusError | None] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class Inspect(Command):
    """Read locked messages by token without changing anything; None where the lock is lost."""

    tokens: list[bytes]
    result: list[Delivered | None] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class Renew(Command):
    """Extend message locks by the lock duration; the result is the new expiry, or the fault, for each token."""

    tokens: list[bytes]
    result: list[int | BusError] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class DropLocks(Command):
    """Drop every message lock and session held by a connection that broke off; deliveries are counted.

    `queue` is ignored: the locks may be in many queues of the store.
    """

    owner: int
    result: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Peek(Command):
    """Look at messages from a number on, in any state or active ones only, locked or not, without taking them."""

    from_sequence_number: int
    limit: int
    session: str | None = None
    active_only: bool = False
    max_bytes: int = 1024 * 1024
    result: list[Delivered] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class CancelScheduled(Command):
    """Remove scheduled messages by number; all of them or none with MESSAGE_NOT_FOUND."""

    sequence_numbers: list[int]


@dataclass(slots=True, eq=False, kw_only=True)
class DeleteBatch(Command):
    """Remove up to `limit` unlocked messages enqueued before an instant; the result is how many.

    Active ones only, or (to purge a queue) deferred and scheduled ones too.
    """

    limit: int
    before_ms: int
    every_state: bool = False
    result: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class AcceptSession(Command):
    """Lock a session for a link: the named one, or with None the free one whose first message is oldest.

    Fails with SESSION_HELD for a named session that another link holds; result None means that no session is free.
    """

    session: str | None
    owner: int
    holder: int
    result: SessionGrant | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class RenewSession(Command):
    """Extend a session lock; SESSION_LOCK_LOST unless some link holds it. With holder 0 any holder will do."""

    session: str
    holder: int = 0
    result: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class ReleaseSession(Command):
    """Give a session back. Its locked messages become available again without counting a delivery."""

    session: str
    holder: int


@dataclass(slots=True, eq=False, kw_only=True)
class GetSessionState(Command):
    """Read the opaque state of a session; None if it was never set or was cleared."""

    session: str
    result: bytes | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class SetSessionState(Command):
    """Replace the state of a session that some link holds; None clears it."""

    session: str
    state: bytes | None


@dataclass(slots=True, eq=False, kw_only=True)
class ListSessions(Command):
    """List session ids in order: those with messages or state, or those whose state changed after an instant."""

    updated_after_ms: int | None
    skip: int
    limit: int
    result: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class Sweep(Command):
    """Do what time has made due, in bounded chunks; the result says whether more is waiting.

    Expired locks, messages past their time to live, scheduled messages whose time has come, old duplicate ids,
    rows of dropped entities, old journal rows, transfers remembered for more than a month. `queue` is ignored.
    """

    result: bool = False


class Note(NamedTuple):
    """An operation that changed nothing but counts: an empty receive, a peek, a renewal, a refused pre-settled send."""

    operation: str
    queue: int
    outcome: str = ""
    message_id: str = ""
    bytes: int = 0
    count: int = 1  # type: ignore[assignment]  # Hides tuple.count, which nobody needs here.
    connection: str = ""
    tracking_id: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class Record(Command):
    """Write notes to the journal; they ride with whatever else is committed."""

    notes: list[Note]


@dataclass(slots=True)
class Hints:
    """What a commit may have made possible; hints wake receivers, they promise nothing."""

    ready: set[int] = field(default_factory=set)  # Queues in which messages may have become available.
    # Sessions that may have become ready or free, by queue.
    sessions: dict[int, set[str]] = field(default_factory=dict)
    # (queue, session, holder) whose lock ended.
    lost_sessions: list[tuple[int, str, int]] = field(default_factory=list)


class Store(Protocol):
    """One messaging store. Everything happens in `commit`; a store is used by one thread at a time."""

    def commit(self, commands: list[Command], now_ms: int) -> Hints:
        """Execute the commands in as few transactions as possible; durable where they must be when this returns."""
        ...

    def due_at_ms(self) -> int | None:
        """When the next Sweep will have something to do; None while nothing waits for the clock."""
        ...

    def close(self) -> None:
        """Release the database; locks are volatile and are gone."""
        ...
