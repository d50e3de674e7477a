"""How fast a backlog is brought home, three ways in one run: on Spark, by one pump in a process, by a loop of the SDK.

Fills the backlog, empties it, and takes the time; what the ways do is in `pipeline.syphoning` and `pair.syphon`.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.client import connect, messages, upkeep
from twinbus.client.diverting import divert
from twinbus.drill.brokers import Broker
from twinbus.model.extras import needing
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.syphon.standalone import StandaloneSyphon
from twinbus.pipeline.syphoning.syphon import SparkSyphon

with needing("azure.servicebus"):
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRIMARY, SECONDARY = "contoso", "fabrikam"
DESTINATIONS = 4
BODY = b"x" * 200
LOT = 2000
WARM = 2000
LOOK_S = 0.01
PATIENCE_S = 30.0


@dataclass(slots=True)
class Rates:
    """Messages a second, run by run."""

    spark: list[float] = field(default_factory=list)
    pump: list[float] = field(default_factory=list)
    loop: float = 0.0

    @property
    def to_pump(self) -> float:
        """How many pumps Spark is worth: the median of runs that were neighbours."""
        return statistics.median(ours / theirs for ours, theirs in zip(self.spark, self.pump, strict=True))

    @property
    def to_loop(self) -> float:
        """How many loops of the SDK Spark is worth."""
        return statistics.median(self.spark) / self.loop


class Moving:
    """Two brokers and the ways between them."""

    def __init__(self, primary: str, secondary: str, queues: int) -> None:
        options = SendAvailabilityOptions(backlog_queue_count=queues, announce=False)
        self._pair = PairDescription(
            NamespaceDescription(primary, name=PRIMARY), NamespaceDescription(secondary, name=SECONDARY), options
        )
        self._queues: list[str] = []

    async def compare(self, spark: SparkSession, count: int, runs: int, looped: int) -> Rates:
        """The pump and Spark in turn, and the loop at the end; first one, then the other goes first."""
        rates = Rates()
        await self.fill(WARM)
        await self.by_spark(spark, WARM)  # Workers start, modules are loaded.
        for run in range(runs):
            for is_spark in (run % 2 == 0, run % 2 == 1):
                await self.fill(count)
                if is_spark:
                    rates.spark.append(await self.by_spark(spark, count))
                else:
                    rates.pump.append(await self.by_pump(count))
        await self.fill(looped * len(self._queues))
        rates.loop = await self.by_loop(looped)
        return rates

    async def fill(self, count: int) -> None:
        """So many messages, spread over all backlog queues, for destinations that are empty."""
        if not self._queues:
            async with StandaloneSyphon(self._pair) as run:
                await run.pair()
                assert run.paired is not None
                self._queues = run.paired.queues
        primary, _ = self._pair.namespaces()
        async with await primary.administer() as administration:
            for number in range(DESTINATIONS):
                await upkeep.purge(administration, f"d{number}")
        await primary.close()
        async with connect(self._pair.secondary.connection_string) as connection:
            for index, queue in enumerate(self._queues):
                sender = await connection.sender(queue)
                numbers = range(index, count, len(self._queues))
                for start in range(0, len(numbers), LOT):
                    await sender.send([_diverted(number) for number in numbers[start : start + LOT]])

    async def by_spark(self, spark: SparkSession, count: int) -> float:
        """Messages a second of a drain on Spark, with all that it asks before and after."""
        async with SparkSyphon(spark, self._pair) as run:
            await run.pair()
            began = time.monotonic()
            found = await run.drain(PATIENCE_S)
            passed = time.monotonic() - began
        if found.moved != count or found.left:
            raise RuntimeError(f"Of {count} messages Spark moved {found.moved}: {found.problem}")
        return count / passed

    async def by_pump(self, count: int) -> float:
        """Messages a second of one pump in this process."""
        async with StandaloneSyphon(self._pair) as run:
            await run.pair()
            began = time.monotonic()
            run.start()
            while run.progress.moved.total() < count:
                await asyncio.sleep(LOOK_S)
            return count / (time.monotonic() - began)

    async def by_loop(self, count: int) -> float:
        """Messages a second as an application would write it with the official client: receive, send, complete."""
        async with (
            ServiceBusClient.from_connection_string(self._pair.primary.connection_string) as primary,
            ServiceBusClient.from_connection_string(self._pair.secondary.connection_string) as secondary,
            secondary.get_queue_receiver(self._queues[0], prefetch_count=100) as receiver,
            primary.get_queue_sender("d0") as sender,
        ):
            left = count
            began = time.monotonic()
            while left:
                for message in await receiver.receive_messages(min(left, 100), max_wait_time=5):
                    copy = ServiceBusMessage(b"".join(message.body), message_id=message.message_id)
                    await sender.send_messages(copy)
                    await receiver.complete_message(message)
                    left -= 1
            return count / (time.monotonic() - began)


def _diverted(number: int) -> bytes:
    return divert(messages.build(BODY, message_id=f"m{number}"), f"d{number % DESTINATIONS}")


@asynccontextmanager
async def between_two_brokers(directory: Path, queues: int) -> AsyncIterator[Moving]:
    """Two brokers of its own, for the time of a block."""
    config = "".join(f'[[queues]]\nName = "d{number}"\nMaxSizeInMegabytes = 5120\n' for number in range(DESTINATIONS))
    primary, secondary = Broker(PRIMARY, directory, config), Broker(SECONDARY, directory, "")
    try:
        await asyncio.gather(primary.start(), secondary.start())
        yield Moving(primary.connection_string, secondary.connection_string, queues)
    finally:
        await asyncio.gather(primary.stop(), secondary.stop())
