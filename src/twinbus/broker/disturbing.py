"""Begins and ends faults on purpose in one namespace: at its doors, and at its messaging stores.

Exists only where the broker was started for it. How the doors behave then is `gateway`'s and `admin`'s business, how a
store does is `stores`'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from twinbus.admin.disturbing import Disturbed
from twinbus.broker.stores import StoreShell
from twinbus.entities.namespace import Namespace
from twinbus.model.clock import Clock
from twinbus.model.disturbance import FACTS, Disturbance, Suffering
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog

log = EventLog("twinbus.broker")

_Key = tuple[Disturbance, int | None]

# What each disturbance of the doors changes, and to what; the delay is the one that was asked for.
_AT_THE_DOORS: dict[Disturbance, Callable[[Suffering, int], None]] = {
    Disturbance.NAMESPACE_DOWN: lambda suffering, on: setattr(suffering, "is_down", bool(on)),
    Disturbance.BLACKHOLED: lambda suffering, on: setattr(suffering, "is_blackholed", bool(on)),
    Disturbance.THROTTLED: lambda suffering, on: setattr(suffering, "is_throttled", bool(on)),
    Disturbance.ANSWERS_LOST: lambda suffering, on: setattr(suffering, "loses_answers", bool(on)),
    Disturbance.VISIBILITY_DELAYED: lambda suffering, delay_ms: setattr(suffering, "visible_after_ms", delay_ms),
}


class NamespaceDisturber:
    """The faults on purpose of one namespace."""

    def __init__(self, namespace: Namespace, stores: Sequence[StoreShell], clock: Clock) -> None:
        """`clock` is the machine's: a fault lasts as long for its victims as for whoever ordered it."""
        self._namespace = namespace
        self._stores = {store.number: store for store in stores}
        self._clock = clock
        self._going_on: dict[_Key, Disturbed] = {}
        self._endings: dict[_Key, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[int]] = set()

    def under_way(self) -> Sequence[Disturbed]:
        """What is going on."""
        return list(self._going_on.values())

    async def begin(self, what: Disturbance, *, store: int | None, delay_ms: int, for_ms: int | None) -> None:
        """Begin one, or change the one that is going on."""
        if store is not None and store not in self._stores:
            raise BusError(Fault.ARGUMENT, f"There is no messaging store {store}: they are numbered from 0.")
        key, now_ms = (what, store), self._clock.now_ms()
        self._forget_ending(key)
        await self._apply(what, store, delay_ms if FACTS[what].delays else 1)
        until_ms = None if for_ms is None else now_ms + for_ms
        self._going_on[key] = Disturbed(what, now_ms, until_ms, store, delay_ms)
        if for_ms is not None:
            ending = asyncio.get_running_loop().call_later(for_ms / 1000, self._end_soon, what, store)
            self._endings[key] = ending
        self._tell(what, "begin", store)

    async def lift(self, what: Disturbance, store: int | None = None) -> int:
        """End one, on one store or on all; how many were ended."""
        keys = [key for key in self._going_on if key[0] is what and store in (None, key[1])]
        for key in keys:
            self._forget_ending(key)
            del self._going_on[key]
            await self._apply(what, key[1], 0)
            self._tell(what, "end", key[1])
        return len(keys)

    def close(self) -> None:
        """End nothing any more."""
        for ending in self._endings.values():
            ending.cancel()

    def _end_soon(self, what: Disturbance, store: int | None) -> None:
        task = asyncio.get_running_loop().create_task(self.lift(what, store))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget_ending(self, key: _Key) -> None:
        if ending := self._endings.pop(key, None):
            ending.cancel()

    async def _apply(self, what: Disturbance, store: int | None, value: int) -> None:
        """Let it begin with a value, or end with 0."""
        if store is None:
            _AT_THE_DOORS[what](self._namespace.suffering, value)
            for tell in self._namespace.on_disturbed:
                tell()
            return
        shell = self._stores[store]
        if what is Disturbance.STORE_FULL:
            shell.is_refusing = bool(value)
        elif what is Disturbance.STORE_SLOW:
            shell.slow_down(value / 1000)
        elif value:
            await shell.take_down("It was taken down on purpose.")
        else:
            await shell.bring_up()

    def _tell(self, what: Disturbance, change: str, store: int | None) -> None:
        """In the log and in the journal, so that nobody looks for the cause elsewhere later."""
        where = "" if store is None else f" of store {store}"
        log.warning(
            "fault.changed", "a fault on purpose{where}: {fault} {change}", where=where, fault=what.value, change=change
        )
        self._namespace.note_fault(what.value, change, store or 0)
