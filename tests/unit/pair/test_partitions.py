"""What is found out about an entity that is sent to, and when nobody asks again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.client.atom import AtomError
from twinbus.client.errors import ClientError
from twinbus.model.entity import QueueDescription
from twinbus.model.topic import TopicDescription
from twinbus.pair.route.entities import Entities


class Primary:
    """A namespace that describes its only entity, or refuses to."""

    def __init__(self, found: Any, is_twinbus: bool = True) -> None:
        self.asked = 0
        self._found = found
        self._is_twinbus = is_twinbus

    async def is_twinbus(self) -> bool:
        return self._is_twinbus

    async def administer(self) -> Any:
        return self._administration()

    @asynccontextmanager
    async def _administration(self) -> AsyncIterator[Primary]:
        yield self

    async def entity(self, path: str) -> Any:
        self.asked += 1
        if isinstance(self._found, Exception):
            raise self._found
        return SimpleNamespace(description=self._found)


async def found_out(found: Any, is_twinbus: bool = True) -> tuple[Entities, bool, int]:
    primary = Primary(found, is_twinbus)
    entities = Entities(primary)  # type: ignore[arg-type]
    return entities, await entities._answered("Orders"), primary.asked


@pytest.mark.parametrize("kind", [QueueDescription, TopicDescription])
async def test_a_partitioned_entity_is_known_in_lower_case(kind: Any) -> None:
    entities, answered, _ = await found_out(kind(name="Orders", partitioned=True))

    assert answered
    assert entities.document() == {"orders": {"partitioned": True}}


async def test_with_duplicate_detection_ids_are_keys() -> None:
    entities, _, _ = await found_out(
        QueueDescription(name="Orders", partitioned=True, requires_duplicate_detection=True)
    )

    assert entities.document() == {"orders": {"partitioned": True, "by_id": True}}


async def test_a_plain_entity_is_not_asked_for_again() -> None:
    entities, answered, _ = await found_out(QueueDescription(name="Orders"))

    assert answered
    assert entities.document() == {}
    assert entities.is_new("orders")
    assert not entities.is_new("ORDERS")


async def test_elsewhere_than_on_twinbus_nobody_asks() -> None:
    entities, answered, asked = await found_out(QueueDescription(name="Orders", partitioned=True), is_twinbus=False)

    assert (answered, asked, entities.document()) == (True, 0, {})


@pytest.mark.parametrize(
    ("problem", "answered"),
    [
        (AtomError(401, "no Manage right"), True),
        (AtomError(404, "not there yet"), False),
        (AtomError(503, "busy"), False),
        (ClientError("twinbus:unreachable", "gone"), False),
    ],
)
async def test_only_a_missing_right_ends_the_asking(problem: Exception, answered: bool) -> None:
    assert (await found_out(problem))[1] is answered
