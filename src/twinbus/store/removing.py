"""Removing messages that nobody holds: cancelled schedules and batch deletes.

What a receiver holds is removed by `store.settling`, what time removes by `store.sweeping`.
"""

from __future__ import annotations

import json

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import MessageState
from twinbus.store import statements
from twinbus.store.commands import CancelScheduled, DeleteBatch
from twinbus.store.settling import remove
from twinbus.store.volatile import Queue, Stored
from twinbus.store.work import Work, columns_of


def cancel_scheduled(work: Work, command: CancelScheduled) -> None:
    """Remove scheduled messages by number, all or none."""
    queue = work.queue_of(command)
    work.flush()
    numbers = sorted(set(command.sequence_numbers))
    found = work.states(queue, statements.STATES_BY_NUMBER, seqs=json.dumps(numbers))
    scheduled = [message for message in found if message.state == MessageState.SCHEDULED]
    if len(scheduled) < len(numbers):
        raise BusError(Fault.MESSAGE_NOT_FOUND, "At least one of the numbers is not that of a scheduled message.")
    remove(work, queue, scheduled)
    work.journal.add("cancel", queue.id, command.origin, columns_of(scheduled))


def delete_batch(work: Work, command: DeleteBatch) -> None:
    """Remove the oldest unlocked messages that were enqueued before an instant, active ones or all."""
    queue = work.queue_of(command)
    work.flush()
    locked = queue.locked_numbers()
    limit = command.limit + len(locked)
    statement = statements.OLD_MESSAGES if command.every_state else statements.OLD_ACTIVE
    found = work.states(queue, statement, before_ms=command.before_ms, limit=limit)
    leaving = [message for message in found if message.seq not in locked][: command.limit]
    forget(queue, leaving)
    remove(work, queue, leaving)
    work.flush()  # An acquire of this commit may read where nobody has read before.
    command.result = len(leaving)
    work.journal.add("delete", queue.id, command.origin, columns_of(leaving))


def forget(queue: Queue, messages: list[Stored]) -> None:
    """Take messages that are leaving out of the lines in which they wait."""
    for message in messages:
        line = queue.line_of(message.session)
        if line is not None:
            line.forget(message.seq)
