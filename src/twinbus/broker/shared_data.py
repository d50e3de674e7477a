"""A namespace in PostgreSQL that several gateways serve: its catalog in the first database, its stores in all of them.

Each store has a schema of its own and remembers which one it is, so that an address in the wrong place is noticed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.clock import DatabaseClock, MovableClock
from twinbus.broker.listening import Heard, Listening
from twinbus.broker.opened import Audience
from twinbus.broker.opening import new_uuid, start_all
from twinbus.broker.settings import NamespaceSettings, SettingsError
from twinbus.broker.shared_catalog import SharedCatalog
from twinbus.broker.shared_stores import SharedStoreShell
from twinbus.entities.namespace import CREATED_KEY
from twinbus.entities.shared import SharedNamespace
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.sql.postgres import NotDurableError, connect
from twinbus.store.postgres.catalog import CatalogDatabase, identity_of, schema_of
from twinbus.store.postgres.journal import PostgresJournal
from twinbus.store.postgres.store import JOURNAL_RETENTION_MS, PostgresStore
from twinbus.store.postgres.waking import hints_of
from twinbus.wire import view

START_TRIES = 12  # Each waits for five seconds while other gateways start.
STORE_KEY = "store-{}"  # Under this, the catalog keeps which store is which.


class SharedData:
    """What this gateway has open of it."""

    def __init__(
        self, settings: NamespaceSettings, addresses: Sequence[DatabaseAddress], clock: Clock, audience: Audience
    ) -> None:
        count = settings.stores or len(addresses)
        if count < len(addresses):
            raise SettingsError(f"--stores cannot be {count} with {len(addresses)} addresses of stores.")
        self._settings = settings
        # Beyond the first, stores lie on the addresses in turn.
        self._addresses = [addresses[index % len(addresses)] for index in range(count)]
        self._audience = audience
        self._database_clock = DatabaseClock()
        self.clock: DatabaseClock | MovableClock = self._database_clock
        if isinstance(clock, MovableClock):
            self.clock = MovableClock(self._database_clock)
        self.stores: list[SharedStoreShell] = []
        self._opened = AsyncExitStack()
        self._is_open = False
        self._identities: dict[int, str] = {}  # Of the stores, as far as they are known.

    @property
    def label(self) -> str:
        """The databases, without user and password."""
        return "PostgreSQL at " + ", ".join(dict.fromkeys(address.label for address in self._addresses))

    def describe(self) -> dict[str, Any]:
        """Which gateways there are; this one by its number."""
        return {
            "gateway": self._catalog.gateway,
            "gateways": [{"number": each.number, "process": each.label} for each in self._catalog.members],
        }

    async def open(self) -> SharedNamespace:
        """Join the other gateways and open the stores; one whose database is out of reach is tried again later."""
        self._catalog = catalog = await self._open_catalog()
        meta, _ = await catalog.load()
        self._check_stores(meta)
        for index in range(len(self._addresses)):
            opening = partial(self._open_store, index)
            self.stores.append(SharedStoreShell(index, opening, self.clock, self._audience))
        self._opened.push_async_callback(self._close_stores)
        await start_all(self.stores)
        # In this order: what a store held before, and nobody was making then, must be in the catalog now.
        held = await catalog.unmade([store.held for store in self.stores])
        meta, rows = await catalog.load()
        namespace = SharedNamespace(self._settings.name, self.clock, self.stores, catalog, view, new_uuid)
        namespace.load(meta, rows)
        await self._keep_identities(meta)
        if CREATED_KEY not in meta:
            await namespace.keep_creation_date()
        namespace.free_abandoned(held)
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

    def _check_stores(self, meta: dict[str, str]) -> None:
        prefix = STORE_KEY.format("")
        self._identities = {int(key.removeprefix(prefix)): meta[key] for key in meta if key.startswith(prefix)}
        known = max(self._identities, default=-1) + 1
        if known > len(self._addresses):
            raise SettingsError(
                f"The namespace '{self._settings.name}' has {known} messaging stores; there cannot be"
                f" {len(self._addresses)} now. Give all their addresses, in the same order."
            )

    def _open_store(self, index: int) -> PostgresStore:
        """Runs on a thread of the store."""
        address = self._addresses[index]
        schema = self._schema(index)
        try:
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
            with connect(address.uri, schema) as connection:
                identity = identity_of(connection, os.urandom(16).hex())
            known = self._identities.setdefault(index, identity)
            if known != identity:
                raise BusError(
                    Fault.NOT_ALLOWED,
                    f"At {address.label} is not messaging store {index} of the namespace: give the addresses of the"
                    " stores in the order in which they were made.",
                )
        except BaseException:
            store.close()
            raise
        return store

    def open_journal(self, index: int) -> PostgresJournal:
        """The journal of a store, for reading beside the commits of all gateways."""
        return PostgresJournal(self._addresses[index].uri, self._schema(index))

    async def _keep_identities(self, meta: dict[str, str]) -> None:
        for index, identity in self._identities.items():
            if STORE_KEY.format(index) not in meta:
                await self._catalog.set_meta(STORE_KEY.format(index), identity)

    def _clock_offset_ms(self) -> int:
        return self.clock.offset_ms if isinstance(self.clock, MovableClock) else 0

    def _schema(self, index: int) -> str:
        return f"{schema_of(self._settings.name)}_{index}"

    def _listen(self) -> None:
        """One connection for each database hears of all that is in it."""
        channels: dict[DatabaseAddress, dict[str, Heard]] = {self._addresses[0]: {}}
        channels[self._addresses[0]][self._catalog.channel] = self._catalog.heard
        for index, address in enumerate(self._addresses):
            channels.setdefault(address, {})[self._schema(index)] = partial(self._heard, index)
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

    async def _close_stores(self) -> None:
        await asyncio.gather(*(store.close() for store in self.stores))

    async def close(self) -> None:
        """Finish commits, leave the other gateways, release the connections."""
        await self._opened.aclose()
