"""Entities and rules for people."""

from __future__ import annotations

import pytest

from twinbus.cli.describing import Listed, filter_text, rule_text, show_entity, show_list, show_rule
from twinbus.cli.output import Output
from twinbus.client.descriptions import Description, Entry
from twinbus.model.entity import QueueDescription
from twinbus.model.message import Counts
from twinbus.model.rule import CorrelationFilter, FalseFilter, Filter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.model.topic import SubscriptionDescription, TopicDescription


def entry(description: Description, **counts: int) -> Entry[Description]:
    return Entry(description, Counts(**counts), 0)


def test_a_list_is_a_tree_with_rules_below_their_subscriptions(capsys: pytest.CaptureFixture[str]) -> None:
    rules = [RuleDescription("r", SqlFilter("a = 1"), SqlAction("SET b = 2"))]
    show_list(
        Output(),
        [
            Listed(entry(QueueDescription(name="q"), active=1, dead_letter=2)),
            Listed(entry(TopicDescription(name="t"))),
            Listed(entry(SubscriptionDescription(topic="t", name="one")), rules),
            Listed(entry(SubscriptionDescription(topic="t", name="two")), rules),
            Listed(entry(TopicDescription(name="u"))),
        ],
    )
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert [line.split("  ")[0].rstrip() for line in lines[1:]] == ["q", "t", "├ one", "│", "└ two", "", "u"]
    assert lines[4].endswith("a = 1 → SET b = 2")
    assert told.err == "1 queue, 2 topics, 2 subscriptions.\n"


def test_an_empty_namespace_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_list(Output(), [])
    assert capsys.readouterr().err == "Nothing.\n"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (TrueFilter(), "everything"),
        (FalseFilter(), "nothing"),
        (SqlFilter("a > 5"), "a > 5"),
        (CorrelationFilter(subject="s", properties={"n": 5}), "sys.Label='s', n=5"),
    ],
)
def test_every_filter_has_words(found: Filter, text: str) -> None:
    assert filter_text(found) == text
    assert rule_text(RuleDescription("r", found)) == text


def test_nothing_that_a_terminal_obeys_gets_through(capsys: pytest.CaptureFixture[str]) -> None:
    nasty = "\x1b[31mred\n"
    show_rule(Output(), RuleDescription("r", SqlFilter(f"a = '{nasty}'", {"@p": nasty}), SqlAction(nasty)))
    show_entity(Output(), entry(SubscriptionDescription(topic="t", name="s", user_metadata=nasty)), None)
    show_list(Output(), [Listed(entry(SubscriptionDescription(topic="t", name=nasty)), [RuleDescription(nasty)])])
    assert "\x1b" not in capsys.readouterr().out
