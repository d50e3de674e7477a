"""Reads the tables of a configuration file against the schema: values of the right kind come out, problems are noted.

All problems are found in one go, each with its line. What the values mean together is judged by `declared` and
`config`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from twinbus.broker.lines import Lines, Path
from twinbus.broker.schema import Key, Kind, Table
from twinbus.model.duration import parse_duration_ms
from twinbus.model.errors import BusError

_TYPES: dict[Kind, type] = {
    Kind.TEXT: str,
    Kind.NUMBER: int,
    Kind.FLAG: bool,
    Kind.DURATION: str,
    Kind.TEXTS: list,
    Kind.TABLE: dict,
    Kind.TABLES: list,
}


class Problem(NamedTuple):
    """Something in a file that cannot be."""

    line: int
    text: str


class Findings:
    """The problems of one file."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._found: set[Problem] = set()

    def add(self, path: Path, text: str) -> None:
        """Note a problem with what is at a path."""
        self.add_at(self._lines.of(path), text)

    def add_at(self, line: int, text: str) -> None:
        """Note a problem on a line."""
        self._found.add(Problem(line, text))

    def __len__(self) -> int:
        return len(self._found)

    @property
    def problems(self) -> list[Problem]:
        """All of them, from the top of the file to its end."""
        return sorted(self._found)


@dataclass(slots=True)
class Section:
    """What one table says: values of the right kinds, and other sections."""

    path: Path
    where: str  # What its problems begin with: the entities around it and its own name.
    given: dict[str, Any] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)
    is_whole: bool = True  # Nothing in it was left out because of a problem.

    def sections(self, key: str) -> list[Section]:
        """The tables of a list; none if it is not there."""
        found: list[Section] = self.given.get(key, [])
        return found

    def path_of(self, key: str) -> Path:
        """Where a key stands; the table itself if it is not given."""
        return self.paths.get(key, self.path)

    def joined(self, key: str) -> Section:
        """This table with another one of its values merged in, as if it were written flat."""
        inner: Section | None = self.given.get(key)
        if inner is None:
            return self
        given = {**{name: value for name, value in self.given.items() if name != key}, **inner.given}
        return Section(self.path, self.where, given, {**self.paths, **inner.paths}, self.is_whole and inner.is_whole)


def read(document: Any, table: Table, findings: Findings, path: Path = (), where: str = "") -> Section:
    """What a table says, as far as it can be understood."""
    section = Section(path, where)
    if type(document) is not dict:
        findings.add(path, f"{where}{table.noun or 'the file'} must be a table, not {document!r}")
        section.is_whole = False
        return section
    if table.noun:
        name = document.get(table.name_key)
        section.where = f"{where}{table.noun} '{name}': " if isinstance(name, str) else f"{where}{table.noun}: "
    before = len(findings)
    for key, value in document.items():
        inner = section.paths[key] = (*path, key)
        known = table.keys.get(key)
        if known is not None:
            _take(section, key, known, value, findings)
        elif table.is_open:
            section.given[key] = value
        else:
            findings.add(inner, f"{section.where}unknown {table.key_noun} '{key}'{_suggestion(key, table)}")
    for key, known in table.keys.items():
        if known.required and key not in document:
            missing = f"a {table.noun} has no {key}" if table.noun else f"'{key}' is missing"
            findings.add(path, f"{where}{missing}")
    section.is_whole = len(findings) == before
    return section


def _suggestion(key: str, table: Table) -> str:
    by_lower_case = {known.lower(): known for known in table.keys}
    near = get_close_matches(key.lower(), by_lower_case, n=1, cutoff=0.75)
    return f"; is '{by_lower_case[near[0]]}' meant?" if near else ""


def _take(section: Section, key: str, known: Key, value: Any, findings: Findings) -> None:
    """Put a value of the right kind into the section, or note what is wrong with it."""
    path, where = section.paths[key], section.where
    wanted = _TYPES.get(known.kind)
    if wanted is not None and type(value) is not wanted:
        shown = "" if known.is_secret else f", not {value!r}"
        findings.add(path, f"{where}'{key}' must be {known.kind.value}{shown}")
        return
    if known.table is not None:
        if known.kind is Kind.TABLE:
            section.given[key] = read(value, known.table, findings, path, where)
        else:
            section.given[key] = [
                read(item, known.table, findings, (*path, number), where) for number, item in enumerate(value)
            ]
        return
    if known.kind is Kind.DURATION:
        try:
            value = parse_duration_ms(value)
        except BusError as problem:
            findings.add(path, f"{where}{key}: {problem.text}")
            return
    before = len(findings)
    for number, item in enumerate(value if known.kind is Kind.TEXTS else [value]):
        if known.kind is Kind.TEXTS and type(item) is not str:
            shown = "" if known.is_secret else f", not of {item!r}"
            findings.add((*path, number), f"{where}'{key}' must be a list of texts{shown}")
        elif known.choices and item not in known.choices:
            offered = ", ".join(map(str, known.choices))
            findings.add((*path, number), f"{where}'{key}' must be one of {offered}, not {item!r}")
    if known.least is not None and known.most is not None and not known.least <= value <= known.most:
        findings.add(path, f"{where}'{key}' must be between {known.least} and {known.most}, not {value}")
    if len(findings) == before:
        section.given[key] = value
