"""A merge as a process of its own that is killed in the midst of a batch: its files are there, and Spark knows nothing.

Run as `python merge_worker.py DIRECTORY QUEUE BATCHES`, with the connection strings in the environment, as the leader
of a process group: all of it dies at once, after so many batches and a half.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from twinbus.pair.description import PairDescription
from twinbus.pipeline.merging.merge import Merge, merge
from twinbus.pipeline.merging.sightings import Sightings
from twinbus.pipeline.session import open_session


def job(directory: Path, pair: PairDescription, queue: str) -> Merge:
    """The merge that is interrupted, and repeated."""
    return Merge(
        pair=pair,
        entities={queue: queue},
        checkpoint=directory / "checkpoint",
        staging=directory / "staging",
        files=directory / "out",
        reading={"receiveTimeout": "200ms", "maxMessagesPerTrigger": "30"},
    )


def main(directory: Path, queue: str, batches: int) -> None:
    spark = open_session("merge worker", scratch=directory / "scratch")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    record = Sightings.record

    def until_killed(account: Sightings, source: str, number: int, *rest: Any) -> bool:
        if number == batches:
            os.killpg(os.getpgid(0), signal.SIGKILL)
        return record(account, source, number, *rest)

    Sightings.record = until_killed  # type: ignore[method-assign]
    merge(spark, job(directory, PairDescription.read(), queue))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
