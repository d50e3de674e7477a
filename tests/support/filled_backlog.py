"""A backlog filled by hand, as diverting clients fill it, and what arrives at the primary when it is brought home.

What was put is written down in the scene's send log; the verdict is the drill's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from support.pair_scene import QUICK, Scene
from twinbus.client import connect, messages
from twinbus.client.diverting import divert
from twinbus.pair import PairDescription, SendAvailabilityOptions
from twinbus.pair.backlog.making import pair
from twinbus.pair.description import NamespaceDescription
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.order import table as ordered
from twinbus.pair.order.queues import have

LOT = 1000


class FilledBacklog:
    """The backlog queues of a scene's pair."""

    def __init__(self, scene: Scene, queues: int = 4, *, by_proxy: bool = False, **options: Any) -> None:
        self.scene = scene
        self._queues = queues
        self._by_proxy = by_proxy
        self._options = options  # Of the pair.
        self.paths: list[str] = []
        self.name = scene.name  # The primary's, as the syphon spells it.
        self.key: tuple[str, str] | None = None  # Policy and key at the primary, if not the root's.

    @property
    def _primary(self) -> str:
        if self.key is not None:
            return self.scene.primary.connection_string(*self.key)
        return self.scene.connection_string() if self._by_proxy else self.scene.primary.connection_string()

    def description(self) -> PairDescription:
        """The pair, for a syphon."""
        wanted = {**QUICK, "backlog_queue_count": self._queues, "announce": False, **self._options}
        return PairDescription(
            NamespaceDescription(self._primary, name=self.name),
            NamespaceDescription(self.scene.secondary.connection_string()),
            SendAvailabilityOptions(**wanted),
        )

    def environment(self) -> dict[str, str]:
        """The pair, for a command."""
        return {
            **os.environ,
            "TWINBUS_PRIMARY": self._primary,
            "TWINBUS_SECONDARY": self.scene.secondary.connection_string(),
            "TWINBUS_PRIMARY_NAME": self.scene.name,
            "TWINBUS_PAIR_BACKLOG_QUEUE_COUNT": str(self._queues),
            "TWINBUS_PAIR_ATTEMPT_TIMEOUT": "20",
        }

    async def fill(self, ids: Sequence[str], destinations: Sequence[str], queues: int | None = None) -> None:
        """One message for each id, spread over destinations and over all queues, or the first so many of them."""
        if not self.paths:
            namespaces = self.description().namespaces()
            try:
                self.paths = (await pair(*namespaces, self._queues, self.scene.name)).queues
            finally:
                for namespace in namespaces:
                    await namespace.close()
        used = self.paths[:queues]
        for index, path in enumerate(used):
            mine = ids[index :: len(used)]
            to = [destinations[number % len(destinations)] for number in range(index, len(ids), len(used))]
            payloads = [
                divert(messages.build(b"x" * 200, message_id=each), destination)
                for each, destination in zip(mine, to, strict=True)
            ]
            await self.put(path, mine, payloads)

    async def fill_in_order(self, destination: str, sessions: Sequence[str], count: int, queues: int = 2) -> None:
        """In each session so many messages, `SESSION.NUMBER`, in ordered backlog queues."""
        namespace = OwnClientNamespace("secondary", self.description().namespaces()[1].target)
        paths = await have(namespace, self.scene.name, queues)
        await namespace.close()
        for session in sessions:
            name = ordered.session_of(destination, session)
            ids = [f"{session}.{number}" for number in range(count)]
            built = [messages.build(b"x", message_id=each, session_id=session) for each in ids]
            payloads = [divert(payload, destination, None, name) for payload in built]
            await self.put(paths[ordered.index_of(name, queues)], ids, payloads)

    async def put(self, path: str, ids: Sequence[str], payloads: Sequence[bytes]) -> None:
        """Messages into a queue of the secondary, written down before and after."""
        log = self.scene.log
        async with connect(self.scene.secondary.connection_string()) as connection:
            sender = await connection.sender(path)
            for start in range(0, len(ids), LOT):
                for each in ids[start : start + LOT]:
                    log.attempted(each, path, 0)
                await sender.send(payloads[start : start + LOT])
                for each in ids[start : start + LOT]:
                    log.acknowledged(each, 0, True)

    async def arrived(self, *destinations: str) -> list[str]:
        """The ids of all that is in queues of the primary now, in order; counted in the scene's verdict."""
        found = []
        async with connect(self.scene.primary.connection_string()) as connection:
            for destination in destinations:
                management = await connection.management(destination)
                async for page in management.peek_all():
                    found += [str(messages.read(payload).message_id) for payload in page]
        self.scene.received.update(found)
        return found

    def left(self) -> int:
        """How many messages are in the backlog queues."""
        return sum(self.scene.secondary.count(path) for path in self.paths)

    def dead(self) -> int:
        """How many are in their dead-letter queues."""
        return sum(self.scene.secondary.count(path, "DeadLetterMessageCount") for path in self.paths)
