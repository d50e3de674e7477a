"""Handing messages out of rows that several gateways share: in order, not past their time, under a lock or removed.

All acquires of a commit are read together. What a lock means afterwards is `store.settling`'s business.
"""

from __future__ import annotations

import json
from collections import deque

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, MessageState, ReceiveMode
from twinbus.sql.postgres import integers
from twinbus.store import statements
from twinbus.store.acquiring import delivered, frames_of, held_session
from twinbus.store.commands import Acquire, AcquireDeferred
from twinbus.store.postgres import dialect
from twinbus.store.postgres.text import to_json
from twinbus.store.postgres.work import Held, PostgresWork
from twinbus.store.settling import expire, remove
from twinbus.store.volatile import Hold, Queue, Stored
from twinbus.store.work import Readout, columns_of

LARGEST_PAGE = 4_000
_FAR = 1 << 62


class _Line:
    """The available messages of a queue, or of a held session in it, as far as they were read."""

    def __init__(self, queue: Queue, hold: Hold | None) -> None:
        self.queue = queue
        self.hold = hold
        self.start = 1
        if hold is None:
            self.start = min([queue.line.read_to, *queue.line.returned[:1]])
            # What is given back from now on was not read, and shall be remembered.
            queue.line.returned.clear()
            queue.line.read_to = _FAR
        self.wanted = 0
        self.bytes = 0
        self.ready: deque[tuple[Stored, bytes]] = deque()
        self.ended = False  # Nothing is left to be read.

    def want(self, command: Acquire) -> None:
        self.wanted += command.limit
        self.bytes += command.max_bytes


def acquire(work: PostgresWork, group: list[Acquire]) -> None:
    """Hand out the next messages of queues, or of sessions that the links hold."""
    lines: dict[tuple[int, str | None], _Line] = {}
    asked: list[tuple[Acquire, _Line]] = []
    for command in group:
        if command.withdrawn:
            continue
        try:
            queue = work.queue_of(command)
            hold = None
            if queue.in_sessions:
                hold = held_session(queue, command.session, command.holder, work.now_ms)
        except BusError as error:
            command.error = error
            continue
        key = (queue.id, None if hold is None else hold.session)
        line = lines.get(key)
        if line is None:
            line = lines[key] = _Line(queue, hold)
        line.want(command)
        asked.append((command, line))
    _read(work, list(lines.values()))
    for command, line in asked:
        _hand_out_next(work, command, line)
    for line in lines.values():
        if line.hold is None:
            head = line.ready[0][0].seq if line.ready else line.start
            line.queue.line.read_to = min(head, line.queue.line.read_to)


def _read(work: PostgresWork, lines: list[_Line]) -> None:
    """Read the next page of each line, with one statement for all queues and one for all sessions."""
    plain = [line for line in lines if line.hold is None]
    held = [line for line in lines if line.hold is not None]
    batch = work.pending()
    asked = []
    for statement, some in ((dialect.AVAILABLE, plain), (dialect.AVAILABLE_IN_SESSION, held)):
        if some:
            sessions = None if some is plain else to_json([line.hold and line.hold.session for line in some])
            limits = [min(line.wanted, LARGEST_PAGE) for line in some]
            columns = ([line.queue.id for line in some], [line.start for line in some], limits)
            sizes = integers([line.bytes for line in some])
            batch.append((statement, (*map(integers, columns), sizes, sessions)))
            asked.append((some, limits))
    answers = work.run(batch)
    for (some, limits), rows in zip(asked, answers[len(answers) - len(asked) :], strict=True):
        by_line: dict[int, list[tuple[object, ...]]] = {}
        for row in rows:
            by_line.setdefault(row[0] - 1, []).append(row)
        for place, line in enumerate(some):
            _take_page(work, line, by_line.get(place, []), limits[place])


def _take_page(work: PostgresWork, line: _Line, rows: list[tuple[object, ...]], limit: int) -> None:
    candidates = rows[0][-1] if rows else 0
    assert isinstance(candidates, int)
    page = work.page(line.queue, [row[1:-1] for row in rows], candidates, limit)
    line.ready.extend(page.messages)
    line.ended = page.short and not page.cut
    numbers = [message.seq for message, _ in page.messages] + [message.seq for message in page.damaged]
    line.start = max(line.queue.next_seq, line.start) if line.ended else max(numbers, default=line.start - 1) + 1


def _hand_out_next(work: PostgresWork, command: Acquire, line: _Line) -> None:
    taken: Readout = []
    left, frame_bytes = command.limit, command.frame_bytes
    room = command.max_bytes
    while left > 0:
        if not line.ready:
            if line.ended:
                break
            line.wanted, line.bytes = left, max(room, 1)
            _read(work, [line])
            continue
        message, record = line.ready[0]
        if message.size > room and taken:
            command.truncated = True
            break
        line.ready.popleft()
        if message.expires_at_ms is not None and message.expires_at_ms <= work.now_ms and line.queue.sub == 0:
            expire(work, line.queue, message)
            continue
        room -= message.size
        left -= frames_of(message, frame_bytes) if frame_bytes else 1
        taken.append((message, record))
    if not taken:
        return
    command.truncated = command.truncated or (left <= 0 and len(taken) < command.limit)
    if len(taken) < command.limit and (line.ready or not line.ended):
        work.hints.ready.add(line.queue.id)
        if line.hold is not None:
            work.hints.sessions.setdefault(line.queue.id, set()).add(line.hold.session or "")
    command.result = hand_out(work, line.queue, taken, command, line.hold)


def acquire_deferred(work: PostgresWork, command: AcquireDeferred) -> None:
    """Hand out deferred messages by number, all or none."""
    queue = work.queue_of(command)
    hold: Hold | None = None
    if queue.in_sessions:
        hold = held_session(queue, command.session, 0, work.now_ms)
    work.flush()
    numbers = sorted(set(command.sequence_numbers))
    text = json.dumps(numbers)
    page = work.read(queue, statements.BY_NUMBER, seqs=text, limit=len(numbers) + 1, bytes=1 << 62)
    if page.damaged:
        number = page.damaged[0].seq
        raise BusError(Fault.INTERNAL, f"Message {number} of queue {queue.id} is damaged and cannot be received.")
    [locked] = work.run([(dialect.LOCKED_NUMBERS, (queue.id, integers(numbers)))])
    taken = {row[0] for row in locked}
    wanted = {
        message.seq: (message, record)
        for message, record in page.messages
        if message.state == MessageState.DEFERRED
        and message.seq not in taken
        and (hold is None or message.session == hold.session)
    }
    if len(wanted) < len(numbers):
        raise BusError(Fault.MESSAGE_NOT_FOUND, "At least one of the numbers is not that of a free deferred message.")
    order = [wanted[number] for number in dict.fromkeys(command.sequence_numbers)]
    command.result = hand_out(work, queue, order, command, hold)


def hand_out(
    work: PostgresWork, queue: Queue, taken: Readout, command: Acquire | AcquireDeferred, hold: Hold | None
) -> list[Delivered]:
    """Lock or remove what was taken, and make what leaves the store."""
    messages = [message for message, _ in taken]
    if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
        remove(work, queue, messages)
        work.journal.add("receive_delete", queue.id, command.origin, columns_of(messages))
        return [delivered(message, record, b"", 0) for message, record in taken]
    until = work.now_ms + queue.entity.settings.lock_duration_ms if hold is None else hold.until_ms
    tokens = work.lock(queue, messages, command.owner, until, hold)
    # A read of the same commit may ask for them.
    for token, message in zip(tokens, messages, strict=True):
        queue.locks[token] = Held(message, until, set(), hold)
    work.memory.due(until)
    work.journal.add("receive", queue.id, command.origin, columns_of(messages))
    return [delivered(message, record, token, until) for token, (message, record) in zip(tokens, taken, strict=True)]
