"""Configuration files that nobody would write: they are read, or refused with lines that are in them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from twinbus.broker.config import ConfigError, from_file
from twinbus.broker.reading import Problem
from twinbus.broker.schema import EMULATOR_FILE, FILE, Table


def words(table: Table) -> Iterator[str]:
    """Every key and every choice below a table."""
    for name, key in table.keys.items():
        yield name
        yield from (str(choice) for choice in key.choices)
        if key.table is not None:
            yield from words(key.table)


def documents(table: Table) -> st.SearchStrategy[dict[str, Any]]:
    """Tables full of known keys in wrong places, with values of any kind."""
    known = st.sampled_from(sorted({*words(table), "q", "PT1M", "a = 1", ""}))
    leaves = st.booleans() | st.integers(-5, 70_000) | st.floats(allow_nan=False, allow_infinity=False) | known
    values = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(known, inner, max_size=4), max_leaves=25
    )
    return st.dictionaries(known, values, max_size=6)


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(as_toml, value)) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def judge(name: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.write_text(text)
        problems: Sequence[Problem] | None = None
        try:
            settings = from_file(path)
        except ConfigError as refused:
            problems = refused.problems
    if problems is None:
        assert settings.namespaces
    else:
        assert problems
        assert all(1 <= problem.line <= len(text.splitlines()) + 1 for problem in problems)


@given(documents(FILE))
def test_any_toml_is_read_or_refused(document: dict[str, Any]) -> None:
    judge("broker.toml", "".join(f"{json.dumps(key)} = {as_toml(value)}\n" for key, value in document.items()))


@given(documents(EMULATOR_FILE))
def test_any_json_is_read_or_refused(document: dict[str, Any]) -> None:
    judge("Config.json", json.dumps(document, indent=1))


@given(documents(EMULATOR_FILE))
def test_any_json_around_a_namespace_is_read_or_refused(document: dict[str, Any]) -> None:
    judge("Config.json", json.dumps({"UserConfig": {"Namespaces": [{"Name": "a", **document}]}}, indent=1))
