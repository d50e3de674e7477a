"""What an address of the administration API names (wire contract 9.2); keywords are known in any case.

Whether there is such a thing is the namespace's business, and so is whether a name can be one.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from twinbus.model.errors import BusError, Fault


class What(Enum):
    """The kinds of things that have an address."""

    NAMESPACE = "namespace"
    QUEUES = "queues"
    TOPICS = "topics"
    ENTITY = "queue or topic"
    SUBSCRIPTIONS = "subscriptions"
    SUBSCRIPTION = "subscription"
    RULES = "rules"
    RULE = "rule"


LISTS = frozenset({What.QUEUES, What.TOPICS, What.SUBSCRIPTIONS, What.RULES})

_FIXED = {
    "$namespaceinfo": What.NAMESPACE,
    "$resources/queues": What.QUEUES,
    "$resources/topics": What.TOPICS,
}


class Target(NamedTuple):
    """One address, taken apart."""

    what: What
    name: str = ""  # Of the queue or topic.
    subscription: str = ""
    rule: str = ""

    @property
    def subscription_path(self) -> str:
        return f"{self.name}/Subscriptions/{self.subscription}"


def read(path: str) -> Target:
    """The target of a path without its outer slashes; what is no other address is one of a queue or topic."""
    fixed = _FIXED.get(path.lower())
    if fixed is not None:
        return Target(fixed)
    segments = path.split("/")
    keywords = [segment.lower() for segment in segments]
    if "subscriptions" not in keywords[1:]:
        return Target(What.ENTITY, path)
    at = keywords.index("subscriptions", 1)
    topic, below = "/".join(segments[:at]), segments[at + 1 :]
    match below:
        case []:
            return Target(What.SUBSCRIPTIONS, topic)
        case [subscription]:
            return Target(What.SUBSCRIPTION, topic, subscription)
        case [subscription, keyword] if keyword.lower() == "rules":
            return Target(What.RULES, topic, subscription)
        case [subscription, keyword, rule] if keyword.lower() == "rules":
            return Target(What.RULE, topic, subscription, rule)
    raise BusError(Fault.ARGUMENT, f"'{path}' is not the address of a subscription or of a rule.")
