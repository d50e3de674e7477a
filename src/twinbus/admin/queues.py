"""Queue descriptions as XML, both ways, in the service's own order of elements (wire contract 9.3 and 9.5).

Ignores what clients only echo back; whether the values make a queue is `model.entity`'s business.
"""

from __future__ import annotations

from typing import Any

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
    total_of,
    write_counts,
    write_settings,
    write_texts,
)
from twinbus.model.entity import QueueDescription
from twinbus.model.message import Counts

ELEMENT = "QueueDescription"

_SETTINGS: Settings = {
    "LockDuration": ("lock_duration_ms", DURATION),
    "MaxSizeInMegabytes": ("max_size_mb", NUMBER),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", SWITCH),
    "RequiresSession": ("requires_session", SWITCH),
    "DefaultMessageTimeToLive": ("default_ttl_ms", DURATION),
    "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", SWITCH),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", DURATION),
    "MaxDeliveryCount": ("max_delivery_count", NUMBER),
    "EnableBatchedOperations": ("batched_operations", SWITCH),
    "Status": ("status", STATUS),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", DURATION),
    "EnablePartitioning": ("partitioned", SWITCH),
    "EnableExpress": ("express", SWITCH),
    "ForwardTo": ("forward_to", TEXT),
    "UserMetadata": ("user_metadata", TEXT),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", TEXT),
    "MaxMessageSizeInKilobytes": ("max_message_size_kb", NUMBER),
}

# Fixed when the queue is made, so that an update which is silent about them changes nothing.
_FIXED = ("requires_duplicate_detection", "requires_session", "partitioned", "express")

_ORDER = (
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "SizeInBytes",
    "MessageCount",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableExpress",
    "ForwardTo",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
)


def write(queue: QueueDescription, counts: Counts, accessed_at_ms: int) -> str:
    """The QueueDescription element with everything that is known about a queue."""
    facts = {
        "SizeInBytes": str(counts.size_bytes),
        "MessageCount": str(total_of(counts)),
        "IsAnonymousAccessible": "false",
        "CreatedAt": timestamp(queue.created_at_ms),
        "UpdatedAt": timestamp(queue.updated_at_ms),
        "AccessedAt": timestamp(accessed_at_ms),
        "SupportOrdering": "false" if queue.partitioned else "true",
        "EntityAvailabilityStatus": "Available",
    }
    details = {"AuthorizationRules": policies.write(queue), "CountDetails": write_counts(counts)}
    return in_order(ELEMENT, _ORDER, write_settings(queue, _SETTINGS) | write_texts(facts) | details)


def read(element: Element, name: str, existing: QueueDescription | None, random_bytes: RandomBytes) -> QueueDescription:
    """The description that a client asks for: of a new queue, or to replace that of an existing one."""
    fields = fields_of(element)
    refuse_anonymous(fields)
    values: dict[str, Any] = {}
    if existing is not None:
        values = {attribute: getattr(existing, attribute) for attribute in _FIXED}
    values |= read_settings(fields, _SETTINGS)
    values["authorization_rules"] = policies.read(fields.get("AuthorizationRules"), existing, random_bytes)
    return QueueDescription(name=name, **values)
