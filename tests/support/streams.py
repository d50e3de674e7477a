"""A queue, a streaming query over it, and what came out of it, for tests of the source with Spark.

The broker is one process for a module; each scene has names and directories of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.broker import BrokerProcess
from twinbus.client import Connection, connect
from twinbus.client.messages import build
from twinbus.model.message import Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

END_S = 120.0
_numbers = itertools.count()


@dataclass
class StreamScene:
    """One test's queue, directories and rows."""

    spark: SparkSession
    broker: BrokerProcess
    directory: Path
    batches: dict[int, list[Any]] = field(default_factory=dict)  # Rows by batch.
    repeated: list[int] = field(default_factory=list)  # Batches that were done again.
    each: Callable[[int], None] | None = None  # Called in each batch, before its rows are kept.
    format: str = "servicebus"

    # The broker

    def queue(self, **settings: Any) -> str:
        """A queue that no other test has."""
        return self.broker.create_queue(f"stream-{next(_numbers)}", **settings)

    def send(self, queue: str, ids: Sequence[str], **settings: Any) -> None:
        """Send messages with these ids."""
        payloads = [build(message_id.encode(), message_id=message_id, **settings) for message_id in ids]
        self.send_payloads(queue, payloads)

    def send_payloads(self, queue: str, payloads: Sequence[bytes]) -> None:
        async def work(connection: Connection) -> None:
            await (await connection.sender(queue)).send(payloads)

        self.connected(work)

    def dead_letter(self, queue: str, count: int) -> None:
        """Receive so many messages and dead-letter them."""

        async def work(connection: Connection) -> None:
            receiver = await connection.receiver(queue, credit=0)
            messages = await receiver.receive(count, 5.0)
            await receiver.settle(messages, Outcome.DEAD_LETTER, reason="test", description="for a look")

        self.connected(work)

    def connected(self, work: Callable[[Connection], Any]) -> Any:
        async def run() -> Any:
            async with connect(self.broker.connection_string()) as connection:
                return await work(connection)

        return asyncio.run(run())

    # Spark

    def browse(self, **options: object) -> DataFrame:
        """A batch read."""
        reader = self.spark.read.format(self.format).options(**self._options(options))
        return reader.load()

    def start(self, *, available_now: bool = True, **options: object) -> StreamingQuery:
        """A query that keeps the rows of each batch, in directories that the next one continues."""
        given = {"stagingLocation": self.directory / "staging", **options}
        reader = self.spark.readStream.format(self.format).options(**self._options(given))
        writer = reader.load().writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        return writer.trigger(**trigger).start()

    def drain(self, **options: object) -> StreamingQuery:
        """Run a query to its end."""
        query = self.start(**options)
        try:
            assert query.awaitTermination(END_S), "the query does not end"
        finally:
            query.stop()
        return query

    def _keep(self, frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        if self.each is not None:
            self.each(batch)
        if batch in self.batches:
            self.repeated.append(batch)
            assert self.batches[batch] == rows, "a batch that is done again has the same rows"
        self.batches[batch] = rows

    def _options(self, options: dict[str, object]) -> dict[str, str]:
        named = {"connectionString": self.broker.connection_string(), **options}
        return {name: str(value) for name, value in named.items() if value is not None}

    @property
    def rows(self) -> list[Any]:
        """All rows, batch by batch."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def ids(self) -> list[str]:
        """The message ids of all rows."""
        return [row.messageId for row in self.rows]
