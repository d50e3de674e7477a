"""Streaming queries as commands run them: started, watched, and ended; and what several jobs tell a reader or writer.

What a query does is told by `merge` and `capture`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from twinbus.model.extras import needing
from twinbus.pipeline.capturing.archive import DAY, Batch
from twinbus.pipeline.errors import PipelineError

with needing("pyspark"):
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it.

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from twinbus.pair.description import NamespaceDescription

LOOK_S = 1
TRIGGER = "1 second"
QUERY = "sql.streaming.queryId"  # What Spark tells the jobs of a stream.
_OWN = re.compile(r"(?:PipelineError|ClientError): (.+)")
_PYTHON = re.compile(r"^(?!py4j|org\.|java\.)[\w.]*(?:Error|Exception): .+$", re.MULTILINE)


def connection_options(namespace: NamespaceDescription) -> dict[str, str]:
    """A namespace of a pair, as the data source is told of it."""
    told = {"connectionString": namespace.connection_string}
    if namespace.ca is not None:
        told["caFile"] = str(namespace.ca)
    if namespace.http is not None and (port := urlsplit(namespace.http).port) is not None:
        told["httpPort"] = str(port)
    return told


def run(
    writing: DataStreamWriter,
    checkpoint: Path,
    *,
    watch: bool,
    look: Callable[[StreamingQuery], None],
    until: threading.Event,
) -> None:
    """Run a query to its end: when all that is there now is done, or with `watch` when `until` is set.

    `look` is called now and then, and once at the end. A PipelineError says why a query failed.
    """
    trigger = writing.trigger(processingTime=TRIGGER) if watch else writing.trigger(availableNow=True)
    with in_words():
        query = trigger.option("checkpointLocation", str(checkpoint)).start()
        try:
            while not query.awaitTermination(LOOK_S):
                look(query)
                if until.is_set():
                    break
        finally:
            query.stop()
        look(query)


@contextmanager
def in_words() -> Iterator[None]:
    """Problems of Spark as sentences: our own if one is at the bottom of it, else the last of Python's."""
    try:
        yield
    except PySparkException as problem:
        text = str(problem)
        found = _OWN.findall(text) or _PYTHON.findall(text) or [text.partition("\n")[0]]
        raise PipelineError(found[-1].strip()) from problem


def batch_of(frame: DataFrame, number: int) -> Batch:
    """A batch of a stream, by the name that its checkpoint gave the stream."""
    return Batch(str(frame.sparkSession.sparkContext.getLocalProperty(QUERY)), number)


def write_days(frame: DataFrame, directory: Path, instant: Column) -> None:
    """Rows as Parquet files below a directory, each in the day of its instant, in UTC."""
    settings = frame.sparkSession.conf
    # The older way of writing instants is understood by fewer readers.
    settings.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    settings.set("spark.sql.session.timeZone", "UTC")
    writing = frame.withColumn(DAY, F.to_date(instant)).write.partitionBy(DAY)
    # Also where Spark's usual file system is another one.
    writing.option("compression", "zstd").mode("append").parquet(f"file://{directory.absolute()}")
