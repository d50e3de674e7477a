"""Entities and rules as JSON: what is told can be read again."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from twinbus.cli.documents import WORDS, document, read_entity
from twinbus.cli.running import PromptError
from twinbus.cli.settings import SETTINGS
from twinbus.client.descriptions import Description, Entry
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.message import Counts
from twinbus.model.rule import CorrelationFilter, FalseFilter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.model.topic import SubscriptionDescription, TopicDescription

QUEUE = QueueDescription(
    name="q", lock_duration_ms=45_000, default_ttl_ms=1_500, requires_session=True, status=EntityStatus.DISABLED
)
TOPIC = TopicDescription(name="t", duplicate_window_ms=20_000, support_ordering=False, user_metadata="é")
SUBSCRIPTION = SubscriptionDescription(topic="t", name="s", dead_letter_on_filter_errors=False, forward_to="q")
RULES = [
    RuleDescription("a", TrueFilter()),
    RuleDescription("b", FalseFilter(), SqlAction("SET x = @y", {"@y": 1.5})),
    RuleDescription("c", SqlFilter("x > @y", {"@y": 5})),
    RuleDescription("d", CorrelationFilter(subject="s", to="u", properties={"n": 5, "t": "x"})),
]
NOT_SETTINGS = {"name", "topic", "authorization_rules", "created_at_ms", "updated_at_ms"}


@pytest.mark.parametrize("entity", [QUEUE, TOPIC, SUBSCRIPTION], ids=["queue", "topic", "subscription"])
def test_what_is_told_can_be_read_again(entity: Description) -> None:
    told = json.loads(json.dumps(document(Entry(entity, Counts(active=3), 5, 2))))
    assert read_entity(told).description == entity


def test_rules_can_be_read_again() -> None:
    told = json.loads(json.dumps(document(Entry(SUBSCRIPTION, Counts(), 0), RULES)))
    assert read_entity(told).rules == RULES
    assert read_entity({**told, "rules": None}).rules is None


def test_policies_get_new_keys() -> None:
    policy = AuthorizationRule("app", "primary", "secondary", Rights.ALL)
    told = document(Entry(replace(QUEUE, authorization_rules=(policy,)), Counts(), 0))
    assert "primary" not in json.dumps(told)
    description = read_entity(told).description
    assert isinstance(description, QueueDescription)
    (read,) = description.authorization_rules
    assert (read.name, read.rights) == ("app", Rights.ALL)
    assert read.primary_key not in ("primary", read.secondary_key)


@pytest.mark.parametrize("kind", [QueueDescription, TopicDescription, SubscriptionDescription])
def test_every_setting_has_a_word_and_an_option(kind: type) -> None:
    settings = {field.name for field in fields(kind)} - NOT_SETTINGS
    assert settings <= {word.attribute for word in WORDS.values()}
    assert settings <= {setting.attribute for setting in SETTINGS}


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"kind": "box", "name": "x"},
        {"kind": "subscription", "name": "x"},
        {"kind": "queue", "name": "x", "lock_duration": "soon"},
        {"kind": "queue", "name": "x", "status": "Asleep"},
        {"kind": "subscription", "topic": "t", "name": "x", "rules": [{"name": "r", "filter": {"type": "magic"}}]},
        "text",
    ],
)
def test_what_describes_nothing_is_refused(told: Any) -> None:
    with pytest.raises(PromptError, match="describes no entity"):
        read_entity(told)
