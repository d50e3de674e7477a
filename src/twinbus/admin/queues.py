"""Queues as the administration tells them, and descriptions as clients ask for them (wire contract 9.3 and 9.5).

Which settings there are is `wire.descriptions`' table; whether the values make a queue is `model.entity`'s business.
"""

from __future__ import annotations

from typing import Any

from twinbus.model.entity import QueueDescription
from twinbus.model.message import Counts
from twinbus.wire import policies
from twinbus.wire.descriptions import (
    QUEUE,
    fields_of,
    read_settings,
    refuse_anonymous,
    timestamp,
    total_of,
    write_counts,
    write_texts,
)
from twinbus.wire.descriptions import write as write_description
from twinbus.wire.markup import Element
from twinbus.wire.policies import RandomBytes


def write(queue: QueueDescription, counts: Counts, accessed_at_ms: int, limited: bool = False) -> str:
    """The QueueDescription element with everything that is known about a queue."""
    facts = {
        "SizeInBytes": str(counts.size_bytes),
        "MessageCount": str(total_of(counts)),
        "IsAnonymousAccessible": "false",
        "CreatedAt": timestamp(queue.created_at_ms),
        "UpdatedAt": timestamp(queue.updated_at_ms),
        "AccessedAt": timestamp(accessed_at_ms),
        "SupportOrdering": "false" if queue.partitioned else "true",
        "EntityAvailabilityStatus": "Limited" if limited else "Available",
    }
    details = {"AuthorizationRules": policies.write(queue), "CountDetails": write_counts(counts)}
    return write_description(QUEUE, queue, write_texts(facts) | details)


def read(element: Element, name: str, existing: QueueDescription | None, random_bytes: RandomBytes) -> QueueDescription:
    """The description that a client asks for: of a new queue, or to replace that of an existing one."""
    fields = fields_of(element)
    refuse_anonymous(fields)
    values: dict[str, Any] = {}
    if existing is not None:
        values = {attribute: getattr(existing, attribute) for attribute in QUEUE.fixed}
    values |= read_settings(fields, QUEUE)
    values["authorization_rules"] = policies.read(fields.get("AuthorizationRules"), existing, random_bytes)
    return QueueDescription(name=name, **values)
