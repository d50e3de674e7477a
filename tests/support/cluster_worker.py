"""A stream from one queue to another on a Spark that is named, as a process of its own.

Run as `python cluster_worker.py MASTER DIRECTORY FROM TO`; the connection string is in the environment. It prints the
hosts and processes that its tasks ran in.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from twinbus.pipeline.session import open_session

VARIABLE = "CLUSTER_CONNECTION_STRING"


def main(master: str, directory: Path, source: str, destination: str) -> None:
    settings = {"spark.executor.memory": "512m", "spark.cores.max": "2", "spark.executor.cores": "1"}
    if options := os.environ.get("SPARK_SUBMIT_OPTS"):  # For the executors what the tests say for the driver.
        settings["spark.executor.extraJavaOptions"] = options
    spark = open_session("cluster worker", master, settings, scratch=directory / "scratch")
    stream = spark.readStream.format("servicebus").options(
        connectionStringEnv=VARIABLE,
        queue=source,
        stagingLocation=str(directory / "staging"),
        maxMessagesPerTrigger="200",
        minPartitions="2",
        payload="true",
    )
    writer = stream.load().select("payload", "messageId").writeStream.format("servicebus")
    writer = writer.options(connectionStringEnv=VARIABLE, queue=destination, requireDuplicateDetection="ignore")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    # The parents of the Python workers' daemons are the executors.
    executors = spark.sparkContext.parallelize(range(8), 8).map(lambda _: _grandparent()).distinct().collect()
    print(f"executors {len(executors)}", flush=True)
    spark.stop()


def _grandparent() -> int:
    with open(f"/proc/{os.getppid()}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
