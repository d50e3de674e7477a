"""docs/spark.md is complete: every option and every column of the source is in its tables, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from twinbus.pipeline.options import Given, SourceOptions
from twinbus.pipeline.rows import COLUMNS, PAYLOAD

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def first_cells(heading: str) -> set[str]:
    """The words in code in the first cells of the table under a heading."""
    section = re.split(r"(?m)^## ", PAGE.read_text())
    (text,) = [part for part in section if part.startswith(f"{heading}\n")]
    rows = re.findall(r"(?m)^\| (`[^|]*) \|", text)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_option_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    text = Given.text

    def noting(self: Given, name: str, default: str | None = None) -> str | None:
        asked.add(name)
        return text(self, name, default)

    monkeypatch.setattr(Given, "text", noting)
    SourceOptions.parse({"connectionStringEnv": "X", "queue": "q"})
    assert first_cells("Options") == asked


def test_every_column_is_in_the_table() -> None:
    assert first_cells("Rows") == {*COLUMNS, PAYLOAD}
