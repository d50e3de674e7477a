"""A tree as text again, with no more parentheses than it needs; the parser makes an equal tree of it.

For people who look at a rule, and for tests of the parser.
"""

from __future__ import annotations

from typing import Any

from twinbus.rules.tokens import KEYWORDS
from twinbus.rules.tree import (
    Among,
    And,
    Arithmetic,
    Assign,
    Comparison,
    Exists,
    IsNull,
    Like,
    Literal,
    Lookup,
    NewId,
    Node,
    Not,
    Or,
    Parameter,
    Property,
    Remove,
    Sign,
    Statement,
)

# How firmly an operator binds; what binds less firmly than its surroundings needs parentheses.
_OR, _AND, _NOT, _CONDITION, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)


def spell(node: Node) -> str:
    """The text of a condition or a value."""
    return _spell(node)[0]


def spell_statements(statements: tuple[Statement, ...]) -> str:
    """The text of an action."""
    return "; ".join(
        f"SET {spell(statement.target)} = {_inside(statement.value, _SUM)}"
        if isinstance(statement, Assign)
        else f"REMOVE {spell(statement.target)}"
        for statement in statements
    )


def _inside(node: Node, firmness: int) -> str:
    text, own = _spell(node)
    return f"({text})" if own < firmness else text


def _spell(node: Node) -> tuple[str, int]:
    match node:
        case Literal(value):
            return _literal(value), _ATOM
        case Parameter(name):
            return f"@{name}", _ATOM
        case Property():
            return _property(node), _ATOM
        case Lookup(name):
            return f"property({_inside(name, _SUM)})", _ATOM
        case NewId():
            return "newid()", _ATOM
        case Sign(sign, operand):
            inner = _inside(operand, _SIGN)
            return (f"{sign}({inner})" if _is_number(operand) else f"{sign}{inner}"), _SIGN
        case Arithmetic(sign, left, right):
            own = _SUM if sign in "+-" else _PRODUCT
            return f"{_inside(left, own)} {sign} {_inside(right, own + 1)}", own
        case Not(operand):
            return f"NOT {_inside(operand, _NOT)}", _NOT
        case And(operands):
            return " AND ".join(_inside(operand, _NOT) for operand in operands), _AND
        case Or(operands):
            return " OR ".join(_inside(operand, _AND) for operand in operands), _OR
    return _condition(node), _CONDITION


def _condition(node: Node) -> str:
    match node:
        case Comparison(sign, left, right):
            return f"{_inside(left, _SUM)} {sign} {_inside(right, _SUM)}"
        case IsNull(operand, negated):
            return f"{_inside(operand, _SUM)} IS {'NOT ' if negated else ''}NULL"
        case Among(operand, choices, negated):
            listed = ", ".join(_inside(choice, _SUM) for choice in choices)
            return f"{_inside(operand, _SUM)} {'NOT ' if negated else ''}IN ({listed})"
        case Like(operand, pattern, escape, negated):
            text = f"{_inside(operand, _SUM)} {'NOT ' if negated else ''}LIKE {_inside(pattern, _SUM)}"
            return text if escape is None else f"{text} ESCAPE {_inside(escape, _SUM)}"
        case Exists(subject):
            return f"EXISTS({spell(subject)})"
        case Assign() | Remove():
            return spell_statements((node,))
    raise TypeError(f"{type(node).__name__} is no part of an expression.")


def _is_number(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _property(node: Property) -> str:
    plain = (
        node.name[0].isalpha()
        and all(character == "_" or character.isalpha() or character.isdecimal() for character in node.name)
        and node.name.upper() not in KEYWORDS
    )
    name = node.name if plain else "[" + node.name.replace("]", "]]") + "]"
    return f"sys.{name}" if node.system else name
