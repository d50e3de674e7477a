"""A streaming query as a process of its own, for tests that kill it: the ids of each batch become a file.

Run as `python stream_worker.py DIRECTORY QUEUE MASTER`; the connection string is in a file of the directory. A batch
that is done again must have the same rows, or the query fails.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTION_STRING = "connection-string"
PAUSE_S = 0.3  # So that a batch is in work when the process is killed.


def run(spark: SparkSession, directory: Path, queue: str, *, to_the_end: bool) -> None:
    """Keep what comes, for ever or until the queue is empty."""
    source = spark.readStream.format("servicebus").options(
        connectionStringFile=str(directory / CONNECTION_STRING),
        subscribe=queue,
        stagingLocation=str(directory / "staging"),
        maxMessagesPerTrigger="200",
        minPartitions="2",
    )

    def keep(frame, batch):  # type: ignore[no-untyped-def]
        ids = sorted(row.messageId for row in frame.select("messageId").collect())
        time.sleep(PAUSE_S)
        path = directory / "batches" / f"{batch:06}.json"
        if path.exists() and json.loads(path.read_text()) != ids:
            raise RuntimeError(f"batch {batch} has another content when it is done again")
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(ids))
        fresh.rename(path)

    writer = source.load().writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    how = {"availableNow": True} if to_the_end else {"processingTime": "0 seconds"}
    writer.trigger(**how).start().awaitTermination()  # type: ignore[arg-type]


if __name__ == "__main__":
    where, queue, master = sys.argv[1:]
    run(open_session("stream worker", master, scratch=Path(where) / "scratch"), Path(where), queue, to_the_end=False)
