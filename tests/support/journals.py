"""The journal of a running broker, read from its databases or from the files that it exports, as an auditor would."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from support.broker import BrokerProcess
from twinbus.store.journal import JournalEntry, JournalRow, content, read


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
            for row in database.execute("SELECT id, at_ms, ops FROM journal"):
                total += sum(len(group[5]) for group in content(JournalRow(*row)) if group[0] in operations)
    return total


def outcomes(broker: BrokerProcess, operation: str) -> set[str]:
    """What became of an operation, wherever it was done."""
    found: set[str] = set()
    for path in sorted(broker.data.glob("store-*.db")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            for row in database.execute("SELECT id, at_ms, ops FROM journal"):
                found |= {group[4] for group in content(JournalRow(*row)) if group[0] == operation}
    return found


# Files


def exported(directory: Path) -> list[dict[str, Any]]:
    """Every operation in the files below a directory, stream by stream and in order; each row is there once."""
    rows = [row for path in sorted(directory.glob("day=*/*.parquet")) for row in exported_in(path)]
    rows.sort(key=key_of)
    keys = [key_of(row) for row in rows]
    assert len(set(keys)) == len(keys), "an operation is in the files twice"
    return rows


def exported_in(path: Path) -> list[dict[str, Any]]:
    """The operations in one file; none if it was removed meanwhile."""
    try:
        rows: list[dict[str, Any]] = parquet.ParquetFile(path).read().to_pylist()
    except FileNotFoundError:
        return []
    return rows


def key_of(row: dict[str, Any]) -> tuple[str, int, int, int, int]:
    """What no two operations have in common."""
    return row["namespace"], row["store"], row["writer"], row["batch"], row["place"]


def missing_batches(rows: list[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    """Transactions that are not in the files although later ones of the same stream are."""
    streams: dict[tuple[str, int, int], set[int]] = {}
    for row in rows:
        streams.setdefault((row["namespace"], row["store"], row["writer"]), set()).add(row["batch"])
    return [
        (*stream, batch) for stream, there in streams.items() for batch in range(1, max(there)) if batch not in there
    ]


def export(broker: BrokerProcess) -> dict[str, Any]:
    """Have everything written that was committed so far; what the broker says of it."""
    status, text = broker.request("POST", "/$api/journal/export")
    assert status == 200, text
    told: dict[str, Any] = json.loads(text)
    return told
