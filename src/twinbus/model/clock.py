"""The clock as an argument: everything that waits or expires is told the time by whoever holds one of these.

The real clock lives in the broker's shell, the movable one in the test kit.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Tells the time in milliseconds since the Unix epoch."""

    def now_ms(self) -> int:
        """The present instant; never goes backwards within a process."""
        ...
