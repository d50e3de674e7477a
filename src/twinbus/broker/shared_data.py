"""A namespace in PostgreSQL that several gateways serve: its catalog in the first database, its stores in all of them.

Each store has a schema of its own and remembers which one it is, so that an address in the wrong place is noticed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.belonging import placed_on
from twinbus.broker.clock import DatabaseClock, MovableClock
from twinbus.broker.listening import Heard, Listening
from twinbus.broker.opened import Audience, SetAsideError
from twinbus.broker.opening import new_uuid, start_all
from twinbus.broker.settings import NamespaceSettings, SettingsError
from twinbus.broker.shared_catalog import SharedCatalog
from twinbus.broker.shared_stores import SharedStoreShell
from twinbus.entities.namespace import CREATED_KEY
from twinbus.entities.shared import SharedNamespace
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.sql.postgres import NotDurableError, connect
from twinbus.store.identity import (
    NAMESPACE_KEY,
    STORE_KEY,
    Belonging,
    KnownStore,
    Place,
    StoreIdentity,
    judge_catalog,
    judge_missing,
    judge_store,
    known_stores,
)
from twinbus.store.postgres import identity
from twinbus.store.postgres.catalog import CatalogDatabase, schema_of
from twinbus.store.postgres.journal import PostgresJournal
from twinbus.store.postgres.store import JOURNAL_RETENTION_MS, PostgresStore
from twinbus.store.postgres.waking import hints_of
from twinbus.wire import view

START_TRIES = 12  # Each waits for five seconds while other gateways start.


def store_schema_of(namespace: str, index: int) -> str:
    """Where one of a namespace's messaging stores is in its database."""
    return f"{schema_of(namespace)}_{index}"


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
        self._namespace_id = ""
        self._known: dict[int, KnownStore] = {}  # The stores, as far as the catalog knows them.
        self._noted: dict[int, KnownStore] = {}
        self._expected: dict[int, dict[int, str]] = {}
        self._namespace: SharedNamespace | None = None

    @property
    def label(self) -> str:
        """The databases, without user and password."""
        return "PostgreSQL at " + ", ".join(dict.fromkeys(address.label for address in self._addresses))

    def describe(self) -> dict[str, Any]:
        """Who the namespace is, and which gateways there are; this one by its number."""
        return {
            "id": self._namespace_id,
            "generation": self._catalog.generation,
            "gateway": self._catalog.gateway,
            "gateways": [{"number": each.number, "process": each.label} for each in self._catalog.members],
        }

    async def open(self) -> SharedNamespace:
        """Join the other gateways and open the stores; one whose database is out of reach is tried again later."""
        await asyncio.to_thread(self._check_catalog_is_there)
        self._catalog = catalog = await self._open_catalog()
        meta, rows = await catalog.load()
        self._check_stores(meta)
        if not self._namespace_id:
            self._namespace_id = os.urandom(16).hex()
            await catalog.set_meta(NAMESPACE_KEY, self._namespace_id)
        await self._check_catalog()
        self._expected = placed_on(rows)
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
        self._namespace = namespace
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

    def _check_stores(self, meta: dict[str, str]) -> None:
        self._known = known_stores(meta)
        self._noted = dict(self._known)
        self._namespace_id = meta.get(NAMESPACE_KEY, "")
        known = max(self._known, default=-1) + 1
        if known > len(self._addresses):
            raise SettingsError(
                f"The namespace '{self._settings.name}' has {known} messaging stores; there cannot be"
                f" {len(self._addresses)} now. Give all their addresses, in the same order."
            )

    def _check_catalog_is_there(self) -> None:
        """Stores without a catalog are no new namespace."""
        name = schema_of(self._settings.name)
        found = []
        for address in dict.fromkeys(self._addresses):
            try:
                with connect(address.uri) as connection:
                    if address is self._addresses[0] and identity.has_catalog(connection, name):
                        return
                    found += [f"{schema} at {address.label}" for schema in identity.stores_of(connection, name)]
            except BusError:
                continue  # Who cannot be reached, or must not be used, is told of when it is opened.
        if found:
            raise SettingsError(
                f"There is no catalog of '{self._settings.name}' at {self._addresses[0].label}, and messaging stores"
                f" are there: {', '.join(found)}. Give the addresses in the order in which they were given first, or"
                f" put the schema {name} back. Nothing was changed."
            )

    async def _check_catalog(self) -> None:
        """Refuse a catalog that does not fit the stores; those that cannot be reached are judged when they can."""
        found = await asyncio.gather(*(asyncio.to_thread(self._look, index) for index in range(len(self._addresses))))
        problem = judge_catalog(self._namespace_id, self._catalog.generation, [each for each in found if each])
        if problem is not None:
            raise SettingsError(
                f"{problem} Give the right addresses, or put the right databases back; or say that this catalog is the"
                " right one: `twinbus catalog accept`. Nothing was changed."
            )

    def _look(self, index: int) -> StoreIdentity | None:
        try:
            with connect(self._addresses[index].uri) as connection:
                return identity.read(connection, self._schema(index))
        except BusError:
            return None

    def _place(self, index: int) -> Place:
        return Place(index, f"The schema {self._schema(index)} at {self._addresses[index].label}")

    def _check_store(self, index: int) -> Belonging:
        """Whether the store in this place may be opened; SetAsideError if not, and nothing was changed."""
        with connect(self._addresses[index].uri) as connection:
            is_there = identity.is_there(connection, self._schema(index))
            found = identity.read(connection, self._schema(index))
        known = self._known.get(index)
        if found is not None or not (known is not None and known.is_new):
            doubt = judge_store(self._place(index), self._namespace_id, known, found, is_there=is_there)
            if doubt is not None:
                raise SetAsideError(doubt.text)
        return Belonging(self._namespace_id, known.store if known is not None else os.urandom(16).hex())

    def _open_store(self, index: int) -> PostgresStore:
        """Runs on a thread of the store."""
        address, schema = self._addresses[index], self._schema(index)
        try:
            belonging = self._check_store(index)
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
                found = identity.claim(connection, schema, belonging, index)
            self._check_held(index, store)
        except BaseException:
            store.close()
            raise
        known = self._known.get(index)
        self._known[index] = KnownStore(found.store, found.openings, 0, known is not None and known.is_incomplete)
        return store

    def _check_held(self, index: int, store: PostgresStore) -> None:
        """Whether a store holds what the catalog has on it."""
        known = self._known.get(index)
        if known is None or known.is_incomplete:
            return
        expected = self._expected.get(index, {}) if self._namespace is None else self._namespace.placed_on(index)
        held = set(store.entities())
        doubt = judge_missing(self._place(index), [path for number, path in expected.items() if number not in held])
        if doubt is not None:
            raise SetAsideError(doubt.text)

    async def note_stores(self) -> None:
        """Have the catalog know which stores there are, and how often they were opened."""
        for index, known in list(self._known.items()):
            complete = known._replace(is_incomplete=False) if self.stores[index].is_available else known
            if self._noted.get(index) != complete:
                await self._catalog.set_meta(STORE_KEY.format(index), complete.to_text())
                self._known[index] = self._noted[index] = complete

    async def accept(self, index: int) -> None:
        """An operator says that the store in this place is the right one."""
        found = await asyncio.to_thread(self._look, index)
        if found is None or found.namespace not in ("", self._namespace_id) or found.number not in (-1, index):
            raise BusError(Fault.NOT_ALLOWED, f"Messaging store {index} cannot be accepted: it is not of this place.")
        await self._say(index, KnownStore(found.store, found.openings, 0, is_incomplete=True))

    async def replace(self, index: int) -> str:
        """An operator gives up a store: its schema is renamed, and an empty one is made. What it is called now."""
        moved = await asyncio.to_thread(self._move_away, index)
        await self._say(index, KnownStore(os.urandom(16).hex(), is_incomplete=True))
        return moved

    async def _say(self, index: int, known: KnownStore) -> None:
        await self._catalog.set_meta(STORE_KEY.format(index), known.to_text())
        self._known[index] = self._noted[index] = known

    def _move_away(self, index: int) -> str:
        schema = self._schema(index)
        with connect(self._addresses[index].uri) as connection:
            if not identity.is_there(connection, schema):
                return ""
            moved = f"{schema}_replaced_{datetime.now(UTC):%Y%m%d%H%M%S}"
            identity.rename(connection, schema, moved)
            return moved

    def open_journal(self, index: int) -> PostgresJournal:
        """The journal of a store, for reading beside the commits of all gateways."""
        return PostgresJournal(self._addresses[index].uri, self._schema(index))

    def _clock_offset_ms(self) -> int:
        return self.clock.offset_ms if isinstance(self.clock, MovableClock) else 0

    def _schema(self, index: int) -> str:
        return store_schema_of(self._settings.name, index)

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
