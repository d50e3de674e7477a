"""Subscriptions as the administration tells them, and descriptions as clients ask for them (wire contract 9.3 and 9.6).

Which settings there are is `wire.descriptions`' table; whether the values make a subscription is for `model.topic`.
"""

from __future__ import annotations

from typing import Any

from twinbus.model.message import Counts
from twinbus.model.rule import DEFAULT_RULE_NAME, RuleDescription
from twinbus.model.topic import SubscriptionDescription
from twinbus.wire import rule_markup
from twinbus.wire.descriptions import (
    SUBSCRIPTION,
    fields_of,
    read_settings,
    timestamp,
    total_of,
    write_counts,
    write_texts,
)
from twinbus.wire.descriptions import write as write_description
from twinbus.wire.markup import Element


def write(subscription: SubscriptionDescription, counts: Counts, accessed_at_ms: int, limited: bool = False) -> str:
    """The SubscriptionDescription element with everything that is known about a subscription."""
    facts = {
        "MessageCount": str(total_of(counts)),
        "CreatedAt": timestamp(subscription.created_at_ms),
        "UpdatedAt": timestamp(subscription.updated_at_ms),
        "AccessedAt": timestamp(accessed_at_ms),
        "EntityAvailabilityStatus": "Limited" if limited else "Available",
    }
    details = {"CountDetails": write_counts(counts)}
    return write_description(SUBSCRIPTION, subscription, write_texts(facts) | details)


def read(element: Element, topic: str, name: str, existing: SubscriptionDescription | None) -> SubscriptionDescription:
    """The description that a client asks for: of a new subscription, or to replace that of an existing one."""
    values: dict[str, Any] = {}
    if existing is not None:
        values = {attribute: getattr(existing, attribute) for attribute in SUBSCRIPTION.fixed}
    values |= read_settings(fields_of(element), SUBSCRIPTION)
    return SubscriptionDescription(topic=topic, name=name, **values)


def first_rule(element: Element) -> RuleDescription | None:
    """The rule that a new subscription is to have instead of the one that matches everything, if any."""
    rule = fields_of(element).get("DefaultRuleDescription")
    return None if rule is None else rule_markup.read(rule, DEFAULT_RULE_NAME)
