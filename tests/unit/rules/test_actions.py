"""Actions: what SET and REMOVE change, in which type, and what they refuse."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from twinbus.rules.actions import Changes
from twinbus.rules.description import RuleDescription, SqlAction, TrueFilter
from twinbus.rules.errors import ActionError, FilterSyntaxError
from twinbus.rules.matching import compile_rule
from twinbus.rules.view import SYSTEM_NAMES, MessageView, system_property

SYSTEM = {
    "MessageId": "m-1",
    "Label": "order",
    "ReplyTo": "answers",
    "EnqueuedTimeUtc": 1_700_000_000_000,
    "TimeToLive": 60_000,
    "ExpiresAtUtc": 1_700_000_060_000,
}
USER = {
    "Color": "red",
    "quantity": 10,
    "price": 2.5,
    "rate": Decimal("1.10"),
    "urgent": True,
    "id": UUID(int=5),
    "raw": b"\x01",
    "nothing": None,
}


def view(user: dict[str, Any] = USER, system: dict[str, Any] = SYSTEM) -> MessageView:
    return MessageView(system, user, lambda: UUID(int=1))


def apply(expression: str, message: MessageView | None = None, parameters: dict[str, Any] | None = None) -> Changes:
    """What the action changes, without the RuleName that every copy gets."""
    rule = compile_rule(RuleDescription("rule", TrueFilter(), SqlAction(expression, parameters or {})))
    changes = rule.apply(message or view())
    assert changes is not None
    assert changes.user["RuleName"] == "rule"
    return Changes({k: v for k, v in changes.user.items() if k != "RuleName"}, changes.removed, changes.system)


@pytest.mark.parametrize(
    ("expression", "name", "expected"),
    [
        ("SET new = 'x'", "new", "x"),
        ("SET New = 5", "New", 5),
        ("SET [a new one] = TRUE", "a new one", True),
        ("SET new = quantity / 2", "new", 5),
        ("SET new = newid()", "new", UUID(int=1)),
        ("SET new = sys.Label + '!'", "new", "order!"),
        ("SET new = missing", "new", None),
        ("SET new = NULL", "new", None),
        ("SET new = @p", "new", 7),
        ("SET color = 'blue'", "Color", "blue"),
        ("SET COLOR = 'blue'", "Color", "blue"),
        ("SET color = 5", "Color", "5"),
        ("SET color = price", "Color", "2.5"),
        ("SET color = urgent", "Color", "True"),
        ("SET color = id", "Color", "00000000-0000-0000-0000-000000000005"),
        ("SET color = raw", "Color", b"\x01"),
        ("SET color = NULL", "Color", None),
        ("SET quantity = quantity + 1", "quantity", 11),
        ("SET quantity = '12'", "quantity", 12),
        ("SET quantity = ' -12 '", "quantity", -12),
        ("SET quantity = '12.0'", "quantity", 12),
        ("SET quantity = 'twelve'", "quantity", "twelve"),
        ("SET quantity = '1_2'", "quantity", "1_2"),
        ("SET quantity = '99999999999999999999'", "quantity", "99999999999999999999"),
        ("SET quantity = 5.0", "quantity", 5),
        ("SET quantity = 5.5", "quantity", 5.5),
        ("SET quantity = price / 0.0", "quantity", float("inf")),
        ("SET quantity = rate", "quantity", Decimal("1.10")),
        ("SET quantity = TRUE", "quantity", True),
        ("SET price = 3", "price", 3.0),
        ("SET price = '3.25'", "price", 3.25),
        ("SET price = '1e3'", "price", 1000.0),
        ("SET price = rate", "price", Decimal("1.10")),
        ("SET rate = 3", "rate", Decimal(3)),
        ("SET rate = '3'", "rate", Decimal(3)),
        ("SET rate = 2.5", "rate", 2.5),
        ("SET urgent = 'false'", "urgent", False),
        ("SET urgent = 'TRUE'", "urgent", True),
        ("SET urgent = 'yes'", "urgent", "yes"),
        ("SET urgent = 1", "urgent", 1),
        ("SET id = '00000000-0000-0000-0000-000000000009'", "id", UUID(int=9)),
        ("SET id = 'none'", "id", "none"),
        ("SET id = 3", "id", 3),
        ("SET raw = 'text'", "raw", "text"),
        ("SET nothing = 'text'", "nothing", "text"),
    ],
)
def test_set_keeps_the_type_of_a_property_where_it_can(expression: str, name: str, expected: Any) -> None:
    changes = apply(expression, parameters={"@p": 7})
    assert changes == Changes({name: expected})
    assert type(changes.user[name]) is type(expected)


def test_statements_see_what_earlier_ones_did() -> None:
    changes = apply("SET a = 1; SET b = a + 1; REMOVE a; SET c = EXISTS_A; SET d = a; SET b = b * 10")
    assert changes == Changes({"b": 20, "c": None, "d": None})


def test_remove() -> None:
    assert apply("REMOVE color; REMOVE QUANTITY; REMOVE missing") == Changes({}, frozenset({"Color", "quantity"}))


def test_a_removed_property_can_be_set_again() -> None:
    assert apply("REMOVE color; SET color = 5") == Changes({"Color": 5})


def test_a_set_property_can_be_removed_again() -> None:
    assert apply("SET color = 'x'; REMOVE Color; SET fresh = 1; REMOVE FRESH") == Changes({}, frozenset({"Color"}))


def test_a_new_property_keeps_its_first_spelling() -> None:
    assert apply("SET Fresh = 1; SET FRESH = 2") == Changes({"Fresh": 2})


def test_of_names_that_differ_in_case_one_is_left() -> None:
    message = view({"size": 1, "Size": 2})
    assert apply("SET new = SIZE", message) == Changes({"new": 1})
    assert apply("SET SIZE = 3", message) == Changes({"size": 3}, frozenset({"Size"}))
    assert apply("REMOVE SIZE", message) == Changes({}, frozenset({"size", "Size"}))


def test_the_view_is_not_changed() -> None:
    message = view()
    apply("SET color = 'blue'; REMOVE quantity; SET sys.Label = 'x'; SET sys.TimeToLive = '00:10:00'", message)
    assert message.user["color"] == "red"
    assert message.user["quantity"] == 10
    assert message.system == SYSTEM
    assert message.application_properties == USER


@pytest.mark.parametrize(
    ("expression", "name", "expected"),
    [
        ("SET sys.Label = 'x'", "Label", "x"),
        ("SET sys.Subject = 'x'", "Label", "x"),
        ("SET SYS.correlationid = 'low'", "CorrelationId", "low"),
        ("SET sys.MessageId = newid()", "MessageId", "00000000-0000-0000-0000-000000000001"),
        ("SET sys.SessionId = quantity", "SessionId", "10"),
        ("SET sys.SessionId = color + newid()", "SessionId", "red00000000-0000-0000-0000-000000000001"),
        ("SET sys.To = sys.ReplyTo", "To", "answers"),
        ("SET sys.ReplyTo = NULL", "ReplyTo", None),
        ("SET sys.ReplyTo = missing", "ReplyTo", None),
        ("REMOVE sys.Label", "Label", None),
        ("SET sys.ContentType = 'text/plain'", "ContentType", "text/plain"),
        ("SET sys.PartitionKey = 'k'", "PartitionKey", "k"),
        ("SET sys.ReplyToSessionId = 'k'", "ReplyToSessionId", "k"),
        ("SET sys.TimeToLive = '00:10:00'", "TimeToLive", 600_000),
        ("SET sys.TimeToLive = '1.02:03:04.5'", "TimeToLive", 93_784_500),
        ("SET sys.TimeToLive = '00:01'", "TimeToLive", 60_000),
        ("SET sys.TimeToLive = 'PT1M'", "TimeToLive", 60_000),
        ("SET sys.TimeToLive = sys.TimeToLive * 2", "TimeToLive", 120_000),
        ("SET sys.TimeToLive = 1500.7", "TimeToLive", 1500),
        ("SET sys.ScheduledEnqueueTimeUtc = '2023-11-14T22:13:20Z'", "ScheduledEnqueueTimeUtc", 1_700_000_000_000),
        ("SET sys.ScheduledEnqueueTime = '2023-11-14T22:13:20'", "ScheduledEnqueueTimeUtc", 1_700_000_000_000),
        ("SET sys.ScheduledEnqueueTimeUtc = sys.ExpiresAtUtc", "ScheduledEnqueueTimeUtc", 1_700_000_060_000),
    ],
)
def test_settable_system_properties(expression: str, name: str, expected: Any) -> None:
    assert apply(expression) == Changes(system={name: expected})


def test_the_expiry_follows_a_new_time_to_live() -> None:
    changes = apply("SET sys.TimeToLive = '00:10:00'; SET sys.ScheduledEnqueueTimeUtc = sys.ExpiresAtUtc")
    assert changes.system == {"TimeToLive": 600_000, "ScheduledEnqueueTimeUtc": 1_700_000_600_000}


SETTABLE = {
    "ContentType",
    "CorrelationId",
    "Label",
    "MessageId",
    "PartitionKey",
    "ReplyTo",
    "ReplyToSessionId",
    "ScheduledEnqueueTimeUtc",
    "SessionId",
    "TimeToLive",
    "To",
    "ViaPartitionKey",
}


@pytest.mark.parametrize("name", sorted(SYSTEM_NAMES))
def test_what_the_broker_decides_cannot_be_set(name: str) -> None:
    known = system_property(name)
    assert known is not None
    assert known.settable is (name in SETTABLE)
    if not known.settable:
        for action in (f"SET sys.{name} = 1", f"REMOVE sys.{name}"):
            with pytest.raises(ActionError, match=f"'{name}' cannot be changed"):
                apply(action)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("SET sys.Unknown = 1", "'Unknown' does not exist"),
        ("REMOVE sys.Unknown", "'Unknown' does not exist"),
        ("SET a = sys.Unknown", "'Unknown' does not exist"),
        ("SET a = color * 2", "cannot be applied"),
        ("SET a = 1 / 0", "cannot be calculated"),
        ("SET sys.Label = raw", "cannot be made a text"),
        ("SET sys.TimeToLive = 'soon'", "'TimeToLive' cannot hold"),
        ("SET sys.TimeToLive = '25:00:00'", "'TimeToLive' cannot hold"),
        ("SET sys.TimeToLive = 0", "'TimeToLive' cannot hold"),
        ("SET sys.TimeToLive = -5", "'TimeToLive' cannot hold"),
        ("SET sys.TimeToLive = urgent", "'TimeToLive' cannot hold"),
        ("SET sys.TimeToLive = id", "'TimeToLive' cannot hold"),
        ("SET sys.TimeToLive = price / 0.0", "'TimeToLive' cannot hold"),
        ("SET sys.ScheduledEnqueueTimeUtc = 'tomorrow'", "'ScheduledEnqueueTimeUtc' cannot hold"),
        ("SET sys.ScheduledEnqueueTimeUtc = '1960-01-01'", "'ScheduledEnqueueTimeUtc' cannot hold"),
        ("SET sys.SessionId = long", "'SessionId' would be longer than 128"),
        ("SET sys.Label = long + long", "'Label' would be longer than 32768"),
        ("SET a = long + long", "'a' would be larger than 32768 bytes"),
        ("SET a = accents", "'a' would be larger than 32768 bytes"),
    ],
)
def test_what_cannot_be_done_fails(expression: str, text: str) -> None:
    message = view({**USER, "long": "x" * 20_000, "accents": "ä" * 20_000})
    with pytest.raises(ActionError, match=text) as failed:
        apply(expression, message)
    assert failed.value.reason == "RuleActionException"


def test_a_parameter_without_a_value_is_refused_when_the_rule_is_made() -> None:
    with pytest.raises(FilterSyntaxError, match="@absent") as refused:
        apply("SET a = @absent")
    assert refused.value.position == 8


def test_rule_name_takes_the_place_of_a_property_of_that_name() -> None:
    rule = compile_rule(RuleDescription("mine", TrueFilter(), SqlAction("SET RuleName = 'other'; SET a = 1")))
    assert rule.apply(view({})) == Changes({"a": 1, "RuleName": "mine"})
    assert rule.apply(view({"rulename": 1})) == Changes({"a": 1, "RuleName": "mine"}, frozenset({"rulename"}))
    assert rule.apply(view({"RuleName": 1})) == Changes({"a": 1, "RuleName": "mine"})


def test_a_rule_without_an_action_changes_nothing() -> None:
    assert compile_rule(RuleDescription("rule")).apply(view()) is None
