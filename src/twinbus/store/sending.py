"""Storing messages: quota, duplicates, numbers, and the decision whether a record stays in memory for its receiver.

Nothing is on disk when this returns; the commit makes it so.
"""

from __future__ import annotations

import json
from zlib import crc32

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, MessageState
from twinbus.store import statements
from twinbus.store.commands import Send
from twinbus.store.plan import LARGEST_RECORD
from twinbus.store.volatile import Line, Queue, Stored
from twinbus.store.work import Work

_ACTIVE = (int(MessageState.ACTIVE), None, None, None)
_new_tuple = tuple.__new__


def send(work: Work, commands: list[Send]) -> None:
    """Store the units of all commands, queue by queue and in order of arrival within a queue."""
    by_queue: dict[int, tuple[Queue, list[Send]]] = {}
    for command in commands:
        try:
            queue = work.queue_of(command)
        except BusError as error:
            command.error = error
            continue
        by_queue.setdefault(queue.id, (queue, []))[1].append(command)
    known = _known_duplicates(work, list(by_queue.values()))
    for queue, sends in by_queue.values():
        for command in sends:
            _send(work, queue, command, known)


def _known_duplicates(work: Work, sends: list[tuple[Queue, list[Send]]]) -> set[tuple[int, str]]:
    """The (queue, message id) pairs that were stored within their queue's window before this commit."""
    candidates = [
        (queue.id, message.message_id, work.now_ms - queue.entity.settings.duplicate_window_ms)
        for queue, commands in sends
        if queue.entity.settings.duplicate_window_ms
        for command in commands
        for unit in command.units
        for message in unit
        if message.message_id
    ]
    if not candidates:
        return set()
    found = work.database.execute(statements.KNOWN_DUPLICATES, (json.dumps(candidates),)).get
    return {(queue, message_id) for queue, message_id in json.loads(found)}


def _send(work: Work, queue: Queue, command: Send, known: set[tuple[int, str]]) -> None:
    settings = queue.entity.settings
    room = settings.max_size_bytes - queue.entity.bytes
    sent: list[Stored] = []
    scheduled: list[Stored] = []
    dropped: list[Stored] = []
    for unit in command.units:
        refusal = _refusal(queue, unit, room)
        if refusal is not None:
            command.result.append(refusal)
            continue
        numbers: list[int] = []
        for incoming in unit:
            message_id = incoming.message_id
            if settings.duplicate_window_ms and message_id:
                if (queue.id, message_id) in known:
                    numbers.append(0)
                    dropped.append(Stored(0, 0, message_id, len(incoming.record), 0, work.now_ms))
                    continue
                known.add((queue.id, message_id))
                work.plan.duplicates.append((queue.id, message_id))
            message = _store(work, queue, incoming)
            room -= message.size
            numbers.append(message.seq)
            (sent if message.state == MessageState.ACTIVE else scheduled).append(message)
        command.result.append(numbers)
    work.touch(queue)
    _journal(work, queue, command, sent, scheduled, dropped)
    if settings.duplicate_window_ms:
        work.memory.due(work.now_ms + settings.duplicate_window_ms)


def _refusal(queue: Queue, unit: list[Incoming], room: int) -> BusError | None:
    size = sum([len(incoming.record) for incoming in unit])
    if size > room:
        return BusError(
            Fault.QUOTA_EXCEEDED,
            f"The entity is full: it may hold {queue.entity.settings.max_size_bytes} bytes,"
            f" {max(room, 0)} are free, and {size} were sent.",
        )
    if size > LARGEST_RECORD:
        return BusError(Fault.MESSAGE_TOO_LARGE, f"A delivery of {size} bytes is more than the store can keep.")
    if queue.in_sessions and any(incoming.session_id is None for incoming in unit):
        return BusError(Fault.NOT_ALLOWED, "The entity requires sessions, and a message has no session id.")
    return None


def _store(work: Work, queue: Queue, incoming: Incoming) -> Stored:
    record, message_id, session, ttl_ms, due_ms, _ = incoming
    now = work.now_ms
    seq = queue.next_seq
    queue.next_seq = seq + 1
    size = len(record)
    queue.bytes += size
    if ttl_ms is None and due_ms is None and session is None:
        kind: tuple[int, int | None, int | None, str | None] = _ACTIVE
    else:
        kind = _kind(work, queue, now, ttl_ms, due_ms, session)
    state, expires_ms, due_ms, _ = kind
    body = work.plan.store(queue.id, seq, crc32(record).to_bytes(4, "big"), record, message_id, kind)
    message: Stored = _new_tuple(
        Stored,
        (seq, body, message_id, size, 0, now, expires_ms, session, state, due_ms, None, None, None),
    )
    if state:
        queue.scheduled += 1
        return message
    queue.active += 1
    line = queue.line if session is None else queue.line_of(session)
    if line is not None and line.caught_up:
        _keep(work, line, message, record)
    return message


def _kind(
    work: Work, queue: Queue, now: int, ttl_ms: int | None, due_ms: int | None, session: str | None
) -> tuple[int, int | None, int | None, str | None]:
    """(state, expires at, due at, session) of a message that is not of the plain kind."""
    start = now
    if due_ms is not None and due_ms > now:
        start = due_ms
        work.memory.due(due_ms)
    expires_ms = None if ttl_ms is None or queue.sub else start + ttl_ms
    work.memory.due(expires_ms)
    if start > now:
        return (int(MessageState.SCHEDULED), expires_ms, start, session)
    return (int(MessageState.ACTIVE), expires_ms, None, session)


def _keep(work: Work, line: Line, message: Stored, record: bytes) -> None:
    """Keep a record in front of its receiver, if there is room; else it will be read from the disk."""
    memory = work.memory
    size = message.size + 512  # The record and the objects around it.
    if memory.cached + size > memory.cache_bytes and not memory.make_room(line, size):
        line.caught_up = False
        return
    line.ready.append((message, record))
    line.ready_bytes += size
    memory.cached += size
    line.read_to = line.high = message.seq + 1


def _journal(
    work: Work, queue: Queue, command: Send, sent: list[Stored], scheduled: list[Stored], dropped: list[Stored]
) -> None:
    if sent:
        session = queue.in_sessions
        if session:
            work.hints.sessions.setdefault(queue.id, set()).update([message.session or "" for message in sent])
        work.hints.ready.add(queue.id)
    for operation, messages, outcome in (
        ("send", sent, ""),
        ("schedule", scheduled, ""),
        ("send", dropped, "duplicate"),
    ):
        if messages:
            ids = [message.message_id for message in messages]
            numbers = [message.seq for message in messages]
            sizes = [message.size for message in messages]
            work.journal.add(operation, queue.id, command.origin, (ids, numbers, [0], sizes), outcome)
