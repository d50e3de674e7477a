"""What an outbox holds, and what can be done with it: messages on their way in, its tables, work on them.

How each database says it is in `sqlite` and `postgres`; in which order messages leave is decided by `plan`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from twinbus.client import messages
from twinbus.client.diverting import with_id
from twinbus.model.errors import BusError
from twinbus.pair.errors import OutboxError, OutboxFullError
from twinbus.pair.outbox.plan import Entry as Entry
from twinbus.pair.outbox.plan import Wanted as Wanted
from twinbus.pair.route.carrier import Queued as Queued

T = TypeVar("T")

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


class Tables(ABC):
    """An outbox's tables as one connection sees them, in a transaction that somebody else begins and ends."""

    schema: tuple[str, ...]
    lease_locks = ""  # What makes the row of the lease this transaction's until it ends.

    def create(self) -> None:
        """Have the tables; an OutboxError if they are of another version."""
        for statement in self.schema:
            self._run(statement)
        version = self._row("SELECT version FROM twinbus_outbox_state")[0]
        if version != VERSION:
            raise OutboxError(f"The outbox is of version {version}, and this Twinbus knows version {VERSION}.")

    @abstractmethod
    def counts(self) -> Counts:
        """How full it is."""

    @abstractmethod
    def put(self, rows: Sequence[Row], now_ms: int) -> list[int]:
        """Add messages; their numbers."""

    @abstractmethod
    def take(self, wanted: Wanted) -> list[Entry]:
        """The first messages that a dispatcher has room for."""

    @abstractmethod
    def remove(self, numbers: Sequence[int]) -> int:
        """Delete messages; how many there were."""

    @abstractmethod
    def set_aside(self, refused: Sequence[tuple[int, str]], now_ms: int) -> None:
        """Messages that will never be taken are not tried any more."""

    @abstractmethod
    def bring_back(self, numbers: Sequence[int] | None) -> int:
        """Have what was set aside tried again; without numbers, all of it."""

    @abstractmethod
    def look(self, limit: int, from_number: int, aside: bool | None) -> list[Entry]:
        """Messages in their order: all, or only those that wait, or that were set aside."""

    @abstractmethod
    def holds(self, order_group: str) -> bool:
        """Whether messages of an order group wait."""

    def lease(self) -> Lease | None:
        """Who dispatches, or did last."""
        holder, until_ms = self._row(f"SELECT holder, until_ms FROM twinbus_outbox_state{self.lease_locks}")
        return None if holder is None else Lease(holder, until_ms)

    def set_lease(self, lease: Lease | None) -> None:
        """Say who dispatches."""
        self._run("UPDATE twinbus_outbox_state SET holder = ?, until_ms = ?", lease or (None, None))

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement, with a question mark for each value; the rows that it gives."""

    def _first(self, statement: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        return next(iter(self._run(statement, values)), None)

    def _row(self, statement: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
        row = self._first(statement, values)
        if row is None:
            raise OutboxError("The outbox has no state: its tables were not made by Twinbus.")
        return row


class Work(Generic[T]):
    """Something to be done with the tables, at an instant; `done` has its result when that is durable, or an error."""

    def __init__(self, run: Callable[[Tables, int], T], *, reads: bool = False, size: int = 0) -> None:
        self.run = run
        self.reads = reads
        self.size = size
        self.error: BusError | None = None  # Set by the thread when it was not even tried.
        self.problem: BaseException | None = None
        self.done: Future[T] = Future()
        self._result: T | None = None

    def attempt(self, tables: Tables, now_ms: int) -> None:
        """Do it; a refusal of its own is nobody else's."""
        try:
            self._result = self.run(tables, now_ms)
        except OutboxError as problem:
            self.problem = problem

    def finish(self) -> None:
        """The transaction is over."""
        problem = self.problem or self.error
        if self.done.cancelled():
            return
        if problem is not None:
            self.done.set_exception(problem if isinstance(problem, OutboxError) else OutboxError(str(problem)))
        else:
            self.done.set_result(self._result)  # type: ignore[arg-type]


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
