"""Settings and rules from options."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.cli.running import PromptError
from twinbus.cli.settings import changed, changed_rule
from twinbus.model.entity import QueueDescription
from twinbus.model.rule import CorrelationFilter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.model.topic import TopicDescription

OLD = RuleDescription("r", SqlFilter("a = 1"), SqlAction("SET b = 2"), 7)


def test_what_is_given_changes_and_the_rest_stays() -> None:
    queue = QueueDescription(name="q", forward_to="x", user_metadata="m")
    new = changed(queue, {"lock_duration": 5000, "forward_to": ""})
    assert new == QueueDescription(name="q", lock_duration_ms=5000, user_metadata="m")


def test_what_a_kind_has_not_cannot_be_set() -> None:
    with pytest.raises(PromptError, match="--sessions is no setting of a topic"):
        changed(TopicDescription(name="t"), {"sessions": True})
    with pytest.raises(PromptError, match="--ttl is no setting of a rule"):
        changed_rule(OLD, {"ttl": 5})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"filter": "c > @d", "parameter": ["d:=5"]},
            RuleDescription("r", SqlFilter("c > @d", {"@d": 5}), OLD.action, 7),
        ),
        ({"action": ""}, RuleDescription("r", OLD.filter, None, 7)),
        ({"action": "REMOVE x"}, RuleDescription("r", OLD.filter, SqlAction("REMOVE x"), 7)),
        (
            {"correlation": ["sys.label=l", "SYS.CorrelationId=5", "n:=5", "sys=x"]},
            RuleDescription(
                "r",
                CorrelationFilter(subject="l", correlation_id="5", properties={"n": 5, "sys": "x"}),
                OLD.action,
                7,
            ),
        ),
    ],
)
def test_filters_and_actions_are_changed_one_by_one(settings: dict[str, Any], expected: RuleDescription) -> None:
    assert changed_rule(OLD, settings) == expected


def test_a_rule_has_one_filter() -> None:
    with pytest.raises(PromptError, match="one filter"):
        changed_rule(RuleDescription("r", TrueFilter()), {"filter": "1=1", "correlation": ["a=b"]})
