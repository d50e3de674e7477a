"""Duplicate detection: by what a message is known again, and which of some messages are known already.

When an id leaves its window, and that it then is forgotten, is `store.sweeping`'s business.
"""

from __future__ import annotations

import json

from twinbus.model.message import Incoming
from twinbus.store import statements
from twinbus.store.commands import QueueSettings
from twinbus.store.volatile import Queue
from twinbus.store.work import Work

Known = set[tuple[int, str]]  # Queues, and the keys of messages that they have seen.


def key_of(settings: QueueSettings, message: Incoming) -> str:
    """What two copies of a message have in common; empty for a message that cannot be known again."""
    if not settings.keyed_duplicates or not message.message_id:
        return message.message_id
    partition_key = message.partition_key or ""
    return f"{len(partition_key)}:{partition_key}{message.message_id}"


def known_duplicates(work: Work, candidates: list[tuple[Queue, Incoming]]) -> Known:
    """The keys of those candidates that were stored within their queue's window before this commit."""
    asked = []
    for queue, message in candidates:
        settings = queue.entity.settings
        key = key_of(settings, message) if settings.duplicate_window_ms else ""
        if key:
            asked.append((queue.id, key, work.now_ms - settings.duplicate_window_ms))
    if not asked:
        return set()
    found = work.database.execute(statements.KNOWN_DUPLICATES, (json.dumps(asked),)).get
    return {(queue, key) for queue, key in json.loads(found)}


def remember(work: Work, queue: Queue, message: Incoming, known: Known) -> None:
    """A message was accepted; within the window another one like it will be a duplicate."""
    window_ms = queue.entity.settings.duplicate_window_ms
    key = key_of(queue.entity.settings, message) if window_ms else ""
    if key:
        known.add((queue.id, key))
        work.plan.duplicates.append((queue.id, key))
        work.memory.due(work.now_ms + window_ms)
