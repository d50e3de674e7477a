"""What becomes of a message that was out: removed, back in its line, deferred, or moved to the dead-letter queue.

Each rule stands here once; receivers' decisions, expiry, broken connections and restarts all come through it.
"""

from __future__ import annotations

from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import MessageState, Origin, Outcome, Settlement
from twinbus.store.commands import Complete, Renew, Settle
from twinbus.store.volatile import Queue, Stored
from twinbus.store.work import BROKER, Work, columns_of

MAX_DELIVERY_COUNT = "MaxDeliveryCountExceeded"
TTL_EXPIRED = "TTLExpiredException"

_OPERATIONS = {
    Outcome.COMPLETE: "complete",
    Outcome.ABANDON: "abandon",
    Outcome.DEFER: "defer",
    Outcome.DEAD_LETTER: "deadletter",
    Outcome.RELEASE: "release",
    Outcome.TRANSFER_DEAD_LETTER: "transfer_deadletter",
}


# After these a claim must no longer say that the message was out, or a restart would count it.
_UNCOUNTED = (Outcome.DEFER, Outcome.RELEASE)


def lock_lost() -> BusError:
    """The answer to a token that locks nothing (any more)."""
    return BusError(
        Fault.LOCK_LOST,
        "The lock is gone: it expired, the message was settled already, or the connection, the broker or the entity's"
        " settings changed in between.",
    )


def complete(work: Work, command: Complete) -> None:
    """Remove locked messages."""
    queue = work.queue_of(command)
    locks, now = queue.locks, work.now_ms
    done: list[Stored] = []
    result: list[BusError | None] = command.result
    for token in command.tokens:
        lock = locks.get(token)
        if lock is None or lock.until_ms <= now:
            result.append(lock_lost())
            continue
        work.unlock(queue, token, lock, True)
        done.append(lock.message)
        result.append(None)
    if done:
        work.journal.add("complete", queue.id, command.origin, columns_of(done))
        remove(work, queue, done)


def settle(work: Work, command: Settle) -> None:
    """Settle locked messages, each in its own way."""
    queue = work.queue_of(command)
    accepted: list[tuple[Stored, Settlement]] = []
    for settlement in command.settlements:
        lock = queue.locks.get(settlement.token)
        refusal = None
        if lock is None or lock.until_ms <= work.now_ms:
            refusal = lock_lost()
        elif settlement.outcome is Outcome.DEAD_LETTER and queue.sub != SubQueue.MAIN:
            text = "A message in a dead-letter queue cannot be dead-lettered again."
            refusal = BusError(Fault.NOT_ALLOWED, text)
        elif settlement.outcome is Outcome.TRANSFER_DEAD_LETTER and queue.sub == SubQueue.TRANSFER_DEAD_LETTER:
            refusal = BusError(Fault.NOT_ALLOWED, "The message is in the transfer dead-letter queue already.")
        else:
            work.unlock(queue, settlement.token, lock, settlement.outcome not in _UNCOUNTED)
            accepted.append((lock.message, settlement))
        command.result.append(refusal)
    # What was decided is told before what follows from it.
    for outcome, operation in _OPERATIONS.items():
        messages = [message for message, settlement in accepted if settlement.outcome is outcome]
        work.journal.add(operation, queue.id, command.origin, columns_of(messages))
    for message, settlement in accepted:
        _settle(work, queue, message, settlement, command.origin)


def _settle(work: Work, queue: Queue, message: Stored, settlement: Settlement, origin: Origin) -> None:
    outcome = settlement.outcome
    if settlement.overlay is not None:
        message = message._replace(overlay=settlement.overlay)
    if outcome is Outcome.COMPLETE:
        remove(work, queue, [message])
    elif outcome is Outcome.DEAD_LETTER:
        dead_letter(work, queue, message, settlement.reason, settlement.description)
    elif outcome is Outcome.TRANSFER_DEAD_LETTER:
        _move(work, queue, SubQueue.TRANSFER_DEAD_LETTER, message, settlement.reason, settlement.description)
    elif outcome is Outcome.DEFER:
        defer(work, queue, message)
    else:
        give_back(work, queue, message, outcome is Outcome.ABANDON, origin, settlement.delay_ms)


def renew(work: Work, command: Renew) -> None:
    """Extend message locks. In a session the session's lock is what is renewed, not a message's."""
    queue = work.queue_of(command)
    until = work.now_ms + queue.entity.settings.lock_duration_ms
    for token in command.tokens:
        lock = queue.locks.get(token)
        if lock is None or lock.until_ms <= work.now_ms:
            command.result.append(lock_lost())
        elif lock.hold is not None:
            command.result.append(
                BusError(Fault.NOT_ALLOWED, "The message is locked with its session; renew the session's lock.")
            )
        else:
            lock.until_ms = until
            del queue.locks[token]
            queue.locks[token] = lock
            command.result.append(until)


def remove(work: Work, queue: Queue, messages: list[Stored]) -> None:
    """Messages leave for good."""
    queue.bytes -= sum([message.size for message in messages])
    states = [message.state for message in messages]
    for state in set(states):
        queue.count(state, -states.count(state))
    work.plan.remove(queue.id, messages)
    work.touch(queue)


def defer(work: Work, queue: Queue, message: Stored) -> None:
    """Set a message aside until it is asked for by number. Its delivery count stays."""
    queue.count(message.state, -1)
    queue.count(MessageState.DEFERRED, 1)
    work.plan.replace(queue.id, message.seq, queue.id, message._replace(state=int(MessageState.DEFERRED)))
    work.touch(queue)


def dead_letter(work: Work, queue: Queue, message: Stored, reason: str | None, description: str | None) -> None:
    """Move a message to the dead-letter queue under its own number; there it has no time to live."""
    _move(work, queue, SubQueue.DEAD_LETTER, message, reason, description)


def _move(
    work: Work, queue: Queue, sub: SubQueue, message: Stored, reason: str | None, description: str | None
) -> None:
    target = queue.entity.queues[sub]
    moved = message._replace(
        state=int(MessageState.ACTIVE), expires_at_ms=None, due_at_ms=None, reason=reason, description=description
    )
    queue.count(message.state, -1)
    queue.bytes -= message.size
    target.active += 1
    target.bytes += message.size
    target.next_seq = max(target.next_seq, message.seq + 1)
    work.plan.replace(queue.id, message.seq, target.id, moved)
    work.touch(queue)
    work.touch(target)
    target.line.give_back(message.seq)
    work.hints.ready.add(target.id)


def expire(work: Work, queue: Queue, message: Stored) -> None:
    """A message's time to live is over."""
    if queue.entity.settings.dead_letter_on_expiry:
        dead_letter(work, queue, message, TTL_EXPIRED, "The message's time to live ended before it was received.")
        outcome = "deadletter"
    else:
        remove(work, queue, [message])
        outcome = "removed"
    work.journal.add("ttl_expire", queue.id, BROKER, columns_of([message]), outcome)


def give_back(
    work: Work, queue: Queue, message: Stored, counted: bool, origin: Origin = BROKER, delay_ms: int = 0
) -> None:
    """An unlocked message returns to where it was, unless its deliveries or its time are used up.

    With a delay it waits outside of the line first; in a session that would break the order, so there it does not.
    """
    limit = queue.entity.settings.max_delivery_count
    if counted:
        message = message._replace(delivery_count=message.delivery_count + 1)
        if queue.sub == SubQueue.MAIN and message.delivery_count >= limit:
            text = f"The message was delivered {message.delivery_count} times without being completed."
            dead_letter(work, queue, message, MAX_DELIVERY_COUNT, text)
            work.journal.add("deadletter", queue.id, origin, columns_of([message]), MAX_DELIVERY_COUNT)
            return
    if message.state == MessageState.ACTIVE and _is_over(message, work.now_ms):
        expire(work, queue, message)
        return
    may_wait = counted and queue.sub == SubQueue.MAIN and not queue.in_sessions
    if delay_ms > 0 and may_wait and message.state == MessageState.ACTIVE:
        _postpone(work, queue, message, work.now_ms + delay_ms)
        return
    if counted:
        work.plan.replace(queue.id, message.seq, queue.id, message)
    if message.state != MessageState.ACTIVE:
        return
    line = queue.line_of(message.session)
    if line is not None:
        line.give_back(message.seq)
    work.hints.ready.add(queue.id)
    if queue.in_sessions:
        work.hints.sessions.setdefault(queue.id, set()).add(message.session or "")


def _postpone(work: Work, queue: Queue, message: Stored, due_ms: int) -> None:
    """A message waits for an instant, as one that was sent to be enqueued then; it joins the end of the queue."""
    queue.count(message.state, -1)
    queue.count(MessageState.SCHEDULED, 1)
    waiting = message._replace(state=int(MessageState.SCHEDULED), due_at_ms=due_ms)
    work.plan.replace(queue.id, message.seq, queue.id, waiting)
    work.touch(queue)
    work.memory.due(due_ms)


def _is_over(message: Stored, now_ms: int) -> bool:
    return message.expires_at_ms is not None and message.expires_at_ms <= now_ms


def end_locks(
    work: Work, queue: Queue, tokens: list[bytes], counted: bool, operation: str, origin: Origin = BROKER, why: str = ""
) -> int:
    """Locks end without their holder's decision; the messages are available again."""
    locks = [queue.locks[token] for token in tokens]
    for token, lock in zip(tokens, locks, strict=True):
        work.unlock(queue, token, lock, counted)
    work.journal.add(operation, queue.id, origin, columns_of([lock.message for lock in locks]), why)
    for lock in locks:
        give_back(work, queue, lock.message, counted, origin)
    return len(locks)
