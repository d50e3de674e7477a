"""A namespace's directory: who may use it, which files are in it, and the messaging stores that it holds.

One process at a time; everything in it is readable by its owner only, since the catalog holds keys.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from twinbus.broker.schema import STORES_MAX
from twinbus.broker.settings import SettingsError

STORES_DEFAULT = 4


class DataDirectory:
    """The directory, held for this process until `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise SettingsError(f"The data directory {path} cannot be used: {problem.strerror}.") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SettingsError(f"Another process is using the data directory {path}.") from None

    @property
    def catalog(self) -> Path:
        """The file that lists entities and policies."""
        return self.path / "catalog.db"

    def store(self, index: int) -> Path:
        """The file of one messaging store."""
        return self.path / f"store-{index}.db"

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
        os.close(self._lock)
