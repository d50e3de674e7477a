"""Entities and rules as JSON documents, both ways: what `--json` prints, `entity create --from` reads.

Only the words are known here; whether the values make an entity is for the namespace to say.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from twinbus.cli.address import Address
from twinbus.cli.running import PromptError
from twinbus.cli.showing import as_json, iso
from twinbus.client.descriptions import Description, Entry, rights_named
from twinbus.model.duration import format_duration, parse_duration_ms
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.errors import BusError
from twinbus.model.rule import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.model.topic import SubscriptionDescription, TopicDescription

KINDS: dict[str, type[Description]] = {
    "queue": QueueDescription,
    "topic": TopicDescription,
    "subscription": SubscriptionDescription,
}
KEY_BYTES = 32

_same: Callable[[Any], Any] = lambda value: value  # noqa: E731


class Word(NamedTuple):
    """A setting in a document: the attribute it stands for, and how its value is told and read."""

    attribute: str
    tell: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same


# Every setting of every kind, by its name in a document.
WORDS = {
    "status": Word("status", lambda status: status.value, EntityStatus),
    "lock_duration": Word("lock_duration_ms", format_duration, parse_duration_ms),
    "default_time_to_live": Word("default_ttl_ms", format_duration, parse_duration_ms),
    "duplicate_window": Word("duplicate_window_ms", format_duration, parse_duration_ms),
    "auto_delete_on_idle": Word("auto_delete_on_idle_ms", format_duration, parse_duration_ms),
    "max_delivery_count": Word("max_delivery_count"),
    "max_size_mb": Word("max_size_mb"),
    "max_message_size_kb": Word("max_message_size_kb"),
    "requires_session": Word("requires_session"),
    "requires_duplicate_detection": Word("requires_duplicate_detection"),
    "dead_letter_on_expiration": Word("dead_letter_on_expiration"),
    "dead_letter_on_filter_errors": Word("dead_letter_on_filter_errors"),
    "partitioned": Word("partitioned"),
    "support_ordering": Word("support_ordering"),
    "batched_operations": Word("batched_operations"),
    "express": Word("express"),
    "forward_to": Word("forward_to"),
    "forward_dead_letters_to": Word("forward_dead_letters_to"),
    "metadata": Word("user_metadata"),
}
_CONDITIONS = tuple(field.name for field in fields(CorrelationFilter) if field.name != "properties")


class Wanted(NamedTuple):
    """What a document asks for: an entity, and the rules that a subscription is to have; None for the usual one."""

    description: Description
    rules: list[RuleDescription] | None = None


def kind_of(description: Description) -> str:
    """The word for a kind of entity."""
    return next(word for word, kind in KINDS.items() if type(description) is kind)


def address_of(description: Description) -> Address:
    """Where an entity is."""
    if isinstance(description, SubscriptionDescription):
        return Address(description.topic, description.name)
    return Address(description.name)


# Telling


def document(entry: Entry[Description], rules: Sequence[RuleDescription] | None = None) -> dict[str, Any]:
    """An entity for scripts. Of its policies only names and rights; `twinbus keys list --show` has the keys."""
    entity, counts = entry.description, entry.counts
    told: dict[str, Any] = {"kind": kind_of(entity)}
    if isinstance(entity, SubscriptionDescription):
        told["topic"] = entity.topic
    told["name"] = entity.name
    for name, word in WORDS.items():
        if hasattr(entity, word.attribute):
            value = getattr(entity, word.attribute)
            told[name] = None if value is None else word.tell(value)
    told |= {
        "created_at": iso(entity.created_at_ms),
        "updated_at": iso(entity.updated_at_ms),
        "accessed_at": iso(entry.accessed_at_ms),
        "size_bytes": counts.size_bytes,
        "counts": {
            "active": counts.active,
            "scheduled": counts.scheduled,
            "dead_letter": counts.dead_letter,
            "transfer_dead_letter": counts.transfer_dead_letter,
        },
    }
    if isinstance(entity, TopicDescription):
        told["subscriptions"] = entry.subscriptions
    if not isinstance(entity, SubscriptionDescription):
        told["authorization_rules"] = [
            {"name": rule.name, "rights": rights_named(rule.rights)} for rule in entity.authorization_rules
        ]
    if rules is not None:
        told["rules"] = [rule_document(rule) for rule in rules]
    return told


def rule_document(rule: RuleDescription) -> dict[str, Any]:
    """A rule for scripts."""
    told: dict[str, Any] = {"kind": "rule", "name": rule.name, "filter": _filter_document(rule.filter), "action": None}
    if rule.action is not None:
        told["action"] = _expression_document(rule.action)
    return told | {"created_at": iso(rule.created_at_ms)}


def _filter_document(found: Filter) -> dict[str, Any]:
    match found:
        case TrueFilter():
            return {"type": "true"}
        case FalseFilter():
            return {"type": "false"}
        case SqlFilter():
            return {"type": "sql", **_expression_document(found)}
        case CorrelationFilter():
            given = {name: getattr(found, name) for name in _CONDITIONS if getattr(found, name) is not None}
            return {"type": "correlation", **given, "properties": as_json(dict(found.properties))}


def _expression_document(found: SqlFilter | SqlAction) -> dict[str, Any]:
    parameters = {"parameters": as_json(dict(found.parameters))} if found.parameters else {}
    return {"expression": found.expression, **parameters}


# Reading


def read_entity(told: Mapping[str, Any]) -> Wanted:
    """What a document asks for; what it only tells, such as counts, is passed over."""
    try:
        kind = KINDS[told["kind"]]
        values: dict[str, Any] = {"name": told["name"]}
        if kind is SubscriptionDescription:
            values["topic"] = told["topic"]
        possible = {field.name for field in fields(kind)}
        for name, word in WORDS.items():
            if told.get(name) is not None and word.attribute in possible:
                values[word.attribute] = word.read(told[name])
        if "authorization_rules" in possible:
            values["authorization_rules"] = tuple(map(_read_policy, told.get("authorization_rules", ())))
        rules = None if told.get("rules") is None else [read_rule(rule) for rule in told["rules"]]
        return Wanted(kind(**values), rules)
    except (KeyError, TypeError, ValueError, AttributeError, BusError) as problem:
        told_of = problem.text if isinstance(problem, BusError) else f"{type(problem).__name__}: {problem}"
        raise PromptError(f"This describes no entity: {str(told)[:100]}\n  {told_of}") from None


def read_rule(told: Mapping[str, Any]) -> RuleDescription:
    """The rule that a document tells."""
    action = told.get("action")
    return RuleDescription(
        told["name"], _read_filter(told["filter"]), None if action is None else SqlAction(*_expression_in(action))
    )


def _read_filter(told: Mapping[str, Any]) -> Filter:
    match told["type"]:
        case "true":
            return TrueFilter()
        case "false":
            return FalseFilter()
        case "sql":
            return SqlFilter(*_expression_in(told))
        case "correlation":
            given = {name: told[name] for name in _CONDITIONS if told.get(name) is not None}
            return CorrelationFilter(**given, properties=told.get("properties", {}))
    raise ValueError("the type of a filter is true, false, sql or correlation")


def _expression_in(told: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return told["expression"], dict(told.get("parameters", {}))


def _read_policy(told: Mapping[str, Any]) -> AuthorizationRule:
    """A policy of that name and these rights; its keys are not told, so that it gets new ones."""
    rights = Rights(0)
    for right in told["rights"]:
        rights |= Rights[right.upper()]
    return AuthorizationRule(told["name"], new_key(), new_key(), rights)


def new_key() -> str:
    """A key that nobody can guess."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
