"""Backlog queues that several clients make at once: whoever comes second uses what the first one made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.client.atom import AtomError
from twinbus.client.errors import ClientError
from twinbus.model.entity import QueueDescription
from twinbus.pair.backlog import making as pairing
from twinbus.pair.backlog import queues as backlog
from twinbus.pair.backlog.making import pair
from twinbus.pair.errors import PairingError
from twinbus.pair.namespace.port import Identity
from twinbus.pair.order import queues as ordered_queues


class Primary:
    """It says who it is."""

    reached_at = "contoso:5671"
    provisional_name = "contoso-5671"

    async def identity(self, *, anew: bool) -> Identity:
        return Identity("contoso", "")


class Beside:
    """A secondary in which another client is making the same queues, and takes its time over each."""

    def __init__(self, looks: int, gives_up: bool = False) -> None:
        self.there: dict[str, QueueDescription] = {}
        self.making: dict[str, int] = {}  # So many looks until it is there, or given up.
        self._looks = looks
        self._gives_up = gives_up

    async def administer(self) -> Any:
        @asynccontextmanager
        async def block() -> AsyncIterator[Beside]:
            yield self

        return block()

    async def receiver(self, path: str) -> Any:
        raise ClientError("amqp:not-found", f"no '{path}'", transient=False, definite=True)

    async def queues(self) -> AsyncIterator[Any]:
        for description in list(self.there.values()):
            yield SimpleNamespace(description=description, counts=None)

    async def create(self, description: QueueDescription) -> None:
        name = description.name
        if name not in self.making and name not in self.there:
            self.making[name] = self._looks
        elif self.making.get(name) == 0 and self._gives_up:
            self.there[name] = description
            return
        raise AtomError(409, f"The messaging entity '{name}' already exists.")

    async def entity(self, name: str) -> Any:
        self.making[name] -= 1
        if self.making[name] >= 0 or self._gives_up:
            raise AtomError(404, f"The messaging entity '{name}' could not be found.")
        self.there[name] = backlog.description("contoso", 0)
        return SimpleNamespace(description=self.there[name])


@pytest.fixture(autouse=True)
def _no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "MAKING_S", 0.0)


async def test_a_queue_that_another_client_is_making_is_waited_for() -> None:
    paired = await pair(Primary(), Beside(looks=3), 3, "contoso")  # type: ignore[arg-type]
    assert paired.queues == [backlog.path("contoso", index) for index in range(3)]
    assert (paired.created, paired.missing) == ([], {})


async def test_a_queue_that_another_client_gave_up_is_made() -> None:
    paired = await pair(Primary(), Beside(looks=1, gives_up=True), 1, "contoso")  # type: ignore[arg-type]
    assert paired.created == paired.queues == [backlog.path("contoso", 0)]


async def test_one_that_never_comes_is_missing_and_said_so() -> None:
    with pytest.raises(PairingError, match="could not be found"):
        await pair(Primary(), Beside(looks=1_000), 1, "contoso")  # type: ignore[arg-type]


async def test_ordered_queues_are_there_when_they_are_used() -> None:
    secondary = Beside(looks=2)
    await ordered_queues.have(secondary, "contoso", 2)  # type: ignore[arg-type]
    assert len(secondary.there) == 2


async def test_another_refusal_is_not_tried_again() -> None:
    secondary = Beside(looks=1)
    refused: list[str] = []

    async def create(description: QueueDescription) -> None:
        refused.append(description.name)
        raise AtomError(401, "no right to manage")

    secondary.create = create  # type: ignore[method-assign]
    with pytest.raises((PairingError, ClientError), match="no right"):
        await pair(Primary(), secondary, 2, "contoso")  # type: ignore[arg-type]
    assert len(refused) == 1
