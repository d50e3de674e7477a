"""A sender's socket and a listener's, brought together: each waits for the other, then bytes pass between them.

What one side does not take stops the reading from the other, so that nothing piles up here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from twinbus.relay.framing import Close, Piece
from twinbus.relay.socket import Ended, Socket


class Accepted(NamedTuple):
    """A listener came for the socket, and speaks this of the sender's subprotocols."""

    protocol: str | None


class Rejected(NamedTuple):
    """A listener does not want the socket."""

    status: int
    text: str


class Meeting:
    """One sender waiting for one listener; its address is good once."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.decision: asyncio.Future[Accepted | Rejected] = loop.create_future()
        self.sender: asyncio.Future[Socket] = loop.create_future()
        self.listener: asyncio.Future[Socket] = loop.create_future()

    def cancel(self) -> None:
        """One of them is not coming."""
        self.decision.cancel()
        self.sender.cancel()
        self.listener.cancel()


class Pipe:
    """Two sockets that are one."""

    def __init__(self, sender: Socket, listener: Socket, on_ended: Callable[[], None]) -> None:
        self._sender = sender
        self._listener = listener
        self._on_ended = on_ended
        self.passed_bytes = 0
        self._connect(sender, listener, Close.GOING_AWAY)
        # A listener that vanished has not closed, and data may be missing: the sender must not take it for an end.
        self._connect(listener, sender, Close.INTERNAL)
        for socket in (sender, listener):
            socket.begin()

    def _connect(self, one: Socket, other: Socket, lost_code: Close) -> None:
        def passes(piece: Piece) -> None:
            self.passed_bytes += len(piece.data)
            other.send(piece)
            if other.is_full:
                one.pause()

        def ended(how: Ended) -> None:
            if how.is_clean:
                other.close(Close.NORMAL if how.code == Close.NO_CODE else how.code, how.reason)
            else:
                other.close(lost_code, "The other side is gone.")
            self._on_ended()

        one.on_piece = passes
        one.on_ended = ended
        other.on_drained = one.resume

    def close(self, code: Close, reason: str) -> None:
        """End it from here."""
        self._sender.close(code, reason)
        self._listener.close(code, reason)
