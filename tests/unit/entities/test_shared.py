"""A namespace that others change too: what they made, changed and removed is taken over, and the doors are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from twinbus.entities.namespace import Namespace
from twinbus.entities.shared import CatalogChanges, SharedNamespace
from twinbus.model.entity import EntityStatus, QueueDescription, to_document
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts
from twinbus.model.policies import CameFrom, DeclaredPolicy, at_start, origin_of
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.rules.description import RuleDescription, SqlFilter
from twinbus.store.catalog import EntityRow
from twinbus.store.commands import Create, Drop, QueueSettings
from twinbus.store.quarantine import Held, Remember, Remembered, SetAside
from twinbus.wire import view

READER = AuthorizationRule("reader", "a", "b", Rights.LISTEN)
HOUR_MS = 3_600_000


class CommonCatalog:
    """What two namespaces share. Changes are taken over by the other one when the test says so."""

    def __init__(self) -> None:
        self.rows: dict[int, EntityRow] = {}
        self.meta: dict[str, str] = {}
        self.next_id = 1
        self.spread_count = 0
        self.used: dict[int, int] = {}
        self.members: list[SharedNamespace] = []
        self._taken: dict[SharedNamespace, tuple[dict[int, EntityRow], dict[str, str]]] = {}

    async def take_ids(self, count: int) -> int:
        first, self.next_id = self.next_id, self.next_id + count
        return first

    async def put(self, row: EntityRow) -> None:
        await asyncio.sleep(0)
        if any(row.name.lower() == other.name.lower() and row.id != other.id for other in self.rows.values()):
            raise BusError(Fault.ENTITY_EXISTS, "Another entity has this name.")
        self.rows[row.id] = row

    async def remove(self, entity: int, parts: Mapping[int, int] | None = None) -> None:
        await asyncio.sleep(0)
        self.rows.pop(entity, None)

    async def dropped(self, parts: object) -> None:
        await asyncio.sleep(0)

    async def take_up(self, row: EntityRow) -> None:
        await self.put(row)

    generation = 0

    async def set_meta(self, key: str, value: str) -> None:
        self.meta[key] = value

    async def spread(self) -> None:
        self.spread_count += 1

    async def refresh(self) -> None:
        for member in self.members:
            self.tell(member)

    async def share_use(self, used: Mapping[int, int]) -> dict[int, int]:
        for entity, at_ms in used.items():
            self.used[entity] = max(at_ms, self.used.get(entity, 0))
        return {entity: self.used[entity] for entity in used}

    def tell(self, member: SharedNamespace) -> None:
        """Let a namespace take over what is there."""
        rows, meta = self._taken.get(member, ({}, {}))
        changed = [row for number, row in self.rows.items() if rows.get(number) != row]
        news = {key: value for key, value in self.meta.items() if meta.get(key) != value}
        member.take_over(CatalogChanges(news, changed, set(self.rows)))
        self._taken[member] = (dict(self.rows), dict(self.meta))


@pytest.fixture
def common() -> CommonCatalog:
    return CommonCatalog()


@pytest.fixture
def here(clock: Any, stores: list[Any], common: CommonCatalog) -> SharedNamespace:
    namespace = SharedNamespace("test", clock, stores, common, view)
    common.members.append(namespace)
    return namespace


@pytest.fixture
def there(clock: Any, stores: list[Any], common: CommonCatalog) -> SharedNamespace:
    namespace = SharedNamespace("test", clock, stores, common, view)
    common.members.append(namespace)
    return namespace


class Door:
    """Hears what a namespace tells."""

    def __init__(self, namespace: Namespace) -> None:
        self.heard: list[str] = []
        namespace.on_changed.append(lambda entity: self.heard.append(f"changed {entity.path}"))
        namespace.on_deleted.append(lambda entity: self.heard.append(f"deleted {entity.path}"))
        namespace.on_rules_changed.append(lambda: self.heard.append("rules"))


async def test_what_is_created_on_one_gateway_can_be_looked_up_on_the_other(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog
) -> None:
    await here.create_queue(QueueDescription(name="Orders", max_delivery_count=7))
    await here.create_topic(TopicDescription(name="news"))
    await here.create_subscription(SubscriptionDescription(topic="news", name="all"))
    assert there.find("orders") is None
    common.tell(there)
    assert there.queue("orders").description == here.queue("orders").description
    assert there.queue("orders").id == here.queue("orders").id
    assert [rule.name for rule in there.subscription("news/Subscriptions/all").rules] == ["$Default"]
    assert common.spread_count == 3


async def test_a_second_look_finds_what_was_made_a_moment_ago(here: SharedNamespace, there: SharedNamespace) -> None:
    await here.create_queue(QueueDescription(name="orders"))
    assert there.is_shared
    assert await there.look_again()
    assert there.find("orders") is not None


async def test_a_changed_description_is_taken_over_and_told(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog
) -> None:
    await here.create_queue(QueueDescription(name="orders"))
    common.tell(there)
    door, known = Door(there), there.queue("orders")
    await here.update_queue(QueueDescription(name="orders", status=EntityStatus.RECEIVE_DISABLED))
    common.tell(there)
    assert there.queue("orders") is known  # Links hold on to it.
    assert known.status is EntityStatus.RECEIVE_DISABLED
    assert door.heard == ["changed orders", "rules"]


async def test_what_was_taken_over_is_not_told_twice(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog
) -> None:
    await here.create_queue(QueueDescription(name="orders"))
    common.tell(there)
    door = Door(there)
    common.tell(there)
    assert door.heard == []


async def test_links_of_a_deleted_topic_and_its_subscriptions_are_told(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog
) -> None:
    await here.create_topic(TopicDescription(name="news"))
    await here.create_subscription(SubscriptionDescription(topic="news", name="all"))
    common.tell(there)
    door = Door(there)
    await here.delete_entity("news")
    common.tell(there)
    assert door.heard == ["deleted news/Subscriptions/all", "deleted news"]
    assert there.entities() == []


async def test_a_name_that_was_given_anew_means_the_new_entity(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog
) -> None:
    await here.create_queue(QueueDescription(name="orders"))
    common.tell(there)
    old = there.queue("orders")
    await here.delete_entity("orders")
    await here.create_queue(QueueDescription(name="ORDERS"))
    common.tell(there)
    assert there.queue("orders").id == here.queue("orders").id != old.id


async def test_a_rule_that_another_gateway_changed_holds_for_the_next_message(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog
) -> None:
    await here.create_topic(TopicDescription(name="news"))
    subscription = await here.create_subscription(SubscriptionDescription(topic="news", name="all"))
    common.tell(there)
    await here.put_rule(subscription, RuleDescription("big", SqlFilter("size > 10")))
    await here.remove_rule(subscription, "$Default")
    common.tell(there)
    assert [rule.name for rule in there.subscription("news/subscriptions/all").rules] == ["big"]


async def test_changed_policies_hold_at_once(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog
) -> None:
    door = Door(there)
    await here.set_rules([READER])
    common.tell(there)
    assert there.rules == (READER,)
    assert door.heard == ["rules"]


async def test_where_policies_came_from_is_known_everywhere(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog
) -> None:
    declared = [DeclaredPolicy("reader", Rights.LISTEN)]
    await here.follow_settings(lambda rules, origins: at_start(rules, origins, declared, None, lambda: "a-new-key"))
    common.tell(there)
    assert there.origins == here.origins
    assert origin_of(there.origins, "reader").came_from is CameFrom.FILE
    await there.change_policies(lambda rules, _: (*rules, replace(READER, name="other")))
    common.tell(here)
    assert here.rules == there.rules
    assert common.spread_count == 2


async def test_a_row_that_cannot_be_read_leaves_the_others(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog
) -> None:
    topic = await here.create_topic(TopicDescription(name="news"))
    await here.create_subscription(SubscriptionDescription(topic="news", name="all"))
    await here.create_queue(QueueDescription(name="orders"))
    del common.rows[topic.id]
    common.tell(there)
    assert [entity.path for entity in there.entities()] == ["orders"]


async def test_of_two_that_create_one_name_at_the_same_time_one_frees_its_store_again(
    here: SharedNamespace, there: SharedNamespace, stores: list[Any]
) -> None:
    results = await asyncio.gather(
        here.create_queue(QueueDescription(name="orders")),
        there.create_queue(QueueDescription(name="Orders")),
        return_exceptions=True,
    )
    (refused,) = [result for result in results if isinstance(result, BusError)]
    assert refused.fault is Fault.ENTITY_EXISTS
    created = {command.queue for store in stores for command in store.all(Create)}
    dropped = {command.queue for store in stores for command in store.all(Drop)}
    assert len(created) == 2
    assert len(dropped) == 1
    assert dropped < created


async def test_what_is_used_through_another_gateway_is_not_idle(
    here: SharedNamespace, there: SharedNamespace, common: CommonCatalog, clock: Any
) -> None:
    await here.create_queue(QueueDescription(name="orders", auto_delete_on_idle_ms=HOUR_MS))
    common.tell(there)
    there.queue("orders").links = 1
    clock.now += HOUR_MS + 1
    await there.delete_idle()
    await here.delete_idle()
    assert here.find("orders") is not None
    there.queue("orders").links = 0
    clock.now += HOUR_MS
    await here.delete_idle()
    assert here.find("orders") is None


async def test_a_store_that_returns_is_not_asked_to_set_aside_what_others_may_be_making(
    here: SharedNamespace, stores: list[Any]
) -> None:
    here.store_returned(0, [Held(99)])
    assert stores[0].all(SetAside) == []
    here.sort_out(0, [Held(99)])
    assert [command.entities for command in stores[0].all(SetAside)] == [[99]]


async def test_what_another_gateway_took_up_is_set_aside_nowhere(
    here: SharedNamespace, there: SharedNamespace, stores: list[Any]
) -> None:
    document = json.dumps(to_document(QueueDescription(name="orders")))
    stores[0].answers[Remember] = [Remembered(99, "orders", "queue", 0, document, QueueSettings(), Counts())]
    for namespace in (here, there):
        namespace.sort_out(0, [Held(99, True, path="orders", kind="queue")])
    late = await there.quarantine.orphan(99)
    await here.quarantine.adopt(await here.quarantine.orphan(99))
    with pytest.raises(BusError) as error:
        await there.quarantine.orphan(99)
    assert error.value.fault is Fault.ENTITY_NOT_FOUND
    # Even who asked a moment too early leaves the last word to the store, which knows that it is served.
    await there.quarantine.drop(late, "orders")
    assert [drop.only_aside for drop in stores[0].all(Drop)] == [True]


async def test_what_another_gateway_dropped_is_listed_no_more(here: SharedNamespace, stores: list[Any]) -> None:
    here.sort_out(0, [Held(99, True, path="orders", kind="queue")])
    stores[0].answers[Remember] = []
    assert await here.quarantine.look_again() == []
