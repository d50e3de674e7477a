"""A streaming query as a process of its own, for tests that kill it: the ids of each batch become a file.

Run as `python stream_worker.py DIRECTORY QUEUE TRIGGER MASTER`; the connection string is in the environment. A batch
that is done again must have the same rows, or the process ends with 3.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from twinbus.pipeline.session import open_session

VARIABLE = "STREAM_CONNECTION_STRING"
PAUSE_S = 0.3  # So that a batch is in work when the process is killed.


def main(directory: Path, queue: str, trigger: str, master: str) -> None:
    spark = open_session("stream worker", master, scratch=directory / "scratch")
    source = spark.readStream.format("servicebus").options(
        connectionStringEnv=VARIABLE,
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
            print("another content", batch, flush=True)
            os._exit(3)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(ids))
        fresh.rename(path)

    writer = source.load().writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    how = {"availableNow": True} if trigger == "once" else {"processingTime": "0 seconds"}
    writer.trigger(**how).start().awaitTermination()  # type: ignore[arg-type]
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
