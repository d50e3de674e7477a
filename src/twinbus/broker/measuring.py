"""The numbers of a process for its metrics: what doors, stores and the machine have counted, under their public names.

Read once for each scrape, bounded in time. Counters are there from the start and stay; what a metric means is told in
`model.metrics`.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from twinbus import __version__
from twinbus.broker.opened import STORE_STATES
from twinbus.model.address import SubQueue, backlog_of
from twinbus.model.errors import Fault
from twinbus.model.message import Counts
from twinbus.model.metrics import Labels, Numbers, Value
from twinbus.store.sums import EVENTS, KINDS
from twinbus.store.surveying import Stand, Survey

if TYPE_CHECKING:
    from twinbus.broker.hosting import Hosted

SURVEY_S = 1.0  # So long a scrape waits for the stores; who has not answered is as it last was.
FRESH_S = 1.0  # Two scrapes closer than this get the same.
DISK_S = 0.5
# A store stops taking messages when 8 MiB cannot be laid aside; this leaves time to act.
DISK_FREE_LIMIT_BYTES = 256 * 1024 * 1024
STATES = ("active", "locked", "scheduled", "deferred", "deadletter")
_AUTH_REASONS = ("sasl", Fault.AUTHENTICATION_FAILED.value, Fault.UNAUTHORIZED.value)
_DOORS = (
    "messages_accepted",
    "messages_rejected",
    "messages_presettled_dropped",
    "connections",
    "protocol_errors",
    "rest_requests",
)


class Sheet:
    """Numbers by name and labels, in the making."""

    def __init__(self) -> None:
        self.numbers: dict[str, dict[Labels, Value]] = {}

    def put(self, name: str, value: Value, **labels: str) -> None:
        """Enter one sample."""
        self.numbers.setdefault(f"twinbus_{name}", {})[tuple(labels.items())] = value


class Measures:
    """Numbers of one namespace that have to be asked for."""

    def __init__(self, hosted: Hosted, *, by_entity: bool) -> None:
        self._hosted = hosted
        self._by_entity = by_entity
        self._stands: dict[int, dict[int, Stand]] = {}  # By store.
        self._surveys: dict[int, asyncio.Future[Survey]] = {}  # That are not answered yet, by store.
        self._surveyed_at_s = -FRESH_S
        self._looking: asyncio.Future[int] | None = None  # At the disk; one look at a time, as each may hang.
        self.free_bytes: int | None = None  # None while the disk has never answered, or there is none.

    async def look(self) -> None:
        """Ask the stores and the disk, all at once and not for long."""
        now_s = time.monotonic()
        if now_s - self._surveyed_at_s >= FRESH_S:
            self._surveyed_at_s = now_s
            await asyncio.gather(self._survey(), self.look_at_disk())

    async def _survey(self) -> None:
        up = [store for store in self._hosted.stores if store.is_available]
        # A store that owes an answer is not asked again, and not waited for.
        asked = {store.number: store.call(Survey(queue=0)) for store in up if store.number not in self._surveys}
        self._surveys |= asked
        if asked:
            await asyncio.wait(asked.values(), timeout=SURVEY_S)
        for number in [number for number, survey in self._surveys.items() if survey.done()]:
            survey = self._surveys.pop(number)
            if survey.exception() is None:
                self._stands[number] = survey.result().result
        self._stands = {store.number: self._stands.get(store.number, {}) for store in up}

    async def look_at_disk(self) -> bool:
        """Whether the disk has told how much is free; one that hangs is not waited for."""
        if self._hosted.settings.store:
            return True
        if self._looking is None:
            self._looking = asyncio.get_running_loop().run_in_executor(None, self._free)
        looking = self._looking
        done, _ = await asyncio.wait([looking], timeout=DISK_S)
        if not done:
            return False
        self._looking = None
        if looking.exception() is not None:
            return False
        self.free_bytes = looking.result()
        return True

    def _free(self) -> int:
        return shutil.disk_usage(self._hosted.settings.data_directory).free

    def write_counted(self, sheet: Sheet) -> None:
        """Enter what is counted all the time."""
        hosted = self._hosted
        name = hosted.settings.name
        self._write_stores(sheet, name)
        for what, value in hosted.counters().items():
            sheet.put(what, value, namespace=name)
        sheet.put("namespace_info", 1, namespace=name, datacenter=hosted.settings.datacenter)
        if hosted.exporter is not None:
            for what, samples in hosted.exporter.metrics().items():
                for labels, number in samples.items():
                    sheet.put(what, number, **dict(labels))

    def write_found(self, sheet: Sheet) -> None:
        """Enter what the last look has found."""
        name = self._hosted.settings.name
        self._write_messages(sheet, name)
        if self.free_bytes is not None:
            sheet.put("disk_free_bytes", self.free_bytes, namespace=name)
            sheet.put("disk_free_limit_bytes", DISK_FREE_LIMIT_BYTES, namespace=name)

    def _write_stores(self, sheet: Sheet, namespace: str) -> None:
        stores = self._hosted.stores
        for event in EVENTS:
            what = "lock_expired_total" if event == "lock_expired" else f"messages_{event}_total"
            sheet.put(what, sum(store.sums.events[event] for store in stores), namespace=namespace)
        for kind in KINDS:
            count = sum(store.sums.billable[kind] for store in stores)
            sheet.put("billable_operations_total", count, namespace=namespace, kind=kind)
        for store in stores:
            where = {"namespace": namespace, "store": str(store.number)}
            sheet.put("store_up", int(store.is_available), **where)
            for state in STORE_STATES:
                sheet.put("store_state", int(store.state_name == state), **where, state=state)
            sheet.put("commit_fsync_seconds", store.commit_times.spread.histogram(), **where)

    def _write_messages(self, sheet: Sheet, namespace: str) -> None:
        now_ms = self._hosted.clock.now_ms()
        backlogs: dict[str, list[Stand]] = {}
        apart: set[tuple[int, int]] = set()
        for entity in self._hosted.namespace.entities():
            primary = backlog_of(entity.path)
            if primary is None and not self._by_entity:
                continue
            places = [(fragment.store_index, fragment.number(SubQueue.MAIN) >> 2) for fragment in entity.fragments]
            stands = [self._stands[store][at] for store, at in places if at in self._stands.get(store, {})]
            if primary is not None:
                backlogs.setdefault(primary, []).extend(stands)
                apart.update(places)
            if self._by_entity:
                for state, count in _by_state(stands):
                    sheet.put("entity_messages", count, namespace=namespace, entity=entity.path, state=state)
                age = _oldest_s(stands, now_ms)
                sheet.put("entity_oldest_message_age_seconds", age, namespace=namespace, entity=entity.path)
        everything = [((store, at), stand) for store, held in self._stands.items() for at, stand in held.items()]
        for state, count in _by_state([stand for _, stand in everything]):
            sheet.put("messages", count, namespace=namespace, state=state)
        own = [stand for place, stand in everything if place not in apart]
        sheet.put("oldest_message_age_seconds", _oldest_s(own, now_ms), namespace=namespace)
        for primary, stands in backlogs.items():
            counts = _total(stands)
            waiting = counts.active + counts.deferred + counts.scheduled
            sheet.put("backlog_messages", waiting, namespace=namespace, primary=primary)
            sheet.put("backlog_oldest_seconds", _oldest_s(stands, now_ms), namespace=namespace, primary=primary)
            sheet.put("backlog_deadletter_messages", counts.dead_letter, namespace=namespace, primary=primary)


def write_door(sheet: Sheet, namespace: str, counted: Callable[[str], int]) -> None:
    """Enter what a namespace's doors have counted; every name, from the start."""
    for name in _DOORS:
        sheet.put(f"{name}_total", counted(name), namespace=namespace)
    received = counted("messages_accepted") + counted("messages_rejected")
    sheet.put("messages_received_total", received, namespace=namespace)
    for fault in Fault:
        sheet.put("refusals_total", counted(f"refused_{fault.value}"), namespace=namespace, reason=fault.value)
    for reason in _AUTH_REASONS:
        sheet.put("auth_failures_total", counted(f"refused_{reason}"), namespace=namespace, reason=reason)


def write_process(sheet: Sheet, lag_s: float, drift_s: float, certificate_expires_s: int | None) -> Numbers:
    """Enter what is of the process and of no namespace; the whole sheet."""
    sheet.put("build_info", 1, version=__version__, python=platform.python_version())
    sheet.put("event_loop_lag_seconds", lag_s)
    sheet.put("clock_drift_seconds", drift_s)
    if certificate_expires_s is not None:
        sheet.put("certificate_expires_timestamp_seconds", certificate_expires_s)
    return sheet.numbers


def _total(stands: Iterable[Stand]) -> Counts:
    return Counts(*map(sum, zip(Counts(), *(stand.counts for stand in stands), strict=True)))


def _by_state(stands: list[Stand]) -> zip[tuple[str, int]]:
    counts = _total(stands)
    dead = counts.dead_letter + counts.transfer_dead_letter
    locked = sum(stand.locked for stand in stands)
    return zip(STATES, (counts.active, locked, counts.scheduled, counts.deferred, dead), strict=True)


def _oldest_s(stands: Iterable[Stand], now_ms: int) -> float:
    oldest_ms = min((stand.oldest_ms for stand in stands if stand.oldest_ms is not None), default=now_ms)
    return max(0.0, (now_ms - oldest_ms) / 1000)
