"""Topic descriptions as XML, both ways, in the service's own order of elements (wire contract 9.3).

Ignores what clients only echo back; whether the values make a topic is `model.topic`'s business.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.admin import policies
from twinbus.admin.atom import timestamp
from twinbus.admin.markup import Element
from twinbus.admin.settings import (
    DURATION,
    NUMBER,
    STATUS,
    SWITCH,
    TEXT,
    RandomBytes,
    Settings,
    fields_of,
    in_order,
    read_settings,
    refuse_anonymous,
    write_counts,
    write_settings,
    write_texts,
)
from twinbus.model.message import Counts
from twinbus.model.topic import TopicDescription

ELEMENT = "TopicDescription"

_SETTINGS: Settings = {
    "DefaultMessageTimeToLive": ("default_ttl_ms", DURATION),
    "MaxSizeInMegabytes": ("max_size_mb", NUMBER),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", SWITCH),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", DURATION),
    "EnableBatchedOperations": ("batched_operations", SWITCH),
    "Status": ("status", STATUS),
    "SupportOrdering": ("support_ordering", SWITCH),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", DURATION),
    "EnablePartitioning": ("partitioned", SWITCH),
    "EnableExpress": ("express", SWITCH),
    "UserMetadata": ("user_metadata", TEXT),
    "MaxMessageSizeInKilobytes": ("max_message_size_kb", NUMBER),
}

# Fixed when the topic is made, so that an update which is silent about them changes nothing.
_FIXED = ("requires_duplicate_detection", "partitioned", "express")

_ORDER = (
    "DefaultMessageTimeToLive",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableBatchedOperations",
    "SizeInBytes",
    "FilteringMessagesBeforePublishing",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "SubscriptionCount",
    "SqlFilterCount",
    "CorrelationFilterCount",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableSubscriptionPartitioning",
    "EnableExpress",
    "UserMetadata",
    "MaxMessageSizeInKilobytes",
)


class FilterCounts(NamedTuple):
    """How many rules the subscriptions of a topic have, by what their filters compare."""

    sql: int = 0  # True and false filters are SQL filters with a fixed text.
    correlation: int = 0


def write(
    topic: TopicDescription, counts: Counts, accessed_at_ms: int, subscriptions: int, filters: FilterCounts | None
) -> str:
    """The TopicDescription element with everything that is known about a topic; older clients ask for no filters."""
    facts = {
        "SizeInBytes": str(counts.size_bytes),
        "FilteringMessagesBeforePublishing": "false",
        "IsAnonymousAccessible": "false",
        "CreatedAt": timestamp(topic.created_at_ms),
        "UpdatedAt": timestamp(topic.updated_at_ms),
        "AccessedAt": timestamp(accessed_at_ms),
        "SubscriptionCount": str(subscriptions),
        "EntityAvailabilityStatus": "Available",
        "EnableSubscriptionPartitioning": "false",
    }
    if filters is not None:
        facts |= {"SqlFilterCount": str(filters.sql), "CorrelationFilterCount": str(filters.correlation)}
    details = {"AuthorizationRules": policies.write(topic), "CountDetails": write_counts(counts)}
    return in_order(ELEMENT, _ORDER, write_settings(topic, _SETTINGS) | write_texts(facts) | details)


def read(element: Element, name: str, existing: TopicDescription | None, random_bytes: RandomBytes) -> TopicDescription:
    """The description that a client asks for: of a new topic, or to replace that of an existing one."""
    fields = fields_of(element)
    refuse_anonymous(fields)
    values: dict[str, Any] = {}
    if existing is not None:
        values = {attribute: getattr(existing, attribute) for attribute in _FIXED}
    values |= read_settings(fields, _SETTINGS)
    values["authorization_rules"] = policies.read(fields.get("AuthorizationRules"), existing, random_bytes)
    return TopicDescription(name=name, **values)
