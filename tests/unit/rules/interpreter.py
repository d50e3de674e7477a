"""A slow interpreter of conditions that walks the tree and knows the rules of the language in another way.

The tests judge what is compiled by it; it is written for being right and not for speed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import singledispatch
from typing import Any
from uuid import UUID

from twinbus.rules import tree as t
from twinbus.rules.values import text_of

PARAMETERS = {"@p": "ab", "@q": 3}
NEW_ID = UUID(int=1)


class NoAnswerError(Exception):
    """A filter is neither true, false nor unknown."""


class Message:
    """The properties of a message, found by looking at them one by one."""

    def __init__(self, system: dict[str, Any], user: dict[str, Any]) -> None:
        self.system = system
        self.user = user

    def find(self, name: str) -> tuple[bool, Any]:
        for key, value in self.user.items():
            if key.lower() == name.lower():
                return True, value
        return False, None

    def find_system(self, name: str) -> Any:
        canonical = {"label": "Label", "size": "Size", "to": "To"}.get(name.lower())
        if canonical is None:
            raise NoAnswerError(name)
        return self.system.get(canonical)


def family(value: Any) -> str:
    if value is True or value is False:
        return "boolean"
    return {int: "number", float: "number", str: "text", UUID: "id", bytes: "binary"}[type(value)]


@singledispatch
def interpret(node: t.Node, message: Message) -> Any:
    raise NotImplementedError(type(node))


@interpret.register
def _(node: t.Literal, message: Message) -> Any:
    return node.value


@interpret.register
def _(node: t.Parameter, message: Message) -> Any:
    return PARAMETERS[f"@{node.name.lower()}"]


@interpret.register
def _(node: t.Property, message: Message) -> Any:
    return message.find_system(node.name) if node.system else message.find(node.name)[1]


@interpret.register
def _(node: t.Lookup, message: Message) -> Any:
    name = interpret(node.name, message)
    if name is None:
        return None
    if family(name) != "text":
        raise NoAnswerError("name")
    return message.find(name)[1]


@interpret.register
def _(node: t.NewId, message: Message) -> Any:
    return NEW_ID


@interpret.register
def _(node: t.Sign, message: Message) -> Any:
    value = interpret(node.operand, message)
    if value is None:
        return None
    if family(value) != "number":
        raise NoAnswerError("sign")
    return calculate("*", -1 if node.sign == "-" else 1, value)


@interpret.register
def _(node: t.Arithmetic, message: Message) -> Any:
    left, right = interpret(node.left, message), interpret(node.right, message)
    if left is None or right is None:
        return None
    if node.sign == "+" and "text" in (family(left), family(right)):
        if "binary" in (family(left), family(right)):
            raise NoAnswerError("binary")
        return f"{text_of(left)}{text_of(right)}"
    if {family(left), family(right)} != {"number"}:
        raise NoAnswerError("arithmetic")
    return calculate(node.sign, left, right)


def calculate(sign: str, left: int | float, right: int | float) -> int | float:
    if isinstance(left, int) and isinstance(right, int):
        if sign in "/%" and right == 0:
            raise NoAnswerError("zero")
        result = whole(sign, left, right)
        if not -(2**63) <= result < 2**63:
            raise NoAnswerError("overflow")
        return result
    left, right = float(left), float(right)
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if sign == "/":
        if right != 0 or math.isnan(left):
            return left / right if right != 0 else math.nan
        return math.nan if left == 0 else math.inf * math.copysign(1, left) * math.copysign(1, right)
    if right == 0 or math.isinf(left) or math.isnan(left) or math.isnan(right):
        return math.nan
    return left if math.isinf(right) else float(exact_remainder(Fraction(left), Fraction(right)))


def whole(sign: str, left: int, right: int) -> int:
    if sign == "/":
        return math.trunc(Fraction(left, right))
    if sign == "%":
        return int(exact_remainder(Fraction(left), Fraction(right)))
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def exact_remainder(left: Fraction, right: Fraction) -> Fraction:
    return left - right * math.trunc(left / right)


def compared(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if family(left) != family(right) or (sign not in ("=", "<>") and family(left) not in ("number", "text")):
        raise NoAnswerError("comparison")
    if sign in ("=", "<>"):
        return (left == right) is (sign == "=")
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]


@interpret.register
def _(node: t.Comparison, message: Message) -> bool | None:
    return compared(node.sign, interpret(node.left, message), interpret(node.right, message))


@interpret.register
def _(node: t.IsNull, message: Message) -> bool:
    return (interpret(node.operand, message) is None) != node.negated


@interpret.register
def _(node: t.Among, message: Message) -> bool | None:
    value = interpret(node.operand, message)
    if value is None:
        return None
    answers: list[Any] = []
    for choice in node.choices:
        try:
            answers.append(compared("=", value, interpret(choice, message)))
        except NoAnswerError:
            answers.append(NoAnswerError)
    if True in answers:
        return not node.negated
    if NoAnswerError in answers:
        raise NoAnswerError("choice")
    return None if None in answers else node.negated


@interpret.register
def _(node: t.Like, message: Message) -> bool | None:
    value, pattern = interpret(node.operand, message), interpret(node.pattern, message)
    escape = "" if node.escape is None else interpret(node.escape, message)
    if value is None or pattern is None or escape is None:
        return None
    if {family(value), family(pattern), family(escape)} != {"text"} or (node.escape and len(escape) != 1):
        raise NoAnswerError("like")
    return liked(value, pattern_items(pattern, escape)) != node.negated


def pattern_items(pattern: str, escape: str) -> list[str]:
    """Each item is '%', '_', or '=' and a character that stands for itself."""
    items: list[str] = []
    rest = list(pattern)
    while rest:
        character = rest.pop(0)
        if character == escape:
            if not rest:
                raise NoAnswerError("escape")
            items.append("=" + rest.pop(0))
        else:
            items.append(character if character in "%_" else "=" + character)
    return items


def liked(text: str, items: list[str]) -> bool:
    """All positions that can be reached, item by item."""
    reached = {0}
    for item in items:
        if item == "%":
            reached = set(range(min(reached), len(text) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(text) and item in ("_", "=" + text[at])}
    return len(text) in reached


@interpret.register
def _(node: t.Exists, message: Message) -> bool:
    subject = node.subject
    return message.find_system(subject.name) is not None if subject.system else message.find(subject.name)[0]


def truth(node: t.Node, message: Message) -> bool | None:
    value = interpret(node, message)
    if value is not None and family(value) != "boolean":
        raise NoAnswerError("condition")
    return value


@interpret.register
def _(node: t.Not, message: Message) -> bool | None:
    value = truth(node.operand, message)
    return None if value is None else not value


@interpret.register
def _(node: t.And, message: Message) -> bool | None:
    return until(False, node.operands, message)


@interpret.register
def _(node: t.Or, message: Message) -> bool | None:
    return until(True, node.operands, message)


def until(decisive: bool, operands: tuple[t.Node, ...], message: Message) -> bool | None:
    seen = []
    for operand in operands:
        seen.append(truth(operand, message))
        if seen[-1] is decisive:
            return decisive
    return None if None in seen else not decisive
