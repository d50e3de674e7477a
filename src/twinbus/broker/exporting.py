"""A namespace's journal becomes files: when a range is closed, who writes it, and what is done when a disk is full.

The event loop only decides; reading, packing and writing happen on one thread beside it, which leaves the interpreter
to others most of the time. What is in a file is `store.export`'s business, what a store remembers `store.ranges`'.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from twinbus.broker.settings import JournalSettings
from twinbus.broker.stores import StoreShell
from twinbus.broker.threads import Worker
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.failpoints import failpoint
from twinbus.model.logged import EventLog
from twinbus.model.metrics import Labels
from twinbus.store import export_files
from twinbus.store.commands import Record, Sweep
from twinbus.store.export import DAY_MS, JournalSource, Limits, Place, Stream, day_of
from twinbus.store.range_commands import CloseRange, FinishRange, Range, Trim

_log = EventLog(__name__)

LOOK_S = 1.0  # So often it is looked whether a range has become old enough.
RETRY_S = 5.0  # So long nothing is tried after a failure, except when somebody asks.
RANGE_BYTES = 128 * 1024 * 1024
HOUSEKEEPING_S = 60.0
PRUNE_EVERY = 10  # There may be very many files, so they are looked at more seldom.
CLOSE_S = 10.0
DROPS_TRIES = 100
REST = 2  # For each second of work, so many of rest.
REST_S_MAX = 0.1


class Next(NamedTuple):
    """What is to be exported next of a stream."""

    stream: Stream
    part: Range | None


IsClosed: TypeAlias = Callable[[int, int], bool]  # Of how old the first row is, in its instant, and how many there are.


class StoreExport:
    """The export of one store's journal."""

    def __init__(self, place: Place, directory: Path, shell: StoreShell, opening: Callable[[], JournalSource]) -> None:
        """`opening` is called on the worker's thread."""
        self.shell = shell
        self.problem = ""  # Why the last attempt failed.
        self.is_ours = False  # Whether this gateway is the one that exports the store.
        self.streams: list[Stream] = []  # As they were found last.
        self._place = place
        self._directory = directory
        self._opening = opening
        self._source: JournalSource | None = None
        self._opened_for = 0
        self._names = export_files.Names()
        self._in_files: dict[int, int] = {}  # The last transaction of each writer that files had at the beginning.
        self._at_work = asyncio.Lock()

    async def export(self, worker: Worker, limits: Limits, is_closed: IsClosed, hurry: bool) -> bool:
        """Write files of all ranges that are closed; False when another gateway does that."""
        async with self._at_work:
            found = await worker.do(partial(self._look, limits, is_closed))
            for each in found or ():
                await self._export_stream(worker, each, limits, is_closed, hurry)
            if found:
                await worker.do(partial(self._look, limits, _never))
            self.problem = ""
            return found is not None

    async def _export_stream(
        self, worker: Worker, found: Next, limits: Limits, is_closed: IsClosed, hurry: bool
    ) -> None:
        stream, part = found
        while part is not None:
            if part != stream.open:
                if not is_closed(part.from_ms, stream.newest - stream.exported):
                    return
                self._check_place(stream, part)
                await self.shell.call(CloseRange(queue=0, range=part))
            await worker.do(partial(self._write, part, hurry))
            failpoint("journal.export.before_mark")
            await self.shell.call(FinishRange(queue=0, range=part))
            stream = stream._replace(exported=part.last, open=None)
            part = await worker.do(partial(self._next_range, stream, limits))

    def _check_place(self, stream: Stream, part: Range) -> None:
        """Refuse to mix two histories under the same numbers, and say what is missing for good."""
        if part.first <= self._in_files.get(part.writer, 0):
            raise BusError(
                Fault.NOT_ALLOWED,
                f"{self._directory} has files of transactions that this store has not written: it was replaced, or is"
                " an older copy of itself. Give its journal another directory.",
            )
        if stream.exported and part.first > stream.exported + 1:
            text = (
                "store {store}: the journal's rows {first} to {last} of writer {writer} were removed before they were"
                " exported"
            )
            lost = {"first": stream.exported + 1, "last": part.first - 1, "writer": part.writer}
            _log.error("journal.gap", text, store=self.shell.number, **lost)

    async def trim(self, before_ms: int, keep_bytes: int) -> None:
        """Remove from the store what is in files."""
        while self.is_ours and self.shell.is_available:
            command = Trim(queue=0, before_ms=before_ms, keep_bytes=keep_bytes)
            if not (await self.shell.call(command)).result:
                return

    async def finish_drops(self, worker: Worker) -> None:
        """Have messages of deleted entities journaled now; another gateway may be at it."""
        async with self._at_work:
            for _ in range(DROPS_TRIES):
                if not await worker.do(self._waits_for_drops):
                    return
                if not (await self.shell.call(Sweep(queue=0))).result:
                    await asyncio.sleep(0.01)

    async def stored_bytes(self, worker: Worker) -> int:
        """What the journal takes up in the store; 0 if it cannot be told."""
        async with self._at_work:
            try:
                return await worker.do(self._measure) if self.shell.is_available else 0
            except Exception as error:
                text = "store {store}: its journal cannot be read: {error}"
                _log.warning("journal.unreadable", text, store=self.shell.number, error=error)
                return 0

    async def let_go(self, worker: Worker) -> None:
        """Close the source; a new one is opened when it is needed."""
        async with self._at_work:
            await worker.do(self._close_source)

    # On the worker's thread

    def _held(self) -> JournalSource | None:
        """The journal to read, if this gateway is to export it."""
        if self._opened_for != self.shell.opened_count:
            self._close_source()
        if self._source is None:
            self._opened_for = self.shell.opened_count
            self._source = self._opening()
            self._in_files = export_files.last_in(self._directory, self._place.namespace, self._place.store)
        self.is_ours = self._source.hold()
        return self._source if self.is_ours else None

    def _look(self, limits: Limits, is_closed: IsClosed) -> list[Next] | None:
        """Streams with an unfinished range, or with a next one that is closed; None when another gateway exports."""
        source = self._held()
        if source is None:
            return None
        self.streams = source.streams()
        return [
            Next(stream, stream.open or source.next_range(stream, limits))
            for stream in self.streams
            if stream.open is not None
            or (stream.oldest_ms is not None and is_closed(stream.oldest_ms, stream.waiting_rows))
        ]

    def _measure(self) -> int:
        source = self._held()
        return 0 if source is None else source.stored_bytes()

    def _next_range(self, stream: Stream, limits: Limits) -> Range | None:
        return None if self._source is None else self._source.next_range(stream, limits)

    def _write(self, part: Range, hurry: bool) -> None:
        if self._source is None:
            raise BusError(Fault.STORE_UNAVAILABLE, "The journal was closed.")
        place = self._place._replace(writer=part.writer)
        pause = _no_rest if hurry else _Resting()
        export_files.write(self._directory, place, part, self._source, self._names, pause)

    def _waits_for_drops(self) -> bool:
        source = self._held()
        return source is not None and source.waits_for_drops()

    def _close_source(self) -> None:
        source, self._source, self.is_ours = self._source, None, False
        if source is not None:
            source.close()


class _Resting:
    """Sleeps longer than was worked, so that those who serve clients hardly notice."""

    def __init__(self) -> None:
        self._woke_s = time.perf_counter()

    def __call__(self) -> None:
        time.sleep(min(REST * (time.perf_counter() - self._woke_s), REST_S_MAX))
        self._woke_s = time.perf_counter()


def _no_rest() -> None:
    """Somebody waits."""


class Exporter:
    """The export of one namespace, from `begin` to `close`."""

    def __init__(
        self,
        namespace: str,
        settings: JournalSettings,
        directory: Path,
        stores: Sequence[tuple[StoreShell, Callable[[], JournalSource]]],
        clock: Clock,
    ) -> None:
        self.directory = directory
        self._namespace = namespace
        self._settings = settings
        self._clock = clock
        self._worker = Worker(f"{namespace}-export")
        self._stores = [
            StoreExport(Place(namespace, shell.number, 0), directory, shell, opening) for shell, opening in stores
        ]
        self._limits = Limits(settings.rows, RANGE_BYTES)
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._kept_house_s = 0.0
        self._kept_house = 0

    def begin(self) -> None:
        """Export by itself from now on."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Export what there is, and let go; what a slow disk does not take in time, the next start exports."""
        self._ended.set()
        last = asyncio.create_task(self._finish())
        if not (await asyncio.wait([last], timeout=CLOSE_S))[0]:
            text = "the journal of '{namespace}' is not exported to its end: the next start goes on"
            _log.warning("journal.unfinished", text, namespace=self._namespace)
        self._worker.end()

    async def _finish(self) -> None:
        # What is under way is waited for, because a thread cannot be called back.
        if self._task is not None:
            await self._task
        for store in self._stores:
            await self._try(store, everything=True)
            await store.let_go(self._worker)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = min(LOOK_S, self._settings.interval_ms / 4000)
        not_before_s = dict.fromkeys(self._stores, 0.0)
        while not await self._ends_within(wait_s):
            for store in self._stores:
                if self._ended.is_set():
                    return
                if loop.time() >= not_before_s[store] and not await self._try(store):
                    not_before_s[store] = loop.time() + min(RETRY_S, 4 * wait_s)
            if loop.time() - self._kept_house_s >= min(HOUSEKEEPING_S, self._settings.interval_ms / 1000):
                self._kept_house_s = loop.time()
                await self._keep_house()

    async def _ends_within(self, wait_s: float) -> bool:
        try:
            await asyncio.wait_for(self._ended.wait(), wait_s)
        except TimeoutError:
            return False
        return True

    async def _try(self, store: StoreExport, everything: bool = False) -> bool:
        """Export a store; what prevents it is told once, and kept for whoever asks."""
        try:
            if not store.shell.is_available:
                await store.let_go(self._worker)
                return True
            if everything:
                await store.shell.call(Record(queue=0, notes=[]))  # Behind all that was submitted.
            await store.export(self._worker, self._limits, _any if everything else self._is_closed, everything)
        except Exception as error:
            told = error.text if isinstance(error, BusError) else str(error) or type(error).__name__
            if told != store.problem:
                text = "store {store}: its journal cannot be exported now: {error}"
                _log.error("journal.export.failed", text, store=store.shell.number, error=told)
            store.problem = told
            await store.let_go(self._worker)
            return False
        return True

    def _is_closed(self, oldest_ms: int, rows: int) -> bool:
        """Whether a range is as large as it may be, or old enough, or of a day that is over."""
        now_ms = self._clock.now_ms()
        is_old = now_ms - oldest_ms >= self._settings.interval_ms or now_ms // DAY_MS != oldest_ms // DAY_MS
        return is_old or rows >= self._limits.rows

    async def _keep_house(self) -> None:
        """Remove what is in files from the stores, and files that are old."""
        settings, now_ms = self._settings, self._clock.now_ms()
        try:
            for store in self._stores:
                await store.trim(now_ms - settings.keep_in_store_ms, settings.keep_in_store_bytes)
            self._kept_house += 1
            if self._kept_house % PRUNE_EVERY == 1:
                await self._worker.do(partial(self._prune, now_ms))
        except (BusError, OSError) as error:
            text = "the journal of '{namespace}' could not be trimmed: {error}"
            _log.error("journal.trim.failed", text, namespace=self._namespace, error=error)

    def _prune(self, now_ms: int) -> None:
        files = export_files.files_in(self.directory, self._namespace)
        before_day = day_of(now_ms - self._settings.keep_files_ms - DAY_MS)
        gone = export_files.superfluous(files, before_day, self._settings.keep_files_bytes)
        if gone:
            text = "{files} old files of the journal in {directory} are removed"
            _log.info("journal.files.removed", text, files=len(gone), directory=self.directory)
            export_files.remove(gone)

    # What an operator can ask

    async def export_now(self) -> dict[str, Any]:
        """Write everything that was committed so far; where it is, and the last position of each store and writer."""
        # In a task of its own, since whoever asks may go before a file is done.
        return await asyncio.shield(asyncio.create_task(self._export_now()))

    async def _export_now(self) -> dict[str, Any]:
        for store in self._stores:
            if not store.shell.is_available:
                continue
            try:
                await store.shell.call(Record(queue=0, notes=[]))  # Behind all that was submitted.
                await store.finish_drops(self._worker)
                ours = await store.export(self._worker, self._limits, _any, hurry=True)
            except BusError:
                raise
            except Exception as error:
                store.problem = str(error)
                await store.let_go(self._worker)
                raise BusError(Fault.STORE_UNAVAILABLE, f"The journal could not be exported: {error}") from error
            if not ours:
                text = f"Another gateway exports the journal of store {store.shell.number}: ask that one."
                raise BusError(Fault.SERVER_BUSY, text)
        return await self.describe()

    async def describe(self) -> dict[str, Any]:
        """How far each store's journal is in files, as it was found last."""
        files = await self._worker.do(partial(export_files.files_in, self.directory, self._namespace))
        return {
            "directory": str(self.directory.absolute()),
            "files": len(files),
            "file_bytes": sum(file.size for file in files),
            "stores": [_described(store, await store.stored_bytes(self._worker)) for store in self._stores],
        }

    def metrics(self) -> dict[str, dict[Labels, int]]:
        """What waits for its file and what keeps it from one, for each store."""
        waiting: dict[Labels, int] = {}
        failing: dict[Labels, int] = {}
        for store in self._stores:
            labels = (("namespace", self._namespace), ("store", str(store.shell.number)))
            waiting[labels] = sum(stream.waiting_rows for stream in store.streams)
            failing[labels] = int(bool(store.problem))
        return {"journal_waiting_rows": waiting, "journal_export_failing": failing}


def _any(oldest_ms: int, rows: int) -> bool:
    return True


def _never(oldest_ms: int, rows: int) -> bool:
    return False


def _described(store: StoreExport, stored_bytes: int) -> dict[str, Any]:
    return {
        "store": store.shell.number,
        "exports": store.is_ours,
        "problem": store.problem,
        "stored_bytes": stored_bytes,
        "writers": [
            {
                "writer": stream.writer,
                "exported": stream.exported,
                "newest": stream.newest,
                "waiting_rows": stream.waiting_rows,
            }
            for stream in store.streams
        ],
    }
