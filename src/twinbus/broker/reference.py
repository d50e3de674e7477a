"""The configuration file's reference, made from the schema: a JSON schema for editors, and tables for the documents.

`python -m twinbus.broker.reference DOCS` brings the files in the directory of documents up to date; a test sees whether
they are.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from twinbus.broker import schema
from twinbus.broker.schema import Key, Kind, Table

SCHEMA_FILE, PAGE_FILE = "config.schema.json", "config.md"
_JSON_TYPES: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {"type": "string"},
    Kind.NUMBER: {"type": "integer"},
    Kind.FLAG: {"type": "boolean"},
    Kind.DURATION: {"type": "string", "format": "duration"},
    Kind.TEXTS: {"type": "array"},
    Kind.TABLE: {"type": "object"},
    Kind.TABLES: {"type": "array"},
    Kind.ANY: {},
}
_TABLES = {
    "The file": schema.FILE,
    "[[namespaces]]": schema.NAMESPACE,
    "[journal]": schema.JOURNAL,
    "[[queues]]": schema.QUEUE,
    "[[topics]]": schema.TOPIC,
    "[[topics.subscriptions]]": schema.SUBSCRIPTION,
    "[[topics.subscriptions.rules]]": schema.RULE,
    "CorrelationFilter": schema.CORRELATION,
    "[[hybrid_connections]]": schema.HYBRID_CONNECTION,
    "[[policies]]": schema.POLICY,
}


def json_schema() -> dict[str, Any]:
    """The schema of our TOML, for editors that complete and check."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Twinbus configuration file",
        **_object(schema.FILE),
    }


def _object(table: Table) -> dict[str, Any]:
    described: dict[str, Any] = {"type": "object"}
    if table.keys:
        described["properties"] = {name: _value(key) for name, key in table.keys.items()}
    required = [name for name, key in table.keys.items() if key.required]
    if required:
        described["required"] = required
    if not table.is_open:
        described["additionalProperties"] = False
    return described


def _value(key: Key) -> dict[str, Any]:
    described = {"description": key.meaning, **_JSON_TYPES[key.kind]}
    if key.kind is Kind.TABLE and key.table is not None:
        described.update(_object(key.table))
    elif key.kind is Kind.TABLES and key.table is not None:
        described["items"] = _object(key.table)
    elif key.kind is Kind.TEXTS:
        described["items"] = {"type": "string", **({"enum": list(key.choices)} if key.choices else {})}
    elif key.choices:
        described["enum"] = list(key.choices)
    if key.least is not None:
        described.update(minimum=key.least, maximum=key.most)
    return described


def table_rows(table: Table) -> str:
    """A table of the documents: every key, what it is, and what it means."""
    lines = ["| key | is | meaning |", "|---|---|---|"]
    for name, key in table.keys.items():
        kind = key.kind.value.partition(",")[0]
        if key.choices:
            kind = ("some of " if key.kind is Kind.TEXTS else "one of ") + ", ".join(f"`{c}`" for c in key.choices)
        lines.append(f"| `{name}`{' (needed)' if key.required else ''} | {kind} | {key.meaning} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its tables as they are now: each stands behind a heading of its name."""
    for heading, table in _TABLES.items():
        found = re.search(rf"(?m)^## `?{re.escape(heading)}`?\n(?:(?!\|)(?!## ).*\n)*(?P<rows>(?:\|.*\n)+)", text)
        if found is None:
            raise ValueError(f"the page has no table behind a heading '{heading}'")
        text = f"{text[: found.start('rows')]}{table_rows(table)}\n{text[found.end('rows') :]}"
    return text


def schema_text() -> str:
    """The JSON schema as its file has it."""
    return json.dumps(json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    docs = Path(sys.argv[1])
    (docs / SCHEMA_FILE).write_text(schema_text())
    (docs / PAGE_FILE).write_text(page((docs / PAGE_FILE).read_text()))
