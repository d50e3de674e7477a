"""The tidiness of the source, held by a test: sizes, opening sentences, and pure packages that stay pure.

What may deviate stands in EXCEPTIONS with its reason; an exception that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "twinbus"

FILE_LINES = 600
FUNCTION_LINES = 60

# Packages that are told the time, are handed randomness, and leave waiting to their callers.
PURE_PACKAGES = ("model", "amqp", "wire", "rules", "sql", "store", "entities")
IMPURE_MODULES = {"asyncio", "random", "secrets", "socket", "threading", "time"}
IMPURE_NAMES = {
    "date.today",
    "datetime.now",
    "datetime.utcnow",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
}

# (rule, file under src/twinbus) -> why it may deviate.
EXCEPTIONS = {
    ("impure: threading", "sql/group.py"): "the shell around a database connection: commits run on a thread",
}


class Finding(NamedTuple):
    rule: str
    file: str
    detail: str


class Module(NamedTuple):
    file: str
    text: str
    tree: ast.Module


Rule = Callable[[Module], Iterator[Finding]]


def sources() -> Iterator[Module]:
    for path in sorted(SOURCE.rglob("*.py")):
        file, text = path.relative_to(SOURCE).as_posix(), path.read_text()
        yield Module(file, text, ast.parse(text, file))


def sentences(text: str) -> int:
    return len(re.findall(r"[.!?][\"'`)]*(?=\s|$)", text))


def file_sizes(module: Module) -> Iterator[Finding]:
    lines = len(module.text.splitlines())
    if lines > FILE_LINES:
        yield Finding("file length", module.file, f"{lines} lines")


def function_sizes(module: Module) -> Iterator[Finding]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield Finding("function length", module.file, f"{node.name}, line {node.lineno}: {lines} lines")


def openings(module: Module) -> Iterator[Finding]:
    found = sentences(ast.get_docstring(module.tree) or "")
    if found < 2:
        yield Finding("docstring", module.file, f"{found} sentences: say what it does, and what it leaves to whom")


def unfinished_work(module: Module) -> Iterator[Finding]:
    for match in re.finditer(r"\b(TODO|FIXME|XXX)\b", module.text):
        yield Finding("unfinished", module.file, match.group())


def machine_paths(module: Module) -> Iterator[Finding]:
    for match in re.finditer(r"(?<![\w.})])/(?:home|mnt|opt|root|tmp|Users|work)/\S*", module.text):
        yield Finding("machine path", module.file, match.group())


def impurities(module: Module) -> Iterator[Finding]:
    if module.file.split("/")[0] in PURE_PACKAGES:
        for used in sorted(names_used(module.tree)):
            name = used.split(".")[0]
            if name in IMPURE_MODULES:
                yield Finding(f"impure: {name}", module.file, used)
            elif any(used == name or used.endswith(f".{name}") for name in IMPURE_NAMES):
                yield Finding(f"impure: {used}", module.file, used)


def names_used(tree: ast.Module) -> set[str]:
    """Modules imported, names imported from modules, and dotted names that start at an imported name."""
    imported: dict[str, str] = {}
    dotted: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                dotted.add(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                dotted.add(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        first, *rest = dotted_name(node)
        if rest and first in imported:
            dotted.add(".".join([imported[first], *rest]))
    return dotted


def dotted_name(node: ast.AST) -> list[str]:
    """The words of `a.b.c`; what is no such name is one empty word."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*dotted_name(node.value), node.attr]
    return [""]


RULES = (file_sizes, function_sizes, openings, unfinished_work, machine_paths, impurities)


@cache
def findings() -> dict[Rule, list[Finding]]:
    """What all rules find; the source is read once."""
    found: dict[Rule, list[Finding]] = {rule: [] for rule in RULES}
    for module in sources():
        for rule in RULES:
            found[rule] += rule(module)
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps_the_rule(rule: Rule) -> None:
    offences = [finding for finding in findings()[rule] if (finding.rule, finding.file) not in EXCEPTIONS]
    assert offences == []


def test_every_exception_is_still_needed() -> None:
    needed = {(finding.rule, finding.file) for found in findings().values() for finding in found}
    assert EXCEPTIONS.keys() - needed == set()


def test_the_source_is_found() -> None:
    assert any(module.file == "__init__.py" for module in sources())


@pytest.mark.parametrize(
    ("source", "impure"),
    [
        ("import time", {"time"}),
        ("import time as clock", {"time"}),
        ("from asyncio import Event", {"asyncio.Event"}),
        ("from uuid import uuid4 as new", {"uuid.uuid4"}),
        ("import uuid\nuuid.uuid4()", {"uuid", "uuid.uuid4"}),
        ("from datetime import datetime as d\nd.now()", {"datetime.datetime", "datetime.datetime.now"}),
    ],
)
def test_impure_names_are_seen_through_their_aliases(source: str, impure: set[str]) -> None:
    assert names_used(ast.parse(source)) == impure


@pytest.mark.parametrize("pins", sorted(path.name for path in (ROOT / "requirements").glob("*.txt")))
def test_every_pin_is_exact_and_hashed_and_names_no_address(pins: str) -> None:
    text = (ROOT / "requirements" / pins).read_text()
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links|--trusted-host|(?m:^/)", text)
    for requirement in re.split(r"\n(?=\S)", re.sub(r"(?m)^#.*\n", "", text).strip()):
        assert re.match(r"[\w.-]+==\S+ ", requirement), requirement
        assert "--hash=sha256:" in requirement, requirement


def test_the_build_backend_is_the_pinned_one() -> None:
    required = re.search(r'requires = \["(setuptools==[\d.]+)"\]', (ROOT / "pyproject.toml").read_text())
    assert required is not None
    assert f"\n{required[1]} " in (ROOT / "requirements" / "build.txt").read_text()
    assert f"\n{required[1]}\n" in (ROOT / "requirements" / "build.in").read_text()


def test_the_javascript_lock_names_no_address_and_has_every_hash() -> None:
    lock = json.loads((ROOT / "tests" / "compat" / "js" / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages["node_modules/@azure/service-bus"]["version"] == "7.9.5"
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert [name for name, package in packages.items() if "integrity" not in package] == []
