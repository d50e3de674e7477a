"""Topics as the administration tells them, and descriptions as clients ask for them (wire contract 9.3).

Which settings there are is `wire.descriptions`' table; whether the values make a topic is `model.topic`'s business.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.model.message import Counts
from twinbus.model.topic import TopicDescription
from twinbus.wire import policies
from twinbus.wire.descriptions import (
    TOPIC,
    fields_of,
    read_settings,
    refuse_anonymous,
    timestamp,
    write_counts,
    write_texts,
)
from twinbus.wire.descriptions import write as write_description
from twinbus.wire.markup import Element
from twinbus.wire.policies import RandomBytes


class FilterCounts(NamedTuple):
    """How many rules the subscriptions of a topic have, by what their filters compare."""

    sql: int = 0  # True and false filters are SQL filters with a fixed text.
    correlation: int = 0


def write(
    topic: TopicDescription,
    counts: Counts,
    accessed_at_ms: int,
    subscriptions: int,
    filters: FilterCounts | None,
    limited: bool = False,
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
        "EntityAvailabilityStatus": "Limited" if limited else "Available",
        "EnableSubscriptionPartitioning": "false",
    }
    if filters is not None:
        facts |= {"SqlFilterCount": str(filters.sql), "CorrelationFilterCount": str(filters.correlation)}
    details = {"AuthorizationRules": policies.write(topic), "CountDetails": write_counts(counts)}
    return write_description(TOPIC, topic, write_texts(facts) | details)


def read(element: Element, name: str, existing: TopicDescription | None, random_bytes: RandomBytes) -> TopicDescription:
    """The description that a client asks for: of a new topic, or to replace that of an existing one."""
    fields = fields_of(element)
    refuse_anonymous(fields)
    values: dict[str, Any] = {}
    if existing is not None:
        values = {attribute: getattr(existing, attribute) for attribute in TOPIC.fixed}
    values |= read_settings(fields, TOPIC)
    values["authorization_rules"] = policies.read(fields.get("AuthorizationRules"), existing, random_bytes)
    return TopicDescription(name=name, **values)
