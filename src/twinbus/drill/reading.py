"""How fast Spark reads queues, beside the clients that know no Spark, in one run over one broker.

Fills queues, empties them, and takes the time; what the source does is told in `pipeline.datasource`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.client import connect, messages
from twinbus.drill.brokers import Broker
from twinbus.model.extras import needing
from twinbus.model.message import Outcome

with needing("azure.servicebus"):
    from azure.servicebus.aio import ServiceBusClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BODY = b"x" * 200
LOT = 2000
WAIT_S = 5.0


class Reading:
    """A broker with full queues, and the ways to empty them."""

    def __init__(self, connection_string: str, queues: list[str], directory: Path) -> None:
        self._connection_string = connection_string
        self._queues = queues
        self._directory = directory
        self._runs = 0

    async def fill(self, count: int) -> None:
        """So many messages, spread over all queues."""
        async with connect(self._connection_string) as connection:
            for index, queue in enumerate(self._queues):
                sender = await connection.sender(queue)
                numbers = range(index, count, len(self._queues))
                for start in range(0, len(numbers), LOT):
                    lot = numbers[start : start + LOT]
                    await sender.send([messages.build(BODY, message_id=f"m{number}") for number in lot])

    def by_stream(self, spark: SparkSession, count: int, claim_mode: str) -> float:
        """Rows a second of a streaming query that drains all queues into nothing, from its start to its end."""
        self._runs += 1
        options = {
            "connectionString": self._connection_string,
            "subscribe": ",".join(self._queues),
            "claimMode": claim_mode,
            "stagingLocation": str(self._directory / f"staging-{self._runs}"),
            "claimName": f"bench-{self._runs}",
        }
        frame = spark.readStream.format("servicebus").options(**options).load()
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self._directory / f"checkpoint-{self._runs}"))
        began = time.monotonic()
        query = writer.start()
        query.awaitTermination()
        passed = time.monotonic() - began
        found = sum(progress.numInputRows for progress in query.recentProgress)
        if found != count:
            raise RuntimeError(f"Of {count} messages the stream read {found}.")
        return count / passed

    def by_browse(self, spark: SparkSession, count: int) -> float:
        """Rows a second of a batch read of all queues into nothing; it takes nothing away."""
        options = {"connectionString": self._connection_string, "subscribe": ",".join(self._queues)}
        frame = spark.read.format("servicebus").options(**options).load()
        began = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        return count / (time.monotonic() - began)

    async def by_client(self, count: int) -> float:
        """Messages a second that our own client receives and completes, queue after queue."""
        async with connect(self._connection_string) as connection:
            began = time.monotonic()
            for index, queue in enumerate(self._queues):
                left = len(range(index, count, len(self._queues)))
                receiver = await connection.receiver(queue, credit=LOT)
                while left:
                    received = await receiver.receive(LOT, WAIT_S)
                    if not received:
                        raise RuntimeError(f"'{queue}' still has {left} messages, and hands out none.")
                    await receiver.settle(received, Outcome.COMPLETE)
                    left -= len(received)
            return count / (time.monotonic() - began)

    async def by_loop(self, count: int) -> float:
        """Messages a second as an application would write it with the official client: receive, complete."""
        async with (
            ServiceBusClient.from_connection_string(self._connection_string) as client,
            client.get_queue_receiver(self._queues[0], prefetch_count=100) as receiver,
        ):
            left = count
            began = time.monotonic()
            while left:
                for message in await receiver.receive_messages(min(left, 100), max_wait_time=WAIT_S):
                    await receiver.complete_message(message)
                    left -= 1
            return count / (time.monotonic() - began)


@asynccontextmanager
async def over_a_broker(directory: Path, queues: int) -> AsyncIterator[Reading]:
    """A broker of its own, for the time of a block."""
    names = [f"q{number}" for number in range(queues)]
    described = 'MaxSizeInMegabytes = 5120\nLockDuration = "PT5M"\n'
    config = "".join(f'[[queues]]\nName = "{name}"\n{described}' for name in names)
    broker = Broker("read", directory, config)
    try:
        await broker.start()
        yield Reading(broker.connection_string, names, directory)
    finally:
        await broker.stop()
