"""The real clock, which never goes backwards.

Wall time is read once; afterwards the monotonic clock carries it on, so that a correction of the system's clock cannot
revive or expire locks. Tests use a movable clock instead.
"""

from __future__ import annotations

import time


class SystemClock:
    """Milliseconds since the Unix epoch, from the machine."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """The present instant."""
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000
