"""How long commits take: a store whose commits are timed, the times of the last ones, and how they are spread.

Only those that waited for the disk count; what is done about slow ones is left to whoever looks.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import Any

from twinbus.broker.opened import OpenStore
from twinbus.model.metrics import Spread
from twinbus.store.commands import Command, Hints

KEPT = 512
# From a fast disk's sync to the ten seconds after which a store counts as hanging.
BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class CommitTimes:
    """The times of a store's last commits, over openings."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=KEPT)
        self.spread = Spread(BOUNDS_S)  # Of all commits so far.

    def add(self, seconds: float) -> None:
        """A commit was synced."""
        self._seconds.append(seconds)
        self.spread.add(seconds)

    def document(self) -> dict[str, Any]:
        """In milliseconds: the middle one, one of the slowest, and the slowest."""
        found = sorted(self._seconds.copy())
        if not found:
            return {"measured": 0}
        return {
            "measured": len(found),
            "p50_ms": round(found[len(found) // 2] * 1000, 2),
            "p99_ms": round(found[min(len(found) - 1, len(found) * 99 // 100)] * 1000, 2),
            "most_ms": round(found[-1] * 1000, 2),
        }


class TimedStore:
    """A store on its thread, as group commit sees it."""

    def __init__(self, store: OpenStore, times: CommitTimes) -> None:
        self._store = store
        self._times = times
        self.checkpoint_due = store.checkpoint_due
        self.checkpoint = store.checkpoint
        self.close = store.close

    def commit(self, group: list[Command], now_ms: int) -> Hints:
        """Commit, and take the time if it had to be synced."""
        before, began = self._store.synced_commits, perf_counter()
        hints = self._store.commit(group, now_ms)
        if self._store.synced_commits != before:
            self._times.add(perf_counter() - began)
        return hints
