"""What is still in a namespace's entities: browsed, never taken, and written down as a file of evidence.

Every queue and subscription is looked through, its dead letters after it, so that what dies meanwhile is seen in one
place or the other. When a browse began and ended is told by the namespace's own clock. What follows from it is
`reconcile`'s business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from twinbus.client.atom import Administration, AtomError
from twinbus.client.connection import Connection
from twinbus.client.diverting import PATH
from twinbus.client.errors import ClientError
from twinbus.client.messages import read
from twinbus.client.upkeep import clock
from twinbus.model.extras import needing
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pipeline.proof.evidence import RESIDENT_COLUMNS, RESIDENTS_VERSION, RESIDENTS_VERSION_KEY

with needing("pyarrow"):
    import pyarrow as pa
    import pyarrow.parquet as pq

SUB_QUEUES = ("", "$DeadLetterQueue", "$Transfer/$DeadLetterQueue")
AT_ONCE = 8  # So many entities are browsed beside each other.
_TYPES = {"string": pa.string(), "int64": pa.int64(), "timestamp": pa.timestamp("us", tz="UTC")}
SCHEMA = pa.schema(
    [pa.field(column.name, _TYPES[column.type], nullable=False) for column in RESIDENT_COLUMNS],
    metadata={RESIDENTS_VERSION_KEY: str(RESIDENTS_VERSION)},
)

Tell = Callable[[str], None]


class Peeking(Protocol):
    """What is needed of a management node."""

    def peek_all(self) -> AsyncIterator[list[bytes]]:
        """Page after page."""
        ...


class Entity(NamedTuple):
    """A queue, a subscription, or a topic with what is scheduled in it."""

    path: str
    is_topic: bool = False


@dataclass(slots=True)
class Browsed:
    """What was found in a namespace."""

    namespace: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # Entities that could not be browsed, and why.

    @property
    def messages(self) -> int:
        """How many messages were seen."""
        return sum(1 for row in self.rows if row["sequence_number"])


async def browse(namespace: OwnClientNamespace, tell: Tell = lambda path: None) -> Browsed:
    """Look through a whole namespace; `tell` hears of each entity that is done."""
    found = Browsed(await namespace.name())
    async with await namespace.administer() as administration:
        ahead_us = await _clock_ahead_us(administration)
        entities = [entity async for entity in _entities(administration)]
    gate = asyncio.Semaphore(AT_ONCE)
    connection = await namespace.connection()

    async def one(entity: Entity) -> None:
        async with gate:
            try:
                found.rows += await _browse(connection, found.namespace, entity, ahead_us)
            except ClientError as problem:
                # The official service has nothing to show in a topic; what is scheduled there is not seen.
                if not entity.is_topic:
                    found.left_out.append(f"'{entity.path}': {problem.text}")
            tell(entity.path)

    await asyncio.gather(*map(one, entities))
    return found


def write(path: Path, found: Sequence[Browsed]) -> None:
    """A file of evidence, whole or not at all."""
    columns: dict[str, list[Any]] = {column.name: [] for column in RESIDENT_COLUMNS}
    for browsed in found:
        for row in browsed.rows:
            for name, values in columns.items():
                values.append(row[name])
    unfinished = path.with_name(f".{path.name}.tmp")
    pq.write_table(pa.table(columns, schema=SCHEMA), unfinished, compression="zstd")
    unfinished.replace(path)


async def _entities(administration: Administration) -> AsyncIterator[Entity]:
    async for queue in administration.queues():
        yield Entity(queue.description.name)
    async for topic in administration.topics():
        yield Entity(topic.description.name, is_topic=True)
        async for subscription in administration.subscriptions(topic.description.name):
            yield Entity(subscription.description.path)


async def _clock_ahead_us(administration: Administration) -> int:
    """How far the namespace's clock is ahead of ours; nothing is known of a namespace that does not tell."""
    before = time.time_ns() // 1000
    with suppress(AtomError):
        told = (await clock(administration))["now"]
        middle = (before + time.time_ns() // 1000) // 2
        return int(datetime.fromisoformat(told).timestamp() * 1_000_000) - middle
    return 0


async def _browse(connection: Connection, namespace: str, entity: Entity, ahead_us: int) -> list[dict[str, Any]]:
    """All that is in an entity, sub-queue by sub-queue, under one beginning and one end."""
    began = time.time_ns() // 1000 + ahead_us
    rows: list[dict[str, Any]] = []
    for sub_queue in SUB_QUEUES[:1] if entity.is_topic else SUB_QUEUES:
        path = f"{entity.path}/{sub_queue}" if sub_queue else entity.path
        node = await connection.management(path)
        try:
            looked = {"namespace": namespace, "entity": entity.path, "sub_queue": sub_queue}
            rows.append(looked | _NOTHING)
            rows += [looked | row async for row in _rows(node)]
        finally:
            await node.close()
    ended = time.time_ns() // 1000 + ahead_us
    return [row | {"began": began, "ended": ended} for row in rows]


async def _rows(node: Peeking) -> AsyncIterator[dict[str, Any]]:
    async for page in node.peek_all():
        for payload in page:
            message = read(payload)
            yield {
                "sequence_number": message.sequence_number,
                "message_id": message.message_id or "",
                "session_id": message.session_id or "",
                "state": message.state.name.lower(),
                "enqueued_at": (message.enqueued_at_ms or 0) * 1000,
                "destination": str(message.properties.get(PATH, "")),
                "bytes": len(payload),
            }


_NOTHING = {
    "sequence_number": 0, "message_id": "", "session_id": "", "state": "", "enqueued_at": 0, "destination": "",
    "bytes": 0,
}  # fmt: skip
