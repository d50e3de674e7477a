"""Rules at work: correlation, copies and failures, and that an index answers as asking every rule would."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from twinbus.model.errors import BusError
from twinbus.rules.actions import Changes
from twinbus.rules.description import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from twinbus.rules.errors import FilterError, FilterSyntaxError
from twinbus.rules.index import RuleSet, TopicRules
from twinbus.rules.matching import (
    NOTHING,
    PLAIN,
    ChangedCopy,
    CompiledRule,
    Matches,
    RuleFailure,
    compile_rule,
    match_all,
)
from twinbus.rules.view import MessageView


def rule(name: str, found: Filter | str, action: str | None = None) -> CompiledRule:
    made = SqlFilter(found) if isinstance(found, str) else found
    return compile_rule(RuleDescription(name, made, None if action is None else SqlAction(action)))


def view(user: Mapping[str, Any] | None = None, **system: Any) -> MessageView:
    return MessageView(system, user or {}, lambda: UUID(int=1))


@pytest.mark.parametrize("found", [TrueFilter(), SqlFilter("1=1"), SqlFilter("TRUE")])
def test_all_messages(found: Filter) -> None:
    assert rule("r", found).matches(view()) is True


@pytest.mark.parametrize("found", [FalseFilter(), SqlFilter("1=0"), SqlFilter("NULL"), SqlFilter("missing = 1")])
def test_no_message(found: Filter) -> None:
    assert rule("r", found).matches(view()) is False


@pytest.mark.parametrize("text", ["a =", "a = @p", "a LIKE 'x!' ESCAPE '!'"])
def test_a_wrong_filter_is_refused_when_the_rule_is_made(text: str) -> None:
    with pytest.raises(FilterSyntaxError):
        rule("r", text)


def test_a_wrong_name_is_refused_when_the_rule_is_made() -> None:
    with pytest.raises(BusError, match="is not a rule name"):
        rule("a b", "1=1")


CORRELATED = [
    (CorrelationFilter(correlation_id="high"), {"CorrelationId": "high"}, {}, True),
    (CorrelationFilter(correlation_id="high"), {"CorrelationId": "High"}, {}, False),
    (CorrelationFilter(correlation_id="high"), {}, {}, False),
    (CorrelationFilter(correlation_id="high"), {}, {"CorrelationId": "high"}, False),
    (CorrelationFilter(message_id="m"), {"MessageId": "m"}, {}, True),
    (CorrelationFilter(to="t"), {"To": "t"}, {}, True),
    (CorrelationFilter(reply_to="t"), {"ReplyTo": "t"}, {}, True),
    (CorrelationFilter(subject="red"), {"Label": "red"}, {}, True),
    (CorrelationFilter(session_id="s"), {"SessionId": "s"}, {}, True),
    (CorrelationFilter(reply_to_session_id="s"), {"ReplyToSessionId": "s"}, {}, True),
    (CorrelationFilter(content_type="c"), {"ContentType": "c"}, {}, True),
    (CorrelationFilter(subject="red", correlation_id="high"), {"Label": "red", "CorrelationId": "high"}, {}, True),
    (CorrelationFilter(subject="red", correlation_id="high"), {"Label": "red", "CorrelationId": "low"}, {}, False),
    (CorrelationFilter(subject="red", properties={"size": 5}), {"Label": "red"}, {"size": 5}, True),
    (CorrelationFilter(subject="red", properties={"size": 5}), {"Label": "red"}, {"size": 6}, False),
    (CorrelationFilter(properties={"Color": "red"}), {}, {"color": "red"}, True),
    (CorrelationFilter(properties={"color": "red"}), {}, {"color": "Red"}, False),
    (CorrelationFilter(properties={"a": 1, "b": 2}), {}, {"a": 1, "b": 2}, True),
    (CorrelationFilter(properties={"a": 1, "b": 2}), {}, {"a": 1}, False),
    (CorrelationFilter(properties={"n": 2}), {}, {"n": 2.0}, True),
    (CorrelationFilter(properties={"n": 2.0}), {}, {"n": 2}, True),
    (CorrelationFilter(properties={"n": 2}), {}, {"n": Decimal(2)}, True),
    (CorrelationFilter(properties={"n": 2}), {}, {"n": "2"}, False),
    (CorrelationFilter(properties={"n": "2"}), {}, {"n": 2}, False),
    (CorrelationFilter(properties={"n": 1}), {}, {"n": True}, False),
    (CorrelationFilter(properties={"n": True}), {}, {"n": 1}, False),
    (CorrelationFilter(properties={"n": True}), {}, {"n": True}, True),
    (CorrelationFilter(properties={"n": UUID(int=1)}), {}, {"n": UUID(int=1)}, True),
    (CorrelationFilter(properties={"n": b"x"}), {}, {"n": b"x"}, True),
    (CorrelationFilter(properties={"n": b"x"}), {}, {"n": "x"}, False),
    (CorrelationFilter(properties={"at": datetime(1970, 1, 2, tzinfo=UTC)}), {}, {"at": 86_400_000}, True),
    (CorrelationFilter(properties={"at": 86_400_000}), {}, {"at": datetime(1970, 1, 2, tzinfo=UTC)}, True),
    (CorrelationFilter(properties={"n": float("nan")}), {}, {"n": float("nan")}, False),
    (CorrelationFilter(properties={"n": 1}), {}, {"n": [1]}, False),
    (CorrelationFilter(properties={"n": 1}), {}, {"n": Decimal("sNaN")}, False),
    (CorrelationFilter(properties={"n": 1}), {}, {"n": None}, False),
    (CorrelationFilter(properties={"n": None}), {}, {}, True),
    (CorrelationFilter(), {}, {}, True),
]


@pytest.mark.parametrize(("found", "system", "user", "expected"), CORRELATED)
def test_a_correlation_filter_wants_all_its_values(
    found: CorrelationFilter, system: dict[str, Any], user: dict[str, Any], expected: bool
) -> None:
    compiled = rule("r", found)
    assert compiled.matches(view(user, **system)) is expected
    assert RuleSet([compiled]).match(view(user, **system)) == (PLAIN if expected else NOTHING)


def test_five_rules_of_which_two_have_actions_make_three_copies() -> None:
    rules = [
        rule("plain 1".replace(" ", "-"), "TRUE"),
        rule("action-1", "color = 'red'", "SET a = 1"),
        rule("plain-2", CorrelationFilter(properties={"color": "red"})),
        rule("action-2", "quantity > 5", "SET quantity = quantity / 2; REMOVE color"),
        rule("plain-3", "quantity = 10"),
        rule("no-match", "color = 'blue'", "SET b = 1"),
    ]
    message = view({"color": "red", "quantity": 10})
    expected = Matches(
        True,
        (
            ChangedCopy("action-1", Changes({"a": 1, "RuleName": "action-1"})),
            ChangedCopy("action-2", Changes({"quantity": 5, "RuleName": "action-2"}, frozenset({"color"}))),
        ),
    )
    assert match_all(rules, message) == expected
    assert RuleSet(rules).match(message) == expected


def test_rules_with_actions_alone_make_no_plain_copy() -> None:
    matches = match_all([rule("a", "TRUE", "SET a = 1")], view())
    assert (matches.plain, [copy.rule_name for copy in matches.with_action], matches.errors) == (False, ["a"], ())


def test_failures_are_reported_beside_what_matched() -> None:
    rules = [
        rule("type", "color > 5"),
        rule("system", "sys.Nonsense = 1"),
        rule("fine", "TRUE"),
        rule("action", "TRUE", "SET sys.Size = 1"),
        rule("unknown", "missing > 5"),
    ]
    matches = RuleSet(rules).match(view({"color": "red"}))
    assert matches == Matches(
        True,
        (),
        (
            RuleFailure(
                "type",
                "FilterException",
                "Rule 'type': The operator > cannot be applied to a text and a number value.",
            ),
            RuleFailure("system", "FilterException", "Rule 'system': The system property 'Nonsense' does not exist."),
            RuleFailure(
                "action", "RuleActionException", "Rule 'action': The system property 'Size' cannot be changed."
            ),
        ),
    )


def test_every_rule_has_its_own_allowance_of_steps() -> None:
    greedy = f"text LIKE '%{'a_' * 400}b%'"
    rules = [rule("greedy", greedy), rule("modest", "text LIKE '%a_b%'"), rule("greedy-too", greedy)]
    message = view({"text": "a" * 5_000 + "b"})
    matches = RuleSet(rules).match(message)
    assert matches.plain is True
    assert [failure.rule_name for failure in matches.errors] == ["greedy", "greedy-too"]


def test_a_topic_is_asked_once_for_all_its_subscriptions() -> None:
    topic = TopicRules(
        {
            "all": [rule("r", TrueFilter())],
            "red": [rule("r", "color = 'red'")],
            "blue": [rule("r", "color = 'blue'")],
            "big": [rule("r", "color = 'red' AND quantity > 5"), rule("s", "TRUE", "SET a = 1")],
            "typed": [rule("r", "color = 1")],
            "none": [],
            "closed": [rule("r", FalseFilter())],
            "mixed": [rule("r", FalseFilter()), rule("s", TrueFilter())],
        }
    )
    copy = ChangedCopy("s", Changes({"a": 1, "RuleName": "s"}))
    found = topic.match(view({"color": "red", "quantity": 1}))
    assert {name: matches for name, matches in found.items() if name != "typed"} == {
        "all": PLAIN,
        "mixed": PLAIN,
        "red": PLAIN,
        "big": Matches(False, (copy,)),
    }
    assert [failure.reason for failure in found["typed"].errors] == ["FilterException"]


def test_an_index_asks_only_rules_whose_value_the_message_has() -> None:
    asked: list[str] = []

    def spy(name: str, found: Filter) -> CompiledRule:
        made = rule(name, found)

        def condition(message: MessageView) -> Any:
            asked.append(name)
            return made.condition(message)

        return CompiledRule(made.description, condition, None, made.probes)

    rules = RuleSet(
        [
            *(spy(f"sql-{n}", SqlFilter(f"key = 'k{n}' AND quantity > 5")) for n in range(50)),
            *(spy(f"cor-{n}", CorrelationFilter(subject="same", properties={"key": f"k{n}"})) for n in range(50)),
            *(spy(f"in-{n}", SqlFilter(f"sys.Label IN ('l{n}', 'l{n + 1}')")) for n in range(50)),
            *(spy(f"num-{n}", SqlFilter(f"number = {n}")) for n in range(50)),
        ]
    )
    matches = rules.match(view({"Key": "k7", "quantity": 6, "number": 3.0}, Label="same"))
    assert matches == PLAIN
    assert asked == ["sql-7", "cor-7", "num-3"]
    asked.clear()
    assert rules.match(view({"number": 100}, Label="l9")) == PLAIN
    # Without a key the first condition is unknown, so the second could still raise an error.
    assert asked == [*(f"sql-{n}" for n in range(50)), "in-8", "in-9"]


def test_a_filter_is_asked_when_only_it_can_raise_the_error() -> None:
    rules = RuleSet([rule("a", "key = 'x'"), rule("b", "key = 'y' AND sys.Nonsense = 1"), rule("c", "key IN (1, 2)")])
    assert [failure.rule_name for failure in rules.match(view({"key": 5})).errors] == ["a", "b"]
    assert [failure.rule_name for failure in rules.match(view({"key": "z"})).errors] == ["c"]
    assert [failure.rule_name for failure in rules.match(view({"key": "y"})).errors] == ["b", "c"]
    assert [failure.rule_name for failure in rules.match(view()).errors] == ["b"]
    assert [failure.rule_name for failure in rules.match(view({"key": [1]})).errors] == ["a", "b", "c"]
    assert [failure.rule_name for failure in rules.match(view({"key": Decimal("sNaN")})).errors] == ["a", "b", "c"]


def test_a_view_reads_each_group_of_properties_once_and_only_if_asked() -> None:
    reads: list[str] = []

    def system() -> Mapping[str, Any]:
        reads.append("system")
        return {"Label": "x"}

    def user() -> Mapping[str, Any]:
        reads.append("user")
        return {"Color": "red"}

    message = MessageView(system, user)
    assert rule("r", "1=1").matches(message) is True
    assert reads == []
    rules = RuleSet([rule("a", "color = 'red'"), rule("b", "COLOR = 'red'"), rule("c", "TRUE", "SET a = Color")])
    assert rules.match(message).plain is True
    assert reads == ["user", "system"]
    assert rule("r", "sys.Label = 'x' AND sys.To IS NULL").matches(message) is True
    assert reads == ["user", "system"]


def test_a_view_has_no_other_properties() -> None:
    with pytest.raises(AttributeError):
        _ = view().body  # type: ignore[attr-defined]


def test_matches_raises_what_the_filter_cannot_answer() -> None:
    with pytest.raises(FilterError):
        rule("r", "color = 1").matches(view({"color": "red"}))
