"""The row changes of a commit, gathered by all its operations and written in one step.

A changed row is one that goes and is placed anew, so that there are only inserts and deletes. What the changes mean is
known to the operations alone.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from zlib import crc32

from twinbus.store.statements import APPLY, APPLY_WITH_COPIES, CUT_BITS, SEQ_BITS
from twinbus.store.volatile import Claim, Queue, Stored

# Each run is joined with all ids, which is quickest for few runs; many runs travel as rows of their own.
MANY_RUNS = 8

LARGEST_RECORD = (1 << CUT_BITS) - 5

_PLAIN = (None, None, None)  # No overlay, no reason, no description.

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Kind(NamedTuple):
    """What messages that were sent alike have in common."""

    state: int
    expires_at_ms: int | None
    due_at_ms: int | None
    session: str | None


class Look(NamedTuple):
    """What copies have in common beside their bodies and message ids."""

    expires_at_ms: int | None
    session: str | None
    overlay: bytes | None
    reason: str | None
    description: str | None


class _Run(NamedTuple):
    """New messages in one queue that are of one kind and follow each other, both in numbers and among the ids."""

    queue: int
    seq_at_zero: int  # The number that the first id of the plan would have, if the run went back so far.
    kind: Kind
    start: int
    stop: int


class Plan:
    """What a commit will change in the tables, as flat lists."""

    __slots__ = (
        "_changed_queues",
        "_cut_to",
        "_gone_queues",
        "claims",
        "copies",
        "cuts",
        "dirty",
        "duplicates",
        "first_body",
        "first_shared",
        "freed",
        "gone",
        "ids",
        "pieces",
        "placed",
        "runs",
        "shared_cuts",
        "unclaimed",
    )

    def __init__(self, first_body: int, first_shared: int) -> None:
        self.first_body = first_body
        self.first_shared = first_shared
        self._cut_to = 0
        self.cuts: list[int] = []
        self.pieces: list[bytes] = []
        self.ids: list[str] = []
        self.runs: list[_Run] = []
        self.shared_cuts: list[int] = []
        self.copies: list[tuple[Any, ...]] = []
        self.gone: list[int] = []
        self.placed: list[tuple[Any, ...]] = []
        self.freed: list[int] = []
        self.duplicates: list[tuple[int, str]] = []
        self.unclaimed: list[int] = []
        self.claims: dict[int, tuple[Claim, list[tuple[int, int]]]] = {}
        self.dirty: dict[int, Queue] = {}
        self._gone_queues: set[int] = set()
        self._changed_queues: set[int] = set()

    def store(self, queue: int, first_seq: int, records: list[bytes], ids: list[str], kind: Kind) -> int:
        """New messages of one kind, with consecutive numbers; the first one's body id, the others follow."""
        index = len(self.cuts)
        at = self._cut_to
        for record in records:
            length = len(record) + 4
            self.cuts.append(at << CUT_BITS | length)
            at += length
            self.pieces.append(crc32(record).to_bytes(4, "big"))
            self.pieces.append(record)
        self._cut_to = at
        self.ids += ids
        stop = index + len(records)
        last = self.runs[-1] if self.runs else None
        if last is not None and last.queue == queue and last.seq_at_zero == first_seq - index and last.kind == kind:
            self.runs[-1] = last._replace(stop=stop)
        else:
            self.runs.append(_Run(queue, first_seq - index, kind, index, stop))
        return self.first_body + index

    def share(self, record: bytes) -> int:
        """A new body for several copies. Its id is negative; the next one's is less by one."""
        length = len(record) + 4
        self.shared_cuts.append(self._cut_to << CUT_BITS | length)
        self._cut_to += length
        self.pieces.append(crc32(record).to_bytes(4, "big"))
        self.pieces.append(record)
        return self.first_shared + 1 - len(self.shared_cuts)

    def copy(self, queues: list[int], first_seqs: list[int], body: int, ids: list[str], look: Look) -> None:
        """Copies of messages that follow each other, in numbers and shared bodies alike, in several queues."""
        expires_at_ms, session, overlay, reason, description = look
        names = [queue << SEQ_BITS | seq for queue, seq in zip(queues, first_seqs, strict=True)]
        overlay_text = None if overlay is None else overlay.hex()
        self.copies.append((body, expires_at_ms, session, overlay_text, reason, description, ids, names))

    def remove(self, queue: int, messages: list[Stored]) -> None:
        """Messages go for good, and with each its body, unless copies are left that share it."""
        name = queue << SEQ_BITS
        self.gone += [name | message.seq for message in messages]
        self.freed += [message.body for message in messages]
        self._gone_queues.add(queue)

    def replace(self, queue: int, old_seq: int, new_queue: int, message: Stored) -> None:
        """A message's row changes, and perhaps moves to another queue or number."""
        self.gone.append(queue << SEQ_BITS | old_seq)
        self._changed_queues.add(queue)
        self._changed_queues.add(new_queue)
        self.placed.append(_row(new_queue, message))

    def hides(self, queue: int, also_removed: bool) -> bool:
        """Whether the database would give a wrong answer about older messages of a queue until this plan is applied."""
        return queue in self._changed_queues or (also_removed and queue in self._gone_queues)

    def __bool__(self) -> bool:
        return bool(self.cuts or self.gone or self.placed or self.freed or self.claims or self.unclaimed or self.dirty)

    def statement(self, at_ms: int, journal_id: int, journal: bytes | None) -> tuple[str, tuple[Any, ...]]:
        """What writes all this, with its values."""
        freed, released = self._freed_or_released()
        values = self._values(at_ms, freed, journal_id, journal)
        if not (self.copies or released):
            return APPLY, values
        of_copies = (
            self.first_shared,
            _encode(self.shared_cuts) if self.shared_cuts else None,
            _encode(self.copies) if self.copies else None,
            _encode(released) if released else None,
        )
        return APPLY_WITH_COPIES, values + of_copies

    def _values(self, at_ms: int, freed: list[int], journal_id: int, journal: bytes | None) -> tuple[Any, ...]:
        """The values of `statements.CHANGE_COLUMNS`."""
        runs, fresh = self._runs_or_rows(at_ms)
        return (
            at_ms,
            self.first_body,
            _encode(self.cuts) if self.cuts else None,
            b"".join(self.pieces) if self.pieces else None,
            runs,
            _encode(self.ids) if runs else None,
            fresh,
            _encode(self.gone) if self.gone else None,
            _encode(self.placed) if self.placed else None,
            _encode(freed) if freed else None,
            _encode(self.duplicates) if self.duplicates else None,
            _encode(self.unclaimed) if self.unclaimed else None,
            _encode([(claim.id, claim.queue, _encode(held)) for claim, held in self.claims.values()])
            if self.claims
            else None,
            _encode([queue.row() for queue in self.dirty.values()]) if self.dirty else None,
            journal_id,
            journal,
        )

    def _freed_or_released(self) -> tuple[list[int], list[int]]:
        """Bodies that go with their message, and shared ones that go if it was the last copy."""
        freed = self.freed
        if not freed or min(freed) > 0:
            return freed, []
        return [body for body in freed if body > 0], list({body for body in freed if body < 0})

    def _runs_or_rows(self, at_ms: int) -> tuple[str | None, str | None]:
        if not self.runs:
            return None, None
        if len(self.runs) <= MANY_RUNS:
            return _encode([(queue, at, *kind, start, stop) for queue, at, kind, start, stop in self.runs]), None
        rows = [
            (queue, at + index, self.first_body + index, kind[0], 0, at_ms, *kind[1:], self.ids[index], *_PLAIN)
            for queue, at, kind, start, stop in self.runs
            for index in range(start, stop)
        ]
        return None, _encode(rows)


def _row(queue: int, message: Stored) -> tuple[Any, ...]:
    """A state row in the order of `statements`' insert."""
    return (
        queue,
        message.seq,
        message.body,
        message.state,
        message.delivery_count,
        message.enqueued_at_ms,
        message.expires_at_ms,
        message.due_at_ms,
        message.session,
        message.message_id,
        None if message.overlay is None else message.overlay.hex(),
        message.reason,
        message.description,
    )
