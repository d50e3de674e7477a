"""Lists of entities: pages, orders, rates between two looks, and ten thousand of them."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.admin.asked import Asked
from twinbus.admin.looking import FRESH_MS, EntityRoutes
from twinbus.entities.making import row_of
from twinbus.entities.namespace import Namespace
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError
from twinbus.model.message import Counts
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.store.commands import Command, Count
from twinbus.wire import view
from unit.admin.conftest import Clock, MemoryCatalog, MemoryStore


class Store(MemoryStore):
    """Also knows how far the numbers of a queue are."""

    def __init__(self) -> None:
        super().__init__()
        self.last_numbers: dict[int, int] = {}

    def submit(self, command: Command) -> None:
        super().submit(command)
        if isinstance(command, Count):
            command.last_number = self.last_numbers.get(command.queue, 0)


class Scene:
    def __init__(self) -> None:
        self.clock, self.store = Clock(), Store()
        self.namespace = Namespace("testbus", self.clock, [self.store], MemoryCatalog(), view)
        self.looking = EntityRoutes(self.namespace, self.clock.now_ms, str)

    async def look(self, **query: object) -> dict[str, Any]:
        self.clock.at_ms += FRESH_MS
        serve = self.looking.routes["GET", "entities"]
        return await serve(Asked((), {}, {name: str(value) for name, value in query.items()}))

    async def names(self, **query: object) -> list[str]:
        return [entity["name"] for entity in (await self.look(**query))["entities"]]


@pytest.fixture
async def scene() -> Scene:
    made = Scene()
    for name in ("b", "A", "c/d"):
        await made.namespace.create_queue(QueueDescription(name=name))
    await made.namespace.create_topic(TopicDescription(name="news"))
    await made.namespace.create_subscription(SubscriptionDescription(topic="news", name="mine"))
    return made


def hold(scene: Scene, name: str, counts: Counts, last_number: int = 0) -> None:
    number = scene.namespace.entity(name).number()
    scene.store.counts[number] = counts
    scene.store.last_numbers[number] = last_number


async def test_names_are_in_order_whatever_their_case(scene: Scene) -> None:
    assert await scene.names() == ["A", "b", "c/d", "news", "news/Subscriptions/mine"]


async def test_pages_by_number_and_behind_a_name(scene: Scene) -> None:
    assert await scene.names(skip=1, top=2) == ["b", "c/d"]
    assert await scene.names(after="B", top=2) == ["c/d", "news"]
    found = await scene.look(skip=4, top=2)
    assert (found["total"], len(found["entities"])) == (5, 1)


async def test_by_part_of_the_name_and_kind(scene: Scene) -> None:
    assert await scene.names(filter="NEWS", kind="subscription") == ["news/Subscriptions/mine"]
    assert await scene.names(name="a") == ["A"]


async def test_the_fullest_first_and_only_those_with_dead_letters(scene: Scene) -> None:
    hold(scene, "b", Counts(active=5, size_bytes=10))
    hold(scene, "c/d", Counts(active=1, dead_letter=3))
    assert (await scene.names(sort="active"))[:2] == ["b", "c/d"]
    assert await scene.names(only="dead") == ["c/d"]
    assert await scene.names(only="messages") == ["b", "c/d"]
    assert (await scene.look())["sums"]["active"] == 6


async def test_two_looks_make_a_rate(scene: Scene) -> None:
    hold(scene, "b", Counts(active=4), last_number=10)
    assert (await scene.look(name="b"))["entities"][0]["arriving"] == []
    hold(scene, "b", Counts(active=1), last_number=16)
    (entity,) = (await scene.look(name="b"))["entities"]
    assert (entity["arriving"], entity["leaving"]) == ([4.0], [6.0])
    assert (await scene.look())["sums"]["arriving"] == 0.0


@pytest.mark.parametrize("query", [{"sort": "luck"}, {"top": "501"}, {"skip": "-1"}, {"colour": "red"}, {"kind": "x"}])
async def test_what_means_nothing_is_refused(scene: Scene, query: dict[str, str]) -> None:
    with pytest.raises(BusError):
        await scene.look(**query)


async def test_ten_thousand_are_counted_beside_the_request_and_the_page_at_once(scene: Scene) -> None:
    queue = scene.namespace.queue("A")
    row = row_of(queue, queue.description, ())
    documents = (row.document.replace('"A"', f'"many-{at:05}"') for at in range(10_000))
    rows = [row._replace(id=100 + at, name=f"many-{at:05}", document=text) for at, text in enumerate(documents)]
    scene.namespace.load({}, rows)
    asked = len(scene.store.commands)
    found = await scene.look(filter="many-", skip=5_000)
    assert found["total"] == 10_000
    assert found["entities"][0]["name"] == "many-05000"
    assert sum(isinstance(command, Count) for command in scene.store.commands[asked:]) == 50
