"""What a SQLite store says of itself: read without changing anything, and written when it is opened.

What follows from it is decided by `store.identity`.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.sql import sqlite
from twinbus.store import statements
from twinbus.store.identity import Belonging, StoreIdentity

_KIND, _NAMESPACE, _STORE, _NUMBER = "kind", "namespace_id", "store_id", "store_number"
_GENERATION, _OPENINGS = "catalog_generation", "openings"


def read(path: str) -> StoreIdentity | None:
    """Who the file says that it is; None if it does not say. Raises why it cannot be read."""
    try:
        with closing(sqlite.read_only(Path(path))) as database:
            _check_length(database, path)
            return of(database)
    except (apsw.Error, ValueError) as error:  # A text may not be one any more, nor a number.
        raise BusError(Fault.STORE_UNAVAILABLE, f"The messaging store could not be opened: {error}") from error


def _check_length(database: apsw.Connection, path: str) -> None:
    """Pages that are not in the file must be in its log: else the log is that of another file, or of a longer one."""
    pages, page_bytes = database.execute("SELECT * FROM pragma_page_count(), pragma_page_size()").get
    log = f"{path}-wal"
    log_bytes = os.path.getsize(log) if os.path.exists(log) else 0
    if pages * page_bytes - os.path.getsize(path) > log_bytes:
        raise BusError(
            Fault.STORE_UNAVAILABLE,
            f"{os.path.basename(path)} is shorter than the log beside it needs: one of the two is older, or cut off."
            " Put both back as they were together",
        )


def is_there(path: str) -> bool:
    """Whether there is a file with something in it."""
    return os.path.exists(path) and os.path.getsize(path) > 0


def of(database: apsw.Connection) -> StoreIdentity | None:
    """Who an opened store is."""
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "meta" not in tables or "journal" not in tables:
        return None
    meta: dict[str, str] = dict(database.execute("SELECT key, value FROM meta"))
    if not {_NAMESPACE, _STORE, _NUMBER} <= meta.keys():
        return None
    return StoreIdentity(
        meta[_NAMESPACE],
        meta[_STORE],
        int(meta[_NUMBER]),
        int(meta.get(_GENERATION, 0)),
        int(meta.get(_OPENINGS, 0)),
        database.execute(statements.LAST_JOURNAL).get or 0,
    )


def claim(database: apsw.Connection, belonging: Belonging, number: int) -> StoreIdentity:
    """Count an opening, and have a store that does not say who it is say so from now on."""
    known = of(database)
    store = known.store if known is not None else belonging.store
    openings = known.openings + 1 if known is not None else 1
    values = {_NAMESPACE: belonging.namespace, _STORE: store, _NUMBER: str(number), _OPENINGS: str(openings)}
    try:
        with database:
            database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))
    except apsw.FullError:
        if known is None:
            raise
        return known  # On a full disk it is opened to be drained; the opening is not counted.
    return StoreIdentity(
        belonging.namespace,
        store,
        number,
        known.generation if known is not None else 0,
        openings,
        database.execute(statements.LAST_JOURNAL).get or 0,
    )
