"""LIKE: a pattern with % and _ made into a function that tells whether a text matches it.

Pieces between % are looked for from left to right and never again, so the work grows with the text and not with the
number of ways to match it; what one evaluation may spend is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twinbus.rules.errors import FilterError

Spend = Callable[[int], None]
Matcher = Callable[[str, Spend], bool]


class Piece(NamedTuple):
    """What stands between two %: texts at their distances from its start, the rest of its length any characters."""

    length: int
    texts: tuple[tuple[int, str], ...]

    def at(self, text: str, start: int) -> bool:
        """Whether the piece is at this place; the caller sees to it that there is room."""
        # Asked for every place where a long text might match; all() would take twice as long.
        for offset, part in self.texts:  # noqa: SIM110
            if not text.startswith(part, start + offset):
                return False
        return True

    def find(self, text: str, start: int, end: int, spend: Spend) -> int:
        """The first place from `start` where the piece fits before `end`, or -1."""
        last = end - self.length
        if not self.texts:
            return start if start <= last else -1
        anchor, longest = max(self.texts, key=lambda entry: len(entry[1]))
        price = len(self.texts)
        while start <= last:
            found = text.find(longest, start + anchor, last + anchor + len(longest))
            if found < 0:
                return -1
            start = found - anchor
            if price == 1:
                return start
            spend(price)
            if self.at(text, start):
                return start
            start += 1
        return -1


def matcher(pattern: str, escape: str | None = None) -> Matcher:
    """The function for one pattern; % stands for any text, _ for any one character."""
    pieces = _pieces(pattern, escape)
    first = pieces[0]
    if len(pieces) == 1:
        return lambda text, spend: len(text) == first.length and first.at(text, 0)
    last, middle = pieces[-1], tuple(piece for piece in pieces[1:-1] if piece.length)
    shortest = sum(piece.length for piece in pieces)

    def matches(text: str, spend: Spend) -> bool:
        if len(text) < shortest or not first.at(text, 0):
            return False
        end = len(text) - last.length
        if not last.at(text, end):
            return False
        start = first.length
        for piece in middle:
            start = piece.find(text, start, end, spend)
            if start < 0:
                return False
            start += piece.length
        return True

    return matches


def simple_form(pattern: str, escape: str | None = None) -> tuple[str, str] | None:
    """For the commonest patterns what to ask of the text ("is", "starts", "ends" or "holds") and with which text."""
    pieces = _pieces(pattern, escape)
    plain = [_only_text(piece) for piece in pieces]
    match plain:
        case [str(text)]:
            return "is", text
        case [str(text), ""]:
            return "starts", text
        case ["", str(text)]:
            return "ends", text
        case ["", str(text), ""]:
            return "holds", text
    return None


def _only_text(piece: Piece) -> str | None:
    if not piece.texts:
        return "" if piece.length == 0 else None
    text = piece.texts[0][1]
    return text if len(text) == piece.length else None


def _pieces(pattern: str, escape: str | None) -> list[Piece]:
    """The pieces between %; there is one more of them than there are %."""
    if escape is not None and len(escape) != 1:
        raise FilterError("ESCAPE needs a text of one character.")
    pieces: list[Piece] = []
    texts: list[tuple[int, str]] = []
    literal = ""
    length = 0
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if not character:
                raise FilterError("The pattern ends with its escape character.")
        elif character in "%_":
            if literal:
                texts.append((length - len(literal), literal))
                literal = ""
            if character == "%":
                pieces.append(Piece(length, tuple(texts)))
                texts, length = [], 0
            else:
                length += 1
            continue
        literal += character
        length += 1
    if literal:
        texts.append((length - len(literal), literal))
    pieces.append(Piece(length, tuple(texts)))
    return pieces
