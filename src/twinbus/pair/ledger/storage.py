"""What is asked of a ledger's storage: commands, executed in groups, and how a group is worked through in memory.

The databases (`sqlite`, `postgres`) load what a group is about, let `Group` decide, and write back what changed; so
both decide alike. What they say alike stands here, and only what one of them says in another way stands there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from twinbus.model.errors import BusError
from twinbus.pair.ledger.decisions import Claimed, Copy, Decision, Entry, Key, State, claim, extend, mark
from twinbus.sql.group import Committer

TABLE = "twinbus_ledger"
NAMES = "twinbus_ledger_name"
TRIM_CHUNK = 1000
READ_ROWS = 5000

COLUMNS = "id, state, namespace, sequence_number, until_ms, at_ms, suppressed"
_ADD_NAME = f"INSERT INTO {NAMES} (name) VALUES (?) ON CONFLICT DO NOTHING"
FIND_NAME = f"SELECT id FROM {NAMES} WHERE name = ?"
_FIND_TEXT = f"SELECT name FROM {NAMES} WHERE id = ?"
# The order of ids is the order in which tags became known, so that the oldest are found without an index of times.
_OLDEST = f"SELECT id, state, until_ms, at_ms FROM {TABLE} WHERE id > ? ORDER BY id LIMIT {TRIM_CHUNK}"
_ENDS = f"SELECT (SELECT id FROM {TABLE} ORDER BY id LIMIT 1), (SELECT id FROM {TABLE} ORDER BY id DESC LIMIT 1)"
_RECORDS = f"""
SELECT known.id, entity.name, tag, state, namespace.name, sequence_number, at_ms, suppressed
FROM {TABLE} AS known JOIN {NAMES} AS entity ON entity.id = known.scope
JOIN {NAMES} AS namespace ON namespace.id = known.namespace
WHERE known.id > ? AND entity.name = coalesce(?, entity.name) ORDER BY known.id LIMIT {READ_ROWS}
"""
# The mark inside an application's own transaction: a row that says that the work is over is not touched again.
MARK = f"""
INSERT INTO {TABLE} (scope, tag, state, namespace, sequence_number, until_ms, at_ms, suppressed)
VALUES (?, ?, ?, ?, ?, 0, ?, 0)
ON CONFLICT (scope, tag) DO UPDATE
SET state = excluded.state, namespace = excluded.namespace, sequence_number = excluded.sequence_number
WHERE {TABLE}.state < {int(State.DONE)}
"""


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


def keys_of(group: Iterable[Command]) -> list[Key]:
    """The tags that commands are about, each once."""
    return list(dict.fromkeys(command.key for command in group if not isinstance(command, Trim)))


class Storage(Committer[Command, None], ABC):
    """A database that keeps a ledger, used by one thread at a time.

    The names of scopes and namespaces are few, and rows many: a row has their numbers.
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    @abstractmethod
    def commit(self, group: list[Command], now_ms: int) -> None:
        """Execute the commands; marks are durable when this returns."""

    @abstractmethod
    def close(self) -> None:
        """Release the database."""

    @abstractmethod
    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Execute a statement, with a question mark for each value; the rows that it gives."""

    @abstractmethod
    def _forget(self, ids: list[int]) -> int:
        """Delete rows; how many there were."""

    def entries(self) -> int:
        """How many numbers there are between the oldest row and the newest."""
        ((first, last),) = self._read(_ENDS)
        return 0 if first is None else int(last - first + 1)

    def _name(self, text: str) -> int:
        number = self._names.get(text)
        if number is None:
            self._read(_ADD_NAME, (text,))
            ((number,),) = self._read(FIND_NAME, (text,))
            self._names[text], self._texts[number] = number, text
        return number

    def _text(self, number: int) -> str:
        text = self._texts.get(number)
        if text is None:
            ((text,),) = self._read(_FIND_TEXT, (number,))
            self._names[text], self._texts[number] = number, text
        return text

    def _row(self, values: Sequence[Any]) -> Row:
        """A row of the database, as a group has it."""
        number, state, namespace, sequence_number, until_ms, at_ms, suppressed = values
        copy = Copy(self._text(namespace), sequence_number)
        return Row(number, Entry(State(state), copy, until_ms), at_ms, suppressed)

    def _to_write(self, work: Group) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """What a group has changed: new rows, and known ones with their ids at the end."""
        new, changed = [], []
        for key in work.changed:
            row = work.rows[key]
            entry = row.entry
            assert entry is not None
            namespace, number = self._name(entry.copy.namespace), entry.copy.sequence_number
            values = (int(entry.state), namespace, number, entry.until_ms, row.at_ms, row.suppressed)
            if row.id is None:
                new.append((self._name(key.scope), key.tag, *values))
            else:
                changed.append((*values, row.id))
        return new, changed

    def _trim(self, command: Trim, now_ms: int) -> None:
        rows = self._read(_OLDEST, (command.after,))
        surplus = self.entries() - command.entries_max
        old = [
            number
            for position, (number, state, until_ms, at_ms) in enumerate(rows)
            if (at_ms < now_ms - command.keep_ms or position < surplus)
            and (state != State.CLAIMED or until_ms <= now_ms)
        ]
        command.removed = self._forget(old) if old else 0
        command.next_after = rows[-1][0] if old and len(rows) == TRIM_CHUNK else None


def read_records(read: Callable[[str, Sequence[Any]], list[Any]], scope: str | None) -> Iterator[Record]:
    """Every row of a ledger, or of one scope, some thousands at a time, in the order in which tags became known."""
    after = 0
    while rows := read(_RECORDS, (after, scope)):
        for _, entity, tag, state, namespace, sequence_number, at_ms, suppressed in rows:
            yield Record(entity, tag, State(state), namespace, sequence_number, at_ms, suppressed)
        after = rows[-1][0]
