"""Segments on disk: what one trigger received, kept as a file until Spark is done with it and the broker knows.

A segment is there whole or not at all: it is written beside, synced, renamed, and its directory synced. Which
messages go into one, and when one may go, is decided in `staged`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.model.extras import needing
from twinbus.pipeline.errors import PipelineError

with needing("pyarrow"):
    import pyarrow as pa

LAYOUT = 1
AWAY = "away.txt"
LOCK_WAIT_S = 30.0
_NAME = re.compile(r"segment-(\d{12})\.arrow")
_SCHEMA = pa.schema(
    [
        ("entity", pa.string()),
        ("sequence_number", pa.int64()),
        ("session_id", pa.string()),
        ("received_at_ms", pa.int64()),
        ("payload", pa.large_binary()),
    ],
    metadata={"twinbus.segment": str(LAYOUT)},
)


class Key(NamedTuple):
    """One message of a namespace for good: numbers of an entity are given once."""

    entity: str
    number: int


class Staged(NamedTuple):
    """A message in a segment."""

    entity: str
    number: int
    session_id: str | None  # Only of an entity that is read session by session.
    received_at_ms: int
    payload: bytes


def note_of(directory: Path) -> str | None:
    """Why the namespace of a staging directory cannot be read at present, as its reader noted."""
    try:
        return (directory / AWAY).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


class Staging:
    """A directory of segments, and a number: Spark is done with all segments up to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: int | None = None
        self._noted: str | None = None

    # Opening

    def open(self, namespace: str, wait_s: float = LOCK_WAIT_S) -> None:
        """Make the directory this process' own, and remove what a crash left half-written.

        A process that was killed may need a moment to be gone, so it is waited for.
        """
        try:
            self._directory.mkdir(0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise PipelineError(f"stagingLocation {self._directory} cannot be used: {problem.strerror}.") from None
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    text = f"stagingLocation {self._directory} is used by another query, and each needs its own."
                    raise PipelineError(text) from None
                time.sleep(0.05)
        for path in self._directory.glob("*.new"):
            path.unlink()
        self.tell(None)
        self._check_owner(namespace)

    def _check_owner(self, namespace: str) -> None:
        path = self._directory / "source.json"
        if path.exists():
            known = json.loads(path.read_text())
            if known["layout"] != LAYOUT or known["namespace"] != namespace:
                raise PipelineError(
                    f"stagingLocation {self._directory} belongs to namespace '{known['namespace']}' (layout"
                    f" {known['layout']}), not to '{namespace}': numbers of messages mean nothing elsewhere."
                )
        else:
            self._put(path, json.dumps({"layout": LAYOUT, "namespace": namespace}).encode())

    def close(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def tell(self, away: str | None) -> None:
        """Leave a note for whoever looks on: why the namespace cannot be read at present, or none."""
        if away is None:
            self._noted = None
            (self._directory / AWAY).unlink(missing_ok=True)
        elif away != self._noted:
            self._noted = away
            (self._directory / AWAY).write_text(away, encoding="utf-8")

    # What is there

    @property
    def finished(self) -> int:
        """Spark said that it is done with the segments up to this one; 0 if it never did."""
        with suppress(FileNotFoundError):
            return int((self._directory / "finished").read_text())
        return 0

    def finish(self, number: int) -> None:
        """Remember that for good."""
        if number > self.finished:
            self._put(self._directory / "finished", str(number).encode())

    def numbers(self) -> list[int]:
        """The segments that are there, in order."""
        return sorted(int(found[1]) for name in os.listdir(self._directory) if (found := _NAME.fullmatch(name)))

    def age_s(self, number: int, now_s: float) -> float:
        """How long ago a segment was written."""
        return now_s - self.path(number).stat().st_mtime

    def path(self, number: int) -> Path:
        """The file of a segment."""
        return self._directory / f"segment-{number:012}.arrow"

    def keys(self, number: int) -> list[Key]:
        """The messages of a segment, without what is in them."""
        table = _table(self.path(number), ["entity", "sequence_number"])
        return [
            Key(*pair) for pair in zip(table["entity"].to_pylist(), table["sequence_number"].to_pylist(), strict=True)
        ]

    def sessions(self, number: int) -> list[str | None]:
        """The session of each row."""
        found: list[str | None] = _table(self.path(number), ["session_id"])["session_id"].to_pylist()
        return found

    # Changing

    def write(self, number: int, messages: Sequence[Staged]) -> None:
        """A new segment, whole and for good when this returns."""
        columns = [
            pa.array(column, field.type) for column, field in zip(zip(*messages, strict=True), _SCHEMA, strict=True)
        ]
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_file(buffer, _SCHEMA) as writer:
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self._put(self.path(number), buffer.getvalue())

    def remove(self, number: int) -> None:
        """A segment that nobody needs any more."""
        self.path(number).unlink(missing_ok=True)

    def _put(self, path: Path, content: Any) -> None:
        fresh = path.with_name(f"{path.name}.new")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def read_range(path: Path, first: int, count: int) -> Iterator[Staged]:
    """Some of a segment's messages; the others are not touched."""
    table = _table(path, None).slice(first, count)
    for batch in table.to_batches(max_chunksize=1000):
        yield from map(Staged, *(column.to_pylist() for column in batch.columns))


def ranges(sessions: Sequence[str | None], parts: int) -> list[tuple[int, int]]:
    """Rows cut into about so many ranges (first, count) of like size; a session is never cut."""
    total = len(sessions)
    if not total:
        return []
    size = -(-total // max(parts, 1))
    found, first = [], 0
    for position in range(1, total + 1):
        is_cut = position == total or sessions[position] is None or sessions[position] != sessions[position - 1]
        if is_cut and (position - first >= size or position == total):
            found.append((first, position - first))
            first = position
    return found


def by_session(messages: Iterable[Staged]) -> list[Staged]:
    """Messages of one session together, in their order; those without a session first, as they came."""
    return sorted(messages, key=lambda each: ("", "") if each.session_id is None else (each.entity, each.session_id))


def _table(path: Path, columns: list[str] | None) -> Any:
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
        return table if columns is None else table.select(columns)
