"""Rules as enumerate-rules lists them: described lists with the wire's own codes (wire contract 6.2).

The codes come in two families, and the filters' have one zero fewer. What a rule means is `rules`' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twinbus.amqp.types import Described, Int, ULong

_RULE_DESCRIPTION, _EMPTY_ACTION, _SQL_ACTION = 0x13700000004, 0x13700000005, 0x13700000006
_SQL_FILTER, _TRUE_FILTER, _FALSE_FILTER, _CORRELATION_FILTER = 0x1370000006, 0x1370000007, 0x1370000008, 0x1370000009
_COMPATIBILITY = 20


def _described(code: int, value: list[Any]) -> Described:
    return Described(ULong(code), value)


def sql_filter(expression: str) -> Described:
    """A SQL filter, for `rules`."""
    return _described(_SQL_FILTER, [expression, Int(_COMPATIBILITY)])


def constant_filter(value: bool) -> Described:
    """The filter that takes everything, or nothing, for `rules`."""
    return _described(_TRUE_FILTER if value else _FALSE_FILTER, [])


def correlation_filter(conditions: list[str | None], properties: Mapping[str, Any]) -> Described:
    """A correlation filter, for `rules`: conditions in the wire's order, from correlation-id to content-type."""
    return _described(_CORRELATION_FILTER, [*conditions, dict(properties)])


def rules(found: Iterable[tuple[str, Described, str | None]]) -> dict[str, Any]:
    """For enumerate-rules: (name, filter, action's expression) of each. The action's place is never left empty."""
    listed = []
    for name, described_filter, action in found:
        shown = (
            _described(_EMPTY_ACTION, []) if action is None else _described(_SQL_ACTION, [action, Int(_COMPATIBILITY)])
        )
        listed.append({"rule-description": _described(_RULE_DESCRIPTION, [described_filter, shown, name])})
    return {"rules": listed}
