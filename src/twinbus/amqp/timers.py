"""The times of a connection: heartbeats to the peer, patience with a silent one (Part 2, section 2.4.5).

The clock belongs to the caller, who says what time it is with every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.conditions import RESOURCE_LIMIT_EXCEEDED
from twinbus.amqp.frames import EMPTY_FRAME
from twinbus.amqp.states import Phase

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection

MAX_HEARTBEAT_INTERVAL_MS = 30_000


class Timers:
    """When something was last sent and received, and what follows from that."""

    __slots__ = (
        "_close_by_ms",
        "_connection",
        "_heartbeat_ms",
        "_last_received_ms",
        "_last_sent_ms",
        "_now_ms",
        "_open_by_ms",
    )

    def __init__(self, connection: Connection, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._last_received_ms = now_ms
        self._last_sent_ms = now_ms
        self._open_by_ms: int = now_ms + connection.settings.handshake_timeout_ms
        self._close_by_ms: int | None = None
        self._heartbeat_ms: int | None = None

    def received(self, now_ms: int) -> None:
        """Bytes came."""
        self._now_ms = self._last_received_ms = now_ms

    def sent(self) -> None:
        """Bytes go, at the time that is known."""
        self._last_sent_ms = self._now_ms

    def opened(self, remote_idle_ms: int | None) -> None:
        """The peer's open says how long it bears silence."""
        if remote_idle_ms:
            self._heartbeat_ms = min(max(1, remote_idle_ms // 2), MAX_HEARTBEAT_INTERVAL_MS)

    def closing(self) -> None:
        """Our close is on its way; the peer has so long to answer."""
        self._close_by_ms = self._now_ms + self._connection.settings.close_timeout_ms

    def tick(self, now_ms: int) -> None:
        """Does what is due."""
        self._now_ms = now_ms
        connection = self._connection
        phase = connection.phase
        if phase is Phase.OPEN:
            silent_until = self._silent_until_ms()
            if silent_until is not None and now_ms >= silent_until:
                connection.fail(RESOURCE_LIMIT_EXCEEDED, "the idle time-out has passed without a frame")
            elif self._heartbeat_ms is not None and now_ms - self._last_sent_ms >= self._heartbeat_ms:
                if not connection.out:
                    connection.out.append(EMPTY_FRAME)
                self._last_sent_ms = now_ms
        elif phase is Phase.CLOSING:
            if self._close_by_ms is not None and now_ms >= self._close_by_ms:
                connection.give_up()
        elif not connection.wants_close and now_ms >= self._open_by_ms:
            connection.fail(RESOURCE_LIMIT_EXCEEDED, "the connection was not opened in time")

    def _silent_until_ms(self) -> int | None:
        idle_ms = self._connection.settings.idle_timeout_ms
        return self._last_received_ms + 2 * idle_ms if idle_ms else None

    def deadline_ms(self) -> int | None:
        """When `tick` will have something to do."""
        phase = self._connection.phase
        if phase is Phase.OPEN:
            due = [self._silent_until_ms()]
            if self._heartbeat_ms is not None:
                due.append(self._last_sent_ms + self._heartbeat_ms)
            known = [time for time in due if time is not None]
            return min(known) if known else None
        if phase is Phase.CLOSING:
            return self._close_by_ms
        return None if self._connection.wants_close else self._open_by_ms
