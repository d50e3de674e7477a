"""Two namespaces' copies of the same messages as one stream: the first copy of each goes on, the second is dropped.

Spark keeps the state by which second copies are known; the window is on the time of arrival, since what was enqueued
long ago may be the only copy that survived an outage. Who was first, and whose copy never came, is told by `sightings`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus.client.atom import topic_of
from twinbus.client.errors import ClientError
from twinbus.model import limits
from twinbus.model.extras import needing
from twinbus.model.topic import SubscriptionDescription
from twinbus.pair.description import PairDescription
from twinbus.pair.ledger.tags import Kind, Tag
from twinbus.pipeline.capturing.archive import Archive
from twinbus.pipeline.capturing.captured import COMPACT_EVERY, Captured
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.merging.queries import batch_of, connection_options, run, write_days
from twinbus.pipeline.merging.sightings import PRIMARY, SECONDARY, SIDES, Alone, Sighting, Sightings, Totals
from twinbus.pipeline.options import entity_path
from twinbus.pipeline.reading.staging import note_of
from twinbus.pipeline.rows import PAYLOAD

with needing("pyspark"):
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it.

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WINDOW_S = limits.DUPLICATE_WINDOW_MS_DEFAULT / 1000
ACCOUNT = "sightings.db"
_MESSAGE, _SIGHTING = "message", "sighting"
_KEY = ("consumer", "tag")
_OWN = ("kind", "consumer", "tag", "tagged")
_HEAVY = ("body", PAYLOAD, "properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What is merged, and where to: into files, or to the queue or topic that the options of the sink name."""

    pair: PairDescription
    entities: Mapping[str, str]  # The secondary's name of each queue or subscription, by the primary's.
    checkpoint: Path
    staging: Path
    files: Path | None = None
    sink: Mapping[str, str] = field(default_factory=dict)
    reading: Mapping[str, str] = field(default_factory=dict)  # More options of both sources.
    tag: Tag = field(default_factory=Tag)
    window_s: float = WINDOW_S

    def __post_init__(self) -> None:
        if (self.files is None) == (not self.sink):
            raise PipelineError("Merged messages go into files, or to a queue or topic: name one of them.")
        if not self.entities:
            raise PipelineError("Name the queues or subscriptions to merge.")


@dataclass(slots=True)
class Progress:
    """How a merge gets on: what it delivered in this run, and its account over all runs."""

    delivered: Counter[str] = field(default_factory=Counter)  # By the side whose copy it was.
    totals: Totals = field(default_factory=Totals)
    alone: list[Alone] = field(default_factory=list)  # Found in this run: their second copies never came.
    dropped: int = 0  # By the watermark, in this run.
    away: dict[str, str] = field(default_factory=dict)  # Sides that cannot be read at present, and why.

    @property
    def is_alarming(self) -> bool:
        """Whether somebody should look."""
        return bool(self.alone or self.dropped or self.away)


def named(texts: list[str]) -> dict[str, str]:
    """Entities as people name them: `orders`, `events:audit`, or `orders=orders-b` where the secondary's differ."""
    found = {}
    for text in texts:
        first, _, second = text.partition("=")
        found[entity_path(first)] = entity_path(second or first)
    return found


async def broker_window_s(pair: PairDescription, entities: Mapping[str, str]) -> float:
    """The longest duplicate detection window of the entities; the usual one where nobody can be asked."""
    longest = WINDOW_S
    for namespace, names in zip(pair.namespaces(), (list(entities), list(entities.values())), strict=True):
        try:
            async with await namespace.administer() as administration:
                for name in names:
                    found = (await administration.entity(topic_of(name) or name)).description
                    if not isinstance(found, SubscriptionDescription) and found.requires_duplicate_detection:
                        longest = max(longest, found.duplicate_window_ms / 1000)
        except ClientError:
            continue
        finally:
            await namespace.close()
    return longest


def merge(
    spark: SparkSession,
    job: Merge,
    *,
    watch: bool = False,
    told: Callable[[Progress], None] = lambda progress: None,
    until: threading.Event | None = None,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Progress:
    """Merge what is there now, or with `watch` what comes until `until` is set; `told` hears of it now and then."""
    with ExitStack() as stack:
        account = Sightings(job.staging / ACCOUNT, job.window_s)
        stack.callback(account.close)
        archive = None if job.files is None else stack.enter_context(Archive(job.files).open())
        running = _Running(job, account, archive, now_ms, told)
        writing = both(copies(spark, job), job.window_s).writeStream.queryName("twinbus-merge")
        run(
            writing.foreachBatch(running.each),
            job.checkpoint,
            watch=watch,
            look=running.look,
            until=until or threading.Event(),
        )
        if archive is not None:
            running.captured.join(archive)
        return running.progress


def copies(spark: SparkSession, job: Merge) -> DataFrame:
    """Every copy that either namespace has, with its side, and the key that the copies of a message share."""
    sides = []
    for side, namespace in ((PRIMARY, job.pair.primary), (SECONDARY, job.pair.secondary)):
        names = job.entities.values() if side == SECONDARY else job.entities
        frame = (
            spark.readStream.format("servicebus")
            .options(**{**connection_options(namespace), **job.reading})
            .options(subscribe=",".join(names), stagingLocation=str(job.staging / side), payload="true")
            .options(failOnUnreachable="false")
            .load()
        )
        known = {second: first for first, second in job.entities.items()} if side == SECONDARY else {}
        sides.append(frame.withColumn("side", F.lit(side)).withColumn("consumer", _renamed(known)))
    frame = sides[0].unionByName(sides[1])
    tag = F.nullif(_tag(job.tag), F.lit(""))
    # What has no tag is like nothing else.
    unique = F.concat_ws("/", F.lit("untagged"), "side", "entity", F.col("sequenceNumber").cast("string"))
    return frame.withColumn("tagged", tag.isNotNull()).withColumn("tag", F.coalesce(tag, unique))


def both(frame: DataFrame, window_s: float) -> DataFrame:
    """First copies, whole, and beside them every copy that was seen, without its content; `kind` tells them apart.

    One query reads its sources once: what it claims is staged, and read twice from there.
    """
    watched = frame.withWatermark("receivedTime", f"{int(window_s * 1000)} milliseconds")
    first = watched.dropDuplicatesWithinWatermark(list(_KEY)).withColumn("kind", F.lit(_MESSAGE))
    seen = frame.withColumn("kind", F.lit(_SIGHTING))
    for name in _HEAVY:
        seen = seen.withColumn(name, F.lit(None).cast(frame.schema[name].dataType))
    return first.unionByName(seen)


def _renamed(known: Mapping[str, str]) -> Column:
    entity = F.col("entity")
    if not known:
        return entity
    pairs = F.create_map(*(F.lit(text) for pair in known.items() for text in pair))
    return F.coalesce(pairs[entity], entity)


def _tag(tag: Tag) -> Column:
    if tag.kind is Kind.PROPERTY:
        return F.col("properties")[tag.name]
    return F.col("messageId" if tag.kind is Kind.MESSAGE_ID else "subject")


class _Running:
    """A merge under way, on the driver."""

    def __init__(
        self,
        job: Merge,
        account: Sightings,
        archive: Archive | None,
        now_ms: Callable[[], int],
        told: Callable[[Progress], None],
    ) -> None:
        self._job = job
        self._account = account
        self._archive = archive
        self._now_ms = now_ms
        self._told = told
        self._looked_at = -1  # The last batch of which Spark told what it dropped.
        self.progress = Progress()
        self.captured = Captured()

    def each(self, frame: DataFrame, number: int) -> None:
        """Deliver the first copies of a batch; then count all of them. A batch that is run again does no harm."""
        frame.persist()
        try:
            batch = batch_of(frame, number)
            self._deliver(frame.where(F.col("kind") == _MESSAGE), frame, number)
            small = frame.select("kind", "consumer", "tag", "side", "tagged", F.unix_millis("receivedTime").alias("at"))
            rows = small.collect()
            seen = [row for row in rows if row["kind"] == _SIGHTING]
            tagged = [Sighting(row["consumer"], row["tag"], row["side"], row["at"]) for row in seen if row["tagged"]]
            self._account.record(batch.source, number, tagged, len(seen) - len(tagged))
            self.progress.delivered.update(row["side"] for row in rows if row["kind"] == _MESSAGE)
        finally:
            frame.unpersist()

    def _deliver(self, messages: DataFrame, frame: DataFrame, number: int) -> None:
        messages = messages.drop("kind", "tagged")
        if self._archive is not None:
            kept = messages.drop(PAYLOAD, "lockedUntil", "state").withColumnRenamed("tag", "mergedBy")
            instant = F.coalesce("enqueuedTime", "receivedTime")
            added = self._archive.publish(
                batch_of(frame, number), lambda directory: write_days(kept, directory, instant)
            )
            self.captured.add(added)
            if self.captured.batches % COMPACT_EVERY == 0:
                self.captured.join(self._archive)
        else:
            sent = messages.drop("consumer", "tag", "side")
            sent.write.format("servicebus").mode("append").options(**self._job.sink).save()

    def look(self, query: StreamingQuery) -> None:
        """Close what is over, and tell."""
        for each in query.recentProgress:
            number, dropped = int(each["batchId"]), _dropped(each)
            if number > self._looked_at:
                self._looked_at = number
                if dropped:
                    self.progress.dropped += dropped
                    self._account.dropped(dropped)
        self.progress.alone += self._account.settle(self._now_ms())
        self.progress.totals = self._account.totals()
        notes = {side: note_of(self._job.staging / side) for side in SIDES}
        self.progress.away = {side: note for side, note in notes.items() if note is not None}
        self._told(self.progress)


def _dropped(progress: Any) -> int:
    return sum(int(operator["numRowsDroppedByWatermark"]) for operator in progress["stateOperators"])


def asked_window_s(pair: PairDescription, entities: Mapping[str, str]) -> float:
    """The same, for those who do not wait."""
    return asyncio.run(broker_window_s(pair, entities))
