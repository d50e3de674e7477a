"""The journal of one or more brokers into an archive: exported files, each once, in the day they are of.

Knows no Spark: exported files are kept as they are, so that whoever reads a broker's export reads the archive, too.
What is in them is told by `model.journal`; small ones are joined by `compaction`.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.pipeline.capturing.archive import DAY, SUFFIX, Archive, Batch, Published
from twinbus.pipeline.capturing.captured import Captured, repeated
from twinbus.pipeline.errors import PipelineError

SOURCE = "journal"
AT_ONCE = 1000  # Files in a batch.
_NAME = re.compile(r"(?P<stream>.+-s\d+-w\d+)-(?P<first>\d+)-(?P<last>\d+)\.parquet")


class Exported(NamedTuple):
    """An exported file: a range of transactions of one stream, without gaps."""

    stream: str
    first: int
    last: int
    path: Path


class Gap(NamedTuple):
    """Transactions that no file has: they were trimmed before they were captured, or their file is missing."""

    stream: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.stream}: {self.first} to {self.last}"


class Plan(NamedTuple):
    """What to capture next, and what is missing before it."""

    files: list[Exported]
    gaps: list[Gap]


def exported(directories: Iterable[Path]) -> list[Exported]:
    """The files that brokers have exported, as they find themselves in `day=…` below the directories."""
    found = []
    for directory in directories:
        if not directory.is_dir():
            raise PipelineError(f"There is no directory {directory}; a broker exports its journal there.")
        for path in directory.glob(f"{DAY}=*/*{SUFFIX}"):
            name = _NAME.fullmatch(path.name)
            if name is not None:
                found.append(Exported(name["stream"], int(name["first"]), int(name["last"]), path))
    return found


def plan(files: Iterable[Exported], captured: Mapping[str, int], at_once: int = AT_ONCE) -> Plan:
    """The next files behind what was captured of each stream, in order, and the gaps before and between them.

    A stream that is new begins where its first file does: what was trimmed before anybody asked is not missed.
    """
    chosen: list[Exported] = []
    gaps: list[Gap] = []
    known = dict(captured)
    for file in sorted(files):
        last = known.get(file.stream)
        if last is not None and file.last <= last:
            continue
        if len(chosen) == at_once:
            break
        if last is not None and file.first <= last:
            raise PipelineError(f"{file.path.name} has transactions that an earlier file has, too.")
        if last is not None and file.first > last + 1:
            gaps.append(Gap(file.stream, last + 1, file.first - 1))
        known[file.stream] = file.last
        chosen.append(file)
    return Plan(chosen, gaps)


def capture(
    archive: Archive, directories: Iterable[Path], *, allow_gaps: bool = False, at_once: int = AT_ONCE
) -> tuple[Published, list[Gap]]:
    """Keep the next files; the archive is open. With no files the journal is captured. A gap is an error, unless it
    is allowed: then it is told.
    """
    captured = {stream: int(last) for stream, last in archive.notes(SOURCE).items()}
    chosen, gaps = plan(exported(directories), captured, at_once)
    if gaps and not allow_gaps:
        raise PipelineError(
            f"The journal has a gap, and what is missing was never captured: {'; '.join(map(str, gaps))}."
            " Nothing was added; --allow-gaps goes on behind it."
        )
    if not chosen:
        return Published([]), []

    def write(directory: Path) -> dict[str, Any]:
        for file in chosen:
            day = directory / file.path.parent.name
            day.mkdir(exist_ok=True)
            try:
                shutil.copyfile(file.path, day / file.path.name)
            except FileNotFoundError:
                raise PipelineError(f"{file.path} was removed before it could be captured.") from None
        return captured | {file.stream: file.last for file in chosen}

    batch = Batch(SOURCE, (archive.last(SOURCE) or 0) + 1)
    return archive.publish(batch, write), gaps


def capture_often(
    archive: Archive,
    directories: Sequence[Path],
    *,
    every_s: float | None,
    allow_gaps: bool,
    compact: bool,
    told: Callable[[Captured], None],
    until: threading.Event,
) -> Captured:
    """Capture what was exported, once or again and again until `until` is set; small files are joined in any case."""
    done = Captured()

    def look() -> None:
        while not until.is_set():
            published, gaps = capture(archive, directories, allow_gaps=allow_gaps)
            if not published.files:
                break
            done.add(published)
            done.gaps += map(str, gaps)
        if compact:
            done.join(archive)
        told(done)

    repeated(look, every_s, until)
    return done
