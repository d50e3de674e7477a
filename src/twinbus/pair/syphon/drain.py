"""One receiver of one backlog queue, and what it brings home lot by lot: for the pump, a single run and Spark's task.

What cannot be brought home now is held, locked, so that it does not stand in the way of what can.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from twinbus.client import messages
from twinbus.client.endpoint import to_its_end
from twinbus.client.errors import ClientError
from twinbus.client.mover import Moved, move
from twinbus.model.logged import EventLog
from twinbus.pair import tracing
from twinbus.pair.namespace.port import Received, Receiver
from twinbus.pair.syphon.home import PAUSE_MAX_S, Backlog, Home, Progress, give_back

_log = EventLog(__name__)

WAIT_MIN_S = 0.1
PRIMARY = "the primary"
SOON_S = 1.0  # The longest time for which one that may pass by itself is passed over.
HELD_S = 30.0  # Shorter than a lock of a backlog queue as it is documented.
HELD_LEAST_S = 3.0  # Shorter than the shortest lock that a queue can have.
MARGIN_S = 2.0


class PassedOver:
    """Destinations that take nothing at present: each is passed over for a while, for longer each time. Pure."""

    def __init__(self, first_s: float, most_s: float = PAUSE_MAX_S) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._until: dict[str, float] = {}
        self._length_s: dict[str, float] = {}

    @classmethod
    def to_the_end(cls) -> PassedOver:
        """For a run that ends: nothing is tried twice."""
        return cls(float("inf"), float("inf"))

    def paths(self, now: float) -> set[str]:
        """Those that are passed over now."""
        self._until = {path: until for path, until in self._until.items() if until > now}
        return set(self._until)

    def next_try_s(self, now: float) -> float:
        """How long until one of them is tried again."""
        return min((until - now for until in self._until.values()), default=float("inf"))

    def learn(self, moved: Moved[Received], now: float) -> None:
        """Who took messages, and who did not."""
        for path in moved.moved:
            self._length_s.pop(path, None)
        for path in moved.blocked:
            most_s = min(SOON_S, self._most_s) if moved.blocked[path].transient else self._most_s
            most_s = max(most_s, self._first_s)
            self._length_s[path] = min(self._length_s.get(path, self._first_s / 2) * 2, most_s)
            self._until[path] = now + self._length_s[path]


def _gist(text: str) -> str:
    """What a broker says, without what is new in each answer."""
    return text.partition(" TrackingId")[0]


def _held_s(received: Received) -> float:
    """How long a message may be held: not until its lock ends, which the broker says by its own clock."""
    until_ms = messages.read(received.payload).locked_until_ms
    left_s = HELD_S if until_ms is None else until_ms / 1000 - time.time() - MARGIN_S
    return min(HELD_S, max(left_s, HELD_LEAST_S))


class _Held(NamedTuple):
    """Messages of one destination that are locked, and how long they may be held."""

    until: float
    messages: list[Received]


class Drain:
    """Made for one receiver; `close` gives back what it holds."""

    def __init__(self, receiver: Receiver, home: Home, passed_over: PassedOver, progress: Progress) -> None:
        self._receiver = receiver
        self._source = Backlog(receiver, home)
        self._home = home
        self._passed_over = passed_over
        self._progress = progress
        self._held: dict[str, _Held] = {}
        self._now = asyncio.get_running_loop().time

    async def step(self, limit: int, wait_s: float) -> Moved[Received]:
        """Bring one lot home. When nobody is at home, everything is given back at once."""
        await self._give_back_old()
        for path in self._held.keys() - self._passed_over.paths(self._now()):
            moved = await self._try_one(path)
            if moved.is_gone:
                return moved
        now = self._now()
        passed_over = self._passed_over.paths(now)
        wait_s = max(min(wait_s, self._passed_over.next_try_s(now)), min(wait_s, WAIT_MIN_S))
        try:
            await self._home.identify()  # Before the first lot: a message may be meant for another namespace.
        except ClientError as problem:
            self._progress.problems[PRIMARY] = problem.text
            return Moved(blocked={PRIMARY: problem}, is_gone=True)
        self._progress.problems.pop(PRIMARY, None)
        lot = await self._receiver.receive(limit, wait_s)
        if not lot:
            return Moved()
        return await to_its_end(self._move(lot, passed_over))

    async def _try_one(self, path: str) -> Moved[Received]:
        """One message shows whether its destination takes any again; the others are then given back, and follow."""
        held = self._held.pop(path)
        try:
            moved = await to_its_end(self._move(held.messages[:1]))
        except BaseException:
            await give_back(self._receiver, held.messages[1:])
            raise
        if path in moved.blocked and not moved.is_gone:
            self._held[path] = held
        else:
            await give_back(self._receiver, held.messages[1:])
        if path not in moved.blocked:
            self._progress.problems.pop(path, None)
            self._home.changed()
        return moved

    async def _give_back_old(self) -> None:
        """What was locked for long, before its lock is lost; it comes again."""
        for path, held in list(self._held.items()):
            if self._now() > held.until:
                del self._held[path]
                self._progress.problems.pop(path, None)  # Somebody else may bring it home.
                await give_back(self._receiver, held.messages)

    async def _move(self, lot: Sequence[Received], passed_over: Collection[str] = ()) -> Moved[Received]:
        queue, count, payloads = self._receiver.path, len(lot), (received.payload for received in lot)
        with tracing.span(
            "syphon", queue, kind="CONSUMER", type_="process", count=count, payloads=payloads, root=True
        ) as span:
            moved = await move(self._source, self._home, lot, passed_over)
            span.say(moved=moved.moved.total(), dead=len(moved.set_aside), blocked=len(moved.blocked))
        for path, error in moved.blocked.items():
            if _gist(self._progress.problems.get(path, "")) != _gist(error.text):
                text = "'{entity}' takes nothing at present: {error}"
                _log.warning("syphon.blocked", text, entity=path, error=error.text)
                self._home.changed()
        self._progress.add(moved, queue)
        self._passed_over.learn(moved, self._now())
        for path, waiting in moved.waiting.items():
            until = self._now() + _held_s(waiting[0])
            self._held.setdefault(path, _Held(until, [])).messages.extend(waiting)
        if moved.is_gone:
            await self._give_back_all()
        return moved

    async def close(self) -> None:
        """End."""
        await self._give_back_all()
        with suppress(ClientError):
            await self._receiver.close()

    async def _give_back_all(self) -> None:
        held = [received for waiting in self._held.values() for received in waiting.messages]
        self._held.clear()
        await give_back(self._receiver, held)
