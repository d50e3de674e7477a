"""A namespace in PostgreSQL that several gateways serve: its catalog in the first database, its stores in all of them.

Each store has a schema of its own and remembers which one it is, so that an address in the wrong place is noticed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.belonging import Belongings, check_namespace
from twinbus.broker.clock import DatabaseClock, MovableClock
from twinbus.broker.listening import Heard, Listening
from twinbus.broker.opened import Audience
from twinbus.broker.opening import new_uuid, start_all
from twinbus.broker.settings import NamespaceSettings, SettingsError
from twinbus.broker.shared_catalog import SharedCatalog
from twinbus.broker.shared_stores import SharedStoreShell
from twinbus.broker.store_schemas import StoreSchemas
from twinbus.entities.namespace import CREATED_KEY
from twinbus.entities.shared import SharedNamespace
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.sql.postgres import NotDurableError, connect
from twinbus.store.identity import NAMESPACE_KEY
from twinbus.store.postgres import identity
from twinbus.store.postgres.catalog import CatalogDatabase
from twinbus.store.postgres.journal import PostgresJournal
from twinbus.store.postgres.store import JOURNAL_RETENTION_MS, PostgresStore
from twinbus.store.postgres.waking import hints_of
from twinbus.wire import view

START_TRIES = 12  # Each waits for five seconds while other gateways start.


def spread(addresses: Sequence[DatabaseAddress], count: int) -> list[DatabaseAddress]:
    """Where each of so many stores is: beyond the first, they lie on the addresses in turn."""
    if count < len(addresses):
        raise SettingsError(f"--stores cannot be {count} with {len(addresses)} addresses of stores.")
    return [addresses[index % len(addresses)] for index in range(count)]


class SharedData:
    """What this gateway has open of it."""

    def __init__(
        self, settings: NamespaceSettings, addresses: Sequence[DatabaseAddress], clock: Clock, audience: Audience
    ) -> None:
        count = settings.stores or len(addresses)
        self._settings = settings
        self._addresses = spread(addresses, count)
        self._audience = audience
        self._database_clock = DatabaseClock()
        self.clock: DatabaseClock | MovableClock = self._database_clock
        if isinstance(clock, MovableClock):
            self.clock = MovableClock(self._database_clock)
        self.stores: list[SharedStoreShell] = []
        self._opened = AsyncExitStack()
        self._is_open = False
        self._places = StoreSchemas(settings.name, self._addresses)

    @property
    def label(self) -> str:
        """The databases, without user and password."""
        return "PostgreSQL at " + ", ".join(dict.fromkeys(address.label for address in self._addresses))

    def describe(self) -> dict[str, Any]:
        """Who the namespace is, and which gateways there are; this one by its number."""
        return {
            "id": self._belonging.namespace,
            "generation": self._catalog.generation,
            "gateway": self._catalog.gateway,
            "gateways": [{"number": each.number, "process": each.label} for each in self._catalog.members],
        }

    async def open(self) -> SharedNamespace:
        """Join the other gateways and open the stores; one whose database is out of reach is tried again later."""
        await asyncio.to_thread(self._places.check_catalog_is_there)
        await asyncio.to_thread(check_namespace, self._places, self._settings.namespace_id)
        self._catalog = catalog = await self._open_catalog()
        meta, rows = await catalog.load()
        self._belonging = belonging = Belongings(self._places, meta, rows)
        self._check_count(max(belonging.known, default=-1) + 1)
        await asyncio.to_thread(belonging.check_catalog, catalog.generation)
        if belonging.is_new:
            await catalog.note({NAMESPACE_KEY: belonging.namespace})
        for index in range(len(self._addresses)):
            opening = partial(self._open_store, index)
            shell = SharedStoreShell(index, opening, self.clock, self._audience)
            shell.holds_still = True
            self.stores.append(shell)
        self._opened.push_async_callback(self._close_stores)
        await start_all(self.stores)
        await catalog.keep_ids_above(max((each.entity for store in self.stores for each in store.held), default=0))
        # In this order: what a store held before, and nobody was making then, must be in the catalog now.
        held = await catalog.unmade([store.held for store in self.stores])
        being_deleted = await catalog.dropping()
        meta, rows = await catalog.load()
        namespace = SharedNamespace(self._settings.name, self.clock, self.stores, catalog, view, new_uuid)
        namespace.load(meta, rows, being_deleted)
        if CREATED_KEY not in meta:
            await namespace.keep_creation_date()
        for store, entities in zip(self.stores, held, strict=True):
            if store.is_available:
                namespace.sort_out(store.number, entities)
            store.holds_still = False
        belonging.expected = namespace.placed_on
        await self.note_stores()
        catalog.begin(namespace.take_over)
        self._listen()
        self._is_open = True
        return namespace

    async def _open_catalog(self) -> SharedCatalog:
        address = self._addresses[0]
        label = f"{socket.gethostname()}:{os.getpid()}"
        try:
            database = await asyncio.to_thread(CatalogDatabase, partial(connect, address.uri), self._settings.name)
        except BusError as error:
            raise BusError(error.fault, f"The catalog's database {address.label}: {error.text}") from error
        catalog = SharedCatalog(database, self._database_clock, label)
        self._opened.push_async_callback(catalog.close)
        await catalog.join(START_TRIES)
        return catalog

    def _check_count(self, known: int) -> None:
        if known > len(self._addresses):
            raise SettingsError(
                f"The namespace '{self._settings.name}' has {known} messaging stores; there cannot be"
                f" {len(self._addresses)} now. Give all their addresses, in the same order."
            )

    def _open_store(self, index: int) -> PostgresStore:
        """Runs on a thread of the store."""
        address, schema = self._addresses[index], self._places.schema(index)
        try:
            belongs = self._belonging.check_store(index)
            store = PostgresStore(
                address.uri,
                schema,
                number=index,
                clock_offset_ms=self._clock_offset_ms,
                # Whoever exports the journal trims it.
                journal_retention_ms=None if self._settings.journal.export else JOURNAL_RETENTION_MS,
            )
        except NotDurableError as error:
            if self._is_open:
                raise
            # Not one that may come back by itself: nothing is begun with it.
            raise BusError(Fault.NOT_ALLOWED, f"The database {address.label}: {error.text}") from error
        try:
            with connect(address.uri) as connection:
                found = identity.claim(connection, schema, belongs, index)
            self._belonging.check_held(index, store.entities())
        except BaseException:
            store.close()
            raise
        self._belonging.opened(found)
        return store

    async def note_stores(self) -> None:
        """Have the catalog know which stores there are, and how often they were opened."""
        for store in self.stores:
            if store.is_available:
                self._belonging.reached(store.number, 0)
        await self._catalog.note(self._belonging.news())

    async def accept(self, index: int) -> None:
        """An operator says that the store in this place is the right one."""
        await self._catalog.note(await asyncio.to_thread(self._belonging.accept, index))

    async def replace(self, index: int) -> str:
        """An operator gives up a store: its schema is renamed, and an empty one is made. What it is called now."""
        moved, news = await asyncio.to_thread(self._belonging.replace, index)
        await self._catalog.note(news)
        return moved

    @property
    def catalog_problem(self) -> str:
        """There are no files that somebody could take away."""
        return ""

    def open_journal(self, index: int) -> PostgresJournal:
        """The journal of a store, for reading beside the commits of all gateways."""
        return PostgresJournal(self._addresses[index].uri, self._places.schema(index))

    def _clock_offset_ms(self) -> int:
        return self.clock.offset_ms if isinstance(self.clock, MovableClock) else 0

    def _listen(self) -> None:
        """One connection for each database hears of all that is in it."""
        channels: dict[DatabaseAddress, dict[str, Heard]] = {self._addresses[0]: {}}
        channels[self._addresses[0]][self._catalog.channel] = self._catalog.heard
        for index, address in enumerate(self._addresses):
            channels.setdefault(address, {})[self._places.schema(index)] = partial(self._heard, index)
        for address, heard in channels.items():
            listening = Listening(address, heard, asyncio.get_running_loop().call_soon_threadsafe)
            self._opened.callback(listening.close)

    def _heard(self, index: int, payload: str) -> None:
        """Another gateway has done something with a store; what is missed, the store's own poll finds."""
        opened = self.stores[index].opened
        if payload and opened is not None:
            self._audience.hinted(hints_of(payload, opened.gateway))
            self._audience.flush()

    async def started(self) -> None:
        """Let the next gateway start."""
        await self._catalog.started()

    def place(self) -> dict[str, Any]:
        """The databases and the catalog's schema in the first."""
        uris = dict.fromkeys(address.uri for address in self._addresses)
        return {"databases": list(uris), "namespace": self._settings.name}

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Other gateways go on: each database is seen at an instant of its own."""
        yield

    async def _close_stores(self) -> None:
        await asyncio.gather(*(store.close() for store in self.stores))

    async def close(self) -> None:
        """Finish commits, leave the other gateways, release the connections."""
        await self._opened.aclose()
