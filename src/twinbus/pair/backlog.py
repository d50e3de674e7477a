"""The backlog queues of a pair: their names, what they should be like, and which of them are in the rotation.

Creating them is `pairing`'s work and sending to them `diversion`'s; here is only what is decided.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
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


def path(primary: str, index: int) -> str:
    """A backlog queue's path in the secondary; the primary's name keeps several primaries apart."""
    return f"{primary}/{TRANSFER}/{index}"


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


class Rotation:
    """Which backlog queues are in use. One that failed is left out for a while, for all senders of the client."""

    def __init__(
        self, queues: Sequence[str], rest_s: float, clock: Callable[[], float], choose: random.Random | None = None
    ) -> None:
        self._queues = list(queues)
        self._rest_s = rest_s
        self._clock = clock
        self._random = choose or random.Random()
        self._out: dict[str, float] = {}

    @property
    def queues(self) -> list[str]:
        """All of them."""
        return list(self._queues)

    def resting(self) -> list[str]:
        """Those that failed lately."""
        now = self._clock()
        return [queue for queue, until in self._out.items() if until > now]

    def pick(self, preferred: str | None = None, tried: Sequence[str] = ()) -> str | None:
        """A queue to send to: the preferred one while it is in use, else one at random; None if none is left."""
        resting = set(self.resting())
        usable = [queue for queue in self._queues if queue not in resting and queue not in tried]
        if not usable:
            # When all are resting, one that this send has not tried is better than none.
            usable = [queue for queue in self._queues if queue not in tried]
        if preferred in usable:
            return preferred
        return self._random.choice(usable) if usable else None

    def failed(self, queue: str) -> None:
        """A queue did not take a message; nobody is sent there for a while."""
        self._out[queue] = self._clock() + self._rest_s

    def worked(self, queue: str) -> None:
        """A queue took messages."""
        self._out.pop(queue, None)
