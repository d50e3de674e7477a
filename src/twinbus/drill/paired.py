"""A paired client at work on the stage: what it tells of failing over, diverting and healing goes into the course.

The traffic through it, the ledger and the ending are `acting`'s; what happens meanwhile is told by the scenarios.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from twinbus.drill.acting import Act, until
from twinbus.drill.stage import Stage
from twinbus.drill.traffic import Destination
from twinbus.pair import State
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.backlog.diversion import Diverted
from twinbus.pair.outbox.rows import Queued
from twinbus.pair.route.health_board import Change

HOME_S = 60.0  # How long healing and draining may take.
MARGIN_S = 2.0
OPTIONS = SendAvailabilityOptions(
    backlog_queue_count=3,
    failover_interval=2.0,
    ping_primary_interval=1.0,
    attempts=1,
    attempt_timeout=20,  # Who is there answers within this, on a busy machine too; who is gone refuses at once.
    queue_rest=2.0,
    enable_syphon=True,
)


class PairedAct(Act):
    """Use it with `async with`; afterwards ask for its `ending`."""

    def __init__(
        self,
        stage: Stage,
        options: SendAvailabilityOptions = OPTIONS,
        *,
        outbox: Path | None = None,
        make: Callable[..., PairedServiceBusClient] = PairedServiceBusClient.from_description,
        **ledger: Any,
    ) -> None:
        """If the stage has a prover, Spark brings the backlog home, else what the options say.

        `make` makes the client of a description, if it is not the usual one.
        """
        super().__init__(stage, **ledger)
        chosen = stage.options or options
        self.options = chosen if stage.prover is None else replace(chosen, enable_syphon=False)
        self._outbox = outbox
        self._make = make
        self.changes: list[Change] = []
        self.diversions: list[Diverted] = []
        self.queued: set[str] = set()  # Messages that went through the outbox.
        self.client: PairedServiceBusClient

    async def _open(self, stack: AsyncExitStack) -> PairedServiceBusClient:
        self.client = await stack.enter_async_context(
            self._make(
                self._stage.described(self.options),
                on_change=self._changed,
                on_diverted=self._was_diverted,
                outbox=self._outbox,
                on_queued=self._was_queued,
            )
        )
        if self._stage.prover is not None:
            self._stage.prover.describe(self._stage.described(self.options, direct=True))
        return self.client

    async def restarted(self, description: Path, who: str) -> None:
        """A client that was started with another description: it receives from now on, and sends as well.

        Those of the first client go on sending. The ids of what this one sends begin with `who`.
        """
        self.client = await self._stack.enter_async_context(self._make(description, on_diverted=self._was_diverted))
        self._stack.push_async_callback(self.traffic.stop)  # Before the client is closed.
        self.traffic.send_by(self.client, who)

    # What scenarios wait for

    async def at_ease(self) -> None:
        """To begin with: messages come from every destination, nobody is ill, nothing is on its way home; then calm."""
        await until(self._is_at_ease)
        await self.calm()

    def _is_at_ease(self) -> bool:
        received = self._course.received
        heard = {message_id.rpartition("-")[0] for message_id in received}
        paths = [destination.path for destination in self._stage.destinations]
        return (
            not self._course.ill
            and self._course.diverted <= received.keys()
            and all(any(found.endswith(path) for found in heard) for path in paths)
        )

    async def silence(self) -> None:
        """Let the time of the plan pass, at least as much as senders need to divert, if nothing but time tells them."""
        # The first attempt fails, and another may be under way when the failover interval ends.
        told_s = 2 * self.options.seconds("attempt_timeout") + self.options.seconds("failover_interval")
        await asyncio.sleep(max(self._stage.plan.outage_s, told_s + MARGIN_S))
        await until(lambda: bool(self._course.diverted))  # On a busy machine that may take longer than planned.

    async def failed_over(self) -> None:
        """Wait until sends to all destinations are diverted."""
        paths = {destination.path for destination in self._stage.destinations}
        before = len(self.diversions)
        async with asyncio.timeout(HOME_S):
            while any(self._course.ill.get(path) != State.FAILED_OVER.value for path in paths):
                await asyncio.sleep(0.02)
            await self.diverting(paths, before)

    async def diverting(self, paths: Collection[str], before: int) -> None:
        """Wait until something of each destination was diverted after so many diversions, or for a while."""
        await until(lambda: {diverted.path for diverted in self.diversions[before:]} >= set(paths))

    async def home(self) -> None:
        """Wait until all entities are healthy again and everything that was diverted has come home."""
        deadline = time.monotonic() + HOME_S
        while self._course.ill and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if self._stage.prover is not None:
            self._course.say("draining the backlog with Spark")
            while await self._stage.prover.drain() != 0 and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            deadline = time.monotonic() + HOME_S  # Spark may have taken its time to start.
        while not self._course.diverted <= self._course.received.keys() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if self._course.diverted <= self._course.received.keys():
            self._course.mark("drained")
            self._course.say("everything that was diverted has come home")

    # What the client tells

    def _changed(self, change: Change) -> None:
        self.changes.append(change)
        self._course.say(f"{change.scope}: {change.before.value} -> {change.after.value}")
        self._course.ill[change.scope.path] = change.after.value
        if change.after is State.HEALTHY:
            self._course.ill.pop(change.scope.path, None)
            if not self._course.ill and "back" in self._course.marks:
                self._course.mark("healed")

    def _was_queued(self, queued: Queued) -> None:
        self.queued.update(queued.message_ids)

    def _was_diverted(self, diverted: Diverted) -> None:
        self.diversions.append(diverted)
        self._course.diverted.update(diverted.message_ids)
        if "gone" in self._course.marks:  # A very busy machine may look like an outage before there is one.
            self._course.mark("diverted")

    def _receiver(self, destination: Destination, settings: dict[str, Any]) -> Any:
        if destination.subscription is None:
            return self.client.get_queue_receiver(destination.path, ledger=self.ledger, **settings)
        return self.client.get_subscription_receiver(
            destination.path, destination.subscription, ledger=self.ledger, **settings
        )
