"""Storing messages: quota, duplicates, numbers, and the decision whether a record stays in memory for its receiver.

Nothing is on disk when this returns; the commit makes it so.
"""

from __future__ import annotations

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, MessageState, Origin
from twinbus.store.commands import Send
from twinbus.store.duplicates import Known, key_of, known_duplicates, remember
from twinbus.store.plan import LARGEST_RECORD, Kind
from twinbus.store.volatile import RECORD_OVERHEAD, Line, Queue, Stored
from twinbus.store.work import Work

_ACTIVE = int(MessageState.ACTIVE)
_SCHEDULED = int(MessageState.SCHEDULED)
_new_tuple = tuple.__new__


def send(work: Work, commands: list[Send]) -> None:
    """Store the units of all commands, queue by queue and in order of arrival within a queue.

    Those with transfers are left to `store.transferring`.
    """
    by_queue: dict[int, tuple[Queue, list[Send]]] = {}
    for command in commands:
        try:
            queue = work.queue_of(command)
        except BusError as error:
            command.error = error
            continue
        by_queue.setdefault(queue.id, (queue, []))[1].append(command)
    known = known_duplicates(work, _candidates(list(by_queue.values())))
    for queue, sends in by_queue.values():
        for command in sends:
            _send(work, queue, command, known)


def _candidates(sends: list[tuple[Queue, list[Send]]]) -> list[tuple[Queue, Incoming]]:
    """The messages that may be duplicates."""
    return [
        (queue, message)
        for queue, commands in sends
        if queue.entity.settings.duplicate_window_ms
        for command in commands
        for unit in command.units
        for message in unit
    ]


def _send(work: Work, queue: Queue, command: Send, known: Known) -> None:
    """Decide unit by unit, then store everything accepted at once, under consecutive numbers."""
    settings = queue.entity.settings
    room = settings.max_size_bytes - queue.entity.bytes
    if not settings.duplicate_window_ms and not queue.in_sessions:
        everything = [incoming for unit in command.units for incoming in unit]
        if sum([len(incoming.record) for incoming in everything]) <= min(room, LARGEST_RECORD):
            _accept_all(work, queue, command, everything)
            return
    accepted: list[Incoming] = []
    dropped: list[Incoming] = []
    first = queue.next_seq
    for unit in command.units:
        size = sum([len(incoming.record) for incoming in unit])
        refusal = refusal_of(queue, unit, size, room)
        if refusal is not None:
            command.result.append(refusal)
            continue
        room -= size
        at = first + len(accepted)
        if settings.duplicate_window_ms:
            command.result.append(_first_copies(work, queue, unit, at, known, accepted, dropped))
        else:
            accepted += unit
            command.result.append(list(range(at, at + len(unit))))
    if accepted:
        store(work, queue, command.origin, accepted)
    if dropped:
        ids = [incoming.message_id for incoming in dropped]
        sizes = [len(incoming.record) for incoming in dropped]
        work.journal.add("send", queue.id, command.origin, (ids, [0] * len(ids), [0], sizes), "duplicate")


def _accept_all(work: Work, queue: Queue, command: Send, everything: list[Incoming]) -> None:
    """The usual case: there is room for all units, and no message can be refused for itself."""
    at = queue.next_seq
    for unit in command.units:
        command.result.append([at] if len(unit) == 1 else list(range(at, at + len(unit))))
        at += len(unit)
    if everything:
        store(work, queue, command.origin, everything)


def refusal_of(queue: Queue, unit: list[Incoming], size: int, room: int) -> BusError | None:
    """Why a queue does not take a unit, if it does not."""
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


def _first_copies(
    work: Work,
    queue: Queue,
    unit: list[Incoming],
    at: int,
    known: Known,
    accepted: list[Incoming],
    dropped: list[Incoming],
) -> list[int]:
    """Sort a unit into what is new and what is a duplicate; the unit's numbers, with 0 for each duplicate."""
    numbers: list[int] = []
    for incoming in unit:
        if (queue.id, key_of(queue.entity.settings, incoming)) in known:
            numbers.append(0)
            dropped.append(incoming)
            continue
        remember(work, queue, incoming, known)
        numbers.append(at)
        at += 1
        accepted.append(incoming)
    return numbers


def store(work: Work, queue: Queue, origin: Origin, accepted: list[Incoming]) -> None:
    """Store messages under the queue's next numbers."""
    first = queue.next_seq
    queue.next_seq += len(accepted)
    work.touch(queue)
    # Neighbours mostly are of one kind, and then nothing needs to be looked at message by message.
    shapes = {incoming[2:5] for incoming in accepted}
    if len(shapes) == 1:
        store_run(work, queue, origin, accepted, first, _kind(work, queue, *shapes.pop()))
        return
    kinds = {shape: _kind(work, queue, *shape) for shape in shapes}
    start = 0
    for index in range(1, len(accepted) + 1):
        if index == len(accepted) or accepted[index][2:5] != accepted[start][2:5]:
            store_run(work, queue, origin, accepted[start:index], first + start, kinds[accepted[start][2:5]])
            start = index


def _kind(work: Work, queue: Queue, session: str | None, ttl_ms: int | None, due_ms: int | None) -> Kind:
    """What messages have in common that were sent alike."""
    start = work.now_ms
    if due_ms is not None and due_ms > start:
        start = due_ms
    expires_ms = None if ttl_ms is None else start + ttl_ms
    work.memory.due(expires_ms)
    if start == work.now_ms:
        return Kind(_ACTIVE, expires_ms, None, session)
    work.memory.due(start)
    return Kind(_SCHEDULED, expires_ms, start, session)


def store_run(work: Work, queue: Queue, origin: Origin, run: list[Incoming], first: int, kind: Kind) -> None:
    """Store messages of one kind under consecutive numbers."""
    records = [incoming.record for incoming in run]
    ids = [incoming.message_id for incoming in run]
    sizes = [len(record) for record in records]
    total = sum(sizes)
    body = work.plan.store(queue.id, first, records, ids, kind)
    queue.bytes += total
    numbers = list(range(first, first + len(run)))
    operation = "send" if kind.state == _ACTIVE else "schedule"
    work.journal.add(operation, queue.id, origin, (ids, numbers, [0], sizes), session=kind.session)
    if kind.state != _ACTIVE:
        queue.scheduled += len(run)
        return
    queue.active += len(run)
    work.hints.ready.add(queue.id)
    if queue.in_sessions:
        work.hints.sessions.setdefault(queue.id, set()).add(kind.session or "")
    line = queue.line_of(kind.session)
    if line is not None and line.caught_up:
        _keep(work, line, records, total, _stored(work.now_ms, kind, body, numbers, ids, sizes))


def _stored(now: int, kind: Kind, body: int, numbers: list[int], ids: list[str], sizes: list[int]) -> list[Stored]:
    _, expires_ms, _, session = kind
    return [
        _new_tuple(Stored, (seq, at, message_id, size, 0, now, expires_ms, session, 0, None, None, None, None))
        for at, (seq, message_id, size) in enumerate(zip(numbers, ids, sizes, strict=True), body)
    ]


def _keep(work: Work, line: Line, records: list[bytes], total: int, messages: list[Stored]) -> None:
    """Keep records in front of their receiver, if there is room; else they will be read from the disk."""
    memory = work.memory
    size = total + len(messages) * RECORD_OVERHEAD
    if memory.cached + size > memory.cache_bytes and not memory.make_room(line, size):
        line.caught_up = False
        return
    line.ready.extend(zip(messages, records, strict=True))
    line.ready_bytes += size
    memory.cached += size
    line.read_to = line.high = messages[-1].seq + 1
