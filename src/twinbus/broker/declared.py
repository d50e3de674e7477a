"""Entities and policies as a configuration file declares them, made into descriptions.

What is wrong with one is noted with its line, and the entity is left out. That a file's tables have the right keys and
kinds was seen to by `reading`; making what is declared and missing is `hosting`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from twinbus.broker import schema
from twinbus.broker.reading import Findings, Section
from twinbus.broker.schema import Key
from twinbus.model.entity import EntityStatus, QueueDescription, check_queue, target_path
from twinbus.model.errors import BusError
from twinbus.model.hybrid import HybridConnectionDescription, check_hybrid
from twinbus.model.policies import DeclaredPolicy
from twinbus.model.security import NAMED_RIGHTS, ROOT_POLICY, Rights
from twinbus.model.topic import SubscriptionDescription, TopicDescription, check_subscription, check_topic
from twinbus.rules.description import CorrelationFilter, Filter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.rules.matching import compile_rule

D = TypeVar("D", QueueDescription, TopicDescription, SubscriptionDescription, HybridConnectionDescription)


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


def queue(section: Section, findings: Findings) -> QueueDescription | None:
    """A queue from its properties."""
    made = _described(section, schema.QUEUE.keys, QueueDescription, check_queue, findings)
    return made if section.is_whole else None


def hybrid_connection(section: Section, findings: Findings) -> HybridConnectionDescription | None:
    """A hybrid connection from its properties."""
    made = _described(section, schema.HYBRID_CONNECTION.keys, HybridConnectionDescription, check_hybrid, findings)
    return made if section.is_whole else None


def topic(section: Section, findings: Findings) -> DeclaredTopic | None:
    """A topic from its properties and the list of its subscriptions."""
    made = _described(section, schema.TOPIC.keys, TopicDescription, check_topic, findings)
    name = str(section.given.get("Name", ""))
    subscriptions = [_subscription(name, inner, findings) for inner in section.sections("subscriptions")]
    names_once(section.sections("subscriptions"), "subscription", findings)
    if made is None:
        return None
    return DeclaredTopic(made, [subscription for subscription in subscriptions if subscription is not None])


def _subscription(topic_name: str, section: Section, findings: Findings) -> DeclaredSubscription | None:
    made = _described(
        section, schema.SUBSCRIPTION.keys, SubscriptionDescription, check_subscription, findings, topic=topic_name
    )
    rules = [_rule(inner, findings) for inner in section.sections("rules")]
    names_once(section.sections("rules"), "rule", findings)
    if made is None:
        return None
    return DeclaredSubscription(made, [rule for rule in rules if rule is not None] or None)


def _described(
    section: Section,
    keys: Mapping[str, Key],
    kind: Callable[..., D],
    check: Callable[[D], None],
    findings: Findings,
    **more: str,
) -> D | None:
    """A description of the values that are there; None, and noted, if there cannot be such an entity."""
    if "Name" not in section.given:
        return None
    values: dict[str, Any] = dict(more)
    for name, key in keys.items():
        if key.attribute and name in section.given:
            values[key.attribute] = section.given[name]
    if "status" in values:
        values["status"] = EntityStatus(values["status"])
    for attribute in ("forward_to", "forward_dead_letters_to"):
        if attribute in values:
            values[attribute] = target_path(values[attribute])
    description = kind(**values)
    try:
        check(description)
    except BusError as problem:
        # The text names the property that it is about, if it is about one.
        about = next((name for name in section.given if name in problem.text), "Name")
        findings.add(section.path_of(about), f"{section.where}{problem.text}")
        return None
    return description


def _rule(section: Section, findings: Findings) -> RuleDescription | None:
    """A rule with SqlFilter or CorrelationFilter, or neither for one that takes everything, and perhaps an Action."""
    name, sql, correlation = (section.given.get(key) for key in ("Name", "SqlFilter", "CorrelationFilter"))
    if not section.is_whole or name is None:
        return None
    if sql is not None and correlation is not None:
        findings.add(section.path, f"{section.where}it has two filters")
        return None
    chosen: Filter = TrueFilter()
    if sql is not None:
        chosen = SqlFilter(sql)
    elif correlation is not None:
        chosen = CorrelationFilter(**_conditions(correlation))
    action = section.given.get("Action")
    steps = [("SqlFilter" if sql is not None else "CorrelationFilter", RuleDescription(name, chosen))]
    if action is not None:
        steps.append(("Action", RuleDescription(name, chosen, SqlAction(action))))
    for key, rule in steps:
        try:
            compile_rule(rule)
        except BusError as problem:
            findings.add(section.path_of(key), f"{section.where}{problem.text}")
            return None
    return steps[-1][1]


def _conditions(section: Section) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, key in schema.CORRELATION.keys.items():
        if name in section.given:
            value = section.given[name]
            values[key.attribute] = value.given if isinstance(value, Section) else value
    return values


def policy(section: Section, findings: Findings) -> DeclaredPolicy | None:
    """A policy from Name, Rights and, if given, PrimaryKey and SecondaryKey."""
    if not section.is_whole:
        return None
    rights = Rights(0)
    for right in section.given["Rights"]:
        rights |= NAMED_RIGHTS[right]
    if not rights:
        findings.add(section.path_of("Rights"), f"{section.where}it needs Rights out of {', '.join(NAMED_RIGHTS)}")
        return None
    given = section.given
    if given["Name"].lower() == ROOT_POLICY.lower() and rights != Rights.ALL:
        findings.add(section.path_of("Rights"), f"{section.where}this one always grants Manage")
        return None
    return DeclaredPolicy(given["Name"], rights, given.get("PrimaryKey"), given.get("SecondaryKey"))


def names_once(sections: Sequence[Section], noun: str, findings: Findings, key: str = "Name") -> None:
    """Note names that occur twice, whatever their case."""
    seen: set[str] = set()
    for section in sections:
        name = section.given.get(key)
        if isinstance(name, str):
            if name.lower() in seen:
                findings.add(section.path_of(key), f"{section.where}there is another {noun} of this name")
            seen.add(name.lower())


def destinations_first(queues: Sequence[QueueDescription]) -> list[QueueDescription]:
    """Queues in an order in which each comes after those that it forwards to; of a ring, any of them comes first."""
    waiting = {queue.name.lower(): queue for queue in queues}
    ordered: list[QueueDescription] = []

    def place(name: str | None) -> None:
        queue = waiting.pop((name or "").lower(), None)
        if queue is not None:
            place(queue.forward_to)
            place(queue.forward_dead_letters_to)
            ordered.append(queue)

    for queue in queues:
        place(queue.name)
    return ordered
