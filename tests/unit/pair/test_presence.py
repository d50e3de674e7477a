"""Status records: who is asked again soon, who seldom, and who never gets one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from twinbus.client.atom import AtomError
from twinbus.client.errors import ClientError
from twinbus.pair.presence import Presence


class Namespace:
    """Half of a pair that answers as it is told, and notes what it was asked."""

    def __init__(self, answer: Exception | None = None, is_twinbus: bool | Exception = True) -> None:
        self.role = "primary"
        self.asked: list[tuple[str, str]] = []
        self._answer = answer
        self._is_twinbus = is_twinbus

    async def is_twinbus(self) -> bool:
        if isinstance(self._is_twinbus, Exception):
            raise self._is_twinbus
        return self._is_twinbus

    async def administer(self) -> Any:
        return self._administration()

    @asynccontextmanager
    async def _administration(self) -> AsyncIterator[Namespace]:
        yield self

    async def ask_json(self, method: str, path: str, document: Any = None) -> dict[str, Any]:
        self.asked.append((method, path))
        if self._answer is not None:
            raise self._answer
        return {}


def presence(*namespaces: Any) -> Presence:
    return Presence("syphon", "contoso", namespaces, lambda: {"moved": 1}, record="r")  # type: ignore[arg-type]


async def test_a_record_is_put_and_taken_away() -> None:
    namespace = Namespace()
    client = presence(namespace)

    assert await client._announce(namespace)  # type: ignore[arg-type]
    await client.end()
    assert namespace.asked == [("PUT", "$api/clients/r"), ("DELETE", "$api/clients/r")]


async def test_azure_is_not_asked_at_all() -> None:
    namespace = Namespace(is_twinbus=False)
    client = presence(namespace)

    assert not await client._announce(namespace)  # type: ignore[arg-type]
    await client.end()
    assert namespace.asked == []


@pytest.mark.parametrize(("status", "soon"), [(401, False), (403, False), (404, False), (400, False), (503, True)])
async def test_who_refuses_is_asked_again_seldom(status: int, soon: bool) -> None:
    namespace = Namespace(AtomError(status, "no"))

    assert await presence(namespace)._announce(namespace) is soon  # type: ignore[arg-type]


async def test_who_cannot_be_reached_is_asked_again_soon() -> None:
    problem = ClientError("twinbus:unreachable", "gone")
    for namespace in (Namespace(problem), Namespace(is_twinbus=problem), Namespace(OSError())):
        assert await presence(namespace)._announce(namespace)  # type: ignore[arg-type]


async def test_a_farewell_that_fails_is_no_fault() -> None:
    namespace = Namespace(ClientError("twinbus:unreachable", "gone"))
    client = presence(namespace)
    await client._announce(namespace)  # type: ignore[arg-type]

    await client.end()
    assert [method for method, _ in namespace.asked] == ["PUT", "DELETE"]


def test_a_record_says_who_it_is() -> None:
    document = presence().document()

    assert document["kind"] == "syphon"
    assert document["pair"] == "contoso"
    assert document["state"] == {"moved": 1}
    assert document["host"]
    assert document["process"] > 0
    assert 0 < document["ttl"] <= 600
