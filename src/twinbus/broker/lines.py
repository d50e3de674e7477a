"""On which line of a configuration file each key and each item of a list stands, for TOML and for JSON.

The standard library's readers tell no positions, and judge whether a text is TOML or JSON at all; so these scanners are
given texts that have been read already, and only look for where things are.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

Path = tuple[str | int, ...]


class Lines:
    """The line of everything that has a path: names of keys and numbers of list items, from the outside in."""

    def __init__(self) -> None:
        self._lines: dict[Path, int] = {(): 1}
        self.repeated: list[tuple[Path, int]] = []  # Keys that JSON allows twice in one object, and their lines.

    def put(self, path: Path, line: int) -> None:
        """Something begins on a line."""
        self._lines.setdefault(path, line)

    def __contains__(self, path: Path) -> bool:
        return path in self._lines

    def of(self, path: Path) -> int:
        """The line of a path, or of the nearest thing around it that has one."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[_Token]:
    line = 1
    for match in pattern.finditer(text):
        assert match.lastgroup is not None
        yield _Token(match.lastgroup, match[0], line)
        line += match[0].count("\n")


# JSON

_JSON = re.compile(r'(?P<space>\s+)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[{}\[\]:,])|(?P<other>[^\s{}\[\]:,"]+)')


def json_lines(text: str) -> Lines:
    """The lines of a text that is JSON."""
    lines = Lines()
    tokens = iter([token for token in _tokens(_JSON, text) if token.kind != "space"])

    def value(path: Path, first: _Token) -> None:
        if first.text == "{":
            for token in tokens:
                if token.text == "}":
                    return
                if token.text == ",":
                    continue
                inner = (*path, json.loads(token.text))
                if inner in lines:
                    lines.repeated.append((inner, token.line))
                lines.put(inner, token.line)
                next(tokens)  # The colon.
                value(inner, next(tokens))
        elif first.text == "[":
            number = 0
            for token in tokens:
                if token.text == "]":
                    return
                if token.text == ",":
                    continue
                lines.put((*path, number), token.line)
                value((*path, number), token)
                number += 1

    value((), next(tokens))
    return lines


# TOML

_TOML = re.compile(
    r'(?P<text>"""(?:[^\\]|\\.)*?"{3,5}|'
    r"'''(?:.|\n)*?'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'[^'\n]*')"
    r"|(?P<comment>\#[^\n]*)"
    r"|(?P<end>\r?\n)"
    r"|(?P<space>[ \t]+)"
    r"|(?P<mark>[\[\]{}=,.])"
    r"|(?P<bare>[^\s\[\]{}=,.\#\"']+)",
    re.DOTALL,
)


def toml_lines(text: str) -> Lines:
    """The lines of a text that is TOML."""
    return _TomlScanner(text).scan()


class _TomlScanner:
    """Walks over the tokens: headers set the table that keys are in, and values are searched for tables and lists."""

    def __init__(self, text: str) -> None:
        self._tokens = [token for token in _tokens(_TOML, text) if token.kind not in ("space", "comment")]
        self._at = 0
        self._lines = Lines()
        self._counts: dict[Path, int] = {}  # How many tables each array of tables has so far.

    def scan(self) -> Lines:
        table: Path = ()
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind == "end":
                self._at += 1
            elif token.text == "[":
                table = self._header(token.line)
            else:
                self._pair(table)
        return self._lines

    def _header(self, line: int) -> Path:
        is_array = self._tokens[self._at + 1].text == "["
        self._at += 2 if is_array else 1
        words = self._words()
        self._at += 2 if is_array else 1
        path: Path = ()
        for position, word in enumerate(words):
            path = (*path, word)
            self._lines.put(path, line)
            if is_array and position == len(words) - 1:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:  # What follows belongs to the last table of the array.
                path = (*path, self._counts[path] - 1)
                self._lines.put(path, line)
        return path

    def _words(self) -> list[str]:
        """A key with its dots, up to what ends it."""
        words: list[str] = []
        while (token := self._tokens[self._at]).text not in ("=", "]"):
            if token.kind == "text":
                words.append(next(iter(tomllib.loads(f"{token.text} = 0"))))
            elif token.kind == "bare":
                words.append(token.text)
            self._at += 1
        return words

    def _pair(self, table: Path) -> None:
        line = self._tokens[self._at].line
        path = table
        for word in self._words():
            path = (*path, word)
            self._lines.put(path, line)
        self._at += 1  # The equals sign.
        self._value(path)

    def _value(self, path: Path) -> None:
        token = self._tokens[self._at]
        if token.text == "[":
            self._list(path)
        elif token.text == "{":
            self._inline_table(path)
        else:
            # A number or a date may have dots in it, which are tokens of their own.
            while self._at < len(self._tokens) and self._tokens[self._at].kind in ("text", "bare"):
                self._at += 1
                if self._at < len(self._tokens) and self._tokens[self._at].text == ".":
                    self._at += 1

    def _list(self, path: Path) -> None:
        self._at += 1
        number = 0
        while (token := self._tokens[self._at]).text != "]":
            if token.kind == "end" or token.text == ",":
                self._at += 1
                continue
            self._lines.put((*path, number), token.line)
            self._value((*path, number))
            number += 1
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while (token := self._tokens[self._at]).text != "}":
            if token.kind == "end" or token.text == ",":
                self._at += 1
                continue
            self._pair(path)
        self._at += 1
