"""The journal of a running broker, read from its files as an auditor would."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from support.broker import BrokerProcess
from twinbus.store.journal import JournalEntry, JournalRow, read


def entries(broker: BrokerProcess, entity: str) -> list[JournalEntry]:
    """Everything that happened to an entity's main queue, in order."""
    return entries_in(broker.data, entity)


def entries_in(data: Path, entity: str) -> list[JournalEntry]:
    """The same, for a broker of which only the data directory is known."""
    with closing(sqlite3.connect(f"file:{data / 'catalog.db'}?mode=ro", uri=True)) as catalog:
        found = catalog.execute("SELECT id, store FROM entity WHERE lower(name) = ?", (entity.lower(),)).fetchone()
    assert found is not None, f"the catalog knows no '{entity}'"
    number, store = found
    with closing(sqlite3.connect(f"file:{data / f'store-{store}.db'}?mode=ro", uri=True)) as database:
        rows = [JournalRow(*row) for row in database.execute("SELECT id, at_ms, ops FROM journal ORDER BY id")]
    return [entry for row in rows for entry in read(row, store) if entry.queue == number * 4]


def count(broker: BrokerProcess, *operations: str) -> int:
    """How often something was done in all entities of a broker."""
    total = 0
    for path in sorted(broker.data.glob("store-*.db")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            for (ops,) in database.execute("SELECT ops FROM journal"):
                total += sum(len(group[5]) for group in json.loads(ops) if group[0] in operations)
    return total
