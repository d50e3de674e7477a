"""Joins the small files of an archive's day into few large ones, so that a reader sees the day before or after.

The day's directory is exchanged as a whole, in one step of the file system; where a file system has no such step,
nothing is joined. Which rows there are is `archive`'s business.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from twinbus.model.extras import needing
from twinbus.pipeline.capturing.archive import COMPACTING, DAY, SUFFIX, Archive, make_durable, sync
from twinbus.pipeline.errors import PipelineError

with needing("pyarrow"):
    import pyarrow as pa
    import pyarrow.parquet as pq

SMALL_BYTES = 64 * 1024 * 1024  # What is larger is left as it is.
LARGE_BYTES = 256 * 1024 * 1024  # Files are joined up to this size.
FEWEST = 4  # A day with fewer small files is left alone.
ROWS_AT_ONCE = 65_536

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class NotHereError(PipelineError):
    """The file system, or the system, cannot let two directories change places."""


class Compacted(NamedTuple):
    """What was done to a day."""

    day: str
    files_before: int
    files_after: int
    rows: int


def plan(sizes: dict[Path, int], small: int = SMALL_BYTES, large: int = LARGE_BYTES) -> list[list[Path]]:
    """Which files become one: small ones, in the order of their names, up to a size; a file alone stays as it is."""
    groups: list[list[Path]] = [[]]
    filled = 0
    for path, size in sorted(sizes.items()):
        if size >= small:
            continue
        if groups[-1] and filled + size > large:
            groups.append([])
            filled = 0
        groups[-1].append(path)
        filled += size
    return [group for group in groups if len(group) > 1]


def compact(
    archive: Archive, fewest: int = FEWEST, small: int = SMALL_BYTES, large: int = LARGE_BYTES
) -> list[Compacted]:
    """Join what is small, day by day; the archive is open. A NotHereError if the file system cannot do it."""
    done = []
    archive.sweep()
    for day, files in archive.days().items():
        groups = plan({path: path.stat().st_size for path in files}, small, large)
        if sum(map(len, groups)) >= fewest:
            done.append(_compact_day(archive.root, day, files, groups))
    return done


def _compact_day(root: Path, day: str, files: list[Path], groups: list[list[Path]]) -> Compacted:
    """The new day is built beside the old one and takes its place; what is then beside it is the old one.

    A crash before the exchange leaves the old day in place, one after it the new day, and in both cases something
    under `_compacting` that `archive` removes later: not at once, because a reader may be listing it.
    """
    fresh = root / COMPACTING / uuid4().hex
    fresh.mkdir(parents=True)
    joined = {path for group in groups for path in group}
    rows = sum(_join(group, fresh / f"joined-{uuid4().hex}{SUFFIX}") for group in groups)
    kept = [path for path in files if path not in joined]
    for path in kept:
        os.link(path, fresh / path.name)  # The same file under two names, until one of the directories goes.
    make_durable(fresh)
    exchange(fresh, root / f"{DAY}={day}")
    sync(root)
    return Compacted(day, len(files), len(kept) + len(groups), rows)


def _join(paths: list[Path], into: Path) -> int:
    """All rows of the files in one; how many they were. Columns that only some of them have are kept."""
    schema = pa.unify_schemas([pq.read_schema(path) for path in paths])
    rows = 0
    with pq.ParquetWriter(into, schema, compression="zstd", coerce_timestamps="us") as writer:
        for batch in _batches(paths, schema):
            rows += batch.num_rows
            writer.write_table(batch)
    wanted = sum(pq.read_metadata(path).num_rows for path in paths)
    if not rows == wanted == pq.read_metadata(into).num_rows:
        raise PipelineError(f"{into.name} has {rows} rows and should have {wanted}; nothing was changed.")
    return rows


def _batches(paths: list[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                table = pa.Table.from_batches([batch])
                yield pa.concat_tables([schema.empty_table(), table], promote_options="default").select(schema.names)


def exchange(first: Path, second: Path) -> None:
    """Let two directories change places at one instant; a NotHereError where the file system cannot."""
    if not sys.platform.startswith("linux"):
        raise NotHereError("Directories can be exchanged at one instant on Linux only; nothing was joined.")
    libc = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(first), os.fsencode(second))
    try:
        failed = libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    except AttributeError:
        raise NotHereError("This system cannot exchange directories at one instant; nothing was joined.") from None
    if failed:
        reason = os.strerror(ctypes.get_errno())
        raise NotHereError(f"The file system of {second} cannot exchange directories at one instant ({reason}).")
