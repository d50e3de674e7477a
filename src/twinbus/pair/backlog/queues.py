"""The backlog queues of a pair: their names, and what they should be like.

Creating them is `making`'s work, sending to them `diversion`'s, choosing one `rotation`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields

from twinbus.model import limits
from twinbus.model.address import BACKLOG_PART
from twinbus.model.entity import QueueDescription

TRANSFER = BACKLOG_PART.strip("/")

# What the documents say a backlog queue is like; the rest is as in any new queue.
DOCUMENTED = {
    "max_size_mb": 5120,
    "max_delivery_count": limits.DELIVERY_COUNT_MAX,
    "default_ttl_ms": limits.UNLIMITED_MS,
    "auto_delete_on_idle_ms": limits.UNLIMITED_MS,
    "lock_duration_ms": 60_000,
    "dead_letter_on_expiration": True,
    "batched_operations": True,
}
_NOT_COMPARED = {"name", "created_at_ms", "updated_at_ms", "authorization_rules", "user_metadata"}


def path(primary: str, index: int, transfer: str = TRANSFER) -> str:
    """A backlog queue's path in the secondary; the primary's name keeps several primaries apart."""
    return f"{primary}/{transfer}/{index}"


def paths(primary: str, count: int) -> list[str]:
    """The first so many backlog queues."""
    return [path(primary, index) for index in range(count)]


def primary_of(queue: str) -> str | None:
    """The primary whose backlog queue it is; None for any other queue."""
    found = re.fullmatch(rf"(.+)/{TRANSFER}/\d{{1,9}}", queue, re.IGNORECASE)
    return found[1] if found else None


def index_of(primary: str, queue: str, transfer: str = TRANSFER) -> int | None:
    """The number of a backlog queue of this primary; None for any other queue."""
    found = re.fullmatch(rf"{re.escape(primary)}/{transfer}/(\d{{1,9}})", queue, re.IGNORECASE)
    return int(found[1]) if found else None


def description(primary: str, index: int) -> QueueDescription:
    """A backlog queue as it is created."""
    return QueueDescription(name=path(primary, index), **DOCUMENTED)  # type: ignore[arg-type]


def differences(found: QueueDescription, documented: Mapping[str, object] = DOCUMENTED) -> list[str]:
    """How a queue that somebody else made differs from the documented one, in words."""
    expected = QueueDescription(name=found.name, **documented)  # type: ignore[arg-type]
    return [
        f"{field.name} is {getattr(found, field.name)} instead of {getattr(expected, field.name)}"
        for field in fields(found)
        if field.name not in _NOT_COMPARED and getattr(found, field.name) != getattr(expected, field.name)
    ]


def spans(queues: Iterable[str]) -> str:
    """The numbers of backlog queues in few characters, such as `0-9,12`, for a status record."""
    numbers = {queue.rpartition("/")[2] for queue in queues}
    found: list[list[int]] = []
    for index in sorted(int(number) for number in numbers if number.isdecimal()):
        if found and index == found[-1][-1] + 1:
            found[-1] = [found[-1][0], index]
        else:
            found.append([index])
    return ",".join("-".join(map(str, span)) for span in found)


def in_spans(index: int, text: str) -> bool:
    """Whether a backlog queue's number is among those that a record names; what is no such text names none."""
    for span in text.split(","):
        first, _, last = span.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and int(first) <= index <= int(last or first):
            return True
    return False
