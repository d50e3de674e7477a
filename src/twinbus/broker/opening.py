"""Where a namespace is kept, opened and closed again: a directory of SQLite files, or PostgreSQL databases.

Gives the namespace with its stores to whoever hosts it; what the namespace then needs from time to time is the host's
business.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.belonging import Belongings, check_namespace
from twinbus.broker.clock import MovableClock, SystemClock
from twinbus.broker.datadir import DataDirectory
from twinbus.broker.opened import Audience
from twinbus.broker.settings import NamespaceSettings
from twinbus.broker.store_files import StoreFiles
from twinbus.broker.stores import CatalogShell, StoreShell
from twinbus.entities.namespace import CREATED_KEY, Namespace
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.sql.group import HOLD_S, Hold
from twinbus.store import catalog
from twinbus.store.catalog import CatalogFile
from twinbus.store.identity import NAMESPACE_KEY
from twinbus.store.quarantine import Position
from twinbus.store.sqlite import JOURNAL_RETENTION_MS, SqliteStore
from twinbus.wire import view

if TYPE_CHECKING:
    from twinbus.store.export import JournalSource


def new_uuid() -> UUID:
    """A random id, for rules that ask for one."""
    return UUID(bytes=os.urandom(16), version=4)


class Data(Protocol):
    """Where one namespace is kept."""

    @property
    def label(self) -> str:
        """Where that is, without any secret."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock that everything in it goes by."""
        ...

    @property
    def stores(self) -> Sequence[StoreShell]:
        """Its messaging stores, once it is open."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the status tells about it."""
        ...

    async def open(self) -> Namespace:
        """Open catalog and stores; after a failure, `close` releases what was opened."""
        ...

    @property
    def catalog_problem(self) -> str:
        """Why nothing can be changed in the catalog, if somebody has taken its files away."""
        ...

    def open_journal(self, index: int) -> JournalSource:
        """The journal of a store, for reading beside its commits; called on a thread."""
        ...

    async def started(self) -> None:
        """What the settings declare has been made."""
        ...

    async def note_stores(self) -> None:
        """Have the catalog know how far the stores are."""
        ...

    async def accept(self, index: int) -> None:
        """An operator says that the store in this place is the right one."""
        ...

    async def replace(self, index: int) -> str:
        """An operator gives up a store, and an empty one is made in its place; where the old one went."""
        ...

    def place(self) -> dict[str, Any]:
        """Where it is, for another process that looks at it."""
        ...

    def holding(self) -> AbstractAsyncContextManager[None]:
        """Nothing is changed while this lasts, which must be short, so that all of it can be seen at one instant."""
        ...

    async def close(self) -> None:
        """Finish commits and release everything."""
        ...


def data_of(settings: NamespaceSettings, clock: SystemClock | MovableClock, audience: Audience) -> Data:
    """Where the settings say that the namespace is."""
    if not settings.store:
        return EmbeddedData(settings, clock, audience)
    addresses = [DatabaseAddress(uri) for uri in settings.store]
    from twinbus.broker.shared_data import SharedData  # psycopg is for those who use it.

    return SharedData(settings, addresses, clock, audience)


class EmbeddedData:
    """SQLite files in a directory that this process has for itself."""

    def __init__(self, settings: NamespaceSettings, clock: Clock, audience: Audience) -> None:
        self.clock = clock
        self.stores: list[StoreShell] = []
        self._settings = settings
        self._audience = audience
        self._directory = DataDirectory(settings.data_directory)
        self._files = StoreFiles(self._directory)
        self._belonging: Belongings | None = None
        self._noted_commits: dict[int, int] = {}  # By store: how many there were when its position was noted.
        self._catalog: CatalogShell | None = None

    @property
    def label(self) -> str:
        """The directory."""
        return str(Path(self._directory.path))

    def describe(self) -> dict[str, Any]:
        """Who the namespace is, and how many changes its catalog has seen: both tell a restored one from another."""
        if self._belonging is None or self._catalog is None:
            return {}
        known = {"id": self._belonging.namespace, "generation": self._catalog.generation}
        return known | ({"catalog_problem": self.catalog_problem} if self.catalog_problem else {})

    @property
    def catalog_problem(self) -> str:
        """As it was when it was last looked after."""
        return "" if self._catalog is None else self._catalog.problem

    async def open(self) -> Namespace:
        """Open the files that belong together; what does not is left as it is, and said."""
        self._files.check_catalog_is_there()
        check_namespace(self._files, self._settings.namespace_id)
        # Looked at before it is opened: that would move its log, which may not even belong to it.
        if (seen := catalog.look(self._directory.catalog)) is not None:
            Belongings(self._files, *seen[:2]).check_catalog(seen[2])
        file = CatalogFile(str(self._directory.catalog))
        try:
            meta, rows = file.load()
            self._belonging = belonging = Belongings(self._files, meta, rows)
            if seen is None:
                belonging.check_catalog(file.generation)
            if belonging.is_new:
                file.note({NAMESPACE_KEY: belonging.namespace})
        except BaseException:
            file.close()
            raise
        self._catalog = shell = CatalogShell(file)
        for index in range(self._directory.stores(self._settings.stores, belonging.known)):
            store = StoreShell(index, partial(self._open_store, index), self.clock, self._audience)
            store.holds_still = True
            self.stores.append(store)
        await start_all(self.stores)
        file.keep_ids_above(max((each.entity for store in self.stores for each in store.held), default=0))
        namespace = Namespace(self._settings.name, self.clock, self.stores, shell, view, new_uuid)
        namespace.load(meta, rows, file.dropping())
        if CREATED_KEY not in meta:
            await namespace.keep_creation_date()
        for store in self.stores:
            if store.is_available:
                namespace.sort_out(store.number, store.held)
            store.holds_still = False
        belonging.expected = namespace.placed_on
        return namespace

    def _open_store(self, index: int) -> SqliteStore:
        """Runs on a thread."""
        assert self._belonging is not None
        belongs = self._belonging.check_store(index)
        path = str(self._directory.store(index))
        # Whoever exports the journal trims it.
        kept_ms = None if self._settings.journal.export else JOURNAL_RETENTION_MS
        epoch, now_ms = os.urandom(8), self.clock.now_ms()
        store = SqliteStore(
            path, epoch=epoch, now_ms=now_ms, number=index, journal_retention_ms=kept_ms, belonging=belongs
        )
        try:
            self._belonging.check_held(index, store.entities())
        except BaseException:
            store.close()
            raise
        assert store.identity is not None
        self._belonging.opened(store.identity)
        store.reached = partial(self._directory.marks.write, index, store.identity.store)
        return store

    async def note_stores(self) -> None:
        """Have the catalog know how far the stores are, so that an older copy of one is recognised."""
        if self._catalog is None or self._belonging is None:
            return
        await self._catalog.look_after()
        await asyncio.gather(*(self._note_position(store) for store in self.stores))
        if values := self._belonging.news():
            await self._catalog.note(values)

    async def _note_position(self, store: StoreShell) -> None:
        if not store.is_available or store.synced_commits == self._noted_commits.get(store.number):
            return
        assert self._belonging is not None
        with suppress(BusError):  # It has been lost meanwhile, or its disk is full: later, then.
            answer = await store.call(Position(queue=0))
            self._belonging.reached(store.number, answer.journal)
            self._noted_commits[store.number] = store.synced_commits

    async def accept(self, index: int) -> None:
        """An operator says that the store in this place is the right one."""
        assert self._belonging is not None
        assert self._catalog is not None
        await self._catalog.note(self._belonging.accept(index))

    async def replace(self, index: int) -> str:
        """An operator gives up a store: what lies there is moved away, and an empty one is made. Where it went."""
        assert self._belonging is not None
        assert self._catalog is not None
        moved, news = self._belonging.replace(index)
        await self._catalog.note(news)
        return moved

    def open_journal(self, index: int) -> JournalSource:
        """The journal of a store, for reading beside its commits."""
        from twinbus.store.journal_source import SqliteJournal  # Needed where the journal is exported only.

        return SqliteJournal(str(self._directory.store(index)))

    async def started(self) -> None:
        """Nobody waits for it."""

    def place(self) -> dict[str, Any]:
        """The directory."""
        return {"directory": str(self._directory.path.absolute())}

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Hold the commits of all stores that are up, and the catalog."""
        async with held([self._catalog, *self.stores]):
            yield

    async def close(self) -> None:
        """Finish commits, then let another process have the directory."""
        with suppress(BusError):
            await self.note_stores()
        await asyncio.gather(*(store.close() for store in self.stores))
        if self._catalog is not None:
            self._catalog.close()
        self._directory.release()


class Holdable(Protocol):
    """What has commits that can be held."""

    def hold(self, reached: Callable[[], None]) -> Hold | None:
        """Have them pause when the one under way is done; None if there are none."""
        ...


@asynccontextmanager
async def held(parts: Sequence[Holdable | None]) -> AsyncIterator[None]:
    """All of them pause between two commits at the same time; raises if they would have to for too long."""
    loop = asyncio.get_running_loop()
    holds: list[Hold] = []
    reached: list[asyncio.Future[None]] = []
    try:
        for part in parts:
            waiting = loop.create_future()
            hold = None if part is None else part.hold(partial(_reach, waiting))
            if hold is not None:
                holds.append(hold)
                reached.append(waiting)
        if reached and (await asyncio.wait(reached, timeout=HOLD_S / 2))[1]:
            raise BusError(Fault.SERVER_BUSY, "The stores' disks are too slow to hold all commits at once; retry.")
        yield
    finally:
        for hold in holds:
            hold.release()
    if any(hold.is_over for hold in holds):
        raise BusError(Fault.SERVER_BUSY, "The commits could not be held for long enough; retry.")


def _reach(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def start_all(stores: Sequence[StoreShell]) -> None:
    """Open all of them, so that none is still being opened when a start ends because of another."""
    for problem in await asyncio.gather(*(store.start() for store in stores), return_exceptions=True):
        if problem is not None:
            raise problem
