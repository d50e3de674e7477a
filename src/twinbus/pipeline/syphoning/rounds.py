"""Who receives where in the next round: backlog queues and receivers become shares, one for each Spark task.

Pure: counts go in, shares come out. What a task does with its share is `movement`'s work.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from twinbus.pair.syphon.missing import Seen

RECEIVERS_PER_TASK = 4  # A receiver mostly waits for brokers, so that one core is busy with several.
ORDERED_WEIGHT = 10  # Messages of ordered queues are moved one at a time.


@dataclass(frozen=True, slots=True)
class Share:
    """What one task does in one round."""

    number: int
    receivers: tuple[str, ...]  # Backlog queues; one stands here once for each receiver that it gets.
    ordered: tuple[str, ...] = ()  # Ordered backlog queues, each in one share only.
    rate: float | None = None  # Messages a second, at most.
    missing: Seen = field(default_factory=dict)  # Entities that the primary did not have in earlier rounds.


def plan(
    waiting: Mapping[str, int],
    ordered: Mapping[str, int],
    *,
    tasks: int,
    receivers: int | None = None,
    batch: int,
    rate: float | None = None,
) -> list[Share]:
    """Spread the queues that hold something evenly over at most so many tasks; none for an empty backlog.

    `receivers` are those of all tasks together. A queue gets more than one when it has a lot of messages for each.
    """
    if rate is not None:
        tasks = min(tasks, int(rate))  # So that a task's part is at least a message a second.
    tasks = max(tasks, 1)
    load = [
        (weight, queue, False) for queue, weight in _weighed(waiting, receivers or tasks * RECEIVERS_PER_TASK, batch)
    ]
    load += [(count * ORDERED_WEIGHT, queue, True) for queue, count in ordered.items() if count > 0]
    # The heaviest first, each to whoever has least: no share is then much heavier than another.
    load.sort(key=lambda each: (-each[0], each[1]))
    tasks = min(tasks, len(load))
    taken: list[list[tuple[str, bool]]] = [[] for _ in range(tasks)]
    least = [(0.0, number) for number in range(tasks)]
    for weight, queue, is_ordered in load:
        carried, number = heapq.heappop(least)
        taken[number].append((queue, is_ordered))
        heapq.heappush(least, (carried + weight, number))
    part = None if rate is None else rate / max(tasks, 1)
    return [_share(number, mine, part) for number, mine in enumerate(taken)]


def _weighed(waiting: Mapping[str, int], receivers: int, batch: int) -> list[tuple[str, float]]:
    """An entry for each receiver: its queue, and how many messages are its part."""
    deepest = sorted(((count, queue) for queue, count in waiting.items() if count > 0), key=lambda e: (-e[0], e[1]))
    deepest = deepest[:receivers]
    given = {queue: 1 for _, queue in deepest}
    # First what each receiver of a queue has to move, negative, so that the most comes first.
    wish: list[tuple[float, str, int]] = [(-count, queue, count) for count, queue in deepest]
    heapq.heapify(wish)
    for _ in range(receivers - len(deepest)):
        if not wish:
            break
        _, queue, count = heapq.heappop(wish)
        if count >= (given[queue] + 1) * batch:
            given[queue] += 1
            heapq.heappush(wish, (-count / given[queue], queue, count))
    return [(queue, count / given[queue]) for count, queue in deepest for _ in range(given[queue])]


def _share(number: int, mine: list[tuple[str, bool]], rate: float | None) -> Share:
    ordered = [queue for queue, is_ordered in mine if is_ordered]
    if rate is not None:
        # Sixteen sessions of a queue wait for their turn at once, and none of them may wait too long for it.
        ordered = ordered[: max(1, int(rate))]
    return Share(number, tuple(queue for queue, is_ordered in mine if not is_ordered), tuple(ordered), rate)
