"""The copies of published messages: their numbers, their shared bodies, and what stays in memory for their receivers.

Copies that are alike travel to the database together, also those of one message after another to the same queues. Which
copies there are is decided by `store.publishing`.
"""

from __future__ import annotations

from typing import TypeAlias

from twinbus.model.address import SubQueue
from twinbus.model.message import MessageState, Origin
from twinbus.store.plan import Kind, Look
from twinbus.store.volatile import RECORD_OVERHEAD, Line, Queue, Stored
from twinbus.store.work import Work

# What copies of one message may have in common: message id, session, time to live, overlay, record of their own,
# reason, description; that is `commands.Copy` without the queue.
Alike: TypeAlias = tuple[str, str | None, int | None, bytes | None, bytes | None, str | None, str | None]

_ACTIVE = int(MessageState.ACTIVE)
_new_tuple = tuple.__new__


class _Block:
    """Copies in one or several queues of messages that follow each other there, in the topic, and among the bodies."""

    __slots__ = ("first_body", "first_number", "first_seqs", "ids", "look", "next_seqs", "records", "source", "targets")

    def __init__(self, targets: list[Queue], look: Look, source: tuple[int, Origin], number: int, body: int) -> None:
        self.targets = targets
        self.look = look
        self.source = source
        self.first_number = number
        self.first_body = body  # 0: each message has a body of its own, which it is given at the end.
        self.first_seqs: list[int] = []
        self.next_seqs: list[int] = []
        self.ids: list[str] = []
        self.records: list[bytes] = []

    def add(self, message_id: str, record: bytes, seqs: list[int]) -> None:
        """One more message, with the number of its copy in each queue."""
        if not self.ids:
            self.first_seqs = seqs
        self.ids.append(message_id)
        self.records.append(record)
        self.next_seqs = [seq + 1 for seq in seqs]

    def goes_on(self, number: int, body: int, seqs: list[int]) -> bool:
        """Whether another message with the same targets and looks comes right behind the last one."""
        count = len(self.ids)
        return (
            number == self.first_number + count
            and body == (self.first_body and self.first_body - count)
            and seqs == self.next_seqs
        )


class Copies:
    """All copies of one commit."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._blocks: list[_Block] = []
        self._open: dict[tuple[object, ...], _Block] = {}

    def add(self, topic: int, number: int, origin: Origin, record: bytes, targets: dict[Alike, list[Queue]]) -> None:
        """Give the copies of one message their numbers. Those without a record of their own share a body."""
        shared = 0
        for (message_id, session, ttl_ms, overlay, own_record, reason, description), queues in targets.items():
            look = Look(None if ttl_ms is None else self._work.now_ms + ttl_ms, session, overlay, reason, description)
            is_plain = overlay is None and reason is None and description is None
            if len(queues) == 1 and is_plain and (own_record is not None or len(targets) == 1):
                body = 0
            elif own_record is not None:
                body = self._work.plan.share(own_record)
            else:
                body = shared = shared or self._work.plan.share(record)
            its_record = record if own_record is None else own_record
            seqs = _enter(queues, len(its_record))
            key = (topic, origin, look, body == 0, *[queue.id for queue in queues])
            block = self._open.get(key)
            if block is None or not block.goes_on(number, body, seqs):
                block = self._open[key] = _Block(queues, look, (topic, origin), number, body)
                self._blocks.append(block)
            block.add(message_id, its_record, seqs)

    def store(self) -> None:
        """Enter everything in the plan and the journal.

        A block goes on only while nothing else is put into any of its queues, so the order of blocks is that of the
        numbers in each queue.
        """
        work = self._work
        for block in self._blocks:
            work.memory.due(block.look.expires_at_ms)
            queues = [queue.id for queue in block.targets]
            if block.first_body:
                work.plan.copy(queues, block.first_seqs, block.first_body, block.ids, block.look)
            else:
                kind = Kind(_ACTIVE, block.look.expires_at_ms, None, block.look.session)
                block.first_body = work.plan.store(queues[0], block.first_seqs[0], block.records, block.ids, kind)
            sizes = [len(record) for record in block.records]
            topic, origin = block.source
            columns = (block.ids, block.first_seqs, sizes)
            work.journal.copies(queues, origin, (topic, block.first_number), columns, block.look.session)
            work.hints.ready.update(queues)
            self._put_in_line(block, sizes)

    def _put_in_line(self, block: _Block, sizes: list[int]) -> None:
        """Tell the queues' lines of their new messages, and keep these in memory where a receiver is close behind.

        Half of the cache is dealt out in equal shares, because a topic can have thousands of subscriptions that nobody
        receives from, and looking for the fullest line at every copy would take longer than storing it.
        """
        work, session = self._work, block.look.session
        memory, dirty = work.memory, work.plan.dirty
        share = memory.cache_bytes // (2 * len(memory.entities))
        size = sum(sizes) + len(sizes) * RECORD_OVERHEAD
        for queue, first in zip(block.targets, block.first_seqs, strict=True):
            dirty[queue.id] = queue
            line: Line | None = queue.line
            if queue.sub != SubQueue.MAIN:
                main = queue.entity.queues[SubQueue.MAIN]
                dirty[main.id] = main
            elif queue.entity.settings.requires_session:
                work.hints.sessions.setdefault(queue.id, set()).add(session or "")
                line = queue.line_of(session)
            if line is None or not line.caught_up:
                continue
            if (
                queue.sub != SubQueue.MAIN
                or line.ready_bytes + size > share
                or memory.cached + size > memory.cache_bytes
            ):
                line.caught_up = False
                continue
            line.ready.extend(zip(_stored(work.now_ms, block, first, sizes), block.records, strict=True))
            line.ready_bytes += size
            memory.cached += size
            line.read_to = line.high = first + len(sizes)


def _enter(queues: list[Queue], size: int) -> list[int]:
    """Take the next number in each queue. A dead-letter queue's numbers are those of its main queue."""
    seqs: list[int] = []
    for queue in queues:
        queue.active += 1
        queue.bytes += size
        if queue.sub == SubQueue.MAIN:
            seq = queue.next_seq
        else:
            main = queue.entity.queues[SubQueue.MAIN]
            seq = main.next_seq
            main.next_seq = seq + 1
        queue.next_seq = seq + 1
        seqs.append(seq)
    return seqs


def _stored(now_ms: int, block: _Block, first: int, sizes: list[int]) -> list[Stored]:
    expires_ms, session, overlay, reason, description = block.look
    step = -1 if block.first_body < 0 else 1
    return [
        _new_tuple(
            Stored,
            (
                first + place,
                block.first_body + step * place,
                message_id,
                sizes[place],
                0,
                now_ms,
                expires_ms,
                session,
                _ACTIVE,
                None,
                overlay,
                reason,
                description,
            ),
        )
        for place, message_id in enumerate(block.ids)
    ]
