"""Locks are renewed in good time, and forgotten when they are lost."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from twinbus.client import ClientError, ReceivedMessage
from twinbus.pipeline.reading.renewing import LONGEST_MS, LOT, Lane, Lock, Renewer, due
from twinbus.pipeline.reading.staging import Key


class Node:
    """Renews for thirty seconds; refuses a request that names a lock which is lost."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.lost: set[UUID] = set()
        self.requests: list[int] = []
        self.sessions: list[str] = []
        self.problem: ClientError | None = None

    async def renew_locks(self, tokens: list[UUID]) -> list[int]:
        self.requests.append(len(tokens))
        if self.problem is not None:
            raise self.problem
        if not self.lost.isdisjoint(tokens):
            raise ClientError("com.microsoft:message-lock-lost", "lost")
        return [self.now_ms + 30_000] * len(tokens)

    async def renew_session_lock(self, session_id: str) -> int:
        self.sessions.append(session_id)
        return self.now_ms + 30_000


class Scene:
    def __init__(self, count: int, longest_s: float | None = None) -> None:
        self.node = Node()
        receiver: Any = None
        self.lanes = [Lane("orders", receiver)]
        self.locks = {
            Key("orders", number): Lock(
                ReceivedMessage(number, UUID(int=number).bytes_le, b""), self.lanes[0], 0, due(0, 30_000)
            )
            for number in range(1, count + 1)
        }

        async def management(entity: str) -> Any:
            return self.node

        self.renewer = Renewer(self.locks, lambda: self.lanes, management, lambda: self.node.now_ms, longest_s)

    async def at(self, now_ms: int) -> list[int]:
        self.node.now_ms = now_ms
        self.node.requests.clear()
        await self.renewer.step()
        return self.node.requests


@pytest.mark.parametrize(
    ("until_ms", "expected"), [(30_000, 15_000), (-60_000, 1_000), (10**12, LONGEST_MS // 2), (None, LONGEST_MS // 2)]
)
def test_a_lock_is_due_after_half_of_its_time_whatever_the_clocks_say(until_ms: int | None, expected: int) -> None:
    assert due(0, until_ms) == expected


async def test_locks_are_renewed_when_they_are_due_and_not_before() -> None:
    scene = Scene(3)
    assert await scene.at(14_000) == []
    assert await scene.at(15_000) == [3]
    assert await scene.at(16_000) == []
    assert await scene.at(30_000) == [3]


async def test_many_locks_are_renewed_in_lots() -> None:
    scene = Scene(LOT + 1)
    assert await scene.at(15_000) == [LOT, 1]


async def test_a_lost_lock_is_forgotten_and_the_others_are_renewed() -> None:
    scene = Scene(8)
    scene.node.lost = {UUID(int=5)}
    await scene.at(15_000)
    assert Key("orders", 5) not in scene.locks
    assert len(scene.locks) == 7
    assert await scene.at(16_000) == []


async def test_a_broker_that_is_busy_is_asked_again() -> None:
    scene = Scene(2)
    scene.node.problem = ClientError("com.microsoft:server-busy", "later")
    assert await scene.at(15_000) == [2]
    scene.node.problem = None
    assert await scene.at(15_500) == [2]
    assert len(scene.locks) == 2


async def test_renewal_ends_after_the_longest_time() -> None:
    scene = Scene(1, longest_s=40.0)
    assert await scene.at(30_000) == [1]
    assert await scene.at(60_000) == []


async def test_a_session_is_renewed_instead_of_its_messages() -> None:
    scene = Scene(2)
    scene.lanes[0].session_id = "s"
    scene.lanes[0].due_at_ms = 10_000
    assert await scene.at(20_000) == []
    assert scene.node.sessions == ["s"]
