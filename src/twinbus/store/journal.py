"""The journal: what each commit did, packed into one row, and how to read such a row.

A page is filled by the operations of one commit and written in its transaction; names of entities, prices and Parquet
are the exporter's business.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from twinbus.model.message import Origin
from twinbus.store.commands import Note


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


class JournalPage:
    """The operations of one commit, in groups that share everything but the message."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: list[list[Any]] = []

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(
        self,
        operation: str,
        queue: int,
        origin: Origin,
        columns: tuple[list[str], list[int], list[int], list[int]],
        outcome: str = "",
    ) -> None:
        """Enter an operation on messages: their ids, sequence numbers, delivery counts and sizes."""
        ids, numbers, counts, sizes = columns
        if ids:
            self._groups.append(
                [
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
            )

    def copies(
        self,
        queues: list[int],
        origin: Origin,
        source: tuple[int, int],
        columns: tuple[list[str], list[int], list[int]],
    ) -> None:
        """Enter copies of consecutive messages in several queues.

        `source` is the topic's queue and the first message's number there; the columns are the messages' ids, the
        number of the first message's copy in each queue, and the messages' sizes.
        """
        ids, numbers, sizes = columns
        self._groups.append(
            ["copy", queues, origin.connection, origin.client, list(source), ids, numbers, 0, _same(sizes)]
        )

    def note(self, note: Note, origin: Origin) -> None:
        """Enter an operation that changed nothing."""
        self._groups.append(
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

    def encode(self) -> bytes:
        """The page as it is stored: JSON in ASCII."""
        return json.dumps(self._groups, separators=(",", ":")).encode("ascii")


def _run(numbers: list[int]) -> int | list[int]:
    """Consecutive numbers are written as the first of them."""
    first = numbers[0]
    return first if numbers == list(range(first, first + len(numbers))) else numbers


def _same(values: list[int]) -> int | list[int]:
    """Equal values are written once."""
    return values[0] if values.count(values[0]) == len(values) else values


def read(row: JournalRow, store: int = 0) -> list[JournalEntry]:
    """The operations of one journal row, in the order in which the commit executed them."""
    return [entry for group in json.loads(row.ops) for entry in _entries(row, store, group)]


def _entries(row: JournalRow, store: int, group: list[Any]) -> Iterator[JournalEntry]:
    operation, queue, connection, client, outcome, ids, numbers, counts, sizes, *rest = group
    if isinstance(queue, list):
        topic, at = outcome
        for target, first in zip(queue, numbers, strict=True):
            for place, message_id in enumerate(ids):
                source = f"{topic}/{at + place}"
                size = sizes[place] if isinstance(sizes, list) else sizes
                one = [operation, target, connection, client, source, [message_id], first + place, counts, size]
                yield from _entries(row, store, one)
        return
    tracking_id, count = rest if rest else ("", 1)
    for place, message_id in enumerate(ids):
        yield JournalEntry(
            at_ms=row.at_ms,
            store=store,
            batch=row.id,
            operation=operation,
            queue=queue,
            outcome=outcome,
            message_id=message_id,
            sequence_number=numbers[place] if isinstance(numbers, list) else numbers and numbers + place,
            delivery_count=counts[place] if isinstance(counts, list) else counts,
            bytes=sizes[place] if isinstance(sizes, list) else sizes,
            count=count,
            connection=connection,
            client=client,
            tracking_id=tracking_id,
        )
