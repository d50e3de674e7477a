"""What must be in the queues if the journal is true: each copy that was made and has not ended, by queue and number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

MADE = {"send", "copy", "schedule"}
ENDED = {"cancel", "receive_delete", "complete", "forward", "delete", "drop", "damaged"}
MOVED = {"deadletter": 1, "transfer_deadletter": 2}


class Told(NamedTuple):
    """An operation, as far as it concerns what is in the queues."""

    operation: str
    queue: Any  # A number, or a number with a store's.
    number: int
    outcome: str


def residents(told: Iterable[Told], topics: frozenset[Any] = frozenset()) -> set[tuple[Any, int]]:
    """Replay operations in the order of their commits; what ends or moves must be there, what is made must not."""
    there: set[tuple[Any, int]] = set()
    for operation, queue, number, outcome in told:
        if operation == "send" and (outcome in ("duplicate", "ping") or queue in topics or number == 0):
            continue
        if operation in MADE:
            assert (queue, number) not in there, f"{operation} made {queue}/{number} once more"
            there.add((queue, number))
        elif operation == "activate":
            there.remove((queue, int(outcome)))
            there.add((queue, number))
        elif operation in ENDED or (operation == "ttl_expire" and outcome == "removed"):
            there.remove((queue, number))
        elif operation in MOVED or operation == "ttl_expire":
            there.remove((queue, number))
            there.add((_sub_queue(queue, MOVED.get(operation, 1)), number))
    return there


def _sub_queue(queue: Any, sub_queue: int) -> Any:
    if isinstance(queue, int):
        return (queue & ~3) + sub_queue
    *place, number = queue
    return (*place, (number & ~3) + sub_queue)
