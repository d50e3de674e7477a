"""An archive: Parquet files by day in a directory that anyone may read at any time, written a batch at a time.

A batch is published in steps that can be repeated after a crash between any two of them: nothing is missing then, and
nothing is there twice. Who fills a batch with files is the caller; small files are joined by `compaction`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.pipeline.errors import PipelineError

DAY = "day"
SUFFIX = ".parquet"
# Readers of Parquet leave alone what begins with an underscore.
STATE, LOCK, INCOMING, READY, COMPACTING = "_state.json", "_lock", "_incoming", "_ready", "_compacting"
GRACE_S = 60.0
NOTES = "notes.json"  # What a batch wants to be remembered, beside its files.


class Batch(NamedTuple):
    """A batch of one source; sources number their batches upwards, each for itself."""

    source: str
    number: int

    def __str__(self) -> str:
        return f"{self.source}-{self.number}"


class Published(NamedTuple):
    """What came of a batch: the files that it added; none if it had been published before."""

    files: list[Path]
    again: bool = False


class Archive:
    """The archive in a directory. One process at a time writes to it, and holds a lock while it does.

    What is below the directory:

    - `day=2026-11-16/….parquet`: the rows. A file is there whole, or not at all, and is never changed.
    - `_incoming/BATCH`: what a batch's writers are writing. Forgotten when it did not get further.
    - `_ready/BATCH`: a batch that is complete; its files are moved to their days from here, and this is finished by
      whoever opens the archive next, if it was not.
    - `_compacting`: days as they were before their files were joined, for a minute, or as they would have become.
    - `_state.json`: the last batch of each source, and what it wants to be remembered.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def open(self) -> Iterator[Archive]:
        """Hold the archive; a PipelineError if another process does. What a crash left half-way is finished first."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PipelineError(f"Another process writes to {self.root} at this moment.") from None
            self._recover()
            yield self

    def last(self, source: str) -> int | None:
        """The number of the last batch of a source; None if there was none."""
        known = self._state().get(source)
        return None if known is None else int(known["batch"])

    def notes(self, source: str) -> dict[str, Any]:
        """What the last batch of a source wanted to be remembered."""
        return dict(self._state().get(source, {}).get("notes", {}))

    def publish(self, batch: Batch, write: Callable[[Path], dict[str, Any] | None]) -> Published:
        """Have `write` put files below `day=…` of a directory, and show them; what it returns is remembered.

        A batch that was published before is left alone, and one that was complete is only moved: its files may
        have been seen already, and a second attempt may distribute its rows otherwise.
        """
        last = self.last(batch.source)
        if last is not None and batch.number <= last:
            return Published([], again=True)
        ready = self.root / READY / str(batch)
        if not ready.exists():
            incoming = self.root / INCOMING / str(batch)
            shutil.rmtree(incoming, ignore_errors=True)
            incoming.mkdir(parents=True)
            notes = write(incoming)
            told = {"source": batch.source, "batch": batch.number, "notes": notes or {}}
            (incoming / NOTES).write_text(json.dumps(told))
            make_durable(incoming)
            ready.parent.mkdir(exist_ok=True)
            incoming.rename(ready)
            sync(ready.parent)
        return Published(self._show(ready))

    def days(self) -> dict[str, list[Path]]:
        """The files of each day, as a reader finds them."""
        found = {}
        for directory in sorted(self.root.glob(f"{DAY}=*")):
            found[directory.name.removeprefix(f"{DAY}=")] = sorted(directory.glob(f"*{SUFFIX}"))
        return found

    def sweep(self) -> None:
        """Remove what days were before their small files were joined; a reader may still be listing the latest."""
        before = time.time() - GRACE_S
        beside = self.root / COMPACTING
        for path in beside.iterdir() if beside.exists() else ():
            if path.stat().st_ctime < before:  # When it got its present name.
                shutil.rmtree(path)

    # Steps

    def _show(self, ready: Path) -> list[Path]:
        """Move the files of a complete batch to their days, and forget the batch; may be repeated."""
        told = json.loads((ready / NOTES).read_text())
        shown = []
        for directory in sorted(ready.glob(f"{DAY}=*")):
            day = self.root / directory.name
            day.mkdir(exist_ok=True)
            for file in sorted(directory.glob(f"*{SUFFIX}")):
                # By their own names: after a crash only some of them are left here.
                target = day / f"{ready.name}-{file.name}"
                file.rename(target)
                shown.append(target)
            sync(day)
        sync(self.root)
        self._remember(told)
        shutil.rmtree(ready)
        return shown

    def _recover(self) -> None:
        shutil.rmtree(self.root / INCOMING, ignore_errors=True)
        self.sweep()
        ready = self.root / READY
        waiting = [path for path in ready.iterdir() if (path / NOTES).exists()] if ready.exists() else []
        for path in sorted(waiting, key=lambda path: int(path.name.rpartition("-")[2])):
            self._show(path)
        shutil.rmtree(ready, ignore_errors=True)

    def _state(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.root / STATE).read_text())
        except FileNotFoundError:
            return {}
        return found

    def _remember(self, told: dict[str, Any]) -> None:
        state = self._state()
        state[told["source"]] = {"batch": told["batch"], "notes": told["notes"]}
        fresh = self.root / f"{STATE}.fresh"
        fresh.write_text(json.dumps(state, indent=1, sort_keys=True))
        sync(fresh)
        fresh.replace(self.root / STATE)
        sync(self.root)


def make_durable(directory: Path) -> None:
    """Have everything below a directory on the disk."""
    for folder, _, files in os.walk(directory):
        for file in files:
            sync(Path(folder, file))
        sync(Path(folder))


def sync(path: Path) -> None:
    """Have a file's content, or a directory's names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
