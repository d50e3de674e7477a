"""Entities as the Atom API describes them (wire contract 9.3), from a client's side: answers read, entries written.

Pure values and text; requests are left to `atom`, and which settings there are is `wire.descriptions`' table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError
from twinbus.model.message import Counts
from twinbus.model.rule import RuleDescription
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.wire import descriptions, markup, policies, rule_markup
from twinbus.wire.descriptions import fields_of, local_name, read_instant_ms
from twinbus.wire.markup import ATOM, SERVICE_BUS, Element
from twinbus.wire.policies import rights_named as rights_named

# A page of a hundred entities with a dozen policies each has less than half of that.
MAX_ELEMENTS = 100_000

Description = QueueDescription | TopicDescription | SubscriptionDescription
D_co = TypeVar("D_co", bound=Description, covariant=True)
T = TypeVar("T")

_SHAPES: dict[type, descriptions.Shape] = {
    QueueDescription: descriptions.QUEUE,
    TopicDescription: descriptions.TOPIC,
    SubscriptionDescription: descriptions.SUBSCRIPTION,
}
_CLASSES = {shape.element: kind for kind, shape in _SHAPES.items()}


class MalformedError(ValueError):
    """The document is not what the API promises."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[D_co]):
    """A queue, topic or subscription as it is now."""

    description: D_co
    counts: Counts
    accessed_at_ms: int
    subscriptions: int = 0  # How many a topic has.


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """The namespace as it tells of itself."""

    name: str
    tier: str
    created_at_ms: int


class Page(NamedTuple, Generic[T]):
    """A part of a list, and how many entries come before the next one, if there is a next one."""

    entries: list[T]
    next_skip: int | None


# Reading


def parse(document: bytes) -> Element:
    """The root element of a document; a MalformedError when it is none, or has a document type."""
    return _understood(lambda: markup.parse(document, MAX_ELEMENTS))


def read_entry(entry: Element, topic: str = "") -> Entry[Any] | None:
    """The entity in an entry; None where there is none, which is how the service says that it does not exist.

    A subscription's entry does not tell its topic.
    """
    content, name = _content(entry), _title(entry)
    kind = _CLASSES.get(local_name(content)) if content is not None else None
    if content is None or kind is None or not name:
        return None
    return _understood(lambda: _read_entity(content, kind, name, topic))


def _read_entity(content: Element, kind: type, name: str, topic: str) -> Entry[Any]:
    fields = fields_of(content)
    values = descriptions.read_settings(fields, _SHAPES[kind])
    if kind is SubscriptionDescription:
        values["topic"] = topic
    else:
        values["authorization_rules"] = policies.read(fields.get("AuthorizationRules"), None, lambda _: b"")
    values["created_at_ms"] = read_instant_ms(fields.get("CreatedAt"))
    values["updated_at_ms"] = read_instant_ms(fields.get("UpdatedAt"))
    return Entry(
        kind(name=name, **values),
        descriptions.read_counts(fields),
        read_instant_ms(fields.get("AccessedAt")),
        int(fields["SubscriptionCount"].text) if "SubscriptionCount" in fields else 0,
    )


def read_rule(entry: Element) -> RuleDescription | None:
    """The rule in an entry; None where there is none."""
    content, name = _content(entry), _title(entry)
    if content is None or local_name(content) != rule_markup.ELEMENT or not name:
        return None
    rule = _understood(lambda: rule_markup.read(content, name))
    return replace(rule, created_at_ms=read_instant_ms(content.child(f"{{{SERVICE_BUS}}}CreatedAt")))


def read_page(feed: Element, reading: Callable[[Element], T | None]) -> Page[T]:
    """A page of a list, each entry of it read by `reading`."""
    found = [reading(entry) for entry in feed.all(f"{{{ATOM}}}entry")]
    next_skip = None
    for link in feed.all(f"{{{ATOM}}}link"):
        if link.attributes.get("rel") == "next":
            (skip,) = parse_qs(urlsplit(link.attributes.get("href", "")).query).get("$skip", [""])
            next_skip = int(skip) if skip.isdigit() else None
    return Page([entry for entry in found if entry is not None], next_skip)


def read_namespace(entry: Element) -> NamespaceInfo:
    """The namespace in an entry."""
    info = _content(entry)
    if info is None or info.name != f"{{{SERVICE_BUS}}}NamespaceInfo":
        raise MalformedError("no NamespaceInfo")
    fields = _understood(lambda: fields_of(info))
    name, tier = (fields[key].text.strip() if key in fields else "" for key in ("Name", "MessagingSKU"))
    return NamespaceInfo(name, tier, read_instant_ms(fields.get("CreatedTime")))


def _content(entry: Element) -> Element | None:
    content = entry.child(f"{{{ATOM}}}content")
    return content.children[0] if content is not None and content.children else None


def _title(entry: Element) -> str:
    title = entry.child(f"{{{ATOM}}}title")
    return title.text.strip() if title is not None else ""


def _understood(reading: Callable[[], T]) -> T:
    try:
        return reading()
    except BusError as problem:
        raise MalformedError(problem.text) from None
    except ValueError as problem:
        raise MalformedError(str(problem)) from None


# Writing


def write(entity: Description, rule: RuleDescription | None = None) -> str:
    """The entry that asks for an entity; a new subscription may begin with another rule than the usual one."""
    others: dict[str, str] = {}
    if not isinstance(entity, SubscriptionDescription):
        others["AuthorizationRules"] = policies.write(entity)
    elif rule is not None:
        others["DefaultRuleDescription"] = rule_markup.write(rule, "DefaultRuleDescription")
    return _entry(descriptions.write(_SHAPES[type(entity)], entity, others))


def write_rule(rule: RuleDescription) -> str:
    """The entry that asks for a rule."""
    return _entry(rule_markup.write(rule))


def _entry(content: str) -> str:
    return f'<entry xmlns="{ATOM}"><content type="application/xml">{content}</content></entry>'
