"""How long commits take: a store whose commits are timed, and the times of the last ones.

Only those that waited for the disk count; what is done about slow ones is left to whoever looks.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import Any

from twinbus.broker.opened import OpenStore
from twinbus.store.commands import Command, Hints

KEPT = 512


class CommitTimes:
    """The times of a store's last commits, over openings."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        """A commit was synced."""
        self._seconds.append(seconds)

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
