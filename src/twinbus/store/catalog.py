"""The catalog's file: which entities a namespace has, on which store each lives, and the namespace's own settings.

Small and synchronous; what a document means is known to `entities`.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.model.failpoints import failpoint
from twinbus.model.logged import EventLog
from twinbus.sql import sqlite
from twinbus.store.file_watch import FileWatch
from twinbus.store.identity import GENERATION_KEY
from twinbus.store.reserve import Reserve

_log = EventLog(__name__)

VERSION = 2
RESERVE_BYTES = 256 * 1024

# A row's checksum is over all its other columns, so that a damaged one is noticed before anybody acts on it.
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER) WITHOUT ROWID;
CREATE TABLE entity (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    store INTEGER NOT NULL,
    document TEXT NOT NULL,
    checksum INTEGER
);
"""
# What was removed, until its stores have been told: nothing else that a store holds may be dropped.
_DROPPING = "CREATE TABLE dropping (entity INTEGER PRIMARY KEY, store INTEGER NOT NULL);"
_SECOND = f"""
ALTER TABLE meta ADD COLUMN checksum INTEGER;
ALTER TABLE entity ADD COLUMN checksum INTEGER;
{_DROPPING}
"""
# What makes a file of one version one of the next; checksums of rows that are there are added afterwards.
_MIGRATIONS = {1: _SECOND}
_VERSION_KEY = "catalog_version"
NEXT_ID_KEY = "next-entity-id"
_HIDDEN = (_VERSION_KEY, GENERATION_KEY)
DAMAGED = "The catalog's row does not match its checksum."
_PUT_META = """
INSERT INTO meta VALUES (?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum"""


class EntityRow(NamedTuple):
    """One entity: its number for life, its name, and its description as JSON."""

    id: int
    name: str
    kind: str
    store: int
    document: str
    problem: str = ""  # Why it cannot be believed, if so.

    @property
    def stored(self) -> tuple[int, str, str, int, str]:
        """What the catalog keeps."""
        return self[:5]


class CatalogFile:
    """A durable table of entities. Every change is on disk when its call returns, or raises.

    When the disk has failed, the file is closed, and the next call opens it anew. On a full disk it can be read, and
    what was laid aside beside it is for removing entities, which is what makes room.
    """

    def __init__(self, path: str, vfs: str | None = None) -> None:
        self._path = path
        self._vfs = vfs
        self.known_generation = 0  # When it was last looked at.
        self._reserve = Reserve(f"{os.path.realpath(path)}.reserve", RESERVE_BYTES)
        self._is_alone = False
        self.problem = ""  # Why nothing can be changed, for somebody has taken its files away.
        self._is_lost = False
        self._watch: FileWatch | None = None
        self._opened: apsw.Connection | None = self._open()

    def _open(self) -> apsw.Connection:
        self._reserve.check()
        is_new = not os.path.exists(self._path)
        if is_new and self._watch is not None:
            raise BusError(Fault.STORE_UNAVAILABLE, "The catalog's file is not there any more: put it back")
        has_room = self._reserve.lay_aside()
        if has_room or is_new:
            return self._connect()
        self._reserve.give_up()  # Opening needs some room.
        try:
            return self._connect()
        except BusError:
            return self._connect(alone=True)

    def _connect(self, alone: bool = False) -> apsw.Connection:
        database = sqlite.connect(self._path, self._vfs, cache_kib=2048, alone=alone)
        try:
            _prepare(database)
        except BaseException as problem:
            sqlite.leave_log(database)
            database.close()
            if isinstance(problem, apsw.Error):
                raise _unreadable(str(problem)) from problem
            raise
        self._is_alone = alone
        if self._watch is not None:
            self._watch.close()
        self._watch = FileWatch(self._path)
        return database

    @property
    def _database(self) -> apsw.Connection:
        if self._opened is not None and self._is_alone and self._reserve.lay_aside():
            self._opened.close()  # There is room again for others to open it, too.
            self._opened = None
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    @property
    def generation(self) -> int:
        """How many changes there were; it only grows, and the stores are told of it."""
        found = self._database.execute("SELECT value FROM meta WHERE key = ?", (GENERATION_KEY,)).get
        self.known_generation = int(found or 0)
        return self.known_generation

    def load(self) -> tuple[dict[str, str], list[EntityRow]]:
        """The namespace's settings, and all entities in order of their numbers.

        A setting that is damaged is an error, because keys are among them; a row that is damaged says so.
        """
        try:
            return _load(self._database)
        except apsw.Error as error:
            raise _unreadable(str(error)) from error

    def dropping(self) -> dict[int, int]:
        """What was removed and is perhaps still in its store: the store of each number."""
        return _dropping(self._database)

    def put(self, row: EntityRow) -> None:
        """Add an entity, or replace the one with the same number."""
        self._change(
            "INSERT INTO entity (id, name, kind, store, document, checksum) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET name = excluded.name, kind = excluded.kind, store = excluded.store,"
            " document = excluded.document, checksum = excluded.checksum",
            [(*row.stored, checksum_of(*row.stored))],
        )

    def remove(self, entity_id: int, parts: Mapping[int, int] | None = None) -> None:
        """Forget an entity; one that is not there is no error. `parts` are its numbers in stores that drop them now."""
        try:
            self._remove(entity_id, parts or {})
        except BusError as error:
            if not isinstance(error.__cause__, apsw.FullError):
                raise
            self._make_room()
            self._remove(entity_id, parts or {})

    def _remove(self, entity_id: int, parts: Mapping[int, int]) -> None:
        with self._writing():
            self._database.execute("DELETE FROM entity WHERE id = ?", (entity_id,))
            self._database.executemany("INSERT OR REPLACE INTO dropping VALUES (?, ?)", list(parts.items()))
            self._count_change()

    def dropped(self, parts: Iterable[int]) -> None:
        """The stores have been told to drop these."""
        with self._writing():
            self._database.executemany("DELETE FROM dropping WHERE entity = ?", [(part,) for part in parts])

    def set_meta(self, key: str, value: str) -> None:
        """Keep one of the namespace's settings."""
        if key in _HIDDEN:
            raise ValueError(f"'{key}' is not a setting")
        self._change(_PUT_META, [(key, value, checksum_of(key, value))])

    def note(self, values: Mapping[str, str]) -> None:
        """Keep what is known of the stores. That is no change of the namespace, and no store is told of it."""
        with self._writing():
            self._database.executemany(
                _PUT_META, [(key, value, checksum_of(key, value)) for key, value in values.items()]
            )

    def raise_generation(self, least: int) -> None:
        """Go on counting changes from there at least: an operator has said that this is the right catalog."""
        with self._writing():
            value = str(max(self.generation, least))
            self._database.execute(_PUT_META, (GENERATION_KEY, value, checksum_of(GENERATION_KEY, value)))

    def take_ids(self, count: int) -> int:
        """Numbers for new entities, in a row, never given out twice; the first of them."""
        with self._writing():
            taken = self._database.execute("SELECT value FROM meta WHERE key = ?", (NEXT_ID_KEY,)).get
            first = int(taken or 1)
            value = str(first + count)
            self._database.execute(_PUT_META, (NEXT_ID_KEY, value, checksum_of(NEXT_ID_KEY, value)))
        return first

    def keep_ids_above(self, number: int) -> None:
        """Give out no number up to this one: a store knows it, whatever became of the catalog."""
        with self._writing():
            taken = self._database.execute("SELECT value FROM meta WHERE key = ?", (NEXT_ID_KEY,)).get
            if int(taken or 1) <= number:
                value = str(number + 1)
                self._database.execute(_PUT_META, (NEXT_ID_KEY, value, checksum_of(NEXT_ID_KEY, value)))

    def close(self) -> None:
        """Move the log into the file and release it."""
        if self._watch is not None:
            self._watch.close()
        if self._opened is None:
            return
        try:
            if self.problem:
                sqlite.leave_log(self._opened)  # What has its name now may be another's.
            else:
                sqlite.checkpoint(self._opened, truncate=True)
        except apsw.Error as error:
            _log.warning(
                "checkpoint.failed",
                "the catalog's last checkpoint failed, the next start will do it: {error}",
                error=error,
            )
        self._opened.close()

    def look_after(self) -> None:
        """Find out whether its files are still in their place; `problem` says what is the matter."""
        is_removed = self._watch.look() if self._watch is not None and not self._is_lost else None
        if self._is_lost or (is_removed is None and not self.problem):
            return
        if is_removed is None:
            self.problem = ""  # They were put back.
            return
        problem = "its files were moved to another place while it was served; put them back"
        if is_removed:
            problem = self._rescued()
        if problem != self.problem:
            _log.critical("catalog.lost", "the catalog takes no changes: {error}", error=problem)
        self.problem = problem

    def _rescued(self) -> str:
        assert self._watch is not None
        try:
            name = self._watch.save(self._database, self.known_generation)
        except (apsw.Error, OSError) as error:
            return f"its files were removed or replaced while it was served, and cannot be saved: {error}"
        self._is_lost = True
        return (
            f"its files were removed or replaced while it was served. Everything in it was saved as {name}: stop the"
            " broker, and put that in its place, without a -wal beside it"
        )

    def _make_room(self) -> None:
        """Give up what was laid aside, and move the log: its file is room then, too."""
        self._reserve.give_up()
        try:
            sqlite.checkpoint(self._database)
        except apsw.FullError:
            _log.warning("checkpoint.failed", "the catalog's log cannot be moved: the disk is full")

    def _change(self, statement: str, rows: list[tuple[int | str, ...]]) -> None:
        with self._writing():
            self._database.executemany(statement, rows)
            self._count_change()

    def _count_change(self) -> None:
        self.known_generation = self.generation + 1
        value = str(self.known_generation)
        self._database.execute(_PUT_META, (GENERATION_KEY, value, checksum_of(GENERATION_KEY, value)))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction, on disk when it ends."""
        try:
            failpoint("catalog.write.before")
            self.look_after()
            if self.problem:
                raise BusError(Fault.STORE_UNAVAILABLE, f"The catalog could not be written: {self.problem}")
            with self._database:
                yield
            self._reserve.lay_aside()
        except apsw.ConstraintError as error:
            raise BusError(Fault.ENTITY_EXISTS, "Another entity has this name.") from error
        except apsw.Error as error:
            raise self._failed(error) from error
        failpoint("catalog.write.after")

    def _failed(self, error: apsw.Error) -> BusError:
        """After some errors nobody knows what is on the disk, and the engine's own state is no longer to be trusted."""
        if sqlite.is_fatal(error) and self._opened is not None:
            sqlite.leave_log(self._opened)
            self._opened.close()
            self._opened = None
        return BusError(Fault.STORE_UNAVAILABLE, f"The catalog could not be written: {error}")


def checksum_of(*values: int | str) -> int:
    """Of a row's columns."""
    return zlib.crc32(json.dumps(values).encode())


def _unreadable(reason: str) -> BusError:
    return BusError(
        Fault.STORE_UNAVAILABLE,
        f"The catalog cannot be read: {reason}. Put catalog.db back from a backup, or have it made anew from what the"
        " messaging stores remember: `twinbus catalog rebuild`. Nothing in it was changed.",
    )


def read(database: apsw.Connection) -> tuple[dict[str, str], list[EntityRow], dict[int, int]]:
    """What a catalog's file says that is opened for reading only, so that an older one cannot be brought up to date.

    Its settings, its entities, and what was removed and is perhaps still in its store.
    """
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    version = (
        database.execute("SELECT value FROM meta WHERE key = ?", (_VERSION_KEY,)).get if "meta" in tables else None
    )
    if version != str(VERSION):
        raise BusError(
            Fault.NOT_ALLOWED,
            f"The catalog's file has version {version}, and what is read here must have {VERSION}. If it is older,"
            " serve it once with this version of Twinbus, which brings it up to date.",
        )
    return *_load(database), _dropping(database)


def look(path: Path) -> tuple[dict[str, str], list[EntityRow], int] | None:
    """A catalog's settings, its entities and how many changes it has seen, before it is opened: nothing is changed.

    None if there is none yet, or one of an older version, which is opened first. Raises why it cannot be served.
    """
    if not path.exists() or not path.stat().st_size:
        return None
    try:
        with closing(sqlite.unread(path)) as database:
            if _checked_version(database) != VERSION:
                return None
            generation = database.execute("SELECT value FROM meta WHERE key = ?", (GENERATION_KEY,)).get
            return *_load(database), int(generation or 0)
    except (apsw.Error, ValueError) as error:
        raise _unreadable(str(error)) from error


# As bytes: a damaged text may not be one any more, which concerns its own row alone.
_META = "SELECT CAST(key AS BLOB), CAST(value AS BLOB), checksum FROM meta"
_ENTITIES = """
SELECT id, CAST(name AS BLOB), CAST(kind AS BLOB), store, CAST(document AS BLOB), checksum FROM entity ORDER BY id"""


def _text(stored: bytes) -> str:
    return stored.decode(errors="replace")


def _load(database: apsw.Connection) -> tuple[dict[str, str], list[EntityRow]]:
    meta: dict[str, str] = {}
    for *texts, checksum in database.execute(_META):
        key, value = map(_text, texts)
        if checksum != checksum_of(key, value):
            raise _unreadable(f"its value of '{key}' does not match its checksum")
        meta[key] = value
    rows = []
    for number, name, kind, store, document, checksum in database.execute(_ENTITIES):
        row = EntityRow(number, _text(name), _text(kind), store, _text(document))
        rows.append(row if checksum == checksum_of(*row.stored) else row._replace(problem=DAMAGED))
    return {key: value for key, value in meta.items() if key not in _HIDDEN}, rows


def _dropping(database: apsw.Connection) -> dict[int, int]:
    return dict(database.execute("SELECT entity, store FROM dropping"))


def _prepare(database: apsw.Connection) -> None:
    version = _checked_version(database)
    if version:
        _migrate(database, version)
        return
    with database:
        database.execute(_TABLES + _DROPPING)
        for key, value in ((_VERSION_KEY, str(VERSION)), (GENERATION_KEY, "0")):
            database.execute(_PUT_META, (key, value, checksum_of(key, value)))


def _checked_version(database: apsw.Connection) -> int:
    """The version of a file that is whole; 0 if there is nothing in it."""
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not tables:
        return 0
    # It is small, and what is wrong with it is better known before anybody relies on it.
    found = database.execute("PRAGMA integrity_check(1)").get
    if found != "ok":
        raise _unreadable(found)
    version = (
        database.execute("SELECT value FROM meta WHERE key = ?", (_VERSION_KEY,)).get if "meta" in tables else None
    )
    if version is None or not version.isdigit():
        raise _unreadable("it has no version")
    if int(version) > VERSION:
        raise BusError(
            Fault.STORE_UNAVAILABLE,
            f"The catalog's file has version {version}, and this version of Twinbus knows only up to {VERSION}. Start"
            " the newer Twinbus that wrote it, or use another data directory.",
        )
    return int(version)


def _migrate(database: apsw.Connection, version: int) -> None:
    """Bring a file of an older version up to date, one version at a time, each step whole or not at all."""
    for old in range(version, VERSION):
        with database:
            database.execute(_MIGRATIONS[old])
            database.execute("UPDATE meta SET value = ? WHERE key = ?", (str(old + 1), _VERSION_KEY))
            database.execute("INSERT OR IGNORE INTO meta VALUES (?, '0', NULL)", (GENERATION_KEY,))
            for key, value in list(database.execute("SELECT key, value FROM meta")):
                database.execute(_PUT_META, (key, value, checksum_of(key, value)))
            for row in list(database.execute("SELECT id, name, kind, store, document FROM entity")):
                database.execute("UPDATE entity SET checksum = ? WHERE id = ?", (checksum_of(*row), row[0]))
