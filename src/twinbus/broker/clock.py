"""The real clock, which never goes backwards, and one beside it that can be set forward.

Wall time is read once; afterwards the monotonic clock carries it on, so that a correction of the system's clock cannot
revive or expire locks.
"""

from __future__ import annotations

import time

from twinbus.model.clock import Clock


class SystemClock:
    """Milliseconds since the Unix epoch, from the machine."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """The present instant."""
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000


class WallClock:
    """The machine's clock as it is now, corrections included; nothing in the broker goes by it."""

    def now_ms(self) -> int:
        """The present instant."""
        return time.time_ns() // 1_000_000


class MovableClock:
    """A namespace's clock for tests: goes on by itself, and can be set forward on the event loop's thread."""

    def __init__(self, real: Clock) -> None:
        self._real = real
        self.offset_ms = 0  # How far it is ahead.

    def now_ms(self) -> int:
        """The present instant, as far as the namespace is concerned."""
        return self._real.now_ms() + self.offset_ms

    def advance_ms(self, by_ms: int) -> None:
        """Set it forward."""
        if by_ms < 0:
            raise ValueError("A clock does not go backwards.")
        self.offset_ms += by_ms

    def return_to_real(self) -> None:
        """Forget how far it was set forward: only for a namespace in which nothing is left that knows the time."""
        self.offset_ms = 0


class DatabaseClock:
    """The clock of a database that several gateways share, carried on by this machine's between two measurements.

    Read by any thread, measured by one. It does not go backwards: after a step back it stands still for a while.
    """

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._error_ms = 0.0
        self._last_ms = 0

    @staticmethod
    def local_ms() -> float:
        """This machine's own measure, from an arbitrary beginning."""
        return time.monotonic_ns() / 1_000_000

    def measured(self, database_ms: int, asked_at_ms: float, answered_at_ms: float) -> None:
        """The database said what time it is; how wrong that can be by now depends on how long the answer took."""
        error_ms = (answered_at_ms - asked_at_ms) / 2
        self._error_ms += 1  # What was measured before grows old, by clocks that do not agree on a second.
        ahead_ms = database_ms - (asked_at_ms + answered_at_ms) / 2
        is_contradicted = abs(ahead_ms - self._ahead_ms) > error_ms + self._error_ms
        if error_ms <= self._error_ms or is_contradicted:
            self._ahead_ms, self._error_ms = int(ahead_ms), error_ms
        self.now_ms()

    def now_ms(self) -> int:
        """The present instant, as the database would tell it."""
        now_ms = int(self.local_ms()) + self._ahead_ms
        self._last_ms = max(self._last_ms, now_ms)
        return self._last_ms
