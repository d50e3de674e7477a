"""The syphon with a process of its own: until it is stopped, or until the backlog is empty.

What it moves and how is left to `syphon`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from twinbus.client.errors import ClientError
from twinbus.pair.backlog import making
from twinbus.pair.backlog.making import Paired
from twinbus.pair.backlog.queues import TRANSFER, index_of
from twinbus.pair.description import PairDescription
from twinbus.pair.errors import PairingError
from twinbus.pair.memory import Memory
from twinbus.pair.namespace.port import Identity
from twinbus.pair.order.table import TRANSFER_ORDERED
from twinbus.pair.presence import Presence
from twinbus.pair.syphon.home import Progress
from twinbus.pair.syphon.syphon import RECORD_TEXT_MAX, Syphon

COUNT_S = 10.0


class StandaloneSyphon:
    """Use it with `async with`."""

    def __init__(self, description: PairDescription) -> None:
        self._description = description
        self._options = description.options
        self.primary, self.secondary = description.namespaces()
        self.paired: Paired | None = None
        self._syphon: Syphon | None = None
        self._problem = ""  # Why it is not known whose queues to drain.
        self._presence: Presence | None = None
        self._announcing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StandaloneSyphon:
        return self

    async def pair(self) -> None:
        """Find out whose backlog queues to drain, and have them; a PairingError if that cannot be known now."""
        options, described = self._options, self._description.primary
        memory = Memory(options.state_directory, self.primary.reached_at, self.secondary.reached_at)
        remembered = memory.load()
        known = Identity(remembered.name, remembered.id)
        try:
            identity = await making.named(self.primary, self.secondary, described.name, known)
        except PairingError as problem:
            self._problem = str(problem)
            self._announce(self.primary.provisional_name)  # It is there, and waits.
            raise
        try:
            self.paired = await making.have(self.secondary, identity, self.primary, options.backlog_queue_count)
        except ClientError as problem:
            raise PairingError(
                f"The backlog queues of '{identity.name}' could not be made: {problem.text}"
            ) from problem
        if (remembered.name, remembered.id) != identity:
            remembered.name, remembered.id = identity
            memory.save(remembered)
        self._syphon = Syphon(self.primary, self.secondary, identity.name, self.paired.drained, options)
        self._announce(identity.name)
        if self._presence is not None:
            self._syphon.on_change = self._presence.changed

    def _announce(self, name: str) -> None:
        """Say that it is there, for the primary of that name."""
        if self._presence is not None:
            self._presence.pair = name
            self._presence.changed()
        elif self._options.announce:
            self._presence = Presence("syphon", name, (self.primary, self.secondary), self._record)
            self._announcing = asyncio.create_task(self._presence.run())

    async def __aexit__(self, *args: object) -> None:
        if self._syphon is not None:
            await self._syphon.stop()
        if self._announcing is not None and self._presence is not None:
            self._announcing.cancel()
            await asyncio.gather(self._announcing, return_exceptions=True)
            await self._presence.end()
        await asyncio.gather(self.primary.close(), self.secondary.close(), return_exceptions=True)

    def start(self) -> None:
        """Bring home what comes, until the end of the block."""
        assert self._syphon is not None
        self._syphon.start()

    async def drain(self) -> Progress:
        """Bring home what is there now; returns when nothing is left that can be moved."""
        assert self._syphon is not None
        return await self._syphon.drain()

    async def remaining(self) -> dict[str, int] | None:
        """How many messages each backlog queue still has that can be brought home; None where nobody says."""
        assert self.paired is not None
        primary = self.paired.primary
        found: dict[str, int] = {}
        try:
            async with asyncio.timeout(COUNT_S), await self.secondary.administer() as administration:
                async for entry in administration.queues():
                    name, counts = entry.description.name, entry.counts
                    if any(index_of(primary, name, kind) is not None for kind in (TRANSFER, TRANSFER_ORDERED)):
                        found[name] = counts.active + counts.deferred + counts.scheduled
        except (ClientError, TimeoutError):
            return None
        return {name: count for name, count in found.items() if count}

    @property
    def waits_for(self) -> str | None:
        """The namespace that does not answer, by its role, if the syphon waits for one."""
        return None if self._syphon is None else self._syphon.record()["waits_for"]

    @property
    def progress(self) -> Progress:
        """What has been moved so far."""
        return Progress() if self._syphon is None else self._syphon.progress

    def _waiting(self) -> dict[str, Any]:
        """As a syphon says it that knows its primary."""
        return {"moved": 0, "dead": 0, "problem": self._problem[:RECORD_TEXT_MAX], "waits_for": self.primary.role}

    def _record(self) -> dict[str, Any]:
        return {
            "namespaces": {namespace.role: namespace.state.value for namespace in (self.primary, self.secondary)},
            "syphon": self._waiting() if self._syphon is None else self._syphon.record(),
        }
