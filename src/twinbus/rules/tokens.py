"""The words of the rule language: cuts a text into names, literals, parameters and signs, each with its position.

What may follow what is left to `parser`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from twinbus.rules.errors import FilterSyntaxError
from twinbus.rules.values import INT64_MAX

KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "EXISTS", "IS", "NULL", "TRUE", "FALSE"})

_SIGNS = ("<>", "!=", ">=", "<=", "=", ">", "<", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";")
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_DECIMAL = frozenset("0123456789")


class Kind(Enum):
    """What a token is."""

    KEYWORD = "keyword"
    NAME = "name"
    TEXT = "text"
    NUMBER = "number"
    PARAMETER = "parameter"
    SIGN = "sign"
    END = "the end"


class Token(NamedTuple):
    """One word: keywords in upper case, names and texts without their quotes, numbers as numbers."""

    kind: Kind
    value: Any
    position: int
    quoted: bool = False  # A name in brackets or double quotes is never a keyword, a scope or a function.

    def __str__(self) -> str:
        if self.kind is Kind.END:
            return "the end"
        return f"the {self.kind.value} {self.value!r}" if self.kind is not Kind.SIGN else f"{self.value!r}"


def tokens_of(text: str) -> list[Token]:
    """All words of a text, and one that marks its end."""
    words: list[Token] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character.isspace():
            position += 1
            continue
        token, position = _reader(text, position)(text, position)
        words.append(token)
    words.append(Token(Kind.END, "", len(text)))
    return words


_Reader = Callable[[str, int], tuple[Token, int]]


def _reader(text: str, position: int) -> _Reader:
    character = text[position]
    if character.isalpha():
        return _name
    if character in _DECIMAL or (character == "." and text[position + 1 : position + 2] in _DECIMAL):
        return _number
    return _BY_CHARACTER.get(character, _sign)


def _is_part(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()


def _word_end(text: str, position: int) -> int:
    while position < len(text) and _is_part(text[position]):
        position += 1
    return position


def _name(text: str, start: int) -> tuple[Token, int]:
    end = _word_end(text, start)
    word = text[start:end]
    if word.upper() in KEYWORDS:
        return Token(Kind.KEYWORD, word.upper(), start), end
    return Token(Kind.NAME, word, start), end


def _parameter(text: str, start: int) -> tuple[Token, int]:
    end = _word_end(text, start + 1)
    if end == start + 1:
        raise FilterSyntaxError("Expected a name after '@'", end)
    return Token(Kind.PARAMETER, text[start + 1 : end], start), end


def _delimited(text: str, start: int, closing: str) -> tuple[str, int]:
    """What stands between a delimiter and its closing one; a doubled closing one stands for itself."""
    parts: list[str] = []
    position = start + 1
    while True:
        end = text.find(closing, position)
        if end < 0:
            raise FilterSyntaxError(f"Expected a closing {closing} for the {text[start]}", start)
        parts.append(text[position:end])
        if text[end + 1 : end + 2] != closing:
            return closing.join(parts), end + 1
        position = end + 2


def _text(text: str, start: int) -> tuple[Token, int]:
    content, end = _delimited(text, start, "'")
    return Token(Kind.TEXT, content, start), end


def _bracketed(text: str, start: int) -> tuple[Token, int]:
    return _quoted_name(text, start, "]")


def _double_quoted(text: str, start: int) -> tuple[Token, int]:
    return _quoted_name(text, start, '"')


def _quoted_name(text: str, start: int, closing: str) -> tuple[Token, int]:
    content, end = _delimited(text, start, closing)
    if not content:
        raise FilterSyntaxError("Expected a name between the delimiters", start)
    return Token(Kind.NAME, content, start, quoted=True), end


def _digits_end(text: str, position: int, digits: frozenset[str] = _DECIMAL) -> int:
    while position < len(text) and text[position] in digits:
        position += 1
    return position


def _number(text: str, start: int) -> tuple[Token, int]:
    if text[start : start + 2] in ("0x", "0X"):
        end = _digits_end(text, start + 2, _HEXADECIMAL)
        if end == start + 2:
            raise FilterSyntaxError("Expected hexadecimal digits", end)
        return _number_token(text, start, end, int(text[start + 2 : end], 16))
    end = _digits_end(text, start)
    real = text[end : end + 1] == "."
    if real:
        end = _digits_end(text, end + 1)
    if text[end : end + 1] in ("e", "E"):
        exponent = end + 1
        if text[exponent : exponent + 1] in ("+", "-"):
            exponent += 1
        end = _digits_end(text, exponent)
        if end == exponent:
            raise FilterSyntaxError("Expected the digits of an exponent", end)
        real = True
    return _number_token(text, start, end, float(text[start:end]) if real else int(text[start:end]))


def _number_token(text: str, start: int, end: int, value: int | float) -> tuple[Token, int]:
    if end < len(text) and _is_part(text[end]):
        raise FilterSyntaxError("Expected a space or an operator after the number", end)
    # One more than the largest integer is let through: with a minus before it, it is the smallest.
    if value == float("inf") or (isinstance(value, int) and value > INT64_MAX + 1):
        raise FilterSyntaxError("Expected a number within its range", start)
    return Token(Kind.NUMBER, value, start), end


def _sign(text: str, start: int) -> tuple[Token, int]:
    for sign in _SIGNS:
        if text.startswith(sign, start):
            return Token(Kind.SIGN, "<>" if sign == "!=" else sign, start), start + len(sign)
    raise FilterSyntaxError(f"Unexpected character {text[start]!r}", start)


_BY_CHARACTER: dict[str, _Reader] = {"'": _text, "[": _bracketed, '"': _double_quoted, "@": _parameter}
