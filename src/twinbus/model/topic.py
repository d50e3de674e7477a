"""Descriptions of topics and subscriptions: what may be set, within which bounds, and what may change afterwards.

Pure values with their rules, as `model.entity` has them for queues; a subscription's own rules are `rules`' business.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from twinbus.model import limits
from twinbus.model.entity import EntityStatus, check_between, check_entity_name, check_forwarding, check_rules
from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule

SUBSCRIPTION_NAME_CHARS_MAX = 50
SUBSCRIPTIONS_MAX = 2000
RULES_MAX = 2000  # Of one subscription.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """Everything that is set about a topic, with the service's defaults."""

    name: str
    default_ttl_ms: int = limits.UNLIMITED_MS
    max_size_mb: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = limits.DUPLICATE_WINDOW_MS_DEFAULT
    batched_operations: bool = True
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    support_ordering: bool = True
    auto_delete_on_idle_ms: int = limits.UNLIMITED_MS
    partitioned: bool = False
    express: bool = False
    user_metadata: str | None = None
    max_message_size_kb: int | None = None
    created_at_ms: int = 0
    updated_at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDescription:
    """Everything that is set about a subscription, with the service's defaults (lock duration: 30 s, as documented)."""

    topic: str
    name: str
    lock_duration_ms: int = limits.LOCK_DURATION_MS_DEFAULT
    requires_session: bool = False
    default_ttl_ms: int = limits.UNLIMITED_MS
    dead_letter_on_expiration: bool = False
    dead_letter_on_filter_errors: bool = True
    max_delivery_count: int = 10
    batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle_ms: int = limits.UNLIMITED_MS
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    user_metadata: str | None = None
    created_at_ms: int = 0
    updated_at_ms: int = 0

    @property
    def path(self) -> str:
        """The subscription's address below its namespace."""
        return f"{self.topic}/Subscriptions/{self.name}"


def _check_metadata(text: str | None) -> None:
    if text is not None and len(text) > limits.USER_METADATA_CHARS_MAX:
        raise BusError(Fault.ARGUMENT, f"UserMetadata has at most {limits.USER_METADATA_CHARS_MAX} characters.")


def check_topic(topic: TopicDescription) -> None:
    """Refuse a description that no topic can have."""
    check_entity_name(topic.name)
    check_between(topic.default_ttl_ms, limits.TTL_MS_MIN, limits.UNLIMITED_MS, "DefaultMessageTimeToLive in ms")
    check_between(
        topic.auto_delete_on_idle_ms, limits.AUTO_DELETE_MS_MIN, limits.UNLIMITED_MS, "AutoDeleteOnIdle in ms"
    )
    window = "DuplicateDetectionHistoryTimeWindow in ms"
    check_between(topic.duplicate_window_ms, limits.DUPLICATE_WINDOW_MS_MIN, limits.DUPLICATE_WINDOW_MS_MAX, window)
    if topic.max_size_mb not in limits.ENTITY_SIZE_MB_CHOICES:
        raise BusError(Fault.ARGUMENT, f"MaxSizeInMegabytes must be one of {limits.ENTITY_SIZE_MB_CHOICES}.")
    _check_metadata(topic.user_metadata)
    if topic.max_message_size_kb is not None:
        raise BusError(Fault.ARGUMENT, "MaxMessageSizeInKilobytes can be set in a Premium namespace only.")
    check_rules(topic.authorization_rules)


def check_subscription(subscription: SubscriptionDescription) -> None:
    """Refuse a description that no subscription can have."""
    check_entity_name(subscription.name)
    if len(subscription.name) > SUBSCRIPTION_NAME_CHARS_MAX or "/" in subscription.name:
        text = f"A subscription's name has at most {SUBSCRIPTION_NAME_CHARS_MAX} characters and no '/'."
        raise BusError(Fault.ARGUMENT, text)
    lock = "LockDuration in ms"
    check_between(subscription.lock_duration_ms, limits.LOCK_DURATION_MS_MIN, limits.LOCK_DURATION_MS_MAX, lock)
    check_between(subscription.max_delivery_count, 1, limits.DELIVERY_COUNT_MAX, "MaxDeliveryCount")
    ttl = "DefaultMessageTimeToLive in ms"
    check_between(subscription.default_ttl_ms, limits.TTL_MS_MIN, limits.UNLIMITED_MS, ttl)
    idle = "AutoDeleteOnIdle in ms"
    check_between(subscription.auto_delete_on_idle_ms, limits.AUTO_DELETE_MS_MIN, limits.UNLIMITED_MS, idle)
    _check_metadata(subscription.user_metadata)
    check_forwarding(subscription.requires_session, subscription.forward_to)


def check_topic_update(old: TopicDescription, new: TopicDescription) -> None:
    """Refuse a change of what is fixed when a topic is created."""
    check_topic(new)
    for attribute, name in (
        ("requires_duplicate_detection", "RequiresDuplicateDetection"),
        ("partitioned", "EnablePartitioning"),
    ):
        if getattr(old, attribute) != getattr(new, attribute):
            raise BusError(Fault.ARGUMENT, f"{name} is fixed when the entity is created and cannot be changed.")


def check_subscription_update(old: SubscriptionDescription, new: SubscriptionDescription) -> None:
    """Refuse a change of what is fixed when a subscription is created."""
    check_subscription(new)
    if old.requires_session != new.requires_session:
        raise BusError(Fault.ARGUMENT, "RequiresSession is fixed when the entity is created and cannot be changed.")


def topic_to_document(topic: TopicDescription) -> dict[str, Any]:
    """The description as plain JSON values, for the catalog."""
    document: dict[str, Any] = {field.name: getattr(topic, field.name) for field in fields(topic)}
    document["status"] = topic.status.value
    document["authorization_rules"] = [rule.to_document() for rule in topic.authorization_rules]
    return document


def topic_from_document(document: dict[str, Any]) -> TopicDescription:
    """The inverse of `topic_to_document`."""
    values = dict(document)
    values["status"] = EntityStatus(values["status"])
    values["authorization_rules"] = tuple(AuthorizationRule.from_document(r) for r in values["authorization_rules"])
    return TopicDescription(**values)


def subscription_to_document(subscription: SubscriptionDescription) -> dict[str, Any]:
    """The description as plain JSON values, for the catalog."""
    document: dict[str, Any] = {field.name: getattr(subscription, field.name) for field in fields(subscription)}
    document["status"] = subscription.status.value
    return document


def subscription_from_document(document: dict[str, Any]) -> SubscriptionDescription:
    """The inverse of `subscription_to_document`."""
    return SubscriptionDescription(**{**document, "status": EntityStatus(document["status"])})
