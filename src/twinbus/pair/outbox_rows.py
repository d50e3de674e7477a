"""What an outbox holds: messages on their way in, and as they wait for the dispatcher.

Where they are kept is told by `outbox_sqlite` and `outbox_postgres`; in which order they leave, by `dispatch_lanes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from twinbus.client import messages
from twinbus.client.diverting import with_id
from twinbus.pair.errors import OutboxFullError

VERSION = 1
MAX_MESSAGES = 1_000_000
MAX_BYTES = 1024**3
MAX_AGE_S = 7 * 24 * 3600.0


class Row(NamedTuple):
    """A message about to be put."""

    path: str
    lane: str | None  # What keeps messages in order; None for a message that overlaps with any other.
    message_id: str
    payload: bytes


class Entry(NamedTuple):
    """A message that waits, or that was refused for good and set aside."""

    number: int
    path: str
    lane: str | None
    message_id: str
    put_at_ms: int
    payload: bytes
    aside_at_ms: int | None = None
    reason: str | None = None

    @property
    def key(self) -> str | None:
        """The session or key that the message is kept in order by."""
        return None if self.lane is None else self.lane.split("\n", 1)[1]


class Counts(NamedTuple):
    """How full an outbox is."""

    messages: int  # Those that were set aside are among them: they take room, too.
    bytes: int
    aside: int
    oldest_put_at_ms: int | None  # Of those that wait.


class Lease(NamedTuple):
    """Who dispatches."""

    holder: str
    until_ms: int


class Queued(NamedTuple):
    """Messages that are safe in an outbox and on their way from there: what an application is told."""

    path: str
    message_ids: list[str]
    numbers: list[int]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an outbox takes before it refuses more."""

    max_messages: int = MAX_MESSAGES
    max_bytes: int = MAX_BYTES
    max_age: float | timedelta = MAX_AGE_S

    @property
    def max_age_ms(self) -> int:
        """The age as a number."""
        age = self.max_age.total_seconds() if isinstance(self.max_age, timedelta) else self.max_age
        return int(age * 1000)

    def check(self, found: Counts, messages: int, size: int, now_ms: int) -> None:
        """Raise an OutboxFullError if so much more is too much."""
        if found.messages + messages > self.max_messages:
            raise OutboxFullError(
                f"The outbox holds {found.messages:,} messages and may hold {self.max_messages:,}: {messages:,} more"
                " do not fit. Nothing was put into it."
            )
        if found.bytes + size > self.max_bytes:
            raise OutboxFullError(
                f"The outbox holds {found.bytes:,} bytes and may hold {self.max_bytes:,}: {size:,} more do not fit."
                " Nothing was put into it."
            )
        oldest = found.oldest_put_at_ms
        if oldest is not None and now_ms - oldest > self.max_age_ms:
            raise OutboxFullError(
                f"The oldest message of the outbox has waited for {(now_ms - oldest) / 1000:,.0f} s, longer than the"
                f" {self.max_age_ms / 1000:,.0f} s that are allowed. Nothing was put into it."
            )


class Wanted(NamedTuple):
    """Which messages a dispatcher has room for: the first so many, apart from those that it knows or cannot send."""

    limit: int
    max_bytes: int
    known: Sequence[int] = ()
    busy_lanes: Sequence[str] = ()
    paused_paths: Sequence[str] = ()


class Tables(Protocol):
    """An outbox's tables, in a transaction that somebody else begins and ends."""

    def counts(self) -> Counts: ...

    def put(self, rows: Sequence[Row], now_ms: int) -> list[int]: ...

    def take(self, wanted: Wanted) -> list[Entry]: ...

    def remove(self, numbers: Sequence[int]) -> int: ...

    def set_aside(self, refused: Sequence[tuple[int, str]], now_ms: int) -> None: ...

    def bring_back(self, numbers: Sequence[int] | None) -> int: ...

    def look(self, limit: int, from_number: int, aside: bool | None) -> list[Entry]: ...

    def holds(self, lane: str) -> bool: ...

    def lease(self) -> Lease | None: ...

    def set_lease(self, lease: Lease | None) -> None: ...


def lane_of(path: str, key: str | None) -> str | None:
    """What keeps a message in order: paths compare without case, keys with it."""
    return None if key is None else f"{path.lower()}\n{key}"


def identified(payloads: Sequence[bytes], new_id: Callable[[], str]) -> list[bytes]:
    """Encoded messages that have ids; those without get new ones."""
    return [payload if messages.read(payload).message_id else with_id(payload, new_id()) for payload in payloads]


def rows_of(payloads: Sequence[bytes], path: str, key: str | None, new_id: Callable[[], str]) -> list[Row]:
    """Encoded messages as they are put: each has an id, the same however often it is sent.

    Without a key of the caller's own, a message is kept in order by its session, or else by its partition key.
    """
    rows = []
    for payload in payloads:
        found = messages.read(payload)
        message_id = found.message_id
        if not message_id:
            message_id = new_id()
            payload = with_id(payload, message_id)
        own = key if key is not None else found.session_id or found.partition_key
        rows.append(Row(path, lane_of(path, own), message_id, payload))
    return rows
