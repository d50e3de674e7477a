"""Which backlog queues of a pair are in use: one that failed rests for a while.

What the queues are called and like is in `queues`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence


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

    def use(self, queues: Sequence[str]) -> None:
        """These are the queues from now on."""
        self._queues = list(queues)

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
