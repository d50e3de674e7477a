"""The folders of `pair`: who imports whom (the table in ARCHITECTURE.md), who knows the SDK, and what is pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAIR = ROOT / "src" / "twinbus" / "pair"
HEADER = "| part of `pair` | may import |"
# Modules that belong to another part than their folder says.
ELSEWHERE = {"sdk/errors": "errors", "__init__": "public names", "aio": "public names"}

# What decides without doing: no time, no chance, no threads, no I/O, nor anything that has them.
PURE = {
    "backlog/queues",
    "ledger/decisions",
    "ledger/tags",
    "namespace/soundness",
    "order/table",
    "outbox/plan",
    "replication/policy",
    "route/health",
    "route/router",
}
PLAIN = {"__future__", "collections", "dataclasses", "enum", "hashlib", "re", "typing", "twinbus.model"}


def modules() -> dict[str, Path]:
    """Every module of `pair` by its path beneath it; a folder's own module is the folder."""
    names = {path: path.relative_to(PAIR).with_suffix("").as_posix() for path in PAIR.rglob("*.py")}
    return {name.removesuffix("/__init__"): path for path, name in names.items()}


def imported(path: Path) -> Iterator[str]:
    """The full names that a module imports, `from a import b` as `a.b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: our imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(name: str, known: dict[str, Path]) -> str | None:
    """The module of `pair` that an import is of; None for any other."""
    if not name.startswith("twinbus.pair."):
        return None
    words = name.split(".")[2:]
    return next((found for end in range(len(words), 0, -1) if (found := "/".join(words[:end])) in known), "__init__")


def part_of(module: str) -> str:
    """The part of `pair` that a module belongs to: a folder, the folder of public classes, or a module beside them."""
    if module in ELSEWHERE:
        return ELSEWHERE[module]
    return "sdk/clients" if module.startswith("sdk/clients") else module.split("/")[0]


def table() -> dict[str, set[str]]:
    """The rows of ARCHITECTURE.md, in their order."""
    lines = (ROOT / "ARCHITECTURE.md").read_text().split(HEADER, 1)[1].splitlines()[2:]
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        part, may = (cell.strip() for cell in line.strip("|").split("|"))
        rows[part.strip("`")] = {word.strip() for word in may.split(",")} - {"—", "all above"} | (
            set(rows) if may == "all above" else set()
        )
    return rows


def test_every_arrow_between_parts_is_in_the_table() -> None:
    known, allowed = modules(), table()
    offences = []
    for name, path in known.items():
        for each in imported(path):
            other = module_of(each, known)
            if other is None:
                continue
            part, other_part = part_of(name), part_of(other)
            if part != other_part and other_part not in allowed.get(part, set()):
                offences.append(f"pair/{name}: {part} may not import {other_part} ({each})")
    assert offences == []


def test_the_table_has_no_cycle_since_each_row_names_only_rows_above_it() -> None:
    above: set[str] = set()
    for part, may in table().items():
        assert may <= above, f"{part} names {may - above}, which is not above it"
        above.add(part)
    assert above == {part_of(name) for name in modules()}


def test_only_the_folder_sdk_knows_the_sdk() -> None:
    know = {name for name, path in modules().items() if any(each.startswith("azure.") for each in imported(path))}
    assert {name for name in know if not name.startswith("sdk/")} == set()


@pytest.mark.parametrize("name", sorted(PURE))
def test_what_decides_is_pure(name: str) -> None:
    known = modules()
    for each in imported(known[name]):
        other = module_of(each, known)
        plain = any(each == word or each.startswith(f"{word}.") for word in PLAIN)
        assert plain or other in PURE, f"pair/{name} imports {each}"
