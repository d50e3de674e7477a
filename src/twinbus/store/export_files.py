"""Files of the exported journal: written whole under their names or not at all, and removed when they are old.

What is in them is decided by `store.export`, which ranges there are by the store itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.model.journal import DAY
from twinbus.store.commands import EntityName
from twinbus.store.export import NOBODY, JournalSource, Place, arrow, part_of, path_of, schema, table_of
from twinbus.store.journal import JournalRow
from twinbus.store.range_commands import Range

# So much of the journal is made into a table at once: some milliseconds in which nobody else has the interpreter.
CHUNK_BYTES = 128 * 1024
GROUP_ROWS = 64 * 1024  # So many operations are one row group of a file.
_PLAIN = ("message_id", "sequence_number", "place")  # Columns whose values hardly ever repeat.


class Names:
    """What a store's entities are called. A number is given out once, so a name that is known stays true."""

    def __init__(self) -> None:
        self._known: dict[int, EntityName] = {}

    def read_from(self, source: JournalSource) -> Callable[[int], EntityName]:
        """Who knows every entity that has a name; what has none is asked for once."""
        unknown: set[int] = set()

        def name_of(entity: int) -> EntityName:
            name = self._known.get(entity)
            if name is None and entity not in unknown:
                self._known.update(source.names([entity]))
                name = self._known.get(entity)
                if name is None:
                    unknown.add(entity)
            return name or NOBODY

        return name_of


class IncompleteRangeError(Exception):
    """Rows of a range are not there any more: somebody else must have exported and trimmed it."""


def write(
    directory: Path, place: Place, part: Range, source: JournalSource, names: Names, pause: Callable[[], None]
) -> None:
    """Write a range's file, and have it and its name on disk. The same range gives the same file.

    `pause` is called again and again on the way, to let others work.
    """
    pa = arrow()
    from pyarrow import parquet

    target = directory / path_of(place.namespace, place.store, part)
    is_new_day = not target.parent.exists()
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.tmp")
    wanted = schema()
    compact = [field.name for field in wanted if field.name not in _PLAIN]
    try:
        with parquet.ParquetWriter(unfinished, wanted, compression="zstd", use_dictionary=compact) as writer:
            name_of = names.read_from(source)
            tables: list[Any] = []
            for rows in _chunks(part, source):
                tables.append(table_of(place, rows, name_of))
                if sum(table.num_rows for table in tables) >= GROUP_ROWS:
                    writer.write_table(pa.concat_tables(tables))
                    tables = []
                pause()
            if tables:
                writer.write_table(pa.concat_tables(tables))
        _sync(unfinished)
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    _sync(target.parent)
    if is_new_day:
        _sync(directory)
        _sync(directory.parent)


def _chunks(part: Range, source: JournalSource) -> Iterator[list[JournalRow]]:
    """The rows of a range, which have no gaps."""
    after = part.first - 1
    while after < part.last:
        rows = source.rows(part, after, CHUNK_BYTES)
        if [row.id for row in rows] != list(range(after + 1, after + 1 + len(rows))) or not rows:
            raise IncompleteRangeError(f"rows {after + 1} to {part.last} of writer {part.writer}")
        yield rows
        after = rows[-1].id


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# What is there


class Found(NamedTuple):
    """One exported file."""

    path: Path
    day: str
    size: int


def files_in(directory: Path, namespace: str) -> list[Found]:
    """The namespace's files, the oldest day first."""
    found: list[Found] = []
    for path in directory.glob(f"{DAY}=*/*.parquet"):
        if part_of(namespace, path.name) is not None:
            with suppress(FileNotFoundError):  # Another gateway may be removing it.
                found.append(Found(path, path.parent.name.removeprefix(f"{DAY}="), path.stat().st_size))
    return sorted(found, key=lambda file: (file.day, file.path.stat().st_mtime_ns if file.path.exists() else 0))


def last_in(directory: Path, namespace: str, store: int) -> dict[int, int]:
    """The last transaction of each writer of a store that is in a file."""
    last: dict[int, int] = {}
    for path in directory.glob(f"{DAY}=*/*.parquet"):
        found = part_of(namespace, path.name)
        if found is not None and found.store == store:
            last[found.writer] = max(last.get(found.writer, 0), found.last)
    return last


def superfluous(files: list[Found], before_day: str, keep_bytes: int) -> list[Found]:
    """Those that are too old, and the oldest of the others as far as together they are too large; never the newest."""
    total = sum(file.size for file in files)
    gone: list[Found] = []
    for file in files[:-1]:
        if file.day >= before_day and total <= keep_bytes:
            break
        gone.append(file)
        total -= file.size
    return gone


def remove(files: list[Found]) -> None:
    """Remove files, and the directories of days that are empty then."""
    for file in files:
        file.path.unlink(missing_ok=True)
    for day in {file.path.parent for file in files}:
        with suppress(OSError):
            day.rmdir()
