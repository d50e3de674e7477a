"""The names in `twinbus.pair` are those of docs/glossary.md: what is listed there as not used is not used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOT_USED = {"companion", "half", "halves", "beside", "standing", "custody", "suffer", "tell", "lane", "lanes"}
# A health board is one; a board alone is not.
ALONE = {"board"}
SOURCES = sorted((ROOT / "src" / "twinbus" / "pair").rglob("*.py"))


def names(tree: ast.AST) -> Iterator[str]:
    """Everything that this module names: classes, functions, arguments, attributes and variables."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Attribute():
                yield node.attr
            case ast.Name():
                yield node.id


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_name_has_a_word_that_is_not_used(path: Path) -> None:
    found = {
        name
        for name in {*names(ast.parse(path.read_text())), path.stem}
        if NOT_USED & set(words(name)) or set(words(name)) == ALONE
    }
    assert not found


def test_the_glossary_lists_them() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    listed = {word for row in rows for word in re.findall(r"\w+", row)}
    assert NOT_USED - {"lanes"} <= listed
