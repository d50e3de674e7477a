"""What an outbox holds: messages on their way in, and as they wait for the dispatcher.

The tables are in `sqlite` and `postgres`; in which order messages leave is decided by `plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from twinbus.client import messages
from twinbus.client.diverting import with_id
from twinbus.pair.errors import OutboxFullError
from twinbus.pair.outbox.entries import Entry as Entry
from twinbus.pair.outbox.entries import Wanted as Wanted
from twinbus.pair.route.queued import Queued as Queued

VERSION = 1
MAX_MESSAGES = 1_000_000
MAX_BYTES = 1024**3
MAX_AGE_S = 7 * 24 * 3600.0


class Row(NamedTuple):
    """A message about to be put."""

    path: str
    order_group: str | None  # What keeps messages in order; None for a message that overlaps with any other.
    message_id: str
    payload: bytes


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


class Tables(Protocol):
    """An outbox's tables, in a transaction that somebody else begins and ends."""

    def counts(self) -> Counts: ...

    def put(self, rows: Sequence[Row], now_ms: int) -> list[int]: ...

    def take(self, wanted: Wanted) -> list[Entry]: ...

    def remove(self, numbers: Sequence[int]) -> int: ...

    def set_aside(self, refused: Sequence[tuple[int, str]], now_ms: int) -> None: ...

    def bring_back(self, numbers: Sequence[int] | None) -> int: ...

    def look(self, limit: int, from_number: int, aside: bool | None) -> list[Entry]: ...

    def holds(self, order_group: str) -> bool: ...

    def lease(self) -> Lease | None: ...

    def set_lease(self, lease: Lease | None) -> None: ...


def order_group_of(path: str, key: str | None) -> str | None:
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
        rows.append(Row(path, order_group_of(path, own), message_id, payload))
    return rows
