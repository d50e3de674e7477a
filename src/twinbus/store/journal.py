"""The journal: what each commit did, packed into one row, and how to read such a row.

A page is filled by the operations of one commit and written in its transaction; names of entities, prices and Parquet
are the exporter's business.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

from twinbus.model.message import Origin
from twinbus.store.commands import Note

# A row begins with this byte and the CRC-32 of its instant and its text, four bytes, big-endian; then comes the text.
# Rows that an older Twinbus wrote are the text alone, which begins with a bracket.
_CHECKED = b"\x01"
_HEAD_BYTES = 5
_PLAIN = b"["


class DamagedRowError(ValueError):
    """A journal row is not what was written."""


class JournalRow(NamedTuple):
    """One row of a store's journal; the numbers of a store's rows have no gaps."""

    id: int
    at_ms: int
    ops: bytes


class JournalEntry(NamedTuple):
    """One operation on one message, or `count` operations that concerned none."""

    at_ms: int
    store: int
    batch: int  # The journal row: everything in one row happened in one transaction.
    operation: str
    queue: int
    outcome: str
    message_id: str
    sequence_number: int
    delivery_count: int
    bytes: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs here.
    connection: str
    client: str
    tracking_id: str
    session_id: str = ""


class Group(NamedTuple):
    """Operations of one commit that share everything but the message. One value may stand for all messages."""

    operation: str
    queue: int
    connection: str
    client: str
    outcome: str | list[str]
    ids: list[str]
    numbers: int | list[int]  # One number is the first of a run, 0 is no number for any of them.
    counts: int | list[int]
    sizes: int | list[int]
    tracking_id: str
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs here.
    session_id: str


class JournalPage:
    """The operations of one commit, in groups that share everything but the message."""

    __slots__ = ("dropped", "groups", "topics")

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.topics: set[int] = set()  # Queues of topics: what is sent there makes no copy, its subscriptions' do.
        self.dropped = 0  # Messages that went with their entity; the journal names them when their rows are freed.

    def __bool__(self) -> bool:
        return bool(self.groups)

    def add(
        self,
        operation: str,
        queue: int,
        origin: Origin,
        columns: tuple[list[str], list[int], list[int], list[int]],
        outcome: str = "",
        session: str | None = None,
    ) -> None:
        """Enter an operation on messages: their ids, sequence numbers, delivery counts and sizes.

        What makes copies names the session that they belong to, if there is one.
        """
        ids, numbers, counts, sizes = columns
        if ids:
            group = [
                operation,
                queue,
                origin.connection,
                origin.client,
                outcome,
                ids,
                _run(numbers),
                _same(counts),
                _same(sizes),
            ]
            if session is not None:
                group.append(session)
            self.groups.append(group)

    def copies(
        self,
        queues: list[int],
        origin: Origin,
        source: tuple[int, int],
        columns: tuple[list[str], list[int], list[int]],
        session: str | None = None,
    ) -> None:
        """Enter copies of consecutive messages in several queues.

        `source` is the topic's queue and the first message's number there; the columns are the messages' ids, the
        number of the first message's copy in each queue, and the messages' sizes.
        """
        ids, numbers, sizes = columns
        group = ["copy", queues, origin.connection, origin.client, list(source), ids, numbers, 0, _same(sizes)]
        if session is not None:
            group.append(session)
        self.groups.append(group)

    def note(self, note: Note, origin: Origin) -> None:
        """Enter an operation that changed nothing."""
        self.groups.append(
            [
                note.operation,
                note.queue,
                note.connection or origin.connection,
                origin.client,
                note.outcome,
                [note.message_id],
                0,
                0,
                note.bytes,
                note.tracking_id,
                note.count,
            ]
        )

    def encode(self, at_ms: int) -> bytes:
        """The page as it is stored at an instant: JSON in ASCII behind its checksum."""
        text = json.dumps(self.groups, separators=(",", ":")).encode("ascii")
        return b"".join((_CHECKED, _checksum(at_ms, text), text))


def _run(numbers: list[int]) -> int | list[int]:
    """Consecutive numbers are written as the first of them."""
    first = numbers[0]
    return first if numbers == list(range(first, first + len(numbers))) else numbers


def _same(values: list[int]) -> int | list[int]:
    """Equal values are written once."""
    return values[0] if values.count(values[0]) == len(values) else values


def _checksum(at_ms: int, text: bytes) -> bytes:
    return zlib.crc32(text, zlib.crc32(at_ms.to_bytes(8, "big", signed=True))).to_bytes(4, "big")


def is_checked(row: JournalRow) -> bool:
    """Whether a row carries a checksum; those of older versions do not."""
    return row.ops[:1] != _PLAIN


def content(row: JournalRow) -> list[list[Any]]:
    """The groups of a row as they were packed. All readers come through here; raises DamagedRowError."""
    text = row.ops
    if is_checked(row):
        text = text[_HEAD_BYTES:]
        if row.ops[:_HEAD_BYTES] != _CHECKED + _checksum(row.at_ms, text):
            raise DamagedRowError(f"The journal's row {row.id} does not match its checksum.")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DamagedRowError(f"The journal's row {row.id} cannot be read: {error}.") from None
    if not isinstance(found, list):
        raise DamagedRowError(f"The journal's row {row.id} is not a list of operations.")
    return found


def groups(row: JournalRow) -> Iterator[Group]:
    """The groups of one journal row in the order in which the commit executed them, copies queue by queue."""
    for operation, queue, connection, client, outcome, ids, numbers, counts, sizes, *rest in content(row):
        tracking_id, count = rest if len(rest) == 2 else ("", 1)
        session = rest[0] if len(rest) == 1 else ""
        who = (connection, client)
        if not isinstance(queue, list):
            yield Group(operation, queue, *who, outcome, ids, numbers, counts, sizes, tracking_id, count, session)
            continue
        topic, at = outcome
        sources = [f"{topic}/{number}" for number in range(at, at + len(ids))]
        for target, first in zip(queue, numbers, strict=True):
            yield Group(operation, target, *who, sources, ids, first, counts, sizes, tracking_id, count, session)


def read(row: JournalRow, store: int = 0) -> list[JournalEntry]:
    """The operations of one journal row, in the order in which the commit executed them."""
    return [entry for group in groups(row) for entry in _entries(row, store, group)]


def _entries(row: JournalRow, store: int, group: Group) -> Iterator[JournalEntry]:
    numbers = group.numbers
    if isinstance(numbers, int) and numbers:
        numbers = list(range(numbers, numbers + len(group.ids)))
    columns = zip(group.ids, *map(_each, (group.outcome, numbers, group.counts, group.sizes)), strict=False)
    for message_id, outcome, number, delivery_count, size in columns:
        yield JournalEntry(
            at_ms=row.at_ms,
            store=store,
            batch=row.id,
            operation=group.operation,
            queue=group.queue,
            outcome=outcome,
            message_id=message_id,
            sequence_number=number,
            delivery_count=delivery_count,
            bytes=size,
            count=group.count,
            connection=group.connection,
            client=group.client,
            tracking_id=group.tracking_id,
            session_id=group.session_id,
        )


def _each(value: Any) -> Any:
    return value if isinstance(value, list) else repeat(value)
