"""Handing messages out: in order, not past their time, under a lock or removed.

Where the next message comes from (memory, or a page of the database) is decided here; what a lock means afterwards is
`store.settling`'s business.
"""

from __future__ import annotations

import heapq
import json

from twinbus.model.errors import BusError, Fault
from twinbus.model.limits import STAMP_BYTES_MAX
from twinbus.model.message import Delivered, MessageState, ReceiveMode
from twinbus.store import statements
from twinbus.store.commands import Acquire, AcquireDeferred
from twinbus.store.settling import expire, remove
from twinbus.store.volatile import RECORD_OVERHEAD, Hold, Line, Lock, Queue, Stored
from twinbus.store.work import Readout, Work, columns_of

READ_AHEAD = 256
READ_AHEAD_BYTES = 1024 * 1024

_new_tuple = tuple.__new__


def acquire(work: Work, command: Acquire) -> None:
    """Hand out the next messages of a queue, or of a session that the link holds."""
    queue = work.queue_of(command)
    line: Line = queue.line
    hold: Hold | None = None
    if queue.in_sessions:
        line = hold = held_session(queue, command.session, command.holder, work.now_ms)
    taken = [] if command.withdrawn else _take(work, queue, line, command)
    if not taken:
        return
    if len(taken) < command.limit and line.has_more:
        work.hints.ready.add(queue.id)
        if hold is not None:
            work.hints.sessions.setdefault(queue.id, set()).add(hold.session or "")
    command.result = hand_out(work, queue, taken, command, hold)
    if work.memory.cached > work.memory.cache_bytes:
        work.memory.make_room(line, 0)


def acquire_deferred(work: Work, command: AcquireDeferred) -> None:
    """Hand out deferred messages by number, all or none."""
    queue = work.queue_of(command)
    hold: Hold | None = None
    if queue.in_sessions:
        hold = held_session(queue, command.session, 0, work.now_ms)
    work.flush()
    numbers = sorted(set(command.sequence_numbers))
    page = work.read(queue, statements.BY_NUMBER, seqs=json.dumps(numbers), limit=len(numbers) + 1, bytes=1 << 62)
    if page.damaged:
        number = page.damaged[0].seq
        raise BusError(Fault.INTERNAL, f"Message {number} of queue {queue.id} is damaged and cannot be received.")
    locked = queue.locked_numbers()
    wanted = [
        (message, record)
        for message, record in page.messages
        if message.state == MessageState.DEFERRED
        and message.seq not in locked
        and (hold is None or message.session == hold.session)
    ]
    if len(wanted) < len(numbers):
        raise BusError(Fault.MESSAGE_NOT_FOUND, "At least one of the numbers is not that of a free deferred message.")
    by_number = {message.seq: (message, record) for message, record in wanted}
    order = [by_number[number] for number in dict.fromkeys(command.sequence_numbers)]
    command.result = hand_out(work, queue, order, command, hold)


def held_session(queue: Queue, session: str | None, holder: int, now_ms: int) -> Hold:
    """The session that a receiver holds; holder 0 stands for any."""
    if session is None:
        raise BusError(Fault.NOT_ALLOWED, "The entity requires sessions; accept one to receive from it.")
    hold = queue.holds.get(session)
    if hold is None or hold.until_ms <= now_ms or holder not in (0, hold.holder):
        raise BusError(Fault.SESSION_LOCK_LOST, "The session is not locked by this receiver (any more).")
    return hold


def _take(work: Work, queue: Queue, line: Line, command: Acquire) -> Readout:
    """The next available messages of a line, in order; those past their time are dealt with on the way."""
    taken: Readout = []
    left, frame_bytes = command.limit, command.frame_bytes
    room = command.max_bytes
    ready = line.ready
    now = work.now_ms
    while left > 0:
        if line.returned and (not ready or line.returned[0] < ready[0][0].seq):
            _refill_returned(work, queue, line, left, room)
            continue
        if not ready:
            if line.caught_up or not _refill(work, queue, line, left, room):
                break
            continue
        message, record = ready[0]
        size = message.size
        if size > room and taken:
            break
        ready.popleft()
        line.ready_bytes -= size + RECORD_OVERHEAD
        work.memory.cached -= size + RECORD_OVERHEAD
        if message.expires_at_ms is not None and message.expires_at_ms <= now and queue.sub == 0:
            expire(work, queue, message)
            continue
        room -= size
        left -= frames_of(message, frame_bytes) if frame_bytes else 1
        taken.append((message, record))
    command.truncated = left <= 0 and len(taken) < command.limit
    return taken


def frames_of(message: Stored, frame_bytes: int) -> int:
    """How many frames a message takes at most when it leaves: with what it is told by the broker besides."""
    told = (len(message.overlay or b""), 4 * len(message.reason or ""), 4 * len(message.description or ""))
    return 1 + (message.size + STAMP_BYTES_MAX + sum(told)) // frame_bytes


def _refill_returned(work: Work, queue: Queue, line: Line, wanted: int, room: int) -> None:
    """Read the returned messages that come before everything else into the front of the line.

    A number may be on the heap although its message has been dealt with meanwhile: only what is there counts.
    """
    stop = line.ready[0][0].seq if line.ready else line.read_to
    numbers: list[int] = []
    while line.returned and line.returned[0] < stop and len(numbers) < wanted:
        numbers.append(heapq.heappop(line.returned))
    if work.plan.hides(queue.id, False):
        work.flush()
    page = work.read(
        queue, statements.BY_NUMBER, seqs=json.dumps(numbers), limit=len(numbers) + 1, bytes=max(room, READ_AHEAD_BYTES)
    )
    if page.cut:
        last = page.messages[-1][0].seq if page.messages else 0
        for number in numbers:
            if number > last:
                heapq.heappush(line.returned, number)
    _put_in_front(work, line, [pair for pair in page.messages if pair[0].state == MessageState.ACTIVE])


def _refill(work: Work, queue: Queue, line: Line, wanted: int, room: int) -> bool:
    """Read the next page from the database into the line; False when there is nothing left to read."""
    again = line.read_to < line.high
    if work.plan.hides(queue.id, again):
        work.flush()
    if line.read_to >= queue.disk_tail:
        line.caught_up = queue.next_seq == queue.disk_tail
        return False
    limit = max(wanted, READ_AHEAD)
    values = {"start": line.read_to, "stop": queue.disk_tail, "limit": limit, "bytes": max(room, READ_AHEAD_BYTES)}
    if line.session is None:
        page = work.read(queue, statements.PAGE, **values)
    else:
        page = work.read(queue, statements.SESSION_PAGE, session=line.session, **values)
    found = page.messages
    if page.cut or not page.short:
        line.read_to = 1 + max([message.seq for message, _ in found[-1:]] + [message.seq for message in page.damaged])
    else:
        line.read_to = queue.disk_tail
        line.caught_up = queue.next_seq == queue.disk_tail
    line.high = max(line.high, line.read_to)
    if again:
        locked = queue.locked_numbers()
        found = [pair for pair in found if pair[0].seq not in locked]
    _put_in_front(work, line, found)
    return bool(page.messages or page.damaged)


def _put_in_front(work: Work, line: Line, found: Readout) -> None:
    size = sum([message.size + RECORD_OVERHEAD for message, _ in found])
    line.ready.extendleft(reversed(found))
    line.ready_bytes += size
    work.memory.cached += size


def hand_out(
    work: Work, queue: Queue, taken: Readout, command: Acquire | AcquireDeferred, hold: Hold | None
) -> list[Delivered]:
    """Lock or remove what was taken, and make what leaves the store."""
    messages = [message for message, _ in taken]
    if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
        remove(work, queue, messages)
        work.journal.add("receive_delete", queue.id, command.origin, columns_of(messages))
        return [delivered(message, record, b"", 0) for message, record in taken]
    until = work.now_ms + queue.entity.settings.lock_duration_ms if hold is None else hold.until_ms
    tokens = work.tokens.take(len(taken))
    owned = queue.owners.setdefault(command.owner, set())
    owned.update(tokens)
    if hold is not None:
        hold.tokens.update(tokens)
    claim = work.claim(queue, messages)
    locks = queue.locks
    handed: list[Delivered] = []
    for token, (message, record) in zip(tokens, taken, strict=True):
        locks[token] = Lock(message, until, owned, claim, hold)
        handed.append(delivered(message, record, token, until))
    work.memory.due(until)
    work.journal.add("receive", queue.id, command.origin, columns_of(messages))
    return handed


def delivered(message: Stored, record: bytes, token: bytes, until_ms: int) -> Delivered:
    """A message as it leaves the store."""
    seq, _, message_id, _, count, enqueued, _, session, state, _, overlay, reason, description = message
    values = (seq, record, message_id, count, enqueued, _STATES[state], token, until_ms, session)
    return _new_tuple(Delivered, (*values, overlay, reason, description))


_STATES = tuple(MessageState)
