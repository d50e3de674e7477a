"""Locks that are held while a batch is in work, and their renewal in good time.

Runs beside everything else on the event loop of `intake`. A lock that is lost in spite of it is forgotten: its message
comes again, and is recognised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from twinbus.client import ClientError, ReceivedMessage, Receiver
from twinbus.client.management import Management
from twinbus.pipeline.reading.staging import Key

LOOK_S = 0.5
LOT = 200  # Locks in one request.
SHORTEST_MS, LONGEST_MS = 2_000, 300_000
LOST = ("com.microsoft:message-lock-lost", "com.microsoft:session-lock-lost", "amqp:not-found")


@dataclass(slots=True, eq=False)
class Lane:
    """A receiver of an entity, or of one of its sessions; what was received over it is settled over it."""

    entity: str
    receiver: Receiver
    session_id: str | None = None
    held: int = 0  # Messages that are locked here.
    due_at_ms: int = 0  # When the session's lock is renewed.


@dataclass(slots=True, eq=False)
class Lock:
    """One message that is held."""

    message: ReceivedMessage
    lane: Lane
    since_ms: int
    due_at_ms: int  # When it is renewed.


def due(now_ms: int, until_ms: int | None) -> int:
    """When a lock that ends at an instant of the broker's clock is renewed by ours: after half of its time.

    Clocks differ, so what is left is taken to be between two seconds and the longest lock there is.
    """
    left_ms = LONGEST_MS if until_ms is None else until_ms - now_ms
    return now_ms + min(max(left_ms, SHORTEST_MS), LONGEST_MS) // 2


class Renewer:
    """Renews locks and sessions until it is cancelled."""

    def __init__(
        self,
        locks: dict[Key, Lock],
        lanes: Callable[[], Sequence[Lane]],
        management: Callable[[str], Awaitable[Management]],
        now_ms: Callable[[], int],
        longest_s: float | None = None,
    ) -> None:
        """`longest_s` ends the renewal of a message that is held for so long."""
        self._locks = locks
        self._lanes = lanes
        self._management = management
        self._now_ms = now_ms
        self._longest_ms = None if longest_s is None else int(longest_s * 1000)

    async def run(self) -> None:
        """Look and renew, again and again; what fails is tried again, while the lock lasts."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.step()

    async def step(self) -> None:
        """Renew what is due now."""
        now_ms = self._now_ms()
        by_entity: dict[str, list[Key]] = {}
        for key, lock in self._locks.items():
            if lock.lane.session_id is None and lock.due_at_ms <= now_ms and not self._is_over(lock, now_ms):
                by_entity.setdefault(key.entity, []).append(key)
        for entity, keys in by_entity.items():
            for first in range(0, len(keys), LOT):
                await self._renew(entity, keys[first : first + LOT])
        for lane in self._lanes():
            if lane.session_id is not None and lane.due_at_ms <= now_ms:
                await self._renew_session(lane, lane.session_id)

    def _is_over(self, lock: Lock, now_ms: int) -> bool:
        return self._longest_ms is not None and now_ms - lock.since_ms > self._longest_ms

    async def _renew(self, entity: str, keys: list[Key]) -> None:
        # Meanwhile some of them may have been settled.
        locks = [(key, self._locks[key]) for key in keys if key in self._locks]
        if not locks:
            return
        try:
            node = await self._management(entity)
            ends = await node.renew_locks([UUID(bytes_le=lock.message.tag) for _, lock in locks])
        except ClientError as error:
            if error.condition not in LOST:
                return
            if len(locks) == 1:
                key, lock = locks[0]
                if self._locks.pop(key, None) is not None:
                    lock.lane.held -= 1
                return
            namespace = len(locks) // 2  # One that is lost has all of a request refused.
            await self._renew(entity, [key for key, _ in locks[:namespace]])
            await self._renew(entity, [key for key, _ in locks[namespace:]])
            return
        now_ms = self._now_ms()
        for (_, lock), until_ms in zip(locks, ends, strict=False):
            lock.due_at_ms = due(now_ms, until_ms)

    async def _renew_session(self, lane: Lane, session_id: str) -> None:
        try:
            node = await self._management(lane.entity)
            lane.due_at_ms = due(self._now_ms(), await node.renew_session_lock(session_id))
        except ClientError as error:
            if error.condition in LOST:
                lane.due_at_ms = self._now_ms() + LONGEST_MS  # Its link will tell.
