"""Where a namespace is kept, opened and closed again: a directory of SQLite files, or PostgreSQL databases.

Gives the namespace with its stores to whoever hosts it; what the namespace then needs from time to time is the host's
business.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.clock import MovableClock, SystemClock
from twinbus.broker.datadir import DataDirectory
from twinbus.broker.opened import Audience
from twinbus.broker.settings import NamespaceSettings
from twinbus.broker.stores import CatalogShell, StoreShell
from twinbus.entities.namespace import Namespace
from twinbus.model.clock import Clock
from twinbus.store.catalog import CatalogFile
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

    def open_journal(self, index: int) -> JournalSource:
        """The journal of a store, for reading beside its commits; called on a thread."""
        ...

    async def started(self) -> None:
        """What the settings declare has been made."""
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
        self._catalog: CatalogShell | None = None

    @property
    def label(self) -> str:
        """The directory."""
        return str(Path(self._directory.path))

    def describe(self) -> dict[str, Any]:
        """Nothing that is not known otherwise."""
        return {}

    async def open(self) -> Namespace:
        """Open the files and free what an interrupted creation or deletion left in them."""
        file = CatalogFile(str(self._directory.catalog))
        meta, rows = file.load()
        self._catalog = catalog = CatalogShell(file)
        for index in range(self._directory.stores(self._settings.stores)):
            self.stores.append(StoreShell(index, partial(self._open_store, index), self.clock, self._audience))
        await start_all(self.stores)
        namespace = Namespace(self._settings.name, self.clock, self.stores, catalog, view, new_uuid)
        namespace.load(meta, rows)
        await namespace.keep_creation_date()
        namespace.drop_orphans([store.held for store in self.stores])
        return namespace

    def _open_store(self, index: int) -> SqliteStore:
        path = str(self._directory.store(index))
        # Whoever exports the journal trims it.
        kept_ms = None if self._settings.journal.export else JOURNAL_RETENTION_MS
        epoch, now_ms = os.urandom(8), self.clock.now_ms()
        return SqliteStore(path, epoch=epoch, now_ms=now_ms, number=index, journal_retention_ms=kept_ms)

    def open_journal(self, index: int) -> JournalSource:
        """The journal of a store, for reading beside its commits."""
        from twinbus.store.journal_source import SqliteJournal  # Needed where the journal is exported only.

        return SqliteJournal(str(self._directory.store(index)))

    async def started(self) -> None:
        """Nobody waits for it."""

    async def close(self) -> None:
        """Finish commits, then let another process have the directory."""
        await asyncio.gather(*(store.close() for store in self.stores))
        if self._catalog is not None:
            self._catalog.close()
        self._directory.release()


async def start_all(stores: Sequence[StoreShell]) -> None:
    """Open all of them, so that none is still being opened when a start ends because of another."""
    for problem in await asyncio.gather(*(store.start() for store in stores), return_exceptions=True):
        if problem is not None:
            raise problem
