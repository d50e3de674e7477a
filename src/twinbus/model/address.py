"""Where a link leads: an entity, one of its queues, its management node, or the node that takes tokens.

Reading an address from text is `wire.address`' business; whether the entity exists, the catalog's.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class SubQueue(IntEnum):
    """The queues that belong to one entity; the numbers are those of the store's queues."""

    MAIN = 0
    DEAD_LETTER = 1
    TRANSFER_DEAD_LETTER = 2


BACKLOG_PART = "/x-servicebus-transfer/"
ORDERED_BACKLOG_PART = "/x-servicebus-transfer-ordered/"


def is_backlog(path: str) -> bool:
    """Whether a queue is one in which a paired namespace's senders leave what is diverted."""
    path = path.lower()
    return BACKLOG_PART in path or ORDERED_BACKLOG_PART in path


def backlog_of(path: str) -> str | None:
    """The primary whose diverted messages a queue holds; None if it is no backlog queue."""
    lowered = path.lower()
    at = max(lowered.find(BACKLOG_PART), lowered.find(ORDERED_BACKLOG_PART))
    return None if at < 0 else path[:at]


class Address(NamedTuple):
    """An entity path in the sender's own spelling, keywords in ours; entities compare paths without case."""

    entity_path: str
    subqueue: SubQueue = SubQueue.MAIN
    management: bool = False
    cbs: bool = False
