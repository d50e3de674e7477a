"""Descriptions of rules: a name, a filter and perhaps an action, with the limits of each.

Pure values. Whether a filter's text is in the language is found out by `matching.compile_rule`, which every new rule
goes through; keeping rules is left to the catalog, which stores them as `documents` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from twinbus.model.errors import BusError, Fault
from twinbus.rules import limits
from twinbus.rules.values import INT64_MAX, INT64_MIN

DEFAULT_RULE_NAME = "$Default"

# Letters, digits and . - _ $ ; names are also segments of an address.
_NAME = re.compile(r"[A-Za-z0-9_$](?:[A-Za-z0-9._$-]*[A-Za-z0-9_$])?\Z")


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Messages for which a condition is true."""

    expression: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """All messages."""


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """No message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationFilter:
    """Messages whose properties are equal to all those given here; None is not given."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)

    def system_conditions(self) -> Iterator[tuple[str, str]]:
        """The system properties that are given, by the names of a message's view."""
        for name, attribute in SYSTEM_CONDITIONS.items():
            value = getattr(self, attribute)
            if value is not None:
                yield name, value


SYSTEM_CONDITIONS = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Statements that change the copy of a message that a rule makes."""

    expression: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


Filter = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """One rule of a subscription."""

    name: str
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None
    created_at_ms: int = 0


def default_rule(created_at_ms: int) -> RuleDescription:
    """The rule that a subscription has when nothing else is asked for: all messages."""
    return RuleDescription(DEFAULT_RULE_NAME, TrueFilter(), None, created_at_ms)


def check_rule(rule: RuleDescription) -> None:
    """Refuse a rule whose name, parameters or correlation values break a limit; texts are judged when parsed."""
    if not 0 < len(rule.name) <= limits.RULE_NAME_CHARS_MAX or not _NAME.match(rule.name):
        raise BusError(
            Fault.ARGUMENT,
            f"'{rule.name[:60]}' is not a rule name: use 1 to {limits.RULE_NAME_CHARS_MAX} letters, digits, "
            "'.', '-', '_' or '$'.",
        )
    if isinstance(rule.filter, CorrelationFilter):
        for name, value in rule.filter.system_conditions():
            _check_value(name, value)
            if not isinstance(value, str):
                raise BusError(Fault.ARGUMENT, f"{name} of a correlation filter must be a text.")
        check_values(rule.filter.properties)
    if isinstance(rule.filter, SqlFilter):
        check_values(rule.filter.parameters)
    if rule.action is not None:
        check_values(rule.action.parameters)


def check_values(values: Mapping[str, Any]) -> None:
    """Refuse parameters or correlation properties that are too many, too long or of no known type."""
    if len(values) > limits.PARAMETERS_MAX:
        raise BusError(Fault.ARGUMENT, f"A rule has at most {limits.PARAMETERS_MAX} parameters or properties.")
    names = {name.removeprefix("@").lower() for name in values}
    if len(names) < len(values):
        raise BusError(Fault.ARGUMENT, "Two parameters or properties of a rule have the same name.")
    for name, value in values.items():
        _check_value(name, value)


def _check_value(name: str, value: Any) -> None:
    if not 0 < len(name) <= limits.PARAMETER_NAME_CHARS_MAX:
        raise BusError(
            Fault.ARGUMENT,
            f"The name of a parameter or property has 1 to {limits.PARAMETER_NAME_CHARS_MAX} characters.",
        )
    if isinstance(value, str | bytes) and len(value) > limits.PARAMETER_CHARS_MAX:
        raise BusError(Fault.ARGUMENT, f"The value of '{name}' is longer than {limits.PARAMETER_CHARS_MAX} characters.")
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        raise BusError(Fault.ARGUMENT, f"The value of '{name}' does not fit into an integer of 64 bits.")
    if value is not None and not isinstance(value, str | int | float | bytes | Decimal | UUID | datetime | timedelta):
        raise BusError(Fault.ARGUMENT, f"The value of '{name}' has a type that rules do not know.")
