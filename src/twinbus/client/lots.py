"""Lots: the deliveries of one call that share one future, so that no message needs a future of its own.

When deliveries go out, and what an outcome is worth, is known by `sender` and `receiver`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from twinbus.amqp.events import Settlement
from twinbus.amqp.performatives import ACCEPTED, Rejected
from twinbus.client.errors import NOT_TAKEN, ClientError, from_peer, of_several


class Lot:
    """The deliveries of one call; `done` is fulfilled when the last of them has its outcome.

    `ids` grows in the order of the call, so that a delivery id leads back to a position. `expected` is the type of
    outcome that means success.
    """

    __slots__ = ("done", "expected", "failed", "ids", "left", "size")

    def __init__(self, size: int, expected: type, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.expected = expected
        self.size = size
        self.left = size
        self.ids: list[int] = []
        self.failed: dict[int, ClientError] = {}
        if not size:
            self.done.set_result(None)

    def finish(self) -> None:
        """Fulfils the future; called when nothing is left."""
        if self.done.done():  # The caller gave up waiting.
            return
        if self.failed:
            self.done.set_exception(of_several(self.failed, self.size))
        else:
            self.done.set_result(None)

    def refuse(self, position: int, error: ClientError) -> None:
        """The delivery at this position of the call failed."""
        self.failed[position] = error
        self.left -= 1
        if not self.left:
            self.finish()

    def refuse_rest(self, error: ClientError) -> None:
        """What was not sent yet will not be."""
        for position in range(len(self.ids), self.size):
            self.refuse(position, error)


class Pending(dict[int, Lot]):
    """The lots of deliveries that wait for their outcome, by delivery id."""

    __slots__ = ()

    def settled(self, items: Iterable[Settlement]) -> None:
        """The peer told outcomes."""
        pop = self.pop
        for delivery_id, _, state, _ in items:
            lot = pop(delivery_id, None)
            if lot is None:
                continue
            kind = type(state)
            if kind is lot.expected and (state is ACCEPTED or getattr(state, "error", None) is None):
                lot.left -= 1
                if not lot.left:
                    lot.finish()
                continue
            peer_error = state.error if kind is Rejected else None
            lot.refuse(
                lot.ids.index(delivery_id),
                from_peer(peer_error, NOT_TAKEN, f"the peer's outcome is {kind.__name__.lower()}"),
            )

    def fail(self, error: ClientError) -> None:
        """No outcome will come any more."""
        waiting = list(self.items())
        self.clear()
        for delivery_id, lot in waiting:
            lot.refuse(lot.ids.index(delivery_id), error)
