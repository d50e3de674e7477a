"""Which entities of the primary are partitioned, asked of its administration in the background, once for each.

Best effort: a send never waits for the answer, and whoever may not ask goes on without. Only our own broker's fragments
are known (`model.partition`); elsewhere an entity is healthy or not as a whole.
"""

from __future__ import annotations

import asyncio

from twinbus.client.atom import AtomError
from twinbus.client.errors import ClientError
from twinbus.model.entity import QueueDescription
from twinbus.model.logged import EventLog
from twinbus.model.topic import TopicDescription
from twinbus.pair.half import Half

_log = EventLog(__name__)

AGAIN_S = 30.0
AGAIN_MAX_S = 600.0
ATTEMPT_S = 10.0


class Partitions:
    """What is known of the entities that a client sends to; paths are in lower case."""

    def __init__(self, primary: Half) -> None:
        self._primary = primary
        self._asked: set[str] = set()
        self.known: set[str] = set()  # Partitioned ones.
        self.by_id: set[str] = set()  # Of those, the ones in which a message without a key goes where its id leads.

    def is_new(self, path: str) -> bool:
        """Whether nobody has asked for this path yet; it counts as asked for from now on."""
        path = path.lower()
        if path in self._asked:
            return False
        self._asked.add(path)
        return True

    async def find_out(self, path: str) -> None:
        """Ask until there is an answer, ever less often."""
        again_s = AGAIN_S
        while not await self._answered(path):
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
            return False
        if isinstance(found, QueueDescription | TopicDescription) and found.partitioned:
            if found.requires_duplicate_detection:
                self.by_id.add(path.lower())
            self.known.add(path.lower())
        return True
