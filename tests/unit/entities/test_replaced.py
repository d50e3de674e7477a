"""A store that comes back without its entities has them made anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from twinbus.entities.namespace import Namespace
from twinbus.model.entity import QueueDescription
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.store.commands import Create, Drop
from twinbus.store.quarantine import Held, SetAside
from twinbus.wire import view


@pytest.fixture
async def namespace(stores: list[Any], catalog: Any, clock: Any) -> Namespace:
    made = Namespace("n", clock, stores[:1], catalog, view)
    await made.create_queue(QueueDescription(name="q", lock_duration_ms=7_000))
    await made.create_topic(TopicDescription(name="t"))
    await made.create_subscription(SubscriptionDescription(topic="t", name="s", max_delivery_count=3))
    stores[0].commands.clear()
    return made


def test_what_is_there_is_left_alone(namespace: Namespace, stores: list[Any]) -> None:
    namespace.store_returned(0, [Held(entity.id) for entity in namespace.entities()])
    assert stores[0].all(Create) == []


def test_what_is_missing_is_made_with_its_settings(namespace: Namespace, stores: list[Any]) -> None:
    namespace.store_returned(0, [])
    made = {command.queue // 4: command.settings for command in stores[0].all(Create)}
    queue, subscription = namespace.queue("q"), namespace.subscription("t/Subscriptions/s")
    assert made.keys() == {entity.id for entity in namespace.entities()}
    assert made[queue.id].lock_duration_ms == 7_000
    assert made[subscription.id].max_delivery_count == 3


def test_what_the_catalog_does_not_know_is_set_aside(namespace: Namespace, stores: list[Any]) -> None:
    namespace.store_returned(0, [*(Held(entity.id) for entity in namespace.entities()), Held(77)])
    assert [command.entities for command in stores[0].all(SetAside)] == [[77]]
    assert stores[0].all(Drop) == []


async def test_but_not_while_something_is_being_made(namespace: Namespace, stores: list[Any]) -> None:
    stores[0].open.clear()
    making = asyncio.create_task(namespace.create_queue(QueueDescription(name="new")))
    while not stores[0].all(Create):
        await asyncio.sleep(0)
    namespace.store_returned(0, [*(Held(entity.id) for entity in namespace.entities()), Held(4)])
    assert (stores[0].all(Drop), stores[0].all(SetAside)) == ([], [])
    stores[0].open.set()
    await making
