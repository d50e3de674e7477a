"""What is to be done with a copy of a message: a pure state machine as two tables, by tag and consumer.

A copy is handed out, held or suppressed by what is known of its tag; where that is stored is in `sqlite` and
`postgres`, who asks in `receiving`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class Key(NamedTuple):
    """Whose message it is (an entity or a subscription, by path), and the tag that its copies share."""

    scope: str
    tag: str


class Copy(NamedTuple):
    """One copy: where it is stored, and under which number."""

    namespace: str
    sequence_number: int


class State(IntEnum):
    """What is known of a tag; the numbers are those in the database."""

    CLAIMED = 1  # A copy was handed out.
    DEFERRED = 2  # The application deferred a copy: that one stays its own, others are not needed.
    DONE = 3
    DEAD_LETTERED = 4  # Done, too; the copy itself still has to reach the dead-letter queue if that failed.


class Entry(NamedTuple):
    """What the ledger knows of a tag."""

    state: State
    copy: Copy
    until_ms: int  # When a claim lapses; it means nothing in the other states.


class CopyRelation(Enum):
    """How a copy stands to the one in the ledger."""

    SAME = "the same copy"
    OTHER = "another copy, while the claim holds"
    LATE = "another copy, after the claim has lapsed"


class Decision(Enum):
    """What is done with a copy that has arrived."""

    HAND_OUT = "hand out"
    HOLD = "hold"
    SUPPRESS = "suppress"
    DEAD_LETTER = "dead-letter again"


DECISIONS: dict[tuple[State, CopyRelation], Decision] = {
    (State.CLAIMED, CopyRelation.SAME): Decision.HAND_OUT,  # It was delivered again: its work was not finished.
    (State.CLAIMED, CopyRelation.OTHER): Decision.HOLD,
    (State.CLAIMED, CopyRelation.LATE): Decision.HAND_OUT,
    (State.DEFERRED, CopyRelation.SAME): Decision.HAND_OUT,
    (State.DEFERRED, CopyRelation.OTHER): Decision.SUPPRESS,
    (State.DEFERRED, CopyRelation.LATE): Decision.SUPPRESS,
    (State.DONE, CopyRelation.SAME): Decision.SUPPRESS,
    (State.DONE, CopyRelation.OTHER): Decision.SUPPRESS,
    (State.DONE, CopyRelation.LATE): Decision.SUPPRESS,
    (State.DEAD_LETTERED, CopyRelation.SAME): Decision.DEAD_LETTER,
    (State.DEAD_LETTERED, CopyRelation.OTHER): Decision.SUPPRESS,
    (State.DEAD_LETTERED, CopyRelation.LATE): Decision.SUPPRESS,
}

# What a mark makes of a state; what is not here is over, and stays as it is.
MARKS: frozenset[tuple[State | None, State]] = frozenset(
    (before, after)
    for before in (None, State.CLAIMED, State.DEFERRED)
    for after in (State.DEFERRED, State.DONE, State.DEAD_LETTERED)
)


class Claimed(NamedTuple):
    """The answer to a claim: what to do with the copy, and what is known of its tag from now on."""

    decision: Decision
    entry: Entry


def relation(entry: Entry, copy: Copy, now_ms: int) -> CopyRelation:
    """How a copy stands to the one in the ledger."""
    if entry.copy == copy:
        return CopyRelation.SAME
    return CopyRelation.OTHER if now_ms < entry.until_ms else CopyRelation.LATE


def claim(entry: Entry | None, copy: Copy, now_ms: int, lease_ms: int, at_once: State | None = None) -> Claimed:
    """A copy arrived. With `at_once` it is marked as it is handed out, because it cannot be settled later."""
    decision = Decision.HAND_OUT if entry is None else DECISIONS[entry.state, relation(entry, copy, now_ms)]
    if decision is Decision.HAND_OUT:
        return Claimed(decision, Entry(at_once or State.CLAIMED, copy, now_ms + lease_ms))
    assert entry is not None
    return Claimed(decision, entry)


def extend(entry: Entry | None, copy: Copy, now_ms: int, lease_ms: int) -> Entry | None:
    """The lock of a copy was renewed, and with it its claim; whose claim was taken over has none to extend."""
    if entry is None or entry.state is not State.CLAIMED or entry.copy != copy:
        return entry
    return entry._replace(until_ms=max(entry.until_ms, now_ms + lease_ms))


def mark(entry: Entry | None, copy: Copy, state: State) -> Entry | None:
    """A copy was worked on, dead-lettered or deferred; None where that is over already."""
    if (None if entry is None else entry.state, state) not in MARKS:
        return None
    return Entry(state, copy, 0 if entry is None else entry.until_ms)
