"""Descriptions of entities: what an administrator may set, within which bounds, and what may change afterwards.

Pure values with their rules; storing them is the catalog's business and showing them as Atom or JSON is `admin`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from twinbus.model import limits
from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule


class EntityStatus(Enum):
    """Whether an entity accepts sends and serves receivers."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def may_send(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def may_receive(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


# Letters, digits and . - _ / ; the first and last character are a letter, a digit or (as the SDK's own tests use) _.
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._/-]*[A-Za-z0-9_])?\Z")
_RESERVED = {"subscriptions", "rules"}


def check_entity_name(name: str) -> None:
    """Refuse what is not a queue or topic name."""
    if not 0 < len(name) <= limits.ENTITY_NAME_CHARS_MAX:
        raise BusError(Fault.ARGUMENT, f"An entity name has 1 to {limits.ENTITY_NAME_CHARS_MAX} characters.")
    segments = name.split("/")
    if not _NAME.match(name) or not all(segments):
        raise BusError(
            Fault.ARGUMENT,
            f"'{name}' is not an entity name: use letters, digits, '.', '-', '_' and '/', "
            "beginning and ending with a letter or digit.",
        )
    if any(segment.lower() in _RESERVED or set(segment) == {"."} for segment in segments):
        raise BusError(Fault.ARGUMENT, f"'{name}' contains a reserved segment.")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDescription:
    """Everything that is set about a queue, with the defaults of the service (lock duration: 30 s, as documented)."""

    name: str
    lock_duration_ms: int = limits.LOCK_DURATION_MS_DEFAULT
    max_size_mb: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_ttl_ms: int = limits.UNLIMITED_MS
    dead_letter_on_expiration: bool = False
    duplicate_window_ms: int = limits.DUPLICATE_WINDOW_MS_DEFAULT
    max_delivery_count: int = 10
    batched_operations: bool = True
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle_ms: int = limits.UNLIMITED_MS
    partitioned: bool = False
    express: bool = False
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    user_metadata: str | None = None
    max_message_size_kb: int | None = None
    created_at_ms: int = 0
    updated_at_ms: int = 0


def check_between(value: int, least: int, most: int, what: str) -> None:
    """Refuse a number outside of its bounds."""
    if not least <= value <= most:
        raise BusError(Fault.ARGUMENT, f"{what} must be between {least} and {most}, not {value}.")


def check_forwarding(requires_session: bool, forward_to: str | None) -> None:
    """Refuse to forward what is received by session. Whether there is a destination the namespace knows."""
    if requires_session and forward_to is not None:
        raise BusError(Fault.ARGUMENT, "ForwardTo: an entity that requires sessions cannot forward its messages.")


def target_path(text: str | None) -> str | None:
    """The path of a destination, which clients write as an address of the namespace; None where nothing is named."""
    if text is None:
        return None
    _, separator, rest = text.partition("://")
    return (rest.partition("/")[2] if separator else text).strip("/") or None


def check_queue(queue: QueueDescription) -> None:
    """Refuse a description that no queue can have."""
    check_entity_name(queue.name)
    check_between(
        queue.lock_duration_ms, limits.LOCK_DURATION_MS_MIN, limits.LOCK_DURATION_MS_MAX, "LockDuration in ms"
    )
    check_between(queue.max_delivery_count, 1, limits.DELIVERY_COUNT_MAX, "MaxDeliveryCount")
    check_between(queue.default_ttl_ms, limits.TTL_MS_MIN, limits.UNLIMITED_MS, "DefaultMessageTimeToLive in ms")
    check_between(
        queue.auto_delete_on_idle_ms, limits.AUTO_DELETE_MS_MIN, limits.UNLIMITED_MS, "AutoDeleteOnIdle in ms"
    )
    check_between(
        queue.duplicate_window_ms,
        limits.DUPLICATE_WINDOW_MS_MIN,
        limits.DUPLICATE_WINDOW_MS_MAX,
        "DuplicateDetectionHistoryTimeWindow in ms",
    )
    if queue.max_size_mb not in limits.ENTITY_SIZE_MB_CHOICES:
        raise BusError(Fault.ARGUMENT, f"MaxSizeInMegabytes must be one of {limits.ENTITY_SIZE_MB_CHOICES}.")
    if queue.user_metadata is not None and len(queue.user_metadata) > limits.USER_METADATA_CHARS_MAX:
        raise BusError(Fault.ARGUMENT, f"UserMetadata has at most {limits.USER_METADATA_CHARS_MAX} characters.")
    if queue.max_message_size_kb is not None:
        raise BusError(Fault.ARGUMENT, "MaxMessageSizeInKilobytes can be set in a Premium namespace only.")
    check_forwarding(queue.requires_session, queue.forward_to)
    check_rules(queue.authorization_rules)


def check_rules(rules: tuple[AuthorizationRule, ...]) -> None:
    """At most twelve rules, each name once."""
    if len(rules) > limits.AUTHORIZATION_RULES_MAX:
        raise BusError(Fault.ARGUMENT, f"At most {limits.AUTHORIZATION_RULES_MAX} authorization rules are allowed.")
    names = [rule.name.lower() for rule in rules]
    if len(set(names)) != len(names):
        raise BusError(Fault.ARGUMENT, "Two authorization rules have the same name.")


_FIXED_AT_CREATION = {
    "requires_duplicate_detection": "RequiresDuplicateDetection",
    "requires_session": "RequiresSession",
    "partitioned": "EnablePartitioning",
}


def check_update(old: QueueDescription, new: QueueDescription) -> None:
    """Refuse a change of what is fixed when the entity is created."""
    check_queue(new)
    for attribute, name in _FIXED_AT_CREATION.items():
        if getattr(old, attribute) != getattr(new, attribute):
            raise BusError(Fault.ARGUMENT, f"{name} is fixed when the entity is created and cannot be changed.")


def to_document(queue: QueueDescription) -> dict[str, Any]:
    """The description as plain JSON values, for the catalog."""
    document: dict[str, Any] = {field.name: getattr(queue, field.name) for field in fields(queue)}
    document["status"] = queue.status.value
    document["authorization_rules"] = [rule.to_document() for rule in queue.authorization_rules]
    return document


def from_document(document: dict[str, Any]) -> QueueDescription:
    """The inverse of `to_document`; fields that a later version added are refused by name."""
    values = dict(document)
    values["status"] = EntityStatus(values["status"])
    values["authorization_rules"] = tuple(AuthorizationRule.from_document(r) for r in values["authorization_rules"])
    return QueueDescription(**values)
