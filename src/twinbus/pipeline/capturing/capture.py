"""Messages of queues and subscriptions into an archive of Parquet files by day: consumed as they come, or looked at.

Spark reads and writes; what makes the files appear once and whole is `archive`, and `compaction` joins small ones. The
journal is captured in `journal_capture`, without Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus.model.extras import needing
from twinbus.pipeline.capturing.archive import Archive, Batch, Published
from twinbus.pipeline.capturing.captured import COMPACT_EVERY, Captured, Numbers, repeated, seen
from twinbus.pipeline.merging.queries import batch_of, in_words, run, write_days
from twinbus.pipeline.namespace import FRAGMENT_BITS
from twinbus.pipeline.options import MAIN, SourceOptions

with needing("pyspark"):
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it.

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BROWSED = "browsed"
_PASSING = ("lockedUntil", "path")  # Of a lock, and of a message that is under way elsewhere.


def consume(
    spark: SparkSession,
    archive: Archive,
    options: Mapping[str, str],
    checkpoint: Path,
    *,
    watch: bool = False,
    told: Callable[[Captured], None] = lambda captured: None,
    until: threading.Event | None = None,
    compact_every: int = COMPACT_EVERY,
) -> Captured:
    """Take messages out of their entities and keep them; the archive is open. They are completed when they are safe."""
    done = Captured()

    def each(frame: DataFrame, number: int) -> None:
        done.add(_publish(frame, archive, batch_of(frame, number)))
        if compact_every and done.batches % compact_every == 0:
            done.join(archive)

    frame = spark.readStream.format("servicebus").options(**options).load()

    def look(query: StreamingQuery) -> None:
        told(done)

    writing = frame.writeStream.queryName("twinbus-capture").foreachBatch(each)
    run(writing, checkpoint, watch=watch, look=look, until=until or threading.Event())
    if compact_every:
        done.join(archive)
    return done


def browse_often(
    spark: SparkSession,
    archive: Archive,
    options: Mapping[str, str],
    *,
    every_s: float | None,
    compact: bool,
    told: Callable[[Captured], None],
    until: threading.Event,
) -> Captured:
    """Look once, or again and again until `until` is set."""
    done = Captured()

    def look() -> None:
        done.count(browse(spark, archive, options, compact=compact))
        told(done)

    repeated(look, every_s, until)
    return done


def browse(spark: SparkSession, archive: Archive, options: Mapping[str, str], *, compact: bool = True) -> Captured:
    """Look at entities and keep what is there and was not seen by an earlier look; nothing is taken out.

    What came and was consumed between two looks is not seen. Scheduled messages are left until they are due, since
    they then get another number.
    """
    done = Captured()
    sub_queue = SourceOptions.parse(options).subscribed.sub_queue
    source = f"{BROWSED}-{sub_queue}"
    known: Numbers = archive.notes(source)
    batch = Batch(source, (archive.last(source) or 0) + 1)
    with in_words():
        frame = spark.read.format("servicebus").options(**options).load()
        fresh = _unseen(spark, frame.where(F.col("state") != "scheduled"), known)

        def look(directory: Path) -> dict[str, Any]:
            """Say up to which numbers was written: a second look would see others."""
            write_days(fresh.drop(*_PASSING), directory, F.coalesce("enqueuedTime", F.current_timestamp()))
            return seen(directory, known, by_number=sub_queue != MAIN)

        done.add(archive.publish(batch, look))
    if compact:
        done.join(archive)
    return done


def _unseen(spark: SparkSession, frame: DataFrame, known: Numbers) -> DataFrame:
    rows = [
        (place, int(fragment), number) for place, all_ in known.items() for fragment, number in all_["last"].items()
    ]
    single = [(place, number) for place, all_ in known.items() for number in all_["each"]]
    number = F.col("sequenceNumber")
    frame = frame.withColumn("place", F.concat_ws("/", "namespace", "entity"))
    if rows:
        last = F.broadcast(spark.createDataFrame(rows, "place string, fragment int, last bigint"))
        same = (F.shiftright(number, FRAGMENT_BITS) == F.col("fragment")) & (number <= F.col("last"))
        frame = frame.join(last, (frame["place"] == last["place"]) & same, "left_anti")
    if single:
        each = spark.createDataFrame(single, "place string, sequenceNumber bigint")
        frame = frame.join(F.broadcast(each), ["place", "sequenceNumber"], "left_anti")
    return frame.drop("place")


def _publish(frame: DataFrame, archive: Archive, batch: Batch) -> Published:
    instant = F.coalesce("enqueuedTime", "receivedTime")
    return archive.publish(batch, lambda directory: write_days(frame.drop(*_PASSING), directory, instant))
