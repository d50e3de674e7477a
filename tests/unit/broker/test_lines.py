"""Lines of a configuration file: every key and every item has one, whatever the text looks like."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.broker.lines import Path, json_lines, toml_lines

TOML = """\
# [not] = 'a table'
name = "x # no comment"     # a comment with "quotes"
a.b."c.d\\u0065" = 1.5
when = 1979-05-27T07:32:00.999Z

text = \"\"\"
[[not]]
a table = \\"\"\" # not a comment
\"\"\"
quoted = '''
it''s = [1]'''
list = [
    1, # one
    "two ]",
    [3, { four = 4 }],
]
inline = { x = 1, y = { z = "}" } }

[table.'in.ner']
key = -inf

[[items]]
Name = "first"
  [[items.parts]]
  Name = "1.1"
  [[items.parts]]
  Name = "1.2"

[[items]]
Name = "second"
  [[items.parts]]
  Name = "2.1"
  rules = [{ Name = "r" }, { Name = "s" }]
  [items.parts.more]
  last = true
"""


def paths(document: Any, path: Path = ()) -> list[Path]:
    """The path of everything in a document."""
    inner: list[tuple[str | int, Any]] = []
    if isinstance(document, dict):
        inner = list(document.items())
    elif isinstance(document, list):
        inner = list(enumerate(document))
    return [path, *(deeper for key, value in inner for deeper in paths(value, (*path, key)))]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("a",), 3),
        (("a", "b", "c.de"), 3),
        (("when",), 4),
        (("text",), 6),
        (("quoted",), 10),
        (("list",), 12),
        (("list", 0), 13),
        (("list", 1), 14),
        (("list", 2, 1, "four"), 15),
        (("inline", "y", "z"), 17),
        (("table", "in.ner"), 19),
        (("table", "in.ner", "key"), 20),
        (("items",), 22),
        (("items", 0), 22),
        (("items", 0, "parts", 1), 26),
        (("items", 0, "parts", 1, "Name"), 27),
        (("items", 1, "Name"), 30),
        (("items", 1, "parts", 0), 31),
        (("items", 1, "parts", 0, "rules", 1, "Name"), 33),
        (("items", 1, "parts", 0, "more", "last"), 35),
    ],
)
def test_a_toml_key_is_found(path: Path, line: int) -> None:
    assert toml_lines(TOML).of(path) == line


def test_everything_in_a_toml_text_has_a_line() -> None:
    lines = toml_lines(TOML)
    assert [path for path in paths(tomllib.loads(TOML)) if path not in lines] == []


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "a = 1\r\nb = 2\r\n", "a = ''", "[a]", "[[a]]"])
def test_small_toml_texts_have_lines(text: str) -> None:
    lines = toml_lines(text)
    assert [path for path in paths(tomllib.loads(text)) if path not in lines] == []


def test_what_has_no_line_of_its_own_has_the_line_around_it() -> None:
    assert toml_lines("a = 1\n\n[b]\nc = 2").of(("b", "missing", 3, "x")) == 3


json_documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=15,
)


@given(json_documents, st.sampled_from([None, 1]), st.booleans())
def test_everything_in_a_json_text_has_a_line(document: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    lines = json_lines(text)
    assert [path for path in paths(document) if path not in lines] == []
    assert lines.repeated == []


def test_a_json_key_that_is_there_twice_is_told() -> None:
    lines = json_lines('{"a": 1,\n "b": {"a": 2},\n "a": 3}')
    assert lines.repeated == [(("a",), 3)]
    assert (lines.of(("a",)), lines.of(("b", "a"))) == (1, 2)
