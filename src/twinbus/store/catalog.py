"""The catalog's file: which entities a namespace has, on which store each lives, and the namespace's own settings.

Small and synchronous; what a document means is known to `entities`.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.sql import sqlite

_log = EventLog(__name__)

VERSION = 1

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entity (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    store INTEGER NOT NULL,
    document TEXT NOT NULL
);
"""
_VERSION_KEY = "catalog_version"
NEXT_ID_KEY = "next-entity-id"


class EntityRow(NamedTuple):
    """One entity: its number for life, its name, and its description as JSON."""

    id: int
    name: str
    kind: str
    store: int
    document: str


class CatalogFile:
    """A durable table of entities. Every change is on disk when its call returns, or raises.

    When the disk has failed, the file is closed, and the next call opens it anew.
    """

    def __init__(self, path: str, vfs: str | None = None) -> None:
        self._path = path
        self._vfs = vfs
        self._opened: apsw.Connection | None = self._open()

    def _open(self) -> apsw.Connection:
        database = sqlite.connect(self._path, self._vfs, cache_kib=2048)
        try:
            _prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    @property
    def _database(self) -> apsw.Connection:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def load(self) -> tuple[dict[str, str], list[EntityRow]]:
        """The namespace's settings, and all entities in order of their numbers."""
        meta = dict(self._database.execute("SELECT key, value FROM meta WHERE key <> ?", (_VERSION_KEY,)))
        rows = self._database.execute("SELECT id, name, kind, store, document FROM entity ORDER BY id")
        return meta, [EntityRow(*row) for row in rows]

    def put(self, row: EntityRow) -> None:
        """Add an entity, or replace the one with the same number."""
        self._write(
            "INSERT INTO entity (id, name, kind, store, document) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
            " name = excluded.name, kind = excluded.kind, store = excluded.store, document = excluded.document",
            tuple(row),
        )

    def remove(self, entity_id: int) -> None:
        """Forget an entity; one that is not there is no error."""
        self._write("DELETE FROM entity WHERE id = ?", (entity_id,))

    def set_meta(self, key: str, value: str) -> None:
        """Keep one of the namespace's settings."""
        if key == _VERSION_KEY:
            raise ValueError("the version is not a setting")
        self._write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def take_ids(self, count: int) -> int:
        """Numbers for new entities, in a row, never given out twice; the first of them."""
        try:
            taken = self._database.execute("SELECT value FROM meta WHERE key = ?", (NEXT_ID_KEY,)).get
        except apsw.Error as error:
            raise self._failed(error) from error
        first = int(taken or 1)
        self.set_meta(NEXT_ID_KEY, str(first + count))
        return first

    def close(self) -> None:
        """Move the log into the file and release it."""
        if self._opened is None:
            return
        try:
            sqlite.checkpoint(self._opened, truncate=True)
        except apsw.Error as error:
            _log.warning(
                "checkpoint.failed",
                "the catalog's last checkpoint failed, the next start will do it: {error}",
                error=error,
            )
        self._opened.close()

    def _write(self, statement: str, values: tuple[int | str, ...]) -> None:
        try:
            self._database.execute(statement, values)
        except apsw.ConstraintError as error:
            raise BusError(Fault.ENTITY_EXISTS, "Another entity has this name.") from error
        except apsw.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: apsw.Error) -> BusError:
        """After some errors nobody knows what is on the disk, and the engine's own state is no longer to be trusted."""
        if sqlite.is_fatal(error) and self._opened is not None:
            sqlite.leave_log(self._opened)
            self._opened.close()
            self._opened = None
        return BusError(Fault.STORE_UNAVAILABLE, f"The catalog could not be written: {error}")


def _prepare(database: apsw.Connection) -> None:
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not tables:
        with database:
            database.execute(_TABLES)
            database.execute("INSERT INTO meta VALUES (?, ?)", (_VERSION_KEY, str(VERSION)))
        return
    version = database.execute("SELECT value FROM meta WHERE key = ?", (_VERSION_KEY,)).get
    if version != str(VERSION):
        raise BusError(
            Fault.STORE_UNAVAILABLE,
            f"The catalog's file has version {version}, and this version of Twinbus knows only {VERSION}. Start the"
            " newer Twinbus that wrote it, or use another data directory.",
        )
