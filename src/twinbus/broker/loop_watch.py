"""How late the event loop is: a timer that should come at once after its time, and does not when something holds it up.

What is done about it is left to whoever looks at the metrics.
"""

from __future__ import annotations

import asyncio
from collections import deque

TICK_S = 0.25
KEPT_S = 60.0


class LoopWatch:
    """The delays of the last minute."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._late: deque[tuple[float, float]] = deque()  # When a tick came, and how late; the longest first.
        self._due_s = 0.0
        self._schedule()

    @property
    def lag_s(self) -> float:
        """The longest delay within the last minute."""
        self._forget(self._loop.time())
        return self._late[0][1] if self._late else 0.0

    def end(self) -> None:
        """Watch no more."""
        self._timer.cancel()

    def _schedule(self) -> None:
        self._due_s = self._loop.time() + TICK_S
        self._timer = self._loop.call_at(self._due_s, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        late = now - self._due_s
        # A shorter delay that came before a longer one can never be the longest again.
        while self._late and self._late[-1][1] <= late:
            self._late.pop()
        self._late.append((now, late))
        self._forget(now)
        self._schedule()

    def _forget(self, now: float) -> None:
        while self._late and self._late[0][0] < now - KEPT_S:
            self._late.popleft()
