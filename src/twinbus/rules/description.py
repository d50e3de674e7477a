"""The limits of a rule's description: its name, its parameters and what its correlation filter compares.

The descriptions themselves are `model.rule`'s, and can be had from here, too. Whether a filter's text is in the
language is found out by `matching.compile_rule`, which every new rule goes through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from twinbus.model.errors import BusError, Fault
from twinbus.model.rule import (
    DEFAULT_RULE_NAME,
    SYSTEM_CONDITIONS,
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    default_rule,
)
from twinbus.rules import limits
from twinbus.rules.values import INT64_MAX, INT64_MIN

__all__ = [
    "DEFAULT_RULE_NAME",
    "SYSTEM_CONDITIONS",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "RuleDescription",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
    "check_rule",
    "check_values",
    "default_rule",
]

# Letters, digits and . - _ $ ; names are also segments of an address.
_NAME = re.compile(r"[A-Za-z0-9_$](?:[A-Za-z0-9._$-]*[A-Za-z0-9_$])?\Z")


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
