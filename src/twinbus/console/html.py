"""HTML that cannot be injected into: elements are made by calls, and every text in them is escaped.

Knows nothing of pages. What is `Markup` was made here; any other text is somebody's data.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as _escape

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
_ADDRESSES = frozenset({"href", "src", "action", "formaction"})
_SAFE_BEGINNINGS = ("/", "?", "#", "http://", "https://")

Attribute = str | int | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = object  # Markup as it is; None and False are nothing; lists are their items; anything else is escaped.


def text(value: object) -> Markup:
    """Data as HTML shows it. Control characters are made visible: a name must not hide anything."""
    shown = "".join(_visible(letter) for letter in str(value))
    return Markup(_escape(shown, quote=True))


def _visible(letter: str) -> str:
    if letter in "\n\t" or letter.isprintable():
        return letter
    if letter == "\r":
        return ""
    return f"\\u{ord(letter):04x}"


def join(*children: Child) -> Markup:
    """Several things one after the other."""
    return Markup("".join(_flat(children)))


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None or child is False:
            continue
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, list | tuple):
            yield from _flat(child)
        else:
            yield text(child)


def el(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element. `class_` is class, `aria_label` aria-label; True is an attribute alone, None and False are none."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    shown = str(value)
    if name in _ADDRESSES and not shown.startswith(_SAFE_BEGINNINGS):
        raise ValueError(f"{name} must be an address of ours, not {shown[:40]!r}")
    return f' {name}="{text(shown)}"'


def document(title: str, head: Child, body: Child) -> str:
    """A whole page."""
    top = el("head", el("meta", charset="utf-8"), el("title", title), head)
    return f'<!doctype html>\n<html lang="en">{top}{el("body", body)}</html>\n'
