"""Opening a SQLite database so that a commit is on disk when it returns, and moving its log back into it.

Which tables there are, and what is written, is the business of whoever opens it.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from twinbus.model.errors import BusError, Fault

PAGE_BYTES = 8192
CACHE_KIB = 16 * 1024
_ALONE = "unix-none"  # Files without locks and shared memory.

# After one of these nobody knows what is on the disk. The engine's own state may be ahead of it, so nothing may be
# tried again as if nothing had happened.
_FATAL = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.ReadOnlyError)


def is_fatal(error: BaseException) -> bool:
    """Whether the database must be closed for good after this error."""
    return isinstance(error, _FATAL)


def connect(path: str, vfs: str | None = None, cache_kib: int = CACHE_KIB, *, alone: bool = False) -> apsw.Connection:
    """Open a database in WAL mode with a sync at every commit, or say why it cannot be had.

    `alone` nobody else can open it, but no room on the disk is needed: the index of the log is in memory.
    """
    if why := obstacle(path):
        raise BusError(Fault.STORE_UNAVAILABLE, f"The database {path} could not be opened: {why}")
    database = None
    try:
        database = apsw.Connection(path, vfs=vfs)
        database.set_busy_timeout(10_000)
        if alone:
            _pragma(database, "locking_mode=exclusive")
        _pragma(database, f"page_size={PAGE_BYTES}")
        mode = _pragma(database, "journal_mode=wal")
        _pragma(database, "synchronous=full")
        synchronous = _pragma(database, "synchronous")
        _pragma(database, f"cache_size=-{cache_kib}")
        _pragma(database, "wal_autocheckpoint=0")
    except apsw.Error as error:
        if database is not None:
            database.close()  # What it has locked would be locked until the error is forgotten.
        raise BusError(Fault.STORE_UNAVAILABLE, f"The database {path} could not be opened: {error}") from error
    if mode != "wal" or synchronous != 2:
        database.close()
        raise BusError(
            Fault.STORE_UNAVAILABLE,
            f"The database does not offer what durability needs: journal_mode is {mode} (must be wal), synchronous"
            f" is {synchronous} (must be 2, full). Put the data directory on a local file system.",
        )
    return database


def read_only(path: Path) -> apsw.Connection:
    """Open a database that nobody is using, to read what was committed, its log included, and change no file.

    Without a memory that processes share there is no `-shm` to be written, and at closing the log stays where it is.
    That needs a file which nobody else has open: whoever calls this holds the lock on the directory.
    """
    try:
        database = unread(path)
        _pragma(database, "schema_version")
    except apsw.Error as error:
        raise BusError(Fault.STORE_UNAVAILABLE, f"The database {path} could not be read: {error}") from error
    return database


def unread(path: Path) -> apsw.Connection:
    """The same, before anything is read: what is wrong with the file itself is found by whoever reads."""
    path = path.resolve()  # SQLite keeps the log where a link leads to, not where the link is.
    if why := obstacle(str(path), writing=False):
        raise BusError(Fault.STORE_UNAVAILABLE, f"The database {path} could not be read: {why}")
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    if has_log and not path.stat().st_size:
        text = "is empty, and its log is not: opening it would remove the log. Put the right file back"
        raise BusError(Fault.STORE_UNAVAILABLE, f"The database {path} {text}")
    if has_log and _ALONE not in apsw.vfs_names():
        raise BusError(Fault.NOT_IMPLEMENTED, "This system's SQLite cannot read a log without changing files.")
    # With nothing in the log, not even an empty one is made if the file is said to be immutable.
    address = f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    database = apsw.Connection(address, flags=flags, vfs=_ALONE if has_log else None)
    leave_log(database)
    _pragma(database, "locking_mode=exclusive")
    return database


def obstacle(path: str, *, writing: bool = True) -> str:
    """Why this process cannot use a database's files, whatever is in them: SQLite says little about that, if anything.

    It opens a file that may only be read, and fails when it is to be written.
    """
    beside = ("", "-wal", "-shm") if writing else ("", "-wal")
    for file in [f"{path}{name}" for name in beside]:
        if not os.path.exists(file):
            continue
        if not os.path.isfile(file):
            return f"{file} is not a file"
        for right, word in ((os.R_OK, "read"), (os.W_OK, "written")):
            if (right is os.R_OK or writing) and not _may(file, right):
                return f"{file} cannot be {word} by the user that runs this"
    directory = os.path.dirname(os.path.realpath(path))
    if writing and os.path.isdir(directory) and not _may(directory, os.W_OK | os.X_OK):
        return f"no file can be made in {directory} by the user that runs this"
    return ""


def _may(path: str, right: int) -> bool:
    return os.access(path, right, effective_ids=os.access in os.supports_effective_ids)


def set_synced(database: apsw.Connection, synced: bool) -> None:
    """Choose whether the next commits wait for the disk. Not allowed inside a transaction."""
    _pragma(database, "synchronous=full" if synced else "synchronous=normal")


def checkpoint(database: apsw.Connection, truncate: bool = False) -> bool:
    """Move what it can of the write-ahead log into the database; True when all of it was moved."""
    mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if truncate else apsw.SQLITE_CHECKPOINT_PASSIVE
    frames, moved = database.wal_checkpoint(None, mode)
    return frames == moved


def leave_log(*databases: apsw.Connection) -> None:
    """Have the log left alone at closing: after a failed sync, only a new start may judge what is in it."""
    for database in databases:
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def pages_written(database: apsw.Connection) -> int:
    """How many pages this connection has appended to the log since it was opened."""
    return database.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]


def _pragma(database: apsw.Connection, text: str) -> object:
    return database.execute(f"PRAGMA {text}").get
