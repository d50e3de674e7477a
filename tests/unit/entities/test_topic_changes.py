"""Topics, subscriptions and rules in the catalog: changes at the same time, failures, and what a restart finds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from twinbus.entities.namespace import Namespace
from twinbus.entities.subscription import Subscription
from twinbus.model.errors import BusError, Fault
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.rules.description import RuleDescription, SqlFilter, TrueFilter
from twinbus.wire import view


def fresh(clock: Any, stores: list[Any], catalog: Any) -> Namespace:
    return Namespace("test", clock, stores, catalog, view)


@pytest.fixture
def namespace(clock: Any, stores: list[Any], catalog: Any) -> Namespace:
    return fresh(clock, stores, catalog)


@pytest.fixture
async def subscription(namespace: Namespace) -> Subscription:
    await namespace.create_topic(TopicDescription(name="Events"))
    return await namespace.create_subscription(SubscriptionDescription(topic="events", name="Audit"))


def rule(name: str, text: str = "color = 'red'") -> RuleDescription:
    return RuleDescription(name, SqlFilter(text))


async def test_a_subscription_is_found_in_any_case_and_lives_on_its_topics_store(
    namespace: Namespace, subscription: Subscription
) -> None:
    assert namespace.find("EVENTS/subscriptions/audit") is subscription
    assert subscription.path == "Events/Subscriptions/Audit"
    assert subscription.store_index == namespace.topic("events").store_index
    assert [(r.name, r.filter) for r in subscription.rules] == [("$Default", TrueFilter())]


async def test_rules_added_at_the_same_time_are_all_kept(
    namespace: Namespace, subscription: Subscription, clock: Any, stores: list[Any], catalog: Any
) -> None:
    await asyncio.gather(*(namespace.put_rule(subscription, rule(f"r{n}")) for n in range(20)))
    again = fresh(clock, stores, catalog)
    again.load(catalog.meta, catalog.rows.values())
    expected = ["$Default", *(f"r{n}" for n in range(20))]
    assert [r.name for r in subscription.rules] == expected
    assert [r.name for r in again.subscription(subscription.path).rules] == expected


async def test_of_two_rules_of_one_name_at_the_same_time_one_is_refused(
    namespace: Namespace, subscription: Subscription
) -> None:
    first, second = await asyncio.gather(
        namespace.put_rule(subscription, rule("same")),
        namespace.put_rule(subscription, rule("SAME", "color = 'blue'")),
        return_exceptions=True,
    )
    assert isinstance(first, RuleDescription)
    assert isinstance(second, BusError)
    assert second.fault is Fault.ENTITY_EXISTS


async def test_an_update_and_a_rule_at_the_same_time_do_not_save_each_other_away(
    namespace: Namespace, subscription: Subscription, clock: Any, stores: list[Any], catalog: Any
) -> None:
    changed = SubscriptionDescription(topic="events", name="audit", max_delivery_count=3)
    await asyncio.gather(namespace.update_subscription(changed), namespace.put_rule(subscription, rule("r")))
    again = fresh(clock, stores, catalog)
    again.load(catalog.meta, catalog.rows.values())
    found = again.subscription("events/Subscriptions/audit")
    assert found.description.max_delivery_count == 3
    assert [r.name for r in found.rules] == ["$Default", "r"]


async def test_a_rule_that_could_not_be_kept_does_not_hold(
    namespace: Namespace, subscription: Subscription, catalog: Any
) -> None:
    catalog.fails = True
    with pytest.raises(OSError, match="no space"):
        await namespace.put_rule(subscription, rule("r"))
    with pytest.raises(OSError, match="no space"):
        await namespace.remove_rule(subscription, "$Default")
    assert [r.name for r in subscription.rules] == ["$Default"]


async def test_a_rule_outside_the_language_is_refused_and_changes_nothing(
    namespace: Namespace, subscription: Subscription
) -> None:
    with pytest.raises(BusError) as caught:
        await namespace.put_rule(subscription, rule("r", "color ="))
    assert caught.value.fault is Fault.ARGUMENT
    assert [r.name for r in subscription.rules] == ["$Default"]


async def test_a_topic_goes_with_its_subscriptions(
    namespace: Namespace, subscription: Subscription, catalog: Any
) -> None:
    gone: list[str] = []
    namespace.on_deleted.append(lambda entity: gone.append(entity.path))
    await namespace.delete_entity("events")
    assert gone == ["Events/Subscriptions/Audit", "Events"]
    assert catalog.rows == {}
    assert namespace.find("events/subscriptions/audit") is None


async def test_a_topic_is_not_deleted_under_a_subscription_that_is_being_made(
    namespace: Namespace, subscription: Subscription, catalog: Any
) -> None:
    catalog.open.clear()
    making = asyncio.ensure_future(namespace.create_subscription(SubscriptionDescription(topic="events", name="late")))
    await asyncio.sleep(0)
    with pytest.raises(BusError) as caught:
        await namespace.delete_entity("events")
    assert caught.value.fault is Fault.SERVER_BUSY
    catalog.open.set()
    await making
    await namespace.delete_entity("events")
    assert catalog.rows == {}


async def test_a_subscription_without_its_topic_does_not_keep_the_namespace_from_starting(
    namespace: Namespace, subscription: Subscription, clock: Any, stores: list[Any], catalog: Any
) -> None:
    del catalog.rows[subscription.topic.id]
    again = fresh(clock, stores, catalog)
    again.load(catalog.meta, catalog.rows.values())
    assert again.entities() == []
