"""The course of a drill: what happened when, and how the counts grew, for whoever watches and for the report.

Only remembers. What is counted is told by `traffic`, and when something happens by the scenarios.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

# Times that a verdict tells: from the first of two moments to the second.
SPANS = {"divert": ("gone", "diverted"), "heal": ("back", "healed"), "drain": ("back", "drained")}
POINTS_MAX = 2000  # Then every second point is dropped, and points are kept half as often.


class Moment(NamedTuple):
    """Something that happened, in words."""

    at_s: float
    what: str


class Point(NamedTuple):
    """How far it was at one moment."""

    at_s: float
    acknowledged: int
    diverted: int
    received: int


@dataclass(slots=True)
class Course:
    """One drill; `say` gets each moment in words as it comes."""

    scenario: str
    heard: Callable[[Moment], None] = lambda moment: None
    began_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    moments: list[Moment] = field(default_factory=list)
    marks: dict[str, float] = field(default_factory=dict)  # The first time that each came.
    points: list[Point] = field(default_factory=list)
    attempted: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    diverted: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    failed: int = 0  # Sends that raised; their messages are sent again.
    away: set[str] = field(default_factory=set)  # Namespaces that are gone at present.
    ill: dict[str, str] = field(default_factory=dict)  # Entities whose sends fail or are diverted.
    _began: float = field(default_factory=time.monotonic)
    _every: int = 1
    _skipped: int = 0

    def now_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def say(self, what: str) -> None:
        """Something happened that people want to know."""
        moment = Moment(self.now_s(), what)
        self.moments.append(moment)
        self.heard(moment)

    def mark(self, name: str) -> None:
        """One of the moments between which times are taken; only the first of a name counts."""
        self.marks.setdefault(name, self.now_s())

    def times(self) -> dict[str, float | None]:
        """How long diverting, healing and draining took, as far as they happened."""
        return {
            name: self.marks[end] - self.marks[start] if start in self.marks and end in self.marks else None
            for name, (start, end) in SPANS.items()
        }

    def sample(self) -> None:
        """Keep how far it is now."""
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.points.append(Point(self.now_s(), len(self.acknowledged), len(self.diverted), len(self.received)))
        if len(self.points) > POINTS_MAX:
            del self.points[1::2]
            self._every *= 2
