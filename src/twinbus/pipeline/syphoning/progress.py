"""How far a syphon is: moved, dead, left, how fast, and how long it will take.

Pure arithmetic; time is an argument. During a round only the broker knows how much is left, so that what has been moved
meanwhile is taken from its counts; at the end of a round the tasks have told it exactly.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.pipeline.syphoning.movement import Done

WINDOW_S = 10.0  # The rate is that of so long.
STALE_S = 3.0  # A broker that has not told anything for so long makes it slower.


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the secondary says is in the backlog queues."""

    queues: dict[str, int]  # Messages that can be received, by queue.
    ordered: dict[str, int]
    unreceivable: int = 0  # Deferred or scheduled by somebody: no receiver gets them.

    @property
    def receivable(self) -> int:
        """How many can be moved."""
        return sum(self.queues.values()) + sum(self.ordered.values())

    @property
    def left(self) -> int:
        """How many there are."""
        return self.receivable + self.unreceivable


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is, for whoever shows it."""

    moved: int
    dead: int
    left: int | None  # None as long as nobody could be asked.
    rate: float  # Messages a second, lately.
    eta_s: float | None  # None if nothing moves.
    doubled: int = 0
    lost_tasks: int = 0  # Attempts that were lost with their count: then more was moved than is known.
    problem: str | None = None

    @property
    def total(self) -> int:
        """All that there was to do."""
        return self.moved + self.dead + (self.left or 0)


class Meter:
    """Adds up what tasks and broker tell."""

    def __init__(self, now: float) -> None:
        self.moved: Counter[str] = Counter()  # By destination, as told by tasks.
        self.dead = 0
        self.doubled = 0
        self.lost_tasks = 0
        self.problem: str | None = None
        self._left: int | None = None
        self._before: int | None = None  # What was left when the round began; None between rounds.
        self._shown = 0
        self._samples: deque[tuple[float, int]] = deque([(now, 0)])

    def looked(self, left: int, now: float) -> None:
        """The broker told how many are left."""
        self._left = left
        self._sample(now)

    def begins(self) -> None:
        """A round begins."""
        self._before = self._left

    def returned(self, tasks: Sequence[Done], now: float) -> int:
        """A round has ended; how many messages it brought out of the backlog."""
        self._before = None
        for done in tasks:
            self.moved += done.moved
            self.dead += done.dead
            self.doubled += done.doubled
            self.lost_tasks += done.attempt
        self._sample(now)
        return sum(done.ended for done in tasks)

    def progress(self, now: float) -> Progress:
        """How far it is now."""
        rate = self._rate(now)
        eta_s = self._left / rate if self._left is not None and rate > 0 else None
        return Progress(self._shown, self.dead, self._left, rate, eta_s, self.doubled, self.lost_tasks, self.problem)

    def _sample(self, now: float) -> None:
        guess = 0
        if self._before is not None and self._left is not None:
            guess = max(self._before - self._left, 0)
        self._shown = self.moved.total() if self._before is None else max(self._shown, self.moved.total() + guess)
        self._samples.append((now, self._shown))
        samples = self._samples
        # Time in which nothing moved at first, as while workers start, says nothing about how fast it is.
        while len(samples) > 2 and (samples[1][0] <= now - WINDOW_S or samples[0][1] == samples[1][1]):
            samples.popleft()

    def _rate(self, now: float) -> float:
        began, first = self._samples[0]
        at, last = self._samples[-1]
        passed = max(at, now - STALE_S) - began
        return max(last - first, 0) / passed if passed > 0 else 0.0
