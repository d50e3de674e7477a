"""Many sends at once through a pair: the windows of one sender.

The bound and the outcomes are `client.overlapped`'s; where each message goes is decided as for any other send.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twinbus.client.overlapped import MAX_IN_FLIGHT, Outcome, UncollectedError, Window

__all__ = ["MAX_IN_FLIGHT", "Outcome", "UncollectedError", "Window", "Windows"]


class Windows:
    """The windows of one sender; its end asks all of them for what nobody looked at."""

    def __init__(self, send: Callable[[Any], Awaitable[object]]) -> None:
        self._send = send
        self._opened: list[Window[Any]] = []

    def open(self, max_in_flight: int) -> Window[Any]:
        """A window of sends; messages are the SDK's."""
        self._opened = [window for window in self._opened if window.under_way or window.forgotten()]
        opened: Window[Any] = Window(self._send, max_in_flight)
        self._opened.append(opened)
        return opened

    def check(self) -> None:
        """Raise failures that nobody looked at."""
        forgotten = [outcome for window in self._opened for outcome in window.forgotten()]
        self._opened.clear()
        if forgotten:
            raise UncollectedError(forgotten)
