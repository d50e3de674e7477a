"""A namespace's directory: who may use it, which files are in it, and the messaging stores that it holds.

One process at a time; everything in it is readable by its owner only, since the catalog holds keys.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from twinbus.broker.marks import Marks
from twinbus.broker.schema import STORES_MAX
from twinbus.broker.settings import SettingsError

STORES_DEFAULT = 4
LOCK = "lock"
UNFINISHED = "unfinished"  # While this file is there, what lies beside it is a part of a copy.


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """What the system refuses, in words: a directory that may not be entered, a disk that is read-only."""
    try:
        yield
    except OSError as problem:
        where = f" ({problem.filename})" if str(problem.filename or path) != str(path) else ""
        raise SettingsError(f"The data directory {path} cannot be used: {problem.strerror}{where}.") from None


def check_finished(path: Path) -> None:
    """Refuse a part of a backup, or of what was restored from one: half a namespace must not look like a new one."""
    with usable(path):
        is_unfinished = (path / UNFINISHED).exists()
    if is_unfinished:
        raise SettingsError(
            f"{path} holds a copy that was not finished: a `twinbus backup` or `restore` was interrupted. What it was"
            " copied from is as it was. Remove the directory and run the command again, or give it another place."
        )


class DataDirectory:
    """The directory, held for this process until `release`."""

    def __init__(self, path: Path, *, is_unfinished: bool = False) -> None:
        """`is_unfinished`: it is just being filled with a copy, which nobody else may use."""
        self.path = path
        if not is_unfinished:
            check_finished(path)
        with usable(path):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SettingsError(f"Another process is using the data directory {path}.") from None
        self.marks = Marks(self._lock)

    @property
    def catalog(self) -> Path:
        """The file that lists entities and policies."""
        return self._file("catalog.db")

    def store(self, index: int) -> Path:
        """The file of one messaging store."""
        return self._file(f"store-{index}.db")

    def _file(self, name: str) -> Path:
        """Where it really is: a database has its log beside the file that a link leads to, and its room is there."""
        path = self.path / name
        return Path(os.path.realpath(path)) if path.is_symlink() else path

    def present(self) -> list[int]:
        """The stores that have a file."""
        return [index for index in range(STORES_MAX) if self.store(index).exists()]

    def stores(self, wanted: int | None, known: Iterable[int] = ()) -> int:
        """How many stores there will be: what is there already, or was, more if asked for, never fewer."""
        # By the highest number: one may have been taken away because its disk was damaged.
        present = max((index + 1 for index in (*self.present(), *known)), default=0)
        if present == 0:
            return wanted or STORES_DEFAULT
        if wanted is not None and wanted < present:
            raise SettingsError(f"{self.path} holds {present} messaging stores; --stores cannot be {wanted}.")
        return max(present, wanted or 0)

    def release(self) -> None:
        """Let another process have it."""
        self.marks.close()
        os.close(self._lock)
