"""A store whose database comes and goes: what frees locks reaches it in the end, and it tells when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio

from twinbus.broker import shared_stores
from twinbus.broker.clock import SystemClock
from twinbus.broker.shared_stores import SharedStoreShell
from twinbus.model.errors import BusError, Fault
from twinbus.store.commands import Command, DropLocks, Hints, Record, ReleaseSession
from twinbus.store.postgres.store import PostgresStore
from twinbus.store.quarantine import Held


class FakeStore:
    """Refuses everything while it is not connected."""

    synced_commits = 0
    failure: BusError | None = None
    is_full = False

    def __init__(self) -> None:
        self.is_connected = True
        self.done: list[Command] = []
        self.refusals = 0

    def commit(self, group: list[Command], now_ms: int) -> Hints:
        for command in group:
            if self.is_connected:
                self.done.append(command)
            else:
                self.refusals += 1
                command.error = BusError(Fault.STORE_UNAVAILABLE, "The database cannot be reached.")
        return Hints()

    def due_at_ms(self) -> int | None:
        return None

    def held(self) -> list[Held]:
        return []

    def checkpoint_due(self) -> bool:
        return False

    def checkpoint(self) -> bool:
        return True

    def close(self) -> None:
        pass


class Audience:
    """Hears everything and does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *values: None


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest_asyncio.fixture
async def shell(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SharedStoreShell]:
    monkeypatch.setattr(shared_stores, "REOPEN_S", 0.01)
    shell = SharedStoreShell(0, lambda: cast(PostgresStore, store), SystemClock(), cast(Any, Audience()))
    await shell.start()
    yield shell
    await shell.close()


@pytest.mark.parametrize(
    "command",
    [DropLocks(queue=0, owner=7), ReleaseSession(queue=4, session="s", holder=9)],
    ids=lambda c: type(c).__name__,
)
async def test_what_frees_locks_is_repeated_until_it_is_heard(
    shell: SharedStoreShell, store: FakeStore, command: Command
) -> None:
    store.is_connected = False
    waiting = asyncio.ensure_future(shell.call(command))
    async with asyncio.timeout(5):
        while store.refusals < 3:
            await asyncio.sleep(0.001)
    assert not waiting.done()
    store.is_connected = True
    async with asyncio.timeout(5):
        await waiting
    assert store.done == [command]


async def test_other_commands_are_answered_at_once(shell: SharedStoreShell, store: FakeStore) -> None:
    store.is_connected = False
    with pytest.raises(BusError) as refused:
        await shell.call(Record(queue=4, notes=[]))
    assert refused.value.fault is Fault.STORE_UNAVAILABLE
    assert store.done == []


async def test_a_store_without_its_database_is_not_available(shell: SharedStoreShell, store: FakeStore) -> None:
    assert shell.is_available
    assert shell.state_name == "up"
    store.is_connected = False
    assert not shell.is_available
    assert shell.state_name == "disconnected"
