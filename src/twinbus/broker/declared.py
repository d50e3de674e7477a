"""Entities as a configuration file declares them, under their Service Bus names, read into descriptions.

Nothing is guessed: an unknown property or a value of another kind is an error that names the entity. Making what is
declared and missing is `broker.process`' business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from twinbus.model.duration import parse_duration_ms
from twinbus.model.entity import EntityStatus, QueueDescription, check_queue
from twinbus.model.errors import BusError
from twinbus.model.topic import SubscriptionDescription, TopicDescription, check_subscription, check_topic
from twinbus.rules.description import CorrelationFilter, Filter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.rules.matching import compile_rule

_IN_WORDS = {str: "a text", int: "a whole number", bool: "true or false", dict: "a table", list: "a list"}


@dataclass(slots=True, frozen=True)
class DeclaredSubscription:
    """A subscription with its rules; None for the rule that takes everything."""

    description: SubscriptionDescription
    rules: Sequence[RuleDescription] | None


@dataclass(slots=True, frozen=True)
class DeclaredTopic:
    """A topic with its subscriptions."""

    description: TopicDescription
    subscriptions: Sequence[DeclaredSubscription]


def exactly(kind: type, name: str, value: Any) -> Any:
    """A value of the kind that a setting needs; nothing is guessed from a value of another kind."""
    written = str if kind is Path else kind
    if type(value) is not written:
        raise ValueError(f"'{name}' must be {_IN_WORDS[written]}, not {value!r}")
    return kind(value)


def _or_none(value: Any) -> Any:
    return value or None


Setting = tuple[str, Callable[[Any], Any]]
_COMMON: dict[str, Setting] = {
    "DefaultMessageTimeToLive": ("default_ttl_ms", parse_duration_ms),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", parse_duration_ms),
    "UserMetadata": ("user_metadata", partial(exactly, str, "UserMetadata")),
    "Status": ("status", EntityStatus),
}
_STORING: dict[str, Setting] = {
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", parse_duration_ms),
    "RequiresDuplicateDetection": (
        "requires_duplicate_detection",
        partial(exactly, bool, "RequiresDuplicateDetection"),
    ),
    "MaxSizeInMegabytes": ("max_size_mb", partial(exactly, int, "MaxSizeInMegabytes")),
}
_RECEIVING: dict[str, Setting] = {
    "LockDuration": ("lock_duration_ms", parse_duration_ms),
    "MaxDeliveryCount": ("max_delivery_count", partial(exactly, int, "MaxDeliveryCount")),
    "RequiresSession": ("requires_session", partial(exactly, bool, "RequiresSession")),
    "DeadLetteringOnMessageExpiration": (
        "dead_letter_on_expiration",
        partial(exactly, bool, "DeadLetteringOnMessageExpiration"),
    ),
    "ForwardTo": ("forward_to", _or_none),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", _or_none),
}
_FILTER_ERRORS: dict[str, Setting] = {
    "DeadLetteringOnFilterEvaluationExceptions": (
        "dead_letter_on_filter_errors",
        partial(exactly, bool, "DeadLetteringOnFilterEvaluationExceptions"),
    ),
}


def _values(known: dict[str, Setting], item: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in item.items():
        if key not in known:
            raise ValueError(f"unknown property '{key}'")
        attribute, convert = known[key]
        values[attribute] = convert(value)
    return values


def _name(item: dict[str, Any], what: str) -> str:
    if "Name" not in item:
        raise ValueError(f"a {what} has no Name")
    return str(exactly(str, "Name", item.pop("Name")))


def queue(item: dict[str, Any]) -> QueueDescription:
    """A queue from its properties; durations are ISO 8601."""
    name = _name(item, "queue")
    try:
        description = QueueDescription(name=name, **_values(_COMMON | _STORING | _RECEIVING, item))
        check_queue(description)
    except (BusError, ValueError) as problem:
        raise ValueError(f"queue '{name}': {problem}") from None
    return description


def topic(item: dict[str, Any]) -> DeclaredTopic:
    """A topic from its properties and the list of its subscriptions."""
    name = _name(item, "topic")
    subscriptions = exactly(list, "subscriptions", item.pop("subscriptions", []))
    try:
        description = TopicDescription(name=name, **_values(_COMMON | _STORING, item))
        check_topic(description)
        return DeclaredTopic(description, [_subscription(name, dict(entry)) for entry in subscriptions])
    except (BusError, ValueError) as problem:
        raise ValueError(f"topic '{name}': {problem}") from None


def _subscription(topic_name: str, item: dict[str, Any]) -> DeclaredSubscription:
    name = _name(item, "subscription")
    rules = item.pop("rules", None)
    try:
        values = _values(_COMMON | _RECEIVING | _FILTER_ERRORS, item)
        description = SubscriptionDescription(topic=topic_name, name=name, **values)
        check_subscription(description)
        return DeclaredSubscription(description, None if not rules else [_rule(dict(entry)) for entry in rules])
    except (BusError, ValueError) as problem:
        raise ValueError(f"subscription '{name}': {problem}") from None


_CONDITIONS = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
    "Properties": "properties",
}


def _rule(item: dict[str, Any]) -> RuleDescription:
    """A rule with SqlFilter or CorrelationFilter, or neither for one that takes everything, and perhaps an Action."""
    name = _name(item, "rule")
    sql, correlation, action = (
        item.pop("SqlFilter", None),
        item.pop("CorrelationFilter", None),
        item.pop("Action", None),
    )
    if item:
        raise ValueError(f"rule '{name}' has the unknown property '{next(iter(item))}'")
    if sql is not None and correlation is not None:
        raise ValueError(f"rule '{name}' has two filters")
    chosen: Filter = TrueFilter()
    if sql is not None:
        chosen = SqlFilter(exactly(str, "SqlFilter", sql))
    elif correlation is not None:
        unknown = [key for key in correlation if key not in _CONDITIONS]
        if unknown:
            raise ValueError(f"rule '{name}' has the unknown condition '{unknown[0]}'")
        chosen = CorrelationFilter(**{_CONDITIONS[key]: value for key, value in correlation.items()})
    rule = RuleDescription(name, chosen, None if action is None else SqlAction(exactly(str, "Action", action)))
    compile_rule(rule)
    return rule


# The official emulator's file nests what ours says flat.


def emulated_topic(item: dict[str, Any]) -> DeclaredTopic:
    """A topic of the official emulator's file."""
    subscriptions = [
        {
            "Name": entry["Name"],
            **entry.get("Properties", {}),
            "rules": [_emulated_rule(rule) for rule in entry.get("Rules", [])],
        }
        for entry in item.get("Subscriptions", [])
    ]
    return topic({"Name": item["Name"], **item.get("Properties", {}), "subscriptions": subscriptions})


def _emulated_rule(item: dict[str, Any]) -> dict[str, Any]:
    properties = dict(item.get("Properties", {}))
    kind = properties.pop("FilterType", "Sql")
    rule: dict[str, Any] = {"Name": item["Name"]}
    if kind == "Correlation":
        rule["CorrelationFilter"] = properties.pop("CorrelationFilter", {})
    elif kind == "Sql":
        rule["SqlFilter"] = properties.pop("SqlFilter", {}).get("SqlExpression", "1=1")
    else:
        raise ValueError(f"rule '{item['Name']}' has the unknown FilterType '{kind}'")
    if action := properties.pop("Action", None):
        rule["Action"] = action.get("SqlExpression")
    if properties:
        raise ValueError(f"rule '{item['Name']}' has the unknown property '{next(iter(properties))}'")
    return rule
