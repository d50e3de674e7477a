"""The import table of ARCHITECTURE.md, held by a test: a package imports what its row allows, no more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "twinbus"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
HEADER = ["package", "is responsible for", "may import", "must not know"]

# What a row may name besides our own packages, and the module that it is imported as.
FOREIGN = {"azure-servicebus": "azure"}

# The two modules beside the packages have no row.
ROOT_MODULES: dict[str, set[str]] = {"__init__": set(), "__main__": {"cli"}}

# (importing file under src/twinbus, imported package) -> why the table does not apply.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("cli/benchmark/filters.py", "rules"): "it measures what deciding costs, without the rest of a broker",
    ("cli/benchmark/filters.py", "wire"): "a message's properties are read for that as a topic reads them",
}


class Import(NamedTuple):
    file: str
    line: int
    package: str


@cache
def import_table() -> dict[str, set[str]]:
    if not ARCHITECTURE.exists():
        pytest.fail("ARCHITECTURE.md, which holds the import table, is not there")
    rows = table_rows(ARCHITECTURE.read_text())
    if not rows:
        pytest.fail(f"ARCHITECTURE.md has no table with the columns {' | '.join(HEADER)}")
    return allowed_by_package(rows)


def table_rows(markdown: str) -> list[list[str]]:
    """The rows under our header, cell by cell; the ruler beneath the header is left out."""
    rows: list[list[str]] = []
    inside = False
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells == HEADER:
            inside = True
        elif inside and not line.strip().startswith("|"):
            break
        elif inside and not set(line) <= set("|-: "):
            if len(cells) != len(HEADER):
                raise ValueError(f"ARCHITECTURE.md: the import table has a row of {len(cells)} cells: {line}")
            rows.append(cells)
    return rows


def allowed_by_package(rows: list[list[str]]) -> dict[str, set[str]]:
    names = [cells[0].strip("`") for cells in rows]
    allowed: dict[str, set[str]] = {}
    for position, (name, cells) in enumerate(zip(names, rows, strict=True)):
        allowed[name] = {name}
        for word in re.sub(r"\([^)]*\)", "", cells[2]).split(","):
            word = word.strip().strip("`")
            if word == "all of the above":
                allowed[name].update(names[:position])
            elif word == "anything":
                allowed[name].update(names)
            elif word in names or word in FOREIGN:
                allowed[name].add(word)
            elif word not in ("", "—"):
                raise ValueError(f"ARCHITECTURE.md: the row of {name} may import {word!r}, which is no package")
    return allowed


def imported_modules(node: ast.AST, package: list[str]) -> Iterator[str]:
    """Absolute dotted names, with what is imported as the last part; `package` is where the import stands."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        origin = [*above, *([node.module] if node.module else [])]
        yield from (".".join([*origin, alias.name]) for alias in node.names)


@cache
def imports() -> list[Import]:
    return list(found_imports(present_packages()))


def found_imports(present: set[str]) -> Iterator[Import]:
    """Every import of one of our packages, or of a foreign one that the table speaks of."""
    foreign = {module: name for name, module in FOREIGN.items()}
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE)
        package = ["twinbus", *file.parent.parts]
        for node in ast.walk(ast.parse(path.read_text(), str(file))):
            for module in imported_modules(node, package):
                first, second = [*module.split("."), ""][:2]
                line = getattr(node, "lineno", 0)
                if first == "twinbus" and second in present:
                    yield Import(file.as_posix(), line, second)
                elif first in foreign:
                    yield Import(file.as_posix(), line, foreign[first])


def owner(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def present_packages() -> set[str]:
    return {owner(path.relative_to(SOURCE).as_posix()) for path in SOURCE.rglob("*.py")}


def test_every_import_is_in_the_table() -> None:
    allowed = import_table() | ROOT_MODULES
    present = present_packages()
    offences = [
        f"src/twinbus/{found.file}:{found.line}: {owner(found.file)} may not import {found.package}"
        for found in imports()
        if found.package not in allowed.get(owner(found.file), present)
        and (found.file, found.package) not in EXCEPTIONS
    ]
    assert offences == []


def test_every_package_has_a_row() -> None:
    assert present_packages() - import_table().keys() - ROOT_MODULES.keys() == set()


def test_every_exception_is_still_needed() -> None:
    found = {(found.file, found.package) for found in imports()}
    assert EXCEPTIONS.keys() - found == set()


def test_a_row_is_read_word_by_word() -> None:
    table = f"""
| {" | ".join(HEADER)} |
|---|---|---|---|
| `model` | words | — | disk |
| `store` | rows | `model` | sockets |
| `pages` | HTML | — (HTTP only) | all |
| `pair` | two | store (one, two), azure-servicebus (one module) | broker |
| `broker` | all | all of the above | kit |
| `kit` | tests | anything | — |

| another | table |
"""
    assert allowed_by_package(table_rows(table)) == {
        "model": {"model"},
        "store": {"store", "model"},
        "pages": {"pages"},
        "pair": {"pair", "store", "azure-servicebus"},
        "broker": {"model", "store", "pages", "pair", "broker"},
        "kit": {"model", "store", "pages", "pair", "broker", "kit"},
    }


@pytest.mark.parametrize(
    ("statement", "modules"),
    [
        ("import twinbus.sql.group", ["twinbus.sql.group"]),
        ("from twinbus import sql, __version__", ["twinbus.sql", "twinbus.__version__"]),
        ("from ..sql import group", ["twinbus.sql.group"]),
        ("from .rows import Row", ["twinbus.store.rows.Row"]),
        ("from . import rows", ["twinbus.store.rows"]),
    ],
)
def test_an_import_is_resolved_however_it_is_written(statement: str, modules: list[str]) -> None:
    assert list(imported_modules(ast.parse(statement).body[0], ["twinbus", "store"])) == modules
