"""Rules as plain JSON documents, for the catalog, and back.

Every parameter carries its type, so that 2 and 2.0, or a text and a time, stay apart whatever stores the document.
What a rule may contain is left to `description`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from twinbus.rules.description import (
    SYSTEM_CONDITIONS,
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

_MICROSECOND = timedelta(microseconds=1)


# Type name, Python type, to text, from text; booleans before the integers that they are in Python.
_TYPES: tuple[tuple[str, type, Callable[[Any], str], Callable[[str], Any]], ...] = (
    ("boolean", bool, lambda value: "true" if value else "false", lambda text: text == "true"),
    ("int", int, lambda value: int.__repr__(value), int),
    ("double", float, lambda value: float.__repr__(value), float),
    ("string", str, str, str),
    ("dateTime", datetime, datetime.isoformat, datetime.fromisoformat),
    ("duration", timedelta, lambda value: str(value // _MICROSECOND), lambda text: int(text) * _MICROSECOND),
    ("guid", UUID, str, UUID),
    ("decimal", Decimal, str, Decimal),
    ("binary", bytes, lambda value: base64.b64encode(value).decode("ascii"), base64.b64decode),
)
_READERS = {name: read for name, _, _, read in _TYPES}


def rule_document(rule: RuleDescription) -> dict[str, Any]:
    """A rule as a document."""
    document: dict[str, Any] = {
        "name": rule.name,
        "filter": _filter_document(rule.filter),
        "created_at_ms": rule.created_at_ms,
    }
    if rule.action is not None:
        document["action"] = _expression_document(rule.action)
    return document


def rule_of(document: Mapping[str, Any]) -> RuleDescription:
    """The rule of a document that `rule_document` made."""
    action = document.get("action")
    return RuleDescription(
        document["name"],
        _filter_of(document["filter"]),
        None if action is None else SqlAction(action["expression"], _values_of(action["parameters"])),
        document["created_at_ms"],
    )


def _filter_document(found: Filter) -> dict[str, Any]:
    match found:
        case SqlFilter():
            return {"type": "sql", **_expression_document(found)}
        case TrueFilter():
            return {"type": "true"}
        case FalseFilter():
            return {"type": "false"}
        case CorrelationFilter():
            conditions = {SYSTEM_CONDITIONS[name]: value for name, value in found.system_conditions()}
            return {"type": "correlation", **conditions, "properties": _values_document(found.properties)}


def _filter_of(document: Mapping[str, Any]) -> Filter:
    match document["type"]:
        case "sql":
            return SqlFilter(document["expression"], _values_of(document["parameters"]))
        case "true":
            return TrueFilter()
        case "false":
            return FalseFilter()
        case "correlation":
            conditions = {name: document[name] for name in SYSTEM_CONDITIONS.values() if name in document}
            return CorrelationFilter(**conditions, properties=_values_of(document["properties"]))
    raise ValueError(f"{document['type']!r} is no type of filter")


def _expression_document(found: SqlFilter | SqlAction) -> dict[str, Any]:
    return {"expression": found.expression, "parameters": _values_document(found.parameters)}


def _values_document(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value_document(value) for name, value in values.items()}


def _value_document(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    for name, python_type, write, _ in _TYPES:
        if isinstance(value, python_type):
            return {"type": name, "value": write(value)}
    raise ValueError(f"{type(value).__name__} is no type of a parameter")


def _values_of(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if entry is None else _READERS[entry["type"]](entry["value"]) for name, entry in document.items()
    }
