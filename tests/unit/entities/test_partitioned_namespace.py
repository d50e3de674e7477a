"""Partitioned entities in the namespace: numbers and places, what is written down, limits, and stores that are down."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from twinbus.entities.namespace import Namespace
from twinbus.entities.partitioned import PartitionedQueue, PartitionedTopic
from twinbus.entities.partitions import FRAGMENTS, fragment_of
from twinbus.entities.placing import Loads, Places, places_for_new
from twinbus.model import limits
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts, Delivered, Incoming, Origin
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.store.commands import Acquire, Configure, Count, Create, Drop, Hints, Publish, Transfer
from twinbus.store.quarantine import Held, SetAside
from twinbus.wire import outgoing, view
from twinbus.wire.message import read

ORIGIN = Origin("connection-1")
DOWN = BusError(Fault.STORE_UNAVAILABLE, "down")


@pytest.fixture
def namespace(clock: Any, stores: list[Any], catalog: Any) -> Namespace:
    return Namespace("test", clock, stores, catalog, view)


def queue(name: str = "q", **settings: Any) -> QueueDescription:
    return QueueDescription(name=name, partitioned=True, **settings)


def loads(stores: list[Any], *taken: Places) -> Loads:
    found = Loads(len(stores))
    for places in taken:
        found.add(places)
    return found


def numbers(stores: list[Any], kind: type[Any]) -> list[int]:
    return sorted(command.queue // 4 for store in stores for command in store.all(kind))


class TestPlaces:
    @pytest.mark.parametrize(("count", "each"), [(1, {16}), (2, {8}), (4, {4}), (5, {3, 4}), (16, {1}), (20, {0, 1})])
    def test_fragments_are_shared_evenly_by_the_stores(
        self, sixteen_stores: list[Any], count: int, each: set[int]
    ) -> None:
        stores = (sixteen_stores * 2)[:count]
        found = Counter(places_for_new(stores, loads(stores), True))
        assert {found[index] for index in range(count)} == each
        assert sum(found.values()) == FRAGMENTS

    def test_the_stores_with_the_least_on_them_come_first(self, sixteen_stores: list[Any]) -> None:
        stores = sixteen_stores[:3]
        taken = loads(stores, (0,), (0,), (1,))
        assert places_for_new(stores, taken, False) == (2,)
        assert Counter(places_for_new(stores, taken, True)) == {2: 6, 1: 5, 0: 5}

    def test_a_partitioned_entity_weighs_on_its_stores_as_much_as_a_plain_one(self, sixteen_stores: list[Any]) -> None:
        stores = sixteen_stores[:2]
        taken = loads(stores, tuple(index % 2 for index in range(FRAGMENTS)), (0,))
        assert places_for_new(stores, taken, False) == (1,)

    def test_a_store_that_is_down_gets_nothing_new_while_there_are_others(self, sixteen_stores: list[Any]) -> None:
        sixteen_stores[0].is_available = False
        assert places_for_new(sixteen_stores[:2], loads(sixteen_stores[:2], (1,)), False) == (1,)

    async def test_what_was_deleted_or_could_not_be_made_weighs_nothing(
        self, namespace: Namespace, stores: list[Any]
    ) -> None:
        await namespace.create_queue(queue("wide"))
        for name in "abcd":
            await namespace.create_queue(QueueDescription(name=name))
        topic = await namespace.create_topic(TopicDescription(name="t"))
        await namespace.create_subscription(SubscriptionDescription(topic="t", name="s"))
        stores[1].is_available = False
        with pytest.raises(BusError):
            await namespace.create_queue(queue("unmade"))
        stores[1].is_available = True
        for path in ("b", "t", "wide"):
            await namespace.delete_entity(path)
        assert topic.places == (0,)
        found = [(await namespace.create_queue(QueueDescription(name=name))).places for name in "efghi"]
        assert found == [(1,), (0,), (1,), (2,), (3,)]


class TestMaking:
    async def test_a_queue_takes_sixteen_numbers_and_writes_down_where_they_lie(
        self, namespace: Namespace, stores: list[Any], catalog: Any
    ) -> None:
        await namespace.create_queue(QueueDescription(name="plain"))
        made = await namespace.create_queue(queue())
        assert (made.id, catalog.next_id) == (2, 18)
        assert isinstance(made, PartitionedQueue)
        assert numbers(stores, Create) == [1, *range(2, 18)]
        document = json.loads(catalog.rows[2].document)
        assert document["fragments"] == list(made.places)
        assert Counter(made.places) == dict.fromkeys(range(4), 4)
        assert {command.settings.keyed_duplicates for command in stores[3].all(Create)} == {True}

    async def test_what_was_written_down_holds_after_a_restart_with_more_stores(
        self, namespace: Namespace, stores: list[Any], sixteen_stores: list[Any], catalog: Any, clock: Any
    ) -> None:
        await namespace.create_queue(queue())
        topic = await namespace.create_topic(TopicDescription(name="t", partitioned=True))
        await namespace.create_subscription(SubscriptionDescription(topic="t", name="s"))
        again = Namespace("test", clock, sixteen_stores, catalog, view)
        again.load({}, catalog.rows.values())
        restored = again.queue("q")
        assert isinstance(restored, PartitionedQueue)
        assert restored.places == namespace.queue("q").places
        assert isinstance(again.topic("t"), PartitionedTopic)
        assert again.subscription("t/Subscriptions/s").places == topic.places
        assert len(again.entities()) == 3

    async def test_nothing_is_made_while_a_store_is_down(
        self, namespace: Namespace, stores: list[Any], catalog: Any
    ) -> None:
        stores[2].is_available = False
        with pytest.raises(BusError) as refused:
            await namespace.create_queue(queue())
        assert refused.value.facts.transient
        assert numbers(stores, Create) == []
        assert catalog.rows == {}
        stores[2].is_available = True
        assert await namespace.create_queue(queue()) is namespace.queue("q")

    async def test_what_was_half_made_is_dropped_and_not_visible(
        self, namespace: Namespace, stores: list[Any], catalog: Any
    ) -> None:
        stores[2].answers[Create] = DOWN
        with pytest.raises(BusError, match="down"):
            await namespace.create_queue(queue())
        assert namespace.find("q") is None
        assert catalog.rows == {}
        assert numbers(stores, Drop) == list(range(1, 17))

    async def test_there_are_at_most_a_hundred(self, namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
        assert limits.PARTITIONED_ENTITIES_MAX == 100
        monkeypatch.setattr(limits, "PARTITIONED_ENTITIES_MAX", 2)
        await namespace.create_queue(queue("a"))
        await namespace.create_topic(TopicDescription(name="b", partitioned=True))
        await namespace.create_subscription(SubscriptionDescription(topic="b", name="s"))
        with pytest.raises(BusError, match="at most 2 partitioned") as refused:
            await namespace.create_queue(queue("c"))
        assert refused.value.fault is Fault.QUOTA_EXCEEDED
        await namespace.create_queue(QueueDescription(name="c"))


class TestChanging:
    async def test_a_change_reaches_every_fragment(self, namespace: Namespace, stores: list[Any]) -> None:
        made = await namespace.create_queue(queue())
        await namespace.update_queue(replace(made.description, max_delivery_count=3))
        assert numbers(stores, Configure) == list(range(1, 17))

    async def test_nothing_is_changed_or_deleted_while_a_store_is_down(
        self, namespace: Namespace, stores: list[Any], catalog: Any
    ) -> None:
        made = await namespace.create_queue(queue())
        stores[1].is_available = False
        with pytest.raises(BusError, match="not available"):
            await namespace.update_queue(replace(made.description, max_delivery_count=3))
        with pytest.raises(BusError, match="not available"):
            await namespace.delete_entity("q")
        assert namespace.queue("q").description.max_delivery_count == 10
        assert json.loads(catalog.rows[1].document)["max_delivery_count"] == 10

    async def test_a_deletion_drops_every_fragment(self, namespace: Namespace, stores: list[Any], catalog: Any) -> None:
        await namespace.create_queue(queue())
        await namespace.delete_entity("q")
        assert numbers(stores, Drop) == list(range(1, 17))
        assert catalog.rows == {}
        assert namespace.entities() == []

    async def test_orphans_are_told_from_fragments(self, namespace: Namespace, stores: list[Any]) -> None:
        made = await namespace.create_queue(queue())
        held = [[f.entity for f in made.fragments if f.store_index == index] for index in range(4)]
        held[0] += [99, held[1][0]]
        for index, numbers_there in enumerate(held):
            namespace.sort_out(index, [Held(number) for number in numbers_there])
        aside = [number for store in stores for command in store.all(SetAside) for number in command.entities]
        assert sorted(aside) == sorted([99, held[1][0]])


class TestCounts:
    async def test_counts_are_summed_over_what_is_in_reach(self, namespace: Namespace, stores: list[Any]) -> None:
        made = await namespace.create_queue(queue())
        for store in stores:
            store.answers[Count] = Counts(1, 2, 3, 4, 5, 100)
        assert await made.counts() == Counts(16, 32, 48, 64, 80, 1600)
        assert not made.is_limited
        stores[0].is_available = False
        assert await made.counts() == Counts(12, 24, 36, 48, 60, 1200)
        assert made.is_limited

    async def test_without_any_store_there_are_no_counts(self, namespace: Namespace, stores: list[Any]) -> None:
        made = await namespace.create_queue(queue())
        for store in stores:
            store.is_available = False
            store.answers[Count] = DOWN
        with pytest.raises(BusError, match="down"):
            await made.counts()


class TestHints:
    async def test_a_hint_about_a_fragment_wakes_who_waits_for_the_whole(
        self, namespace: Namespace, stores: list[Any], receiver: Any
    ) -> None:
        made = await namespace.create_queue(queue())
        link = receiver(1)
        made.mailbox().feed.pull(link)
        while pending := [(s, a) for s in stores for a in s.all(Acquire)]:
            pending[0][0].finish(pending[0][1], [])
        fragment = made.fragments[13]
        namespace.hinted(Hints(ready={fragment.number(0)}))
        assert fragment.store.take(Acquire).queue == fragment.number(0)  # type: ignore[attr-defined]


class TestTopics:
    async def made(self, namespace: Namespace) -> PartitionedTopic:
        topic = await namespace.create_topic(TopicDescription(name="t", partitioned=True))
        await namespace.create_subscription(SubscriptionDescription(topic="t", name="s"))
        assert isinstance(topic, PartitionedTopic)
        return topic

    def message(self, **settings: Any) -> list[Incoming]:
        payload = outgoing.build(b"body", message_id="m", **settings)
        return read(payload, 0, ttl_ceiling_ms=None, new_id=lambda: "id")

    async def test_a_message_goes_to_the_same_fragment_of_topic_and_subscription(
        self, namespace: Namespace, stores: list[Any]
    ) -> None:
        topic = await self.made(namespace)
        subscription = topic.subscriptions()[0]
        topic.send([self.message(partition_key="k")], ORIGIN, lambda results, which=None: None)
        index = fragment_of("k")
        published = stores[topic.places[index]].take(Publish)
        assert published.queue == topic.fragments[index].number(0)
        (copy,) = published.units[0][0].copies
        assert copy.queue == subscription.fragments[index].number(0)
        assert topic.fragments[index].store is subscription.fragments[index].store

    async def test_what_waited_is_published_from_the_fragment_in_which_it_waited(
        self, namespace: Namespace, stores: list[Any]
    ) -> None:
        topic = await self.made(namespace)
        (message,) = self.message()
        token = (5).to_bytes(16, "big")
        fragment = next(f for f in topic.fragments if stores[f.store_index].all(Acquire))
        asked = fragment.store.all(Acquire)[0]  # type: ignore[attr-defined]
        index = asked.queue // 4 - topic.id
        fragment.store.finish(asked, [Delivered(7, message.record, "m", 0, 0, token=token)])  # type: ignore[attr-defined]
        published = stores[topic.places[index]].take(Publish)
        assert published.queue == topic.fragments[index].number(0)
        assert published.transfers == [Transfer(topic.fragments[index].number(0), 7, token)]
        assert published.units[0][0].copies[0].queue == topic.subscriptions()[0].fragments[index].number(0)
