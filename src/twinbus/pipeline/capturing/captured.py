"""What a capture has added to an archive, what it has seen of the entities that it looks at, and when it looks again.

Knows no Spark; what is captured is told by `capture` and `journal_capture`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinbus.model.extras import needing
from twinbus.pipeline.capturing import compaction
from twinbus.pipeline.capturing.archive import SUFFIX, Archive, Published
from twinbus.pipeline.namespace import FRAGMENT_BITS

with needing("pyarrow"):
    import pyarrow.parquet as pq

COMPACT_EVERY = 20  # Batches.

# By entity: the last number that was captured of each fragment, and single numbers.
Numbers = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Captured:
    """What a run has added."""

    batches: int = 0
    files: int = 0
    rows: int = 0
    joined: int = 0  # Files that became part of larger ones.
    problem: str | None = None  # Why small files were not joined.
    gaps: list[str] = field(default_factory=list)  # What was missing, and allowed to be.

    def add(self, published: Published) -> None:
        """Count the files of a batch."""
        self.batches += not published.again
        self.files += len(published.files)
        self.rows += sum(pq.read_metadata(path).num_rows for path in published.files)

    def count(self, other: Captured) -> None:
        """Count what another has counted."""
        self.batches += other.batches
        self.files += other.files
        self.rows += other.rows
        self.joined += other.joined
        self.problem = other.problem or self.problem
        self.gaps += other.gaps

    def join(self, archive: Archive) -> None:
        """Join small files, where that can be done."""
        try:
            self.joined += sum(each.files_before - each.files_after + 1 for each in compaction.compact(archive))
        except compaction.NotHereError as problem:
            self.problem = str(problem)


def repeated(look: Callable[[], None], every_s: float | None, until: threading.Event) -> None:
    """Once, or with an interval again and again until the event is set."""
    look()
    while every_s is not None and not until.wait(every_s):
        look()


def seen(directory: Path, known: Numbers, *, by_number: bool) -> dict[str, Any]:
    """What is known of each entity after files were written to a directory.

    Numbers go upwards, and each fragment of a partitioned entity counts for itself, so that the last one says it all.
    Dead letters keep the numbers that they had, and come in any order: of them each number is kept.
    """
    found: Numbers = {place: {"last": dict(all_["last"]), "each": list(all_["each"])} for place, all_ in known.items()}
    for path in directory.glob(f"*/*{SUFFIX}"):
        for row in pq.ParquetFile(path).read(["namespace", "entity", "sequenceNumber"]).to_pylist():
            place, number = f"{row['namespace']}/{row['entity']}", row["sequenceNumber"]
            all_ = found.setdefault(place, {"last": {}, "each": []})
            if by_number:
                all_["each"].append(number)
            else:
                fragment = str(number >> FRAGMENT_BITS)
                all_["last"][fragment] = max(all_["last"].get(fragment, 0), number)
    return found
