"""Rules as `$management` tells them, to and from their descriptions.

Checking a rule and making it hold is the namespace's business; the codes on the wire are in `wire.rule_list`.
"""

from __future__ import annotations

from typing import Any

from twinbus.amqp.types import Described
from twinbus.model.errors import BusError, Fault
from twinbus.rules.description import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from twinbus.wire import operations, rule_list

# The wire's names of the conditions, in its order.
_CONDITIONS = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "subject",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}


def from_wire(asked: operations.AddRule) -> RuleDescription:
    """The rule that a client wants to add."""
    rule_filter: Filter = TrueFilter()
    if asked.sql_filter is not None:
        rule_filter = SqlFilter(asked.sql_filter)
    elif asked.correlation_filter is not None:
        rule_filter = _correlation(asked.correlation_filter)
    action = None if asked.sql_action is None else SqlAction(asked.sql_action)
    return RuleDescription(asked.name, rule_filter, action)


def _correlation(given: dict[str, Any]) -> CorrelationFilter:
    values = {attribute: given.get(name) for name, attribute in _CONDITIONS.items()}
    properties = given.get("properties") or {}
    if not isinstance(properties, dict):
        raise BusError(Fault.ARGUMENT, "The properties of a correlation filter are a map.")
    return CorrelationFilter(**values, properties={str(key): value for key, value in properties.items()})


def to_wire(rule: RuleDescription) -> tuple[str, Described, str | None]:
    """A rule as it is listed."""
    return rule.name, _filter(rule.filter), None if rule.action is None else rule.action.expression


def _filter(found: Filter) -> Described:
    match found:
        case SqlFilter(expression):
            return rule_list.sql_filter(expression)
        case TrueFilter():
            return rule_list.constant_filter(True)
        case FalseFilter():
            return rule_list.constant_filter(False)
        case CorrelationFilter():
            conditions = [getattr(found, attribute) for attribute in _CONDITIONS.values()]
            return rule_list.correlation_filter(conditions, found.properties)
