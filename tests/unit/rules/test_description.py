"""Descriptions of rules: limits, and the way to JSON and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.rules.description import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    check_rule,
    default_rule,
)
from twinbus.rules.documents import rule_document, rule_of

VALUES = {
    "@text": "o'clock",
    "@int": 2,
    "@double": 2.0,
    "@infinite": float("inf"),
    "@yes": True,
    "@at": datetime(2024, 2, 29, 1, 2, 3, 456789, tzinfo=UTC),
    "@naive": datetime(2020, 7, 5, 11, 12, 13),
    "@span": timedelta(days=1, microseconds=5),
    "@id": UUID(int=7),
    "@decimal": Decimal("1.10"),
    "@raw": b"\x00\xff",
    "@none": None,
}

RULES = [
    RuleDescription("true", TrueFilter(), None, 5),
    RuleDescription("false", FalseFilter()),
    RuleDescription("sql", SqlFilter("a = @int", VALUES), SqlAction("SET a = @text", VALUES), 1_700_000_000_000),
    RuleDescription("no-parameters", SqlFilter("a = 1"), SqlAction("REMOVE a")),
    RuleDescription("empty", CorrelationFilter()),
    RuleDescription(
        "correlation",
        CorrelationFilter(
            correlation_id="a",
            message_id="b",
            to="c",
            reply_to="d",
            subject="e",
            session_id="f",
            reply_to_session_id="g",
            content_type="h",
            properties=VALUES,
        ),
    ),
    default_rule(9),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_survives_its_document(rule: RuleDescription) -> None:
    check_rule(rule)
    document = json.loads(json.dumps(rule_document(rule), allow_nan=False))
    assert rule_of(document) == rule


def test_types_survive_the_document_although_the_values_are_equal() -> None:
    rule = RuleDescription("r", SqlFilter("a = 1", {"@i": 1, "@d": 1.0, "@b": True}))
    found = rule_of(json.loads(json.dumps(rule_document(rule))))
    assert isinstance(found.filter, SqlFilter)
    assert {name: type(value) for name, value in found.filter.parameters.items()} == {
        "@i": int,
        "@d": float,
        "@b": bool,
    }


def test_a_document_of_no_known_filter_is_refused() -> None:
    with pytest.raises(ValueError, match="'xpath' is no type of filter"):
        rule_of({"name": "r", "filter": {"type": "xpath"}, "created_at_ms": 0})


@pytest.mark.parametrize("name", ["$Default", "rule_1", "a", "Shop.Orders-2", "x" * 50, "_", "$RuleName"])
def test_a_rule_name(name: str) -> None:
    check_rule(RuleDescription(name))


@pytest.mark.parametrize("name", ["", "x" * 51, "a b", "a/b", "-a", "a.", ".", "..", "a'b", "é", "a\n"])
def test_what_is_no_rule_name(name: str) -> None:
    with pytest.raises(BusError, match="is not a rule name") as refused:
        check_rule(RuleDescription(name))
    assert refused.value.fault is Fault.ARGUMENT


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({f"@p{n}": n for n in range(101)}, "at most 100"),
        ({"@p": 1, "P": 2}, "the same name"),
        ({"": 1}, "1 to 128 characters"),
        ({"@" + "p" * 128: 1}, "1 to 128 characters"),
        ({"@p": "x" * 1025}, "longer than 1024"),
        ({"@p": b"x" * 1025}, "longer than 1024"),
        ({"@p": 2**63}, "64 bits"),
        ({"@p": [1]}, "a type that rules do not know"),
    ],
)
def test_parameters_and_correlation_properties_are_bounded(values: dict[str, Any], text: str) -> None:
    for rule in (
        RuleDescription("r", SqlFilter("1=1", values)),
        RuleDescription("r", TrueFilter(), SqlAction("REMOVE a", values)),
        RuleDescription("r", CorrelationFilter(properties=values)),
    ):
        with pytest.raises(BusError, match=text):
            check_rule(rule)


def test_correlation_conditions_on_system_properties_are_texts() -> None:
    with pytest.raises(BusError, match="MessageId of a correlation filter must be a text"):
        check_rule(RuleDescription("r", CorrelationFilter(message_id=5)))  # type: ignore[arg-type]
    with pytest.raises(BusError, match="longer than 1024"):
        check_rule(RuleDescription("r", CorrelationFilter(to="x" * 1025)))
