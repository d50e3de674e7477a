"""What is known of the entities of the primary: what it said when it was used, and its administration, asked once.

Best effort: a send never waits for the answer, and a client that may not ask goes on without. Only our own broker's
fragments are known (`model.partition`); elsewhere an entity is healthy or not as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from twinbus.client.atom import AtomError
from twinbus.client.errors import ClientError
from twinbus.model.entity import QueueDescription
from twinbus.model.logged import EventLog
from twinbus.model.topic import TopicDescription
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.route.entity_facts import EntityFacts

_log = EventLog(__name__)

AGAIN_S = 30.0
AGAIN_MAX_S = 600.0
ATTEMPT_S = 10.0
REMEMBERED_MAX = 1000
GONE_S = 5.0  # So long after an attempt in vain nobody makes another one.


class Entities:
    """The facts of every entity that one client sends to, by path in lower case."""

    def __init__(self, primary: RemoteNamespace) -> None:
        self._primary = primary
        self.by_path: dict[str, EntityFacts] = {}
        self._asked: set[str] = set()
        self._turn = asyncio.Lock()
        self._gone_at: float | None = None  # When the primary last did not answer.

    def of(self, path: str) -> EntityFacts:
        """Those of one entity, to be read and written."""
        return self.by_path.setdefault(path.lower(), EntityFacts())

    def document(self) -> dict[str, dict[str, Any]]:
        """Everything that is known, by path, as it can be written down; the newest, if there is much."""
        found = {
            path: {name: value for name, value in asdict(facts).items() if value}
            for path, facts in self.by_path.items()
        }
        return dict([(path, facts) for path, facts in found.items() if facts][-REMEMBERED_MAX:])

    def restore(self, document: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over what an earlier client knew; the primary's own word goes before it, when it comes."""
        for path, facts in document.items():
            known = {name: facts[name] for name in EntityFacts.__slots__ if isinstance(facts.get(name), int)}
            self.by_path.setdefault(path.lower(), EntityFacts(**known))

    def is_new(self, path: str) -> bool:
        """Whether nobody has asked for this path yet; it counts as asked for from now on."""
        path = path.lower()
        if path in self._asked:
            return False
        self._asked.add(path)
        return True

    async def find_out(self, path: str) -> None:
        """Ask until there is an answer, ever less often; one that is gone is dialled for one entity, not for each."""
        again_s, clock = AGAIN_S, asyncio.get_running_loop().time
        while True:
            async with self._turn:
                is_gone = self._gone_at is not None and clock() - self._gone_at < GONE_S
                if not is_gone and await self._answered(path):
                    return
            await asyncio.sleep(again_s)
            again_s = min(again_s * 2, AGAIN_MAX_S)

    async def _answered(self, path: str) -> bool:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                if not await self._primary.is_twinbus():
                    return True
                async with await self._primary.administer() as administration:
                    found = (await administration.entity(path)).description
        except AtomError as refusal:
            # Without the Manage right it stays unknown; an entity that is not there may come to be.
            _log.debug(
                "partitions.unknown",
                "whether '{entity}' is partitioned is not known: {error}",
                entity=path,
                error=refusal.text,
            )
            return refusal.status in (401, 403)
        except (ClientError, TimeoutError, OSError) as problem:
            _log.debug(
                "partitions.unknown",
                "whether '{entity}' is partitioned is not known yet: {error}",
                entity=path,
                error=problem,
            )
            self._gone_at = asyncio.get_running_loop().time()
            return False
        if isinstance(found, QueueDescription):
            self.of(path).requires_session = found.requires_session
        if isinstance(found, QueueDescription | TopicDescription) and found.partitioned:
            facts = self.of(path)
            facts.partitioned, facts.by_id = True, found.requires_duplicate_detection
        return True
