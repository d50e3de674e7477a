"""Opening a SQLite database that the application itself may have open, with the library that Python applications use.

A file must not be open through two SQLite libraries in one process, because closing it in one drops the locks of the
other; so what may be inside an application's own database is not opened by way of `sqlite` and apsw.
"""

from __future__ import annotations

import sqlite3

from twinbus.model.errors import BusError, Fault

PAGE_BYTES = 4096  # A commit of one row writes whole pages to the log.
BUSY_S = 10.0
_FATAL = ("SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_READONLY")


def connect(path: str, cache_kib: int) -> sqlite3.Connection:
    """Open a database in WAL mode with a sync at every commit, without transactions that begin by themselves.

    The log is moved back by whoever commits the thousandth page. The connection may be used by one thread at a time.
    """
    try:
        database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise BusError(Fault.STORE_UNAVAILABLE, f"The database {path} could not be opened: {error}") from error
    try:
        database.execute(f"PRAGMA page_size={PAGE_BYTES}")
        (mode,) = database.execute("PRAGMA journal_mode=wal").fetchone()
        database.execute("PRAGMA synchronous=full")
        (synchronous,) = database.execute("PRAGMA synchronous").fetchone()
        database.execute(f"PRAGMA cache_size=-{cache_kib}")
    except sqlite3.Error as error:
        database.close()
        raise BusError(Fault.STORE_UNAVAILABLE, f"The database {path} could not be opened: {error}") from error
    if mode != "wal" or synchronous != 2:
        database.close()
        raise BusError(
            Fault.STORE_UNAVAILABLE,
            f"The database does not offer what durability needs: journal_mode is {mode} (must be wal), synchronous"
            f" is {synchronous} (must be 2, full). Put it on a local file system.",
        )
    return database


def set_synced(database: sqlite3.Connection, synced: bool) -> None:
    """Choose whether the next commits wait for the disk. Not allowed inside a transaction."""
    database.execute("PRAGMA synchronous=full" if synced else "PRAGMA synchronous=normal")


def is_fatal(error: BaseException) -> bool:
    """Whether nobody knows what is on the disk after this error."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(_FATAL)
