"""Rule descriptions as XML, both ways, as both official clients word and read them (wire contract 9.4).

Whether a text is in the language, and a rule within its limits, is `rules.matching`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twinbus.model.errors import BusError, Fault
from twinbus.model.rule import (
    SYSTEM_CONDITIONS,
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from twinbus.wire import rule_values as values
from twinbus.wire.descriptions import fields_of, timestamp, type_of
from twinbus.wire.markup import INSTANCE, SERVICE_BUS, Element, tag

ELEMENT = "RuleDescription"

_COMPATIBILITY_LEVEL = "20"
_CORRELATION_ORDER = (
    "CorrelationId",
    "MessageId",
    "To",
    "ReplyTo",
    "Label",
    "SessionId",
    "ReplyToSessionId",
    "ContentType",
)


# Writing


def write(rule: RuleDescription, element: str = ELEMENT) -> str:
    """The RuleDescription element, or another of the same type."""
    # A rule that is only asked for has no date yet.
    created = tag("CreatedAt", timestamp(rule.created_at_ms)) if rule.created_at_ms else ""
    return (
        f'<{element} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{_write_filter(rule.filter)}'
        f"{_write_action(rule.action)}{created}{tag('Name', rule.name)}</{element}>"
    )


def _write_filter(found: Filter) -> str:
    match found:
        # The JavaScript client takes a filter without an expression for a correlation filter.
        case TrueFilter():
            return f'<Filter i:type="TrueFilter">{_write_expression(SqlFilter("1=1"))}</Filter>'
        case FalseFilter():
            return f'<Filter i:type="FalseFilter">{_write_expression(SqlFilter("1=0"))}</Filter>'
        case SqlFilter():
            return f'<Filter i:type="SqlFilter">{_write_expression(found)}</Filter>'
        case CorrelationFilter():
            given = dict(found.system_conditions())
            inside = "".join(tag(name, given[name]) for name in _CORRELATION_ORDER if name in given)
            return (
                f'<Filter i:type="CorrelationFilter">{inside}{_write_values("Properties", found.properties)}</Filter>'
            )


def _write_action(action: SqlAction | None) -> str:
    if action is None:  # The JavaScript client looks inside an action without asking whether there is one.
        return '<Action i:type="EmptyRuleAction"/>'
    return f'<Action i:type="SqlRuleAction">{_write_expression(action)}</Action>'


def _write_expression(found: SqlFilter | SqlAction) -> str:
    return (
        f"{tag('SqlExpression', found.expression)}{tag('CompatibilityLevel', _COMPATIBILITY_LEVEL)}"
        f"{_write_values('Parameters', found.parameters)}{tag('RequiresPreprocessing', 'true')}"
    )


def _write_values(element: str, given: Mapping[str, Any]) -> str:
    return f"<{element}>{values.write(given)}</{element}>" if given else ""


# Reading


def read_at(element: Element, name: str) -> RuleDescription:
    """The rule that a client asks for at an address; its name, if it says one, must be that of the address."""
    rule = read(element, name)
    if rule.name.lower() != name.lower():
        raise BusError(Fault.ARGUMENT, f"The rule says it is '{rule.name[:60]}', and its address '{name[:60]}'.")
    return replace(rule, name=name)


def read(element: Element, default_name: str) -> RuleDescription:
    """A rule under the name that it says, or another if it says none."""
    fields = fields_of(element)
    said = fields["Name"].text.strip() if "Name" in fields else ""
    if "Filter" not in fields:
        raise BusError(Fault.ARGUMENT, "The rule has no Filter.")
    action = fields.get("Action")
    return RuleDescription(
        said or default_name,
        _read_filter(fields["Filter"]),
        None if action is None else _read_action(action),
    )


def _read_filter(element: Element) -> Filter:
    fields = fields_of(element)
    match type_of(element):
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(_expression(fields, "filter"), values.read(fields.get("Parameters")))
        case "CorrelationFilter":
            given = {SYSTEM_CONDITIONS[name]: fields[name].text for name in _CORRELATION_ORDER if name in fields}
            return CorrelationFilter(**given, properties=values.read(fields.get("Properties")))
    raise BusError(
        Fault.ARGUMENT, "The type of a Filter must be SqlFilter, TrueFilter, FalseFilter or CorrelationFilter."
    )


def _read_action(element: Element) -> SqlAction | None:
    match type_of(element):
        case "EmptyRuleAction":
            return None
        case "SqlRuleAction":
            fields = fields_of(element)
            return SqlAction(_expression(fields, "action"), values.read(fields.get("Parameters")))
    raise BusError(Fault.ARGUMENT, "The type of an Action must be EmptyRuleAction or SqlRuleAction.")


def _expression(fields: dict[str, Element], owner: str) -> str:
    if "SqlExpression" not in fields:
        raise BusError(Fault.ARGUMENT, f"The {owner} has no SqlExpression.")
    return fields["SqlExpression"].text
