"""What is asked of a ledger's storage: commands, executed in groups, and how a group is worked through in memory.

The databases (`ledger_sqlite`, `ledger_postgres`) load what a group is about, let `Group` decide, and write back what
changed; so both decide alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from twinbus.model.errors import BusError
from twinbus.pair.ledger.decisions import Claimed, Copy, Decision, Entry, Key, State, claim, extend, mark

TABLE = "twinbus_ledger"
NAMES = "twinbus_ledger_name"
TRIM_CHUNK = 1000


@dataclass(slots=True, eq=False)
class Claim:
    """A copy arrived: may it be handed out?"""

    key: Key
    copy: Copy
    lease_ms: int
    at_once: State | None = None
    decision: Decision = Decision.HOLD
    error: BusError | None = None


@dataclass(slots=True, eq=False)
class Extend:
    """A copy's lock was renewed."""

    key: Key
    copy: Copy
    lease_ms: int
    error: BusError | None = None


@dataclass(slots=True, eq=False)
class Mark:
    """A copy was worked on, dead-lettered or deferred."""

    key: Key
    copy: Copy
    state: State
    changed: bool = False  # False: it was marked before, by this copy or another.
    error: BusError | None = None


@dataclass(slots=True, eq=False)
class Trim:
    """Forget what is old, a chunk of rows; `after` is where the last chunk ended."""

    keep_ms: int
    entries_max: int
    after: int = 0
    removed: int = 0
    next_after: int | None = None  # None: nothing behind it is old.
    error: BusError | None = None


Command = Claim | Extend | Mark | Trim


class Record(NamedTuple):
    """One row of the ledger, for those who read all of it."""

    scope: str
    tag: str
    state: State
    namespace: str
    sequence_number: int
    at_ms: int  # When a copy was first handed out, or again.
    suppressed: int  # So many copies were suppressed.

    def document(self) -> dict[str, object]:
        """The row as it is exported."""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return {
            "scope": self.scope,
            "tag": self.tag,
            "state": self.state.name.lower().replace("_", "-"),
            "namespace": self.namespace,
            "sequence_number": self.sequence_number,
            "at": at.replace("+00:00", "Z"),
            "suppressed": self.suppressed,
        }


class Storage(Protocol):
    """A database that keeps a ledger. Used by one thread at a time."""

    def commit(self, group: list[Command], now_ms: int) -> None:
        """Execute the commands; marks are durable when this returns."""
        ...

    def checkpoint_due(self) -> bool:
        """Whether there is a log to be moved."""
        ...

    def checkpoint(self) -> bool:
        """Move it."""
        ...

    def entries(self) -> int:
        """About how many tags are known."""
        ...

    def close(self) -> None:
        """Release the database."""
        ...


class Ledgers(Protocol):
    """Reads all rows, at the same time as the storage that writes."""

    def records(self, scope: str | None = None) -> Iterator[Record]:
        """Every row, in the order in which tags became known."""
        ...


@dataclass(slots=True)
class Row:
    """A tag as a group has it in hand."""

    id: int | None  # None: not in the database yet.
    entry: Entry | None
    at_ms: int = 0
    suppressed: int = 0
    dirty: bool = False


@dataclass(slots=True)
class Group:
    """Commands about tags, and the rows that they are about."""

    now_ms: int
    rows: dict[Key, Row]
    # Rows that another transaction has in hand: nothing can be said of them yet.
    locked: frozenset[Key] = frozenset()
    changed: list[Key] = field(default_factory=list)

    def execute(self, commands: Iterable[Command]) -> None:
        """Answer the commands, in order; what changed is in `changed`."""
        for command in commands:
            if isinstance(command, Trim):
                continue
            row = self.rows[command.key]
            if isinstance(command, Claim):
                self._claim(command, row)
            elif isinstance(command, Mark):
                after = mark(row.entry, command.copy, command.state)
                command.changed = after is not None
                if after is not None:
                    self._change(command.key, row, after, first=row.entry is None)
            else:
                extended = extend(row.entry, command.copy, self.now_ms, command.lease_ms)
                if extended is not None and extended != row.entry:
                    self._change(command.key, row, extended)

    def _claim(self, command: Claim, row: Row) -> None:
        if command.key in self.locked:
            command.decision = Decision.HOLD
            return
        answer: Claimed = claim(row.entry, command.copy, self.now_ms, command.lease_ms, command.at_once)
        command.decision = answer.decision
        if answer.decision is Decision.HAND_OUT:
            self._change(command.key, row, answer.entry, first=True)
        elif answer.decision is not Decision.HOLD:
            row.suppressed += 1
            self._change(command.key, row, answer.entry)

    def _change(self, key: Key, row: Row, entry: Entry, first: bool = False) -> None:
        row.entry = entry
        if first:
            row.at_ms = self.now_ms
        if not row.dirty:
            row.dirty = True
            self.changed.append(key)


def needs_sync(command: Command) -> bool:
    """A mark must outlive a power cut; a claim that is lost only lets a copy be handed out again."""
    return isinstance(command, Mark) or (isinstance(command, Claim) and command.at_once is not None)
