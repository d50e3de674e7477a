"""Messages from a broker for a long-lived reader: how much is taken from which entity, and the connection for it.

An event loop in a thread of its own does the work, so that locks are renewed while Spark is busy. Receivers and locks
are `lanes`' business; what is claimed, and when it is settled, is decided by `staged` and `deferred`. Whoever loses the
connection loses its locks, and gets the messages again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from twinbus.client import ClientError
from twinbus.client.errors import CONNECTION_LOST
from twinbus.client.management import Management
from twinbus.model.message import Outcome
from twinbus.pipeline.namespace import Namespace, find, in_words, last_numbers, namespace_of
from twinbus.pipeline.options import SourceOptions, Subscribed
from twinbus.pipeline.reading.lanes import HELD_MAX, Lanes
from twinbus.pipeline.reading.loop import Loop
from twinbus.pipeline.reading.renewing import Renewer
from twinbus.pipeline.reading.staged import Limit
from twinbus.pipeline.reading.staging import Key, Staged

T = TypeVar("T")
_log = logging.getLogger(__name__)
CHUNK = HELD_MAX  # Messages asked for at a time.
CHUNK_BY_BYTES = 100  # The same, where bytes are counted: so many may be too many.
PATTERN_S = 60.0  # How often is looked for new entities.
WAITING_S = 5.0  # How often is counted what waits.
GIVE_BACK_S = 5.0
CONNECT_S = 2.0  # So long a broker may take to answer while others wait for their turn.


class Intake:
    """Receives from all entities of one query. Methods are called from one thread; everything happens in another."""

    def __init__(self, options: SourceOptions, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._options = options
        self._now_ms = now_ms
        self._loop = Loop("twinbus-intake")
        self._namespace: Namespace | None = None
        self._entities: list[str] = []
        self._entities_at_s: float | None = None
        self._connecting = asyncio.Lock()
        self._lanes = Lanes(options, self._ready, now_ms)
        self._renewal: asyncio.Task[None] | None = None
        self._was_empty = False
        self._has_connected = False
        self._opening: asyncio.Task[Namespace] | None = None
        self._is_left_out = False
        self.away: str | None = None  # Why the broker cannot be read at present.
        self._waiting: dict[str, int] | None = None
        self._waiting_at_s = -WAITING_S
        self._counting: asyncio.Task[None] | None = None

    # What is asked from outside

    def receive(self, limit: Limit, wait_s: float, known: Callable[[Key], bool]) -> list[Staged]:
        """Messages under lock, at most so many that are not known.

        A broker that cannot be reached for a while has no messages for a while, unless this is to end: then what
        cannot be reached is not taken for empty.
        """
        is_patient = self._lanes.caps is None and (self._has_connected or not self._options.fail_on_unreachable)
        try:
            if self._is_left_out:
                time.sleep(wait_s)
                return []
            found = self._loop.run(self._receive(limit, wait_s, known, is_patient))
        except ClientError as error:
            if not error.transient or not is_patient:
                raise in_words(error) from error
            self.away = str(in_words(error))
            _log.warning("%s cannot be read at present: %s", self.namespace, error)
            time.sleep(wait_s)
            return []
        self.away = None
        return found

    def settle(
        self, keys: Iterable[Key], outcome: Outcome = Outcome.COMPLETE, properties: dict[str, Any] | None = None
    ) -> set[Key]:
        """Settle what is held here; those of which the broker confirmed it."""
        return self._loop.run(self._lanes.settle(keys, outcome, properties))

    def let_go(self, keys: Iterable[Key]) -> None:
        """Hold these no longer: their locks end by themselves."""
        for key in keys:
            self._lanes.forget(key)

    def present(self, keys: Iterable[Key]) -> set[Key]:
        """Those of the keys that are still in their entities; all of them, if nobody can tell."""
        wanted = set(keys)
        try:
            return self._loop.run(self._present(wanted))
        except ClientError:
            return wanted

    def freeze(self) -> None:
        """From now on take only what is there now; of a broker that may be away, and is, nothing."""
        try:
            self._lanes.caps = self._loop.run(self._caps())
        except ClientError as error:
            if not error.transient or self._options.fail_on_unreachable:
                raise in_words(error) from error
            self._is_left_out, self._lanes.caps = True, {}
            self.away = str(in_words(error))

    def waiting(self) -> dict[str, int] | None:
        """How many messages waited in each entity a short while ago; None if that is not to be had."""
        self._loop.run(self._begin_counting())
        return self._waiting

    def use(self, work: Callable[[Namespace], Coroutine[Any, Any, T]], instead: T | None = None) -> T:
        """Do something else over the same connection; `instead` is for when it cannot be reached."""

        async def ready() -> T:
            return await work(await self._ready())

        try:
            return self._loop.run(ready())
        except ClientError as error:
            if instead is not None and error.transient and self._has_connected:
                return instead
            raise in_words(error) from error

    @property
    def subscribed(self) -> Subscribed:
        """Which entities are read."""
        return self._options.subscribed

    @property
    def namespace(self) -> str:
        """What the namespace is called."""
        return namespace_of(self._options.target.resolve())

    def close(self) -> None:
        """Give back what is held, close the connection and end the thread."""
        with suppress(Exception):
            self._loop.run(self._let_all_go())
        self._loop.stop()

    # The connection

    async def _ready(self) -> Namespace:
        """An open connection, and the entities that are read."""
        async with self._connecting:
            return await self._connected()

    async def _reached(self, wait_s: float) -> None:
        """The same, for those who have others to ask: it is waited for so long, and tried on beside them."""
        opening = self._opening = self._opening or asyncio.create_task(self._ready())
        await asyncio.wait({opening}, timeout=max(wait_s, CONNECT_S))
        if not opening.done():
            raise ClientError(CONNECTION_LOST, f"{self.namespace} has not answered yet")
        self._opening = None
        opening.result()

    async def _connected(self) -> Namespace:
        found = self._namespace
        if found is None or found.connection.error is not None:
            await self._drop()
            found = Namespace(self._options.target)
            await found.__aenter__()
            self._namespace = found
            self._has_connected = True
            longest_s = self._options.max_lock_renewal_s
            renewer = Renewer(self._lanes.locks, self._lanes.all, self._node, self._now_ms, longest_s)
            self._renewal = asyncio.create_task(renewer.run())
        now_s, again_s = time.monotonic(), PATTERN_S if self._options.subscribed.pattern else math.inf
        if self._entities_at_s is None or now_s - self._entities_at_s > again_s:
            self._entities = await found.entities(self._options.subscribed)
            self._entities_at_s = now_s
        return found

    async def _drop(self) -> None:
        """Forget a connection with all that was locked over it."""
        if self._renewal is not None:
            self._renewal.cancel()
        self._lanes.clear()
        found, self._namespace = self._namespace, None
        if found is not None:
            with suppress(ClientError):
                await found.__aexit__()

    async def _let_all_go(self) -> None:
        """Whoever is next need not wait for the locks to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVE_BACK_S):
                await self._lanes.settle(list(self._lanes.locks), Outcome.RELEASE)
        if self._opening is not None:
            self._opening.cancel()
        await self._drop()

    async def _node(self, entity: str) -> Management:
        """The management node of an entity, over the connection that there is."""
        found = self._namespace
        if found is None or found.connection.error is not None:
            raise ClientError(CONNECTION_LOST, "there is no connection")
        return await found.management(self._options.subscribed.address(entity))

    # Receiving

    async def _receive(
        self, limit: Limit, wait_s: float, known: Callable[[Key], bool], is_patient: bool
    ) -> list[Staged]:
        await (self._reached(wait_s) if is_patient else self._ready())
        if not self._entities:
            await asyncio.sleep(wait_s)  # A pattern that nothing matches yet.
        chunk = CHUNK if limit.bytes is None else CHUNK_BY_BYTES
        taken: list[Staged] = []
        fresh = size = 0
        entities = self._entities
        wait_now_s = wait_s if self._was_empty else 0.0
        while entities and fresh < limit.messages and (limit.bytes is None or size < limit.bytes):
            share = min(-(-(limit.messages - fresh) // len(entities)), chunk)
            try:
                lots = await self._round(entities, share, wait_now_s)
            except ClientError:
                if not taken:
                    raise
                break  # What was taken before is held; the error will come again.
            found = [message for lot in lots.values() for message in lot]
            if not found and not taken and wait_now_s < wait_s:
                wait_now_s = wait_s  # Nothing is there: now it may take its time.
                continue
            wait_now_s = 0.0
            taken += found
            new = [message for message in found if not known(Key(message.entity, message.number))]
            fresh += len(new)
            size += sum(len(message.payload) for message in new)
            entities = [entity for entity, lot in lots.items() if lot]
        self._was_empty = not taken
        return taken

    async def _round(self, entities: list[str], share: int, wait_s: float) -> dict[str, list[Staged]]:
        """Ask all entities; when one has answered with messages, the others have no more time.

        What one of them has handed out is held, and must not be forgotten because another one failed.
        """
        take = self._lanes.take
        plain = [entity for entity in entities if self._lanes.is_plain(entity)]
        ended: dict[str, list[Staged] | BaseException] = {}
        if wait_s and plain and len(entities) > 1:
            tasks = {entity: asyncio.create_task(take(entity, share, wait_s)) for entity in plain}
            waiting = set(tasks.values())
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if any(task.exception() is not None or task.result() for task in done):
                    break
            for task in waiting:
                task.cancel()  # What came meanwhile stays in the receiver, and is taken below.
            results = await asyncio.gather(*tasks.values(), return_exceptions=True)
            ended = dict(zip(tasks, results, strict=True))
            wait_s = 0.0
        left = [each for each in entities if each not in ended or isinstance(ended[each], asyncio.CancelledError)]
        rest = await asyncio.gather(*(take(entity, share, wait_s) for entity in left), return_exceptions=True)
        ended |= dict(zip(left, rest, strict=True))
        lots = {entity: lot for entity, lot in ended.items() if isinstance(lot, list)}
        problems = [problem for problem in ended.values() if isinstance(problem, BaseException)]
        if problems and not any(lots.values()):
            raise problems[0]
        return lots

    # Looking

    async def _present(self, wanted: set[Key]) -> set[Key]:
        await self._ready()
        found: set[Key] = set()
        for entity in {key.entity for key in wanted}:
            numbers = sorted(key.number for key in wanted if key.entity == entity)
            async for page in find(await self._node(entity), numbers):
                found.update(Key(entity, seen.number) for seen in page)
        return found

    async def _caps(self) -> dict[tuple[str, int], int]:
        await self._ready()
        caps = {}
        for entity in self._entities:
            for part, number in (await last_numbers(await self._node(entity))).items():
                caps[entity, part] = number
        return caps

    async def _begin_counting(self) -> None:
        """Count in the background: whoever asks is told what was counted last."""
        if time.monotonic() - self._waiting_at_s > WAITING_S and (self._counting is None or self._counting.done()):
            self._waiting_at_s = time.monotonic()
            self._counting = asyncio.create_task(self._count())

    async def _count(self) -> None:
        try:
            namespace = await self._ready()
            self._waiting = await namespace.waiting(self._entities, self._options.subscribed.sub_queue)
        except ClientError:
            self._waiting = None  # Not everybody may manage, and nobody needs it.
