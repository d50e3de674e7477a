"""The catalog that several gateways share, as one of them sees it: changes go out, those of the others come in.

Runs the database's calls on a thread of its own. What a change means to the namespace is `entities.shared`'s business;
hearing of it at once is `broker.listening`'s, and a sign of life each second finds what was not heard.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from twinbus.broker.clock import DatabaseClock
from twinbus.entities.shared import CatalogChanges
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.store.catalog import EntityRow
from twinbus.store.postgres.catalog import CatalogDatabase, GatewayRow, Reading
from twinbus.store.quarantine import Held

_log = EventLog(__name__)

BEAT_S = 1.0
LEAVE_S = 2.0
SPREAD_S = 1.0  # How long a change waits for gateways that do not answer; they find it with their next beat.
T = TypeVar("T")


class _Seen:
    """The change of a row that the namespace's memory was made from; own changes of it move it on."""

    __slots__ = ("change",)

    def __init__(self, change: int) -> None:
        self.change = change


class SharedCatalog:
    """Implements the entities' port over a database."""

    def __init__(self, database: CatalogDatabase, clock: DatabaseClock, label: str) -> None:
        self._database = database
        self._clock = clock
        self._label = label
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog")
        self._taken_over: Callable[[CatalogChanges], None] | None = None
        self._known = 0  # Everything up to this change is in the namespace's memory.
        self._own = 0  # The newest change made here.
        self._entities: dict[int, _Seen] = {}
        self._meta: dict[str, _Seen] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._next_refresh: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._somebody_has_seen = asyncio.Event()
        self._is_out_of_reach = False
        self.members: list[GatewayRow] = []  # The gateways that were alive a moment ago.

    @property
    def gateway(self) -> int:
        """This gateway's number."""
        return self._database.gateway

    @property
    def channel(self) -> str:
        """Where changes are told."""
        return self._database.channel

    # Starting and stopping

    async def join(self, tries: int) -> None:
        """Become one of the gateways, when no other is just starting. `started` lets the next one in."""
        for left in reversed(range(tries)):
            try:
                await self._call(self._database.begin_start)
                break
            except BusError as error:
                if error.fault is not Fault.SERVER_BUSY or not left:
                    raise
        await self._call(self._database.join, self._label)
        await self._sign_of_life()

    async def load(self) -> tuple[dict[str, str], list[EntityRow]]:
        """Everything, at start. Until `begin`, changes of others are not taken over."""
        reading = await self._call(self._database.read)
        self._note(reading)
        return {key: value for key, (value, _) in reading.meta.items()}, [row for row, _ in reading.rows]

    async def unmade(self, held: list[list[Held]]) -> list[list[Held]]:
        """Without what some gateway is just making, the entities that each store holds."""
        making = await self._call(self._database.making, [each.entity for entities in held for each in entities])
        return [[each for each in entities if each.entity not in making] for entities in held]

    async def dropping(self) -> dict[int, int]:
        """What was removed and is perhaps still in its store."""
        return await self._call(self._database.dropping)

    async def keep_ids_above(self, number: int) -> None:
        """Give out no number up to this one."""
        await self._call(self._database.keep_ids_above, number)

    async def started(self) -> None:
        """Let the next gateway start."""
        await self._call(self._database.end_start)

    def begin(self, taken_over: Callable[[CatalogChanges], None]) -> None:
        """Take over changes of other gateways from now on."""
        self._taken_over = taken_over
        self._beating = asyncio.create_task(self._beat())

    async def close(self) -> None:
        """Leave the others and release the connection."""
        for task in (self._beating, self._refreshing, self._next_refresh):
            if task is not None:
                task.cancel()
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._call(self._database.leave)
                await self._call(self._database.close)
        except (BusError, TimeoutError):
            _log.warning(
                "gateway.unsaid", "the catalog's database was not told of this gateway's end; the others will notice it"
            )
        self._executor.shutdown(wait=False, cancel_futures=True)

    # The port

    async def take_ids(self, count: int) -> int:
        """Numbers for new entities."""
        return await self._call(self._database.take_ids, count)

    async def put(self, row: EntityRow) -> None:
        """Store or replace an entity's row, unless another gateway has changed it meanwhile."""
        seen = self._entities.setdefault(row.id, _Seen(0))
        await self._change(seen, partial(self._database.put, row))

    @property
    def generation(self) -> int:
        """How many changes there were, as far as this gateway knows."""
        return max(self._known, self._own)

    async def take_up(self, row: EntityRow) -> None:
        """Store the row of an entity that stores hold and the catalog has not."""
        seen = self._entities.setdefault(row.id, _Seen(0))
        await self._change(seen, partial(self._database.put, row, is_taken_up=True))

    async def dropped(self, parts: Iterable[int]) -> None:
        """The stores have dropped these."""
        await self._call(self._database.dropped, list(parts))

    async def remove(self, entity: int, parts: Mapping[int, int] | None = None) -> None:
        """Forget an entity, and remember that its stores are to drop it."""
        change = await self._call(self._database.remove, entity, parts)
        self._own = max(self._own, change)
        self._entities.pop(entity, None)

    async def set_meta(self, key: str, value: str) -> None:
        """Store a value of the namespace itself, unless another gateway has changed it meanwhile."""
        seen = self._meta.setdefault(key, _Seen(0))
        await self._change(seen, partial(self._database.set_meta, key, value))

    async def note(self, values: Mapping[str, str]) -> None:
        """Keep what is known of the stores."""
        for key, value in values.items():
            await self.set_meta(key, value)

    async def _change(self, seen: _Seen, write: Callable[[int], int]) -> None:
        def run() -> int:
            # On the thread, where own changes of the row follow one another.
            seen.change = write(seen.change)
            return seen.change

        try:
            change = await self._call(run)
        except BusError as error:
            if error.fault is not Fault.ENTITY_EXISTS:
                # What is in memory is old, or perhaps new: the row is read again when the caller is done with it.
                self._known = min(self._known, max(seen.change - 1, 0))
                seen.change = 0
            self.changed()
            raise
        self._own = max(self._own, change)

    async def share_use(self, used: Mapping[int, int]) -> dict[int, int]:
        """When entities were last used through any gateway."""
        return await self._call(self._database.share_use, used)

    async def spread(self) -> None:
        """Wait until all gateways that are alive have taken over what was changed here."""
        change, deadline = self._own, time.monotonic() + SPREAD_S
        while True:
            self._somebody_has_seen.clear()
            try:
                if not await self._call(self._database.behind, change):
                    return
            except BusError:
                return  # The change itself is durable, and whoever comes back finds it.
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                _log.warning(
                    "gateway.silent", "a gateway of the namespace does not answer; it will find the change by itself"
                )
                return
            try:
                async with asyncio.timeout(min(left_s, 0.1)):
                    await self._somebody_has_seen.wait()
            except TimeoutError:
                pass

    async def refresh(self) -> None:
        """Take over what is in the database now. Raises nothing: out of reach, memory is all there is."""
        # A refresh that has begun may have read already; the next one serves all who ask until it begins.
        if self._next_refresh is None:
            self._next_refresh = asyncio.create_task(self._refresh_after(self._refreshing))
        await asyncio.shield(self._next_refresh)

    # What is heard

    def heard(self, payload: str) -> None:
        """A notification of the catalog's channel; an empty one when some may have been missed."""
        if payload != "change":
            self._somebody_has_seen.set()
        if payload != "seen":
            self.changed()

    def changed(self) -> None:
        """Something may have changed: look."""
        if self._taken_over is not None and self._next_refresh is None:
            self._next_refresh = asyncio.create_task(self._refresh_after(self._refreshing))

    async def _refresh_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        self._refreshing, self._next_refresh = asyncio.current_task(), None
        try:
            reading = await self._call(self._database.read, self._known)
            if reading.change == self._known:
                return
            self._take_over(reading)
            await self._sign_of_life()
        except BusError as error:
            self._out_of_reach(error)

    def _take_over(self, reading: Reading) -> None:
        rows = [row for row, change in reading.rows if change > self._entities.get(row.id, _Seen(0)).change]
        meta = {
            key: value for key, (value, change) in reading.meta.items() if change > self._meta.get(key, _Seen(0)).change
        }
        self._note(reading)
        if self._taken_over is not None:
            self._taken_over(CatalogChanges(meta, rows, reading.ids))

    def _note(self, reading: Reading) -> None:
        self._known = reading.change
        for row, change in reading.rows:
            if change > self._entities.get(row.id, _Seen(0)).change:
                self._entities[row.id] = _Seen(change)
        for key, (_, change) in reading.meta.items():
            if change > self._meta.get(key, _Seen(0)).change:
                self._meta[key] = _Seen(change)
        for entity in self._entities.keys() - reading.ids:
            # Those without a change are being made here, and newer ones were made since this was read.
            if 0 < self._entities[entity].change <= reading.change:
                del self._entities[entity]

    async def _beat(self) -> None:
        while True:
            try:
                await self._sign_of_life()
                if self._is_out_of_reach:
                    self._is_out_of_reach = False
                    _log.info("catalog.up", "the catalog's database answers again")
            except BusError as error:
                self._out_of_reach(error)
            except Exception:
                _log.exception("gateway.beat.failed", "a sign of life failed")  # The next one may not.
            await asyncio.sleep(BEAT_S)

    async def _sign_of_life(self) -> None:
        def beat() -> tuple[int, bool]:
            before_ms = self._clock.local_ms()
            answer = self._database.beat(self._known)
            self._clock.measured(answer.now_ms, before_ms, self._clock.local_ms())
            if not answer.is_known:
                self._database.rejoin(self._label)
            self.members = self._database.gateways()
            return answer.change, answer.is_known

        change, is_known = await self._call(beat)
        if not is_known:
            _log.warning(
                "gateway.back", "this gateway was silent for so long that the others had given it up; it is back"
            )
        if change != self._known:
            self.changed()

    def _out_of_reach(self, error: BusError) -> None:
        if not self._is_out_of_reach:
            self._is_out_of_reach = True
            _log.error("catalog.down", "entities cannot be changed for the time being: {error}", error=error.text)

    async def _call(self, operation: Callable[..., T], *values: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, operation, *values)
