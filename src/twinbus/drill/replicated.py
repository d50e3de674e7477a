"""A replicated client at work on the stage: both namespaces have the same entities, and receivers read both.

What it tells of copies and roles is kept here; the traffic through it, the ledger and the ending are `acting`'s.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, NamedTuple

from twinbus.drill.acting import Act
from twinbus.drill.paired import OPTIONS
from twinbus.drill.stage import PRIMARY, SECONDARY, Stage
from twinbus.drill.traffic import Destination
from twinbus.pair.aio import ReplicatedClient
from twinbus.pair.replication.sender import Sent

ATTEMPT_S = 20.0  # A namespace that is there answers within this, on a busy machine too.


class Swap(NamedTuple):
    """The roles of an entity changed."""

    at_s: float
    path: str
    active: str  # The namespace that is the active one now.


class ReplicatedAct(Act):
    """Use it with `async with`; afterwards ask for its `ending`."""

    def __init__(self, stage: Stage, mode: str) -> None:
        super().__init__(stage)
        self._mode = mode
        self.client: ReplicatedClient
        self.copies: dict[str, tuple[str, ...]] = {}  # Which namespaces took which message.
        self.swaps: list[Swap] = []

    async def _open(self, stack: AsyncExitStack) -> ReplicatedClient:
        self.client = await stack.enter_async_context(
            ReplicatedClient.from_description(
                self._stage.described(replace(OPTIONS, attempt_timeout=ATTEMPT_S)),
                mode=self._mode,
                ledger=self.ledger,
                on_sent=self._was_sent,
                on_swap=self._swapped,
            )
        )
        return self.client

    def of(self, *namespaces: str) -> set[str]:
        """The messages of which exactly these namespaces took a copy."""
        return {message_id for message_id, took in self.copies.items() if set(took) == set(namespaces)}

    def both(self) -> set[str]:
        """The messages of which there are two copies."""
        return self.of(PRIMARY, SECONDARY)

    # What the client tells

    def _was_sent(self, sent: Sent) -> None:
        for message_id in sent.tags:
            self.copies[message_id] = sent.namespaces
        if "back" in self._course.marks and len(sent.namespaces) == 2:
            self._course.mark("healed")

    def _swapped(self, path: str, active: str) -> None:
        self.swaps.append(Swap(self._course.now_s(), path, active))
        self._course.say(f"{path}: the {active} is the active namespace now")

    def _receiver(self, destination: Destination, settings: dict[str, Any]) -> Any:
        if destination.subscription is None:
            return self.client.get_queue_receiver(destination.path, **settings)
        return self.client.get_subscription_receiver(destination.path, destination.subscription, **settings)
