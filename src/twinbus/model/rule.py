"""Descriptions of rules: a name, a filter and perhaps an action.

Pure values. What a rule may say is for `rules` to judge, keeping rules is the catalog's business, and how they look as
Atom is `wire.rule_markup`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_RULE_NAME = "$Default"


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
