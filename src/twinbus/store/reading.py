"""Looking without taking: peek, counts, and locked messages by token.

Nothing here changes a message, except that one found damaged is set aside.
"""

from __future__ import annotations

import json
from typing import Any

from twinbus.model.message import Counts
from twinbus.store import statements
from twinbus.store.acquiring import delivered
from twinbus.store.commands import Count, Inspect, Peek
from twinbus.store.volatile import Entity, Queue
from twinbus.store.work import Work

_FAR = 1 << 62  # No message has such a number.


def peek(work: Work, command: Peek) -> None:
    """Messages from a number on, in any state or active ones only, locked or not."""
    queue = work.queue_of(command)
    work.flush()
    values: dict[str, Any] = {"start": command.from_sequence_number, "limit": command.limit, "bytes": command.max_bytes}
    whole, of_session = statements.PEEK, statements.PEEK_SESSION
    if command.active_only:
        values["stop"] = _FAR
        whole, of_session = statements.PAGE, statements.SESSION_PAGE
    if command.session is None:
        page = work.read(queue, whole, **values)
    else:
        page = work.read(queue, of_session, session=command.session, **values)
    command.result = [delivered(message, record, b"", 0) for message, record in page.messages]


def inspect(work: Work, command: Inspect) -> None:
    """Locked messages with their records, and None for each lock that is lost."""
    queue = work.queue_of(command)
    locks = [queue.locks.get(token) for token in command.tokens]
    numbers = sorted({lock.message.seq for lock in locks if lock is not None and lock.until_ms > work.now_ms})
    records = {}
    if numbers:
        work.flush()
        page = work.read(queue, statements.BY_NUMBER, seqs=json.dumps(numbers), limit=len(numbers) + 1, bytes=1 << 62)
        records = {message.seq: record for message, record in page.messages}
    for token, lock in zip(command.tokens, locks, strict=True):
        record = records.get(lock.message.seq) if lock is not None else None
        command.result.append(
            None if lock is None or record is None else delivered(lock.message, record, token, lock.until_ms)
        )


def count(work: Work, command: Count) -> None:
    """The counts of an entity, from the rows that rule its queues."""
    entity = work.queue_of(command).entity
    main = entity.queues[0]
    command.result = counts_of(entity)
    command.last_number = main.next_seq - 1
    command.locked = len(main.locks)


def counts_of(entity: Entity) -> Counts:
    """How many messages an entity holds, in each state."""
    main, dead, transfer = entity.queues
    return Counts(
        active=main.active,
        deferred=main.deferred,
        scheduled=main.scheduled,
        dead_letter=_resting(dead),
        transfer_dead_letter=_resting(transfer),
        size_bytes=main.bytes + dead.bytes + transfer.bytes,
    )


def _resting(queue: Queue) -> int:
    return queue.active + queue.deferred
