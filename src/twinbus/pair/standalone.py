"""The syphon without an application beside it: until it is told to end, or until the backlog is empty.

What is moved and how is `syphon`'s; the pump that runs for ever is in `pumping`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from twinbus.client import ReceivedMessage
from twinbus.client.errors import ClientError
from twinbus.pair import ordered_queues, syphon
from twinbus.pair.description import PairDescription
from twinbus.pair.half import Half
from twinbus.pair.ordered_syphon import OrderedPump
from twinbus.pair.pairing import Paired, pair
from twinbus.pair.presence import Presence
from twinbus.pair.pumping import Pump

QUIET_S = 1.0  # A queue that gives nothing for so long is empty.


@dataclass(slots=True)
class Progress:
    """What has been moved so far."""

    moved: Counter[str] = field(default_factory=Counter)  # By destination.
    dead: int = 0
    left: int = 0  # Given back: their destinations take nothing at present.
    problem: str | None = None


class StandaloneSyphon:
    """A syphon with a process of its own; use it with `async with`."""

    def __init__(self, description: PairDescription) -> None:
        self._description = description
        self._options = description.options
        self.primary, self.secondary = description.halves()
        self.paired: Paired | None = None
        self._pump: Pump | None = None
        self._ordered: OrderedPump | None = None
        self._presence: Presence | None = None
        self._announcing: asyncio.Task[None] | None = None
        self._drained = Progress()

    @property
    def pumps(self) -> list[Pump | OrderedPump]:
        """What moves messages, once it has begun."""
        return [pump for pump in (self._pump, self._ordered) if pump is not None]

    async def __aenter__(self) -> StandaloneSyphon:
        return self

    async def pair(self) -> None:
        """Find the backlog queues, and make those that are missing; a PairingError if there is none in the end."""
        options = self._options
        self.paired = await pair(
            self.primary, self.secondary, options.backlog_queue_count, self._description.primary.name
        )
        primary = self.paired.primary
        self._ordered = OrderedPump(
            self.primary,
            self.secondary,
            lambda: ordered_queues.found(self.secondary, primary),
            poll_s=options.seconds("poll"),
            pause_s=options.seconds("syphon_pause"),
        )
        if options.announce:
            self._presence = Presence("syphon", self.paired.primary, (self.primary, self.secondary), self._record)
            self._announcing = asyncio.create_task(self._presence.run())

    async def __aexit__(self, *args: object) -> None:
        for pump in (self._pump, self._ordered):
            if pump is not None:
                await pump.stop()
        if self._announcing is not None and self._presence is not None:
            self._announcing.cancel()
            await asyncio.gather(self._announcing, return_exceptions=True)
            await self._presence.end()
        await asyncio.gather(self.primary.close(), self.secondary.close(), return_exceptions=True)

    def start(self) -> None:
        """Bring home what comes, until the end of the block."""
        assert self.paired is not None
        options = self._options
        self._pump = Pump(
            self.primary,
            self.secondary,
            self.paired.queues,
            batch=options.syphon_batch,
            poll_s=options.seconds("poll"),
            pause_s=options.seconds("syphon_pause"),
        )
        self._pump.start()
        if self._ordered is not None:
            self._ordered.start()

    async def drain(self) -> Progress:
        """Bring home what is there now; returns when nothing is left that can be moved."""
        assert self.paired is not None
        await asyncio.gather(*(self._drain(queue) for queue in self.paired.queues), self._drain_ordered())
        return self._drained

    async def _drain_ordered(self) -> None:
        pump, done = self._ordered, self._drained
        if pump is not None:
            await pump.drain()
            done.moved += pump.moved
            done.dead += pump.dead
            done.problem = done.problem or pump.problem

    def progress(self) -> Progress:
        """What has been moved so far."""
        pump = self._pump
        if pump is None:
            return self._drained
        found = Progress(Counter(pump.moved), pump.dead, problem=pump.problem)
        if self._ordered is not None:
            found.moved += self._ordered.moved
            found.dead += self._ordered.dead
            found.problem = found.problem or self._ordered.problem
        return found

    async def _drain(self, queue: str) -> None:
        done = self._drained
        held: dict[str, list[ReceivedMessage]] = {}
        blocked: set[str] = set()
        try:
            receiver = await self.secondary.receiver(queue)
            try:
                while True:
                    moved = await syphon.step(
                        receiver, self.primary, limit=self._options.syphon_batch, wait_s=QUIET_S, blocked=list(blocked)
                    )
                    done.moved += moved.moved
                    done.dead += moved.dead
                    done.left += moved.received - moved.moved.total() - moved.dead
                    for path, waiting in moved.held.items():
                        held.setdefault(path, []).extend(waiting)
                    for path, error in moved.blocked.items():
                        blocked.add(path)
                        done.problem = f"{path}: {error.text}"
                    if moved.primary_gone or not moved.received:
                        return
            finally:
                await syphon.give_back(receiver, held)
                with suppress(ClientError):
                    await receiver.close()
        except ClientError as problem:
            done.problem = f"{queue}: {problem.text}"

    def _record(self) -> dict[str, Any]:
        found = self.progress()
        halves: tuple[Half, Half] = (self.primary, self.secondary)
        return {
            "halves": {half.role: half.state.value for half in halves},
            "syphon": {
                "moved": found.moved.total(),
                "dead": found.dead,
                "problem": (found.problem or "")[:300] or None,
            },
        }
