"""Entities from their descriptions and their places, plain or in fragments; and from the rows that the catalog keeps.

Only makes the objects: what must be durable before, and who sees them after, is `namespace`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from twinbus.entities.entity import AnyEntity
from twinbus.entities.fragments import Fragment, fragments_of
from twinbus.entities.hybrid import KIND as HYBRID
from twinbus.entities.partitioned import PartitionedQueue, PartitionedTopic
from twinbus.entities.ports import RecordReader, StorePort
from twinbus.entities.queue import Queue
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.model.clock import Clock
from twinbus.model.entity import QueueDescription, from_document, to_document
from twinbus.model.hybrid import hybrid_from_document
from twinbus.model.topic import (
    SubscriptionDescription,
    TopicDescription,
    subscription_from_document,
    subscription_to_document,
    topic_from_document,
    topic_to_document,
)
from twinbus.rules.description import RuleDescription
from twinbus.rules.documents import rule_document, rule_of
from twinbus.store.catalog import EntityRow

Fragments = tuple[Fragment, ...]


class Maker:
    """Makes the entities of one namespace."""

    def __init__(
        self, stores: Sequence[StorePort], reader: RecordReader, clock: Clock, new_id: Callable[[], UUID]
    ) -> None:
        self._stores = stores
        self._reader = reader
        self._clock = clock
        self._new_id = new_id  # What the rules' newid() gives.

    def fragments(self, entity: int, places: Sequence[int]) -> Fragments:
        """The fragments of an entity; a plain one has one."""
        return fragments_of(entity, places, self._stores)

    def queue(self, description: QueueDescription, fragments: Fragments) -> Queue:
        """A queue."""
        first = fragments[0]
        if len(fragments) > 1:
            return PartitionedQueue(first.entity, description, fragments)
        return Queue(first.entity, description, first.store_index, first.store)

    def topic(self, description: TopicDescription, fragments: Fragments) -> Topic:
        """A topic."""
        first, context = fragments[0], (self._reader, self._clock, self._new_id)
        if len(fragments) > 1:
            return PartitionedTopic(first.entity, description, fragments, *context)
        return Topic(first.entity, description, first.store_index, first.store, *context)

    def subscription(self, description: SubscriptionDescription, topic: Topic, fragments: Fragments) -> Subscription:
        """A subscription, as yet without rules."""
        first = fragments[0]
        return Subscription(first.entity, description, topic, first.store_index, first.store, fragments)

    def restored(self, row: EntityRow, topic_of: Callable[[str], Topic]) -> Queue | Topic | Subscription:
        """The entity that a row describes."""
        document = json.loads(row.document)
        fragments = self.fragments(row.id, document.pop("fragments", [row.store]))
        if row.kind == "queue":
            return self.queue(from_document(document), fragments)
        if row.kind == "topic":
            return self.topic(topic_from_document(document), fragments)
        rules = [rule_of(rule) for rule in document.pop("rules")]
        description = subscription_from_document(document)
        subscription = self.subscription(description, topic_of(description.topic), fragments)
        subscription.set_rules(rules)
        return subscription


def places_of(row: EntityRow) -> dict[int, int]:
    """The store of each number that a row's entity has; raises where the row cannot be understood."""
    document = json.loads(row.document)
    places = document.pop("fragments", [row.store])
    if row.kind == HYBRID:
        hybrid_from_document(document)
        return {}  # It is on no store.
    if row.kind == "subscription":
        for rule in document.pop("rules"):
            rule_of(rule)
    _READERS[row.kind](document)
    return {row.id + index: int(place) for index, place in enumerate(places)}


_READERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "queue": from_document,
    "topic": topic_from_document,
    "subscription": subscription_from_document,
}


def row_of(
    entity: AnyEntity,
    description: QueueDescription | TopicDescription | SubscriptionDescription,
    rules: Sequence[RuleDescription] = (),
) -> EntityRow:
    """The row of an entity with this description. Where its fragments lie is written down once and for all."""
    if isinstance(description, QueueDescription):
        kind, document = "queue", to_document(description)
    elif isinstance(description, TopicDescription):
        kind, document = "topic", topic_to_document(description)
    else:
        kind, document = "subscription", subscription_to_document(description)
        document["rules"] = [rule_document(rule) for rule in rules]
    if entity.is_partitioned:
        document["fragments"] = list(entity.places)
    return EntityRow(entity.id, entity.path, kind, entity.store_index, json.dumps(document))
