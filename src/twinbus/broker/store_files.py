"""The files of a namespace's stores and its catalog in a directory, looked at and put out of the way.

The directory is held by this process. What follows from what is found is told in `belonging`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import apsw

from twinbus.broker.belonging import Look
from twinbus.broker.datadir import DataDirectory
from twinbus.broker.settings import SettingsError
from twinbus.model.errors import BusError, Fault
from twinbus.sql import sqlite
from twinbus.store import identity_file
from twinbus.store.identity import NAMESPACE_KEY, KnownStore, Place

_BESIDE = ("", "-wal", "-shm")  # A database is these files, and none of them without the others.


class StoreFiles:
    """Places that are files."""

    remedies = (
        "Put the right files back; or say that this catalog is the right one: `twinbus catalog accept`; or have one"
        " made from what the stores remember: `twinbus catalog rebuild`."
    )

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory

    def catalog_label(self) -> str:
        """The directory."""
        return str(self._directory.path)

    def namespace_id(self) -> str | None:
        """As the catalog's file says, which is not changed by it."""
        if not self._directory.catalog.exists():
            return None
        try:
            with closing(sqlite.read_only(self._directory.catalog)) as database:
                found = database.execute("SELECT value FROM meta WHERE key = ?", (NAMESPACE_KEY,)).get
        except (BusError, apsw.Error):
            return None
        return str(found) if found is not None else None

    def place(self, index: int) -> Place:
        """The file's name."""
        return Place(index, f"store-{index}.db")

    def look(self, index: int) -> Look:
        """Whether there is a file with something in it, and who it says that it is."""
        if not self._has_something(index):
            return Look(False)
        if (other := self._other_name(index)) is not None:
            raise BusError(
                Fault.STORE_UNAVAILABLE,
                f"{self.place(index).where} and {other} are one file under two names, by a hard link. Opened under"
                " both, it would be damaged: put the right files in their places, each a file of its own",
            )
        return Look(True, identity_file.read(str(self._directory.store(index))))

    def present(self) -> list[int]:
        """The stores that have a file with something in it."""
        return [index for index in self._directory.present() if self._has_something(index)]

    def _other_name(self, index: int) -> str | None:
        """The name under which the same file is there once more, with another log."""
        own = self._directory.store(index)
        others = [self._directory.store(other) for other in self._directory.present() if other != index]
        for other in (self._directory.catalog, *others):
            if other != own and other.exists() and own.samefile(other):
                return other.name
        return None

    def _has_something(self, index: int) -> bool:
        return identity_file.is_there(str(self._directory.store(index)))

    def known(self) -> Mapping[int, KnownStore]:
        """Nobody else changes the catalog."""
        return {}

    def reached(self, index: int, store: str) -> int:
        """As the last synced commit has noted."""
        return self._directory.marks.read(index, store)

    def begin_anew(self, index: int) -> None:
        """Strike the note off."""
        self._directory.marks.clear(index)

    def check_catalog_is_there(self) -> None:
        """Stores without a catalog are no new namespace."""
        names = ", ".join(self.place(index).where for index in self.present())
        if not names or self.has_catalog():
            return
        path = self._directory.catalog
        rescued = sorted(file.name for file in path.parent.glob(f"{path.name}.rescued-*"))
        saved = f" ({rescued[-1]} has what a broker saved of it)" if rescued else ""
        raise SettingsError(
            f"{self._directory.catalog} is missing or empty, and messaging stores are there: {names}. Without the"
            " catalog nobody knows their entities and keys. Put catalog.db back, with its catalog.db-wal if there is"
            f" one{saved}, or have it made anew from what the stores remember: twinbus catalog rebuild"
            f" {self._directory.path}. Nothing was changed."
        )

    def has_catalog(self) -> bool:
        """Whether there is a file with tables. It is not opened for that: an empty one would lose its log by it."""
        path = self._directory.catalog
        if not path.exists() or not path.stat().st_size:
            return False
        try:
            with closing(sqlite.read_only(path)) as database:
                return bool(database.execute("SELECT count(*) FROM sqlite_schema").get)
        except (BusError, apsw.Error):
            return True  # What is wrong with it is said when it is opened.

    def move_away(self, index: int) -> str:
        """Rename a store's files."""
        return self._move(self._directory.store(index))

    def move_catalog_away(self) -> str:
        """The same for the catalog."""
        return self._move(self._directory.catalog)

    def _move(self, path: Path) -> str:
        suffix = f".replaced-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
        moved = ""
        for beside in _BESIDE:
            file = Path(f"{path}{beside}")
            if file.exists():
                # The log goes with its database, whose name it must begin with.
                target = Path(f"{path}{suffix}{beside}")
                file.rename(target)
                moved = moved or target.name
        return moved
