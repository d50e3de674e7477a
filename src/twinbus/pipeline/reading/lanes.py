"""The receivers of one query: plain ones and sessions, what is held over them, and how it is settled by its keys.

Runs on the event loop of `intake`, which says how much is taken from whom. Renewing is `renewing`'s business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from twinbus.client import ClientError, ReceivedMessage, WantedSession
from twinbus.client.messages import stamped
from twinbus.model.message import Outcome
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.namespace import Namespace, fragment
from twinbus.pipeline.options import DEFER, SourceOptions
from twinbus.pipeline.reading.renewing import LOST, Lane, Lock, due
from twinbus.pipeline.reading.staging import Key, Staged

HELD_MAX = 5_000  # A broker hands out no more over one link until some are settled.
LANES_MAX = 64
SESSIONS_MAX = 256  # Sessions held at a time.
SESSIONS_AT_ONCE = 8
SESSION_WAIT_S = 0.2
_NEEDS_SESSION, _NO_SESSION = "amqp:not-allowed", "com.microsoft:timeout"
_log = logging.getLogger(__name__)


class Lanes:
    """All receivers, by entity. They and their locks end with the connection."""

    def __init__(
        self, options: SourceOptions, ready: Callable[[], Awaitable[Namespace]], now_ms: Callable[[], int]
    ) -> None:
        self._options = options
        self._ready = ready
        self._now_ms = now_ms
        self._lanes: dict[str, list[Lane]] = {}
        self._sessions: set[str] = set()  # Entities that are read session by session.
        self.locks: dict[Key, Lock] = {}
        self.caps: dict[tuple[str, int], int] | None = None  # The last number that counts, by entity and fragment.

    def all(self) -> list[Lane]:
        """Every receiver."""
        return [lane for lanes in self._lanes.values() for lane in lanes]

    def is_plain(self, entity: str) -> bool:
        """Whether it is known that an entity is not read session by session."""
        return entity not in self._sessions and bool(self._lanes.get(entity))

    def clear(self) -> None:
        """The connection is gone, and all that was held over it."""
        self._lanes.clear()
        self.locks.clear()

    async def take(self, entity: str, share: int, wait_s: float) -> list[Staged]:
        """Messages of an entity, which are then held.

        Of a plain entity it can be cancelled at any time: what came meanwhile stays in the receiver.
        """
        if entity not in self._sessions:
            lane = await self._plain(entity, share)
            if lane is not None:
                return self._kept(lane, await lane.receiver.receive(share, wait_s))
        return await self._take_sessions(entity, share, wait_s)

    async def _plain(self, entity: str, share: int) -> Lane | None:
        """A receiver of an entity that has room; None if the entity wants to be read session by session."""
        lanes = self._lanes.setdefault(entity, [])
        lanes[:] = [lane for lane in lanes if lane.receiver.error is None]
        for lane in lanes:
            if lane.held + share <= HELD_MAX:
                return lane
        if len(lanes) >= LANES_MAX:
            return min(lanes, key=lambda lane: lane.held)
        namespace = await self._ready()
        address = self._options.subscribed.address(entity)
        try:
            lane = Lane(entity, await namespace.connection.receiver(address, credit=0))
        except ClientError as error:
            if error.condition != _NEEDS_SESSION or "session" not in error.text.lower():
                raise
            self._sessions.add(entity)
            return None
        lanes.append(lane)
        return lane

    # Sessions

    async def _take_sessions(self, entity: str, share: int, wait_s: float) -> list[Staged]:
        """Messages of the sessions that are held, then of others that are free, each in its order."""
        if self._options.claim_mode == DEFER:
            raise PipelineError(
                f"'{entity}' requires sessions, which claimMode=defer cannot read; claimMode=stage can."
            )
        lanes = self._lanes.setdefault(entity, [])
        taken: list[Staged] = []
        try:
            for lane in list(lanes):
                if len(taken) < share:
                    taken += await self._take_session(lane, share - len(taken))
            while len(taken) < share and len(lanes) < SESSIONS_MAX:
                accepted = await self._accept(entity, 0.0 if taken else wait_s)
                before = len(taken)
                for lane in accepted:
                    taken += await self._take_session(lane, max(share - len(taken), 1))
                if len(taken) == before:
                    break
        except ClientError as error:
            if not taken:
                raise
            _log.warning("'%s' cannot be read on at present: %s", entity, error)  # What was taken is held already.
        return taken

    async def _take_session(self, lane: Lane, share: int) -> list[Staged]:
        """The next messages of a session; one of which nothing is left is let go."""
        taken: list[Staged] = []
        with suppress(ClientError):  # A session that is lost says so by its error.
            taken = self._kept(lane, await lane.receiver.receive(share, 0.0))
        if lane.receiver.error is not None or (not taken and not lane.held):
            self._lanes[lane.entity].remove(lane)
            with suppress(ClientError):
                await lane.receiver.close()
        return taken

    async def _accept(self, entity: str, wait_s: float) -> list[Lane]:
        """Sessions that are free: several at a time while there are many, one while none is there."""
        namespace = await self._ready()
        address = self._options.subscribed.address(entity)

        async def one() -> Lane:
            receiver = await namespace.connection.receiver(
                address, credit=0, session=WantedSession(None), session_wait_s=max(wait_s, SESSION_WAIT_S)
            )
            until_ms = receiver.session_locked_until_ms
            return Lane(entity, receiver, receiver.session_id, due_at_ms=due(self._now_ms(), until_ms))

        asked = [one() for _ in range(1 if wait_s else SESSIONS_AT_ONCE)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        lanes = [lane for lane in found if isinstance(lane, Lane)]
        self._lanes[entity] += lanes
        for problem in found:
            if isinstance(problem, BaseException) and getattr(problem, "condition", None) != _NO_SESSION and not lanes:
                raise problem
        return lanes

    # Holding

    def _kept(self, lane: Lane, received: list[ReceivedMessage]) -> list[Staged]:
        """Hold what was received; what came after the end is given back."""
        now_ms = self._now_ms()
        kept = []
        late = []
        for message in received:
            number, until_ms = stamped(message.payload)
            if self.caps is not None and number > self.caps.get((lane.entity, fragment(number)), 0):
                late.append(message)
                continue
            key = Key(lane.entity, number)
            self.forget(key)  # It may have been held before, and lost.
            lane.held += 1
            self.locks[key] = Lock(message, lane, now_ms, due(now_ms, until_ms))
            kept.append(Staged(lane.entity, number, lane.session_id, now_ms, message.payload))
        if late:
            # Not waited for: whoever waits can be told to stop, and what was kept would be forgotten.
            releasing = lane.receiver.settle_nowait(late, Outcome.RELEASE)
            releasing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return kept

    async def settle(self, keys: Iterable[Key], outcome: Outcome, properties: dict[str, Any] | None = None) -> set[Key]:
        """Settle what is held, over the links that it came by; those of which the broker confirmed it."""
        by_lane: dict[Lane, list[tuple[Key, Lock]]] = {}
        for key in keys:
            lock = self.locks.get(key)
            if lock is not None:
                by_lane.setdefault(lock.lane, []).append((key, lock))
        confirmed: set[Key] = set()
        for lane, held in by_lane.items():
            failed: dict[int, ClientError] = {}
            try:
                await lane.receiver.settle([lock.message for _, lock in held], outcome, properties=properties)
            except ClientError as error:
                failed = error.failed or dict.fromkeys(range(len(held)), error)
            for position, (key, _) in enumerate(held):
                problem = failed.get(position)
                if problem is None:
                    confirmed.add(key)
                if problem is None or problem.condition in LOST or lane.receiver.error is not None:
                    self.forget(key)
        return confirmed

    def forget(self, key: Key) -> None:
        """This is held no longer."""
        lock = self.locks.pop(key, None)
        if lock is not None:
            lock.lane.held -= 1
