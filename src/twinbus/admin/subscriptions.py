"""Subscription descriptions as XML, both ways, in the service's own order of elements (wire contract 9.3 and 9.6).

The rule that a new subscription is to begin with is read by `rules`; whether the values make a subscription is
`model.topic`'s business.
"""

from __future__ import annotations

from typing import Any

from twinbus.admin import rules
from twinbus.admin.atom import timestamp
from twinbus.admin.markup import Element
from twinbus.admin.settings import (
    DURATION,
    NUMBER,
    STATUS,
    SWITCH,
    TEXT,
    Settings,
    fields_of,
    in_order,
    read_settings,
    total_of,
    write_counts,
    write_settings,
    write_texts,
)
from twinbus.model.message import Counts
from twinbus.model.topic import SubscriptionDescription
from twinbus.rules.description import DEFAULT_RULE_NAME, RuleDescription

ELEMENT = "SubscriptionDescription"

_SETTINGS: Settings = {
    "LockDuration": ("lock_duration_ms", DURATION),
    "RequiresSession": ("requires_session", SWITCH),
    "DefaultMessageTimeToLive": ("default_ttl_ms", DURATION),
    "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", SWITCH),
    "DeadLetteringOnFilterEvaluationExceptions": ("dead_letter_on_filter_errors", SWITCH),
    "MaxDeliveryCount": ("max_delivery_count", NUMBER),
    "EnableBatchedOperations": ("batched_operations", SWITCH),
    "Status": ("status", STATUS),
    "ForwardTo": ("forward_to", TEXT),
    "UserMetadata": ("user_metadata", TEXT),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", TEXT),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", DURATION),
}

_ORDER = (
    "LockDuration",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DeadLetteringOnFilterEvaluationExceptions",
    "MessageCount",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "Status",
    "ForwardTo",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "AutoDeleteOnIdle",
    "EntityAvailabilityStatus",
)


def write(subscription: SubscriptionDescription, counts: Counts, accessed_at_ms: int) -> str:
    """The SubscriptionDescription element with everything that is known about a subscription."""
    facts = {
        "MessageCount": str(total_of(counts)),
        "CreatedAt": timestamp(subscription.created_at_ms),
        "UpdatedAt": timestamp(subscription.updated_at_ms),
        "AccessedAt": timestamp(accessed_at_ms),
        "EntityAvailabilityStatus": "Available",
    }
    details = {"CountDetails": write_counts(counts)}
    return in_order(ELEMENT, _ORDER, write_settings(subscription, _SETTINGS) | write_texts(facts) | details)


def read(element: Element, topic: str, name: str, existing: SubscriptionDescription | None) -> SubscriptionDescription:
    """The description that a client asks for: of a new subscription, or to replace that of an existing one."""
    values: dict[str, Any] = {}
    if existing is not None:  # Fixed when it is made, so that an update which is silent about it changes nothing.
        values["requires_session"] = existing.requires_session
    values |= read_settings(fields_of(element), _SETTINGS)
    return SubscriptionDescription(topic=topic, name=name, **values)


def first_rule(element: Element) -> RuleDescription | None:
    """The rule that a new subscription is to have instead of the one that matches everything, if any."""
    rule = fields_of(element).get("DefaultRuleDescription")
    return None if rule is None else rules.read(rule, DEFAULT_RULE_NAME)
