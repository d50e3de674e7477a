"""What a stopped store remembers of its entities, read without changing anything; here from a SQLite file.

For making a catalog anew; a store that is open is asked with `store.quarantine.Remember`.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.sql import sqlite
from twinbus.store import identity_file
from twinbus.store.identity import StoreIdentity


class Recollection(NamedTuple):
    """One entity, or a fragment of one."""

    entity: int
    path: str
    kind: str
    fragment: int
    document: str | None
    is_aside: bool  # The catalog did not know it.


class Remains(NamedTuple):
    """Who a store says that it is, and what it holds."""

    identity: StoreIdentity | None
    entities: list[Recollection]


_ENTITIES = """
SELECT q.id >> 2, coalesce(n.path, ''), coalesce(n.kind, ''), coalesce(n.fragment, 0), {document},
       q.dropped = 2
  FROM queue AS q LEFT JOIN name AS n ON n.entity = q.id >> 2 WHERE q.id & 3 = 0 AND q.dropped <> 1 ORDER BY q.id"""


def read(file: str) -> Remains:
    """What is in the file."""
    try:
        with closing(sqlite.read_only(Path(file))) as database:
            columns = {row[1] for row in database.execute("PRAGMA table_info(name)")}
            statement = _ENTITIES.format(document="n.document" if "document" in columns else "NULL")
            entities = [
                Recollection(entity, path, kind, fragment, document, bool(aside))
                for entity, path, kind, fragment, document, aside in database.execute(statement)
            ]
            return Remains(identity_file.of(database), entities)
    except (apsw.Error, ValueError) as error:
        raise BusError(Fault.STORE_UNAVAILABLE, f"The messaging store {file} cannot be read: {error}") from error
