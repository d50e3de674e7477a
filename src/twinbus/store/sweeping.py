"""What time makes due: expired locks and messages, scheduled messages, old ids and journal rows, dropped entities.

One sweep does a bounded chunk of each kind and says whether more is waiting; when to sweep is the caller's business,
told by `due_at_ms`.
"""

from __future__ import annotations

import json

from twinbus.model.message import MessageState
from twinbus.store import statements
from twinbus.store.commands import Sweep
from twinbus.store.ranges import forget_names
from twinbus.store.removing import forget
from twinbus.store.sessions import end
from twinbus.store.settling import end_locks, expire
from twinbus.store.statements import SEQ_BITS
from twinbus.store.transferring import REMEMBERED_MS
from twinbus.store.volatile import DAMAGED, Entity, Stored
from twinbus.store.work import BROKER, Work, columns_of

CHUNK = 1_000


def sweep(work: Work, command: Sweep, retention_ms: int | None) -> None:
    """One chunk of everything that is due. Without a retention, whoever exports the journal trims it."""
    more = _locks(work)
    work.flush()
    more |= expired(work)
    work.flush()
    more |= activated(work)
    more |= duplicates(work)
    more |= transfers(work)
    more |= _journal(work, retention_ms)
    more |= dropped(work)
    command.result = more
    _set_due(work, more, retention_ms)


def _locks(work: Work) -> bool:
    """Locks that ran out: the message returns and the delivery counts."""
    left = CHUNK
    for queue in work.memory.queues.values():
        for hold in [hold for hold in queue.holds.values() if hold.until_ms <= work.now_ms]:
            end(work, queue, hold, counted=True)
        if not queue.locks or queue.in_sessions:
            continue
        over: list[bytes] = []
        for token, lock in queue.locks.items():
            if lock.until_ms > work.now_ms or len(over) == left:
                break
            over.append(token)
        left -= end_locks(work, queue, over, True, "expire_lock")
    return left == 0


def expired(work: Work) -> bool:
    """Messages past their time to live, unless they are locked; those are seen to when the lock ends."""
    locks = sum(len(queue.locks) for queue in work.memory.queues.values())
    rows = work.due_states(statements.EXPIRED, CHUNK + locks)
    by_queue: dict[int, list[Stored]] = {}
    for queue_id, message in rows:
        by_queue.setdefault(queue_id, []).append(message)
    done = 0
    for queue_id, messages in by_queue.items():
        queue = work.memory.queues[queue_id]
        if queue.entity.dropped:
            continue
        locked = queue.locked_numbers()
        over = [message for message in messages if message.seq not in locked]
        forget(queue, over)
        for message in over:
            expire(work, queue, message)
        done += len(over)
    return done > 0 and len(rows) >= CHUNK


def activated(work: Work) -> bool:
    """Scheduled messages whose time has come get a new number and join the end of the queue."""
    rows = work.due_states(statements.ACTIVATED, CHUNK)
    late = False
    for queue_id, message in rows:
        queue = work.memory.queues[queue_id]
        if queue.entity.dropped:
            continue
        active = message._replace(
            seq=queue.next_seq,
            state=int(MessageState.ACTIVE),
            due_at_ms=None,
            enqueued_at_ms=max(message.due_at_ms or 0, work.now_ms),
        )
        queue.next_seq += 1
        queue.scheduled -= 1
        queue.active += 1
        work.plan.replace(queue.id, message.seq, queue.id, active)
        work.touch(queue)
        late |= active.expires_at_ms is not None and active.expires_at_ms <= work.now_ms
        line = queue.line_of(active.session)
        if line is not None:
            line.caught_up = False
        work.hints.ready.add(queue.id)
        if queue.in_sessions:
            work.hints.sessions.setdefault(queue.id, set()).add(active.session or "")
        work.journal.add("activate", queue.id, BROKER, columns_of([active]), str(message.seq))
    return late or len(rows) == CHUNK


def duplicates(work: Work) -> bool:
    """Ids that have left their queue's window."""
    more = False
    for entity in work.memory.entities.values():
        window = 0 if entity.aside else entity.settings.duplicate_window_ms
        oldest = work.database.execute(statements.OLDEST_DUPLICATE, (entity.id * 4,)).get if window else None
        if oldest is None or oldest > work.now_ms - window:
            continue
        values = {"queue": entity.id * 4, "before_ms": work.now_ms - window, "limit": CHUNK}
        work.execute(statements.OLD_DUPLICATES, values)
        more |= work.database.changes() == CHUNK
    return more


def transfers(work: Work) -> bool:
    """Transfers whose source has had a month to complete them."""
    before_ms = work.now_ms - REMEMBERED_MS
    oldest = work.database.execute(statements.OLDEST_TRANSFER).get
    if oldest is None or oldest > before_ms:
        return False
    work.execute(statements.OLD_TRANSFERS, {"before_ms": before_ms, "limit": CHUNK})
    return work.database.changes() == CHUNK


def _journal(work: Work, retention_ms: int | None) -> bool:
    """Journal rows older than the retention."""
    if retention_ms is None:
        return False
    oldest = work.database.execute(statements.OLDEST_JOURNAL).get
    if oldest is None or oldest >= work.now_ms - retention_ms:
        return False
    values = {"before_ms": work.now_ms - retention_ms, "newest": work.memory.next_journal - 1, "limit": CHUNK}
    work.execute(statements.OLD_JOURNAL, values)
    more = work.database.changes() == CHUNK
    forget_names(work, work.now_ms - retention_ms)
    return more


def dropped(work: Work) -> bool:
    """The rows of entities that were dropped."""
    for entity in [entity for entity in work.memory.entities.values() if entity.dropped]:
        if not _free(work, entity):
            return True
        for queue in entity.queues:
            work.execute(statements.FORGET_QUEUE, (queue.id,))
            del work.memory.queues[queue.id]
        del work.memory.entities[entity.id]
    return False


def _free(work: Work, entity: Entity) -> bool:
    """Free a chunk of a dropped entity; True when nothing of it is left."""
    for queue in entity.queues:
        leaving = work.states(queue, statements.DROPPED, limit=CHUNK)
        if leaving:
            # What was set aside as damaged has been told to be out of the queue already.
            work.journal.add("drop", queue.id, BROKER, columns_of([m for m in leaving if m.state != DAMAGED]))
            work.plan.remove(queue.id, leaving)
            return False
        # A row without a record has no part in anything but its own removal.
        numbers, bodies = work.row(statements.DROPPED_MESSAGES, (queue.id, CHUNK))
        gone = [queue.id << SEQ_BITS | number for number in json.loads(numbers)]
        if gone:
            work.plan.gone.extend(gone)
            work.plan.freed.extend(json.loads(bodies))
            return False
        for statement in (statements.DROPPED_DUPLICATES, statements.DROPPED_STATES):
            work.execute(statement, (queue.id, CHUNK))
            if work.database.changes():
                return False
    return True


def _set_due(work: Work, more: bool, retention_ms: int | None) -> None:
    """When the next sweep will have something to do."""
    memory, now = work.memory, work.now_ms
    work.flush()  # Also because an acquire of this commit may read where nobody has read before.
    if more:
        memory.due_ms = now
        return
    memory.due_ms = None
    for queue in memory.queues.values():
        for hold in queue.holds.values():
            memory.due(hold.until_ms)
        for lock in queue.locks.values():
            memory.due(lock.until_ms)
            break
        for owner in [owner for owner, tokens in queue.owners.items() if not tokens]:
            del queue.owners[owner]
    memory.due(work.database.execute(statements.NEXT_EXPIRY, {"now_ms": now}).get)
    memory.due(work.database.execute(statements.NEXT_ACTIVATION).get)
    for entity in memory.entities.values():
        window = 0 if entity.aside else entity.settings.duplicate_window_ms
        oldest = work.database.execute(statements.OLDEST_DUPLICATE, (entity.id * 4,)).get if window else None
        if oldest is not None:
            memory.due(max(oldest + window, now + 1_000))
    oldest = work.database.execute(statements.OLDEST_TRANSFER).get
    if oldest is not None:
        memory.due(oldest + REMEMBERED_MS)
    oldest = None if retention_ms is None else work.database.execute(statements.OLDEST_JOURNAL).get
    if oldest is not None and retention_ms is not None:
        memory.due(max(oldest + retention_ms, now + 60_000))
