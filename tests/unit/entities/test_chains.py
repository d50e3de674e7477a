"""Which entity may forward to which: destinations that exist, as queues or topics, and no way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from twinbus.entities.namespace import Namespace
from twinbus.model import limits
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.wire import view


@pytest.fixture
def namespace(clock: Any, stores: list[Any], catalog: Any) -> Namespace:
    return Namespace("test", clock, stores, catalog, view)


async def queue(namespace: Namespace, name: str, **settings: Any) -> QueueDescription:
    return (await namespace.create_queue(QueueDescription(name=name, **settings))).description


async def topic(namespace: Namespace, name: str) -> None:
    await namespace.create_topic(TopicDescription(name=name))


async def subscribe(namespace: Namespace, topic: str, name: str = "s", **settings: Any) -> SubscriptionDescription:
    made = await namespace.create_subscription(SubscriptionDescription(topic=topic, name=name, **settings))
    return made.description


def refusal(text: str) -> Any:
    return pytest.raises(BusError, match=text)


async def test_a_destination_is_kept_as_the_path_that_it_has(namespace: Namespace) -> None:
    await queue(namespace, "Other/One")
    for number, text in enumerate(("Other/One", "other/ONE", "sb://localhost:5300/other/one")):
        made = await queue(namespace, f"q{number}", forward_to=text, forward_dead_letters_to=text)
        assert (made.forward_to, made.forward_dead_letters_to) == ("Other/One", "Other/One")


async def test_a_topic_is_a_destination_and_a_subscription_is_not(namespace: Namespace) -> None:
    await topic(namespace, "t")
    await subscribe(namespace, "t")
    assert (await queue(namespace, "q", forward_to="t")).forward_to == "t"
    with refusal("ForwardTo: there is no queue or topic 't/Subscriptions/s'"):
        await queue(namespace, "r", forward_to="t/Subscriptions/s")


async def test_a_destination_must_exist(namespace: Namespace) -> None:
    await topic(namespace, "t")
    with refusal("ForwardTo: there is no queue or topic 'x'") as refused:
        await queue(namespace, "q", forward_to="x")
    assert refused.value.fault is Fault.ARGUMENT
    with refusal("ForwardDeadLetteredMessagesTo: there is no queue or topic 'x'"):
        await subscribe(namespace, "t", forward_dead_letters_to="x")
    assert namespace.find("q") is None


async def test_one_that_was_deleted_does_not_stand_in_the_way_of_other_changes(namespace: Namespace) -> None:
    await queue(namespace, "end")
    made = await queue(namespace, "q", forward_to="end")
    await namespace.delete_entity("end")
    changed = (await namespace.update_queue(replace(made, lock_duration_ms=7_000))).description
    assert (changed.forward_to, changed.lock_duration_ms) == ("end", 7_000)
    with refusal("there is no queue or topic"):
        await namespace.update_queue(replace(made, forward_dead_letters_to="end"))


@pytest.mark.parametrize("attribute", ["forward_to", "forward_dead_letters_to"])
async def test_nothing_forwards_to_itself(namespace: Namespace, attribute: str) -> None:
    made = await queue(namespace, "q")
    with refusal("cannot forward to itself"):
        await namespace.update_queue(replace(made, **{attribute: "Q"}))
    await topic(namespace, "t")
    with refusal("cannot forward to itself"):
        await subscribe(namespace, "t", **{attribute: "t"})


@pytest.mark.parametrize("attribute", ["forward_to", "forward_dead_letters_to"])
async def test_a_loop_is_refused_through_queues_topics_and_dead_letters(namespace: Namespace, attribute: str) -> None:
    end = await queue(namespace, "end")
    await queue(namespace, "second", forward_dead_letters_to="end")
    await topic(namespace, "t")
    await subscribe(namespace, "t", forward_to="second")
    await subscribe(namespace, "t", "other")
    await queue(namespace, "first", forward_to="t")
    with refusal("from 'first' messages would come back to 'end'"):
        await namespace.update_queue(replace(end, **{attribute: "first"}))
    with refusal("messages would come back to 't'"):
        await subscribe(namespace, "t", "third", **{attribute: "first"})
    free = await queue(namespace, "free")
    assert (await namespace.update_queue(replace(free, **{attribute: "first"}))).description == replace(
        namespace.queue("free").description
    )


async def test_a_destination_that_is_made_again_does_not_close_a_loop(namespace: Namespace) -> None:
    await queue(namespace, "b")
    await queue(namespace, "a", forward_to="b")
    await namespace.delete_entity("b")
    with refusal("messages would come back to 'b'"):
        await queue(namespace, "b", forward_to="a")


async def test_what_forwards_is_never_idle(namespace: Namespace) -> None:
    await queue(namespace, "end")
    idle = limits.AUTO_DELETE_MS_MIN
    made = await queue(namespace, "q", forward_to="end", auto_delete_on_idle_ms=idle)
    assert made.auto_delete_on_idle_ms == limits.UNLIMITED_MS
    dead = await queue(namespace, "d", forward_dead_letters_to="end", auto_delete_on_idle_ms=idle)
    assert dead.auto_delete_on_idle_ms == idle
