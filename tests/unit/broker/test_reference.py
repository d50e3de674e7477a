"""The reference of the configuration file: the schema and the page say what the reader accepts."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from twinbus.broker import reference
from twinbus.broker.config import from_file
from twinbus.broker.schema import FILE, Table

DOCS = Path(__file__).parents[3] / "docs"
UPDATE = "run: python -m twinbus.broker.reference docs"


def test_the_published_schema_is_current() -> None:
    assert (DOCS / reference.SCHEMA_FILE).read_text() == reference.schema_text(), UPDATE


def test_the_tables_of_the_page_are_current() -> None:
    text = (DOCS / reference.PAGE_FILE).read_text()
    assert reference.page(text) == text, UPDATE


def tables(table: Table) -> list[Table]:
    inner = [key.table for key in table.keys.values() if key.table is not None and key.table.keys]
    return [table, *(deeper for one in inner for deeper in tables(one))]


def test_every_key_is_on_the_page() -> None:
    text = (DOCS / reference.PAGE_FILE).read_text()
    missing = [name for table in tables(FILE) for name in table.keys if f"| `{name}`" not in text]
    assert missing == []


def allows(schema: dict[str, Any], document: Any) -> bool:
    """What our schema asks for, judged without the help of a library."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if "type" in schema and type(document) is not kinds[schema["type"]]:
        return False
    if "enum" in schema and document not in schema["enum"]:
        return False
    if isinstance(document, dict):
        properties = schema.get("properties", {})
        if not set(schema.get("required", [])) <= document.keys():
            return False
        if schema.get("additionalProperties") is False and not document.keys() <= properties.keys():
            return False
        return all(allows(properties[key], value) for key, value in document.items() if key in properties)
    if isinstance(document, list):
        return all(allows(schema.get("items", {}), item) for item in document)
    return True


EXAMPLES = [
    block
    for page in ("config.md", "serving.md")
    for block in re.findall(r"```toml\n(.*?)```", (DOCS / page).read_text(), re.S)
]


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_of_the_documents_are_good_by_reader_and_schema(text: str, tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(text)
    assert from_file(file).namespaces
    assert allows(json.loads(reference.schema_text()), tomllib.loads(text))


@pytest.mark.parametrize(
    "text", ["colour = 1", "stores = 'two'", "[[queues]]", "[[queues]]\nName = 'q'\nStatus = 'Off'"]
)
def test_what_the_reader_refuses_the_schema_refuses(text: str, tmp_path: Path) -> None:
    assert not allows(json.loads(reference.schema_text()), tomllib.loads(text))
