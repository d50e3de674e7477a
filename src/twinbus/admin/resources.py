"""Queues, topics, subscriptions and rules as resources: read, listed, put and deleted by their addresses.

Finds or changes them in the namespace and has each worded by the module of its kind; HTTP itself is `app`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from twinbus.admin import atom, queues, subscriptions, topics
from twinbus.admin.destinations import CheckManages, check_destinations, with_addresses
from twinbus.admin.paths import Target, What
from twinbus.entities.namespace import Namespace
from twinbus.entities.queue import Queue
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.model.entity import check_entity_name
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts, Origin
from twinbus.model.rule import CorrelationFilter, RuleDescription
from twinbus.wire import rule_markup
from twinbus.wire.descriptions import QUEUE, SUBSCRIPTION, TOPIC, local_name
from twinbus.wire.markup import Element
from twinbus.wire.policies import RandomBytes

Entity = Queue | Topic | Subscription

_FILTER_COUNTS_SINCE = "2024-05"


class Asked(NamedTuple):
    """What of a request shapes the wording of its answer."""

    origin: str  # Scheme and host, as the client calls them.
    version: str  # Of the API.
    tracking_id: str
    check_manages: CheckManages


class Listing(NamedTuple):
    """A page of a list, and how long the whole list is."""

    title: str
    entries: list[atom.Entry]
    total: int


class Resources:
    """What the API can do with a namespace."""

    def __init__(self, namespace: Namespace, random_bytes: RandomBytes) -> None:
        self._namespace = namespace
        self._random_bytes = random_bytes
        self._puts: dict[tuple[What, str], Callable[[Target, Element, bool, Asked], Awaitable[atom.Entry]]] = {
            (What.ENTITY, QUEUE.element): self._put_queue,
            (What.ENTITY, TOPIC.element): self._put_topic,
            (What.SUBSCRIPTION, SUBSCRIPTION.element): self._put_subscription,
            (What.RULE, rule_markup.ELEMENT): self._put_rule,
        }

    # Reading

    async def get(self, target: Target, asked: Asked) -> atom.Entry:
        """One queue, topic, subscription or rule."""
        entity: Entity
        if target.what is What.RULE:
            entity = self._subscription(target)
            entry = _rule_entry(entity, entity.rule(target.rule), asked)
        else:
            entity = self._existing(target)
            entry = await self._entry(entity, asked)
        self._note(entity, "read", asked)
        return entry

    async def page(self, target: Target, page: atom.Page, asked: Asked) -> Listing:
        """A part of a list."""
        end = page.skip + page.top
        if target.what is What.RULES:
            subscription = self._subscription(target)
            found = subscription.rules
            rule_entries = [_rule_entry(subscription, rule, asked) for rule in found[page.skip : end]]
            return Listing("Rules", rule_entries, len(found))
        everything: Sequence[Entity]
        if target.what is What.QUEUES:
            everything = self._namespace.queues()
        elif target.what is What.TOPICS:
            everything = self._namespace.topics()
        else:
            everything = self._topic(target).subscriptions()
        described = await asyncio.gather(
            *(self._entry_if_there(entity, asked) for entity in everything[page.skip : end])
        )
        entries = [entry for entry in described if entry is not None]
        return Listing(target.what.value.capitalize(), entries, len(everything))

    async def _entry_if_there(self, entity: Entity, asked: Asked) -> atom.Entry | None:
        """The entry of an entity, unless it was deleted while the list was made."""
        try:
            return await self._entry(entity, asked)
        except BusError:
            if self._namespace.find(entity.path) is entity:
                raise
            return None

    async def _entry(self, entity: Entity, asked: Asked) -> atom.Entry:
        counts = await _counts(entity)
        accessed_at_ms = entity.accessed_at_ms
        title = entity.description.name
        if isinstance(entity, Queue):
            queue = with_addresses(entity.description, asked.origin)
            content = queues.write(queue, counts, accessed_at_ms, entity.is_limited)
        elif isinstance(entity, Topic):
            below = entity.subscriptions()
            filters = _filter_counts(below) if asked.version >= _FILTER_COUNTS_SINCE else None
            content = topics.write(entity.description, counts, accessed_at_ms, len(below), filters, entity.is_limited)
        else:
            subscription = with_addresses(entity.description, asked.origin)
            content = subscriptions.write(subscription, counts, accessed_at_ms, entity.is_limited)
        created_at_ms, updated_at_ms = entity.description.created_at_ms, entity.description.updated_at_ms
        return atom.Entry(f"{asked.origin}/{entity.path}", title, created_at_ms, updated_at_ms, content)

    # Changing

    async def put(self, target: Target, element: Element, replace: bool, asked: Asked) -> atom.Entry:
        """Create what the element describes, or replace what is there."""
        kind = local_name(element)
        put = self._puts.get((target.what, kind))
        if put is None:
            if target.what is What.ENTITY:
                check_entity_name(target.name)
            raise BusError(Fault.ARGUMENT, f"The content of the entry, '{kind[:40]}', does not belong to this address.")
        return await put(target, element, replace, asked)

    async def _put_queue(self, target: Target, element: Element, replace: bool, asked: Asked) -> atom.Entry:
        existing = self._namespace.queue(target.name).description if replace else None
        description = queues.read(element, target.name, existing, self._random_bytes)
        check_destinations(description, asked.check_manages)
        act = self._namespace.update_queue if replace else self._namespace.create_queue
        return await self._done(await act(description), replace, asked)

    async def _put_topic(self, target: Target, element: Element, replace: bool, asked: Asked) -> atom.Entry:
        existing = self._namespace.topic(target.name).description if replace else None
        description = topics.read(element, target.name, existing, self._random_bytes)
        act = self._namespace.update_topic if replace else self._namespace.create_topic
        return await self._done(await act(description), replace, asked)

    async def _put_subscription(self, target: Target, element: Element, replace: bool, asked: Asked) -> atom.Entry:
        if replace:
            existing = self._subscription(target).description
            description = subscriptions.read(element, existing.topic, existing.name, existing)
            check_destinations(description, asked.check_manages)
            return await self._done(await self._namespace.update_subscription(description), replace, asked)
        description = subscriptions.read(element, self._topic(target).path, target.subscription, None)
        check_destinations(description, asked.check_manages)
        rule = subscriptions.first_rule(element)
        made = await self._namespace.create_subscription(description, None if rule is None else [rule])
        return await self._done(made, replace, asked)

    async def _done(self, entity: Entity, replaced: bool, asked: Asked) -> atom.Entry:
        self._note(entity, "updated" if replaced else "created", asked)
        return await self._entry(entity, asked)

    async def _put_rule(self, target: Target, element: Element, replace: bool, asked: Asked) -> atom.Entry:
        subscription = self._subscription(target)
        name = subscription.rule(target.rule).name if replace else target.rule
        rule = await self._namespace.put_rule(subscription, rule_markup.read_at(element, name), must_exist=replace)
        self._note(subscription, "updated" if replace else "created", asked)
        return _rule_entry(subscription, rule, asked)

    async def delete(self, target: Target, asked: Asked) -> None:
        """Remove one queue, topic with all below it, subscription or rule."""
        entity: Entity
        if target.what is What.RULE:
            entity = self._subscription(target)
            await self._namespace.remove_rule(entity, target.rule)
        else:
            entity = self._existing(target)
            await self._namespace.delete_entity(entity.path)
        self._note(entity, "deleted", asked)

    # Finding

    def _existing(self, target: Target) -> Entity:
        """The queue, topic or subscription that the target names."""
        if target.what is What.SUBSCRIPTION:
            return self._subscription(target)
        if target.what is not What.ENTITY:
            raise BusError(Fault.ARGUMENT, "This address is that of a list or of the namespace: it can only be read.")
        if self._namespace.find(target.name) is None:
            check_entity_name(target.name)  # A name that none can have is told apart from one that is free.
        return self._namespace.entity(target.name)

    def _subscription(self, target: Target) -> Subscription:
        return self._namespace.subscription(target.subscription_path)

    def _topic(self, target: Target) -> Topic:
        return self._namespace.topic(target.name)

    def _note(self, entity: Entity, outcome: str, asked: Asked) -> None:
        """Management operations are billed, so the journal has them."""
        self._namespace.note(entity.mailbox(), "manage", outcome, Origin("http"), tracking_id=asked.tracking_id)


async def _counts(entity: Entity) -> Counts:
    """What the entity holds; what no store can tell is told as nothing, beside an availability that says so."""
    try:
        return await entity.counts()
    except BusError as error:
        if error.fault is Fault.STORE_UNAVAILABLE and entity.is_limited:
            return Counts()
        raise


def _rule_entry(subscription: Subscription, rule: RuleDescription, asked: Asked) -> atom.Entry:
    url = f"{asked.origin}/{subscription.path}/Rules/{rule.name}"
    return atom.Entry(url, rule.name, rule.created_at_ms, rule.created_at_ms, rule_markup.write(rule))


def _filter_counts(of: Sequence[Subscription]) -> topics.FilterCounts:
    every = [isinstance(rule.filter, CorrelationFilter) for subscription in of for rule in subscription.rules]
    return topics.FilterCounts(every.count(False), every.count(True))
