"""Pings: a paired client asks whether an entity takes messages again, and nobody shall ever receive the question.

The answer is as true as a send's: the quota is looked at, and the journal's row is on the disk before it is given.
"""

from __future__ import annotations

from twinbus.model.errors import BusError, Fault
from twinbus.store.commands import Ping
from twinbus.store.work import Work


def ping(work: Work, command: Ping) -> None:
    """Check and write down, and keep nothing."""
    queue = work.queue_of(command)
    room = queue.entity.settings.max_size_bytes - queue.entity.bytes
    if command.size > room:
        raise BusError(Fault.QUOTA_EXCEEDED, f"Entity {queue.entity.id} is full: {max(room, 0)} bytes are free.")
    work.journal.add("send", queue.id, command.origin, ([command.message_id], [0], [0], [command.size]), "ping")
