"""Small exported journals, row by row, for those who want to know exactly what is in them.

Large ones, with faults in them, come from `generated_journal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from twinbus.model.journal import COLUMNS, DAY, VERSION, VERSION_KEY

MIDNIGHT = datetime(2026, 11, 16, tzinfo=UTC)
_TYPES = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
_BLANK = {column.name: "" if column.type == "string" else 0 for column in COLUMNS}
SCHEMA = pa.schema([(column.name, _TYPES[column.type]) for column in COLUMNS], {VERSION_KEY: str(VERSION)})


def row(operation: str, entity: str = "orders", at_s: float = 0, **more: Any) -> dict[str, Any]:
    """A row that a connection of a client asked for."""
    asked = {"namespace": "contoso", "connection": "app#1", "client": "link", "count": 1, "kind": "queue", **more}
    return {**_BLANK, **asked, "operation": operation, "entity": entity, "at": MIDNIGHT + timedelta(seconds=at_s)}


def moved(message_id: str, at_s: float = 0, size: int = 100, backlog: str = "contoso/x-servicebus-transfer/0") -> list:
    """A message that was diverted, brought home and worked on."""
    steps = [("send", "fabrikam"), ("receive", "fabrikam"), ("send", "contoso"), ("complete", "fabrikam")]
    steps += [("receive", "contoso"), ("complete", "contoso")]
    return [
        row(
            operation,
            backlog if namespace == "fabrikam" else "orders",
            at_s + place,
            namespace=namespace,
            message_id=message_id,
            bytes=size,
        )
        for place, (operation, namespace) in enumerate(steps)
    ]


def write(directory: Path, rows: Iterable[dict[str, Any]], file: str | None = None) -> Path:
    """The rows as files of their days."""
    days: dict[str, list[dict[str, Any]]] = {}
    for told in rows:
        days.setdefault(told["at"].date().isoformat(), []).append(told)
    for day, some in days.items():
        folder = directory / f"{DAY}={day}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(some, SCHEMA), folder / (file or f"{directory.name}-{day}.parquet"))
    return directory


class Answers:
    """DuckDB over journals: rows in memory, or directories of files."""

    def __init__(self, source: Sequence[dict[str, Any]] | Sequence[Path]) -> None:
        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        if source and isinstance(source[0], Path):
            places = ", ".join(f"'{place}/day=*/*.parquet'" for place in source)
            self._database.execute(
                f"CREATE VIEW journal AS SELECT * FROM read_parquet([{places}], hive_partitioning = true)"
            )
        else:
            whole = pa.Table.from_pylist(list(source), SCHEMA)
            self._database.register("rows", whole)
            self._database.execute("CREATE VIEW journal AS SELECT * FROM rows")

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of an answer."""
        return self._database.execute(query).fetchall()
