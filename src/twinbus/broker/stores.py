"""Messaging stores as the event loop sees them: commands go to a store's thread, finished ones come back in one call.

Implements the entities' ports; what a commit does is the store's business, and when things expire the store says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from twinbus.model.clock import Clock
from twinbus.model.errors import BusError
from twinbus.sql.group import GroupCommit
from twinbus.store.catalog import CatalogFile, EntityRow
from twinbus.store.commands import Acquire, Command, Hints, Publish, Send, Sweep
from twinbus.store.sqlite import SqliteStore

SWEEP_INTERVAL_S = 0.1
C = TypeVar("C", bound=Command)


class StoreShell:
    """One store with its thread."""

    def __init__(
        self, store: SqliteStore, clock: Clock, hinted: Callable[[Hints], None], flush: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._clock = clock
        self._hinted = hinted
        self._flush = flush  # Called once per commit, when everything that it changed has been told.
        self._sweeping = False
        self._group: GroupCommit[Command, Hints] = GroupCommit(
            store, clock, self._loop.call_soon_threadsafe, self._committed, Hints, f"store-{store.number}"
        )
        self._timer = self._loop.call_later(SWEEP_INTERVAL_S, self._tick)

    @property
    def synced_commits(self) -> int:
        """Commits that waited for the disk."""
        return self._store.synced_commits

    @property
    def pending_bytes(self) -> int:
        """Bytes of messages that wait for a commit."""
        return self._group.pending_bytes

    def submit(self, command: Command) -> None:
        """Queue a command for the next commit; a store that is closing refuses it."""
        messages, size = 1, 0
        if isinstance(command, Send):
            messages = sum(map(len, command.units))
            size = sum(len(message.record) for unit in command.units for message in unit)
        elif isinstance(command, Publish):
            messages = sum(len(publication.copies) + 1 for unit in command.units for publication in unit)
            size = sum(len(publication.message.record) for unit in command.units for publication in unit)
        elif isinstance(command, Acquire):
            messages = command.limit
        try:
            self._group.submit(command, messages, size)
        except BusError as error:
            command.error = error
            if command.done is not None:
                self._loop.call_soon(command.done, command)

    async def call(self, command: C) -> C:
        """Submit a command and wait until it is durable; raises its error."""
        future: asyncio.Future[None] = self._loop.create_future()

        def finished(_: Command) -> None:
            if not future.done():  # The caller may have been cancelled.
                future.set_result(None)

        command.done = finished
        self.submit(command)
        await future
        if command.error is not None:
            raise command.error
        return command

    def _committed(self, commands: list[Command], hints: Hints) -> None:
        for command in commands:
            if command.done is not None:
                command.done(command)
        self._hinted(hints)
        self._flush()

    def _tick(self) -> None:
        due = self._store.due_at_ms()
        if not self._sweeping and due is not None and due <= self._clock.now_ms():
            self._sweep()
        self._timer = self._loop.call_later(SWEEP_INTERVAL_S, self._tick)

    def _sweep(self) -> None:
        self._sweeping = True
        self.submit(Sweep(queue=0, done=self._swept))

    def _swept(self, command: Sweep) -> None:
        self._sweeping = False
        if command.result and command.error is None:
            self._sweep()

    async def close(self) -> None:
        """Finish what was submitted and release the file."""
        self._timer.cancel()
        await self._loop.run_in_executor(None, self._group.close)


class CatalogShell:
    """The catalog file, written on a thread of its own so that the loop never waits for the disk."""

    def __init__(self, file: CatalogFile) -> None:
        self._file = file
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog")

    async def put(self, row: EntityRow) -> None:
        """Store or replace an entity's row."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._file.put, row)

    async def remove(self, entity: int) -> None:
        """Forget an entity."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._file.remove, entity)

    async def set_meta(self, key: str, value: str) -> None:
        """Store a value of the namespace itself."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._file.set_meta, key, value)

    def close(self) -> None:
        """Finish and release the file."""
        self._executor.shutdown(wait=True)
        self._file.close()
