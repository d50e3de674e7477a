"""When a range of the journal becomes a file, in which order that happens, and what is done when it cannot."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.broker.exporting import Exporter
from twinbus.broker.settings import JournalSettings
from twinbus.model.errors import BusError, Fault
from twinbus.store import export_files
from twinbus.store.commands import Command
from twinbus.store.export import DAY_MS, Limits, Place, Stream
from twinbus.store.range_commands import CloseRange, FinishRange, Range

NOON = 100 * DAY_MS + DAY_MS // 2
INTERVAL_MS = 60_000


class Journal:
    """A store's journal as a list of instants, with what the store remembers of its export."""

    def __init__(self) -> None:
        self.instants: list[int] = []
        self.exported = 0
        self.open: Range | None = None
        self.is_ours = True
        self.is_closed = False

    # As a source

    def hold(self) -> bool:
        return self.is_ours

    def streams(self) -> list[Stream]:
        newest = len(self.instants)
        last = self.open.last if self.open else self.exported
        oldest_ms = self.instants[last] if last < newest else None
        return [Stream(0, self.exported, self.open, newest - last, newest, oldest_ms)]

    def next_range(self, stream: Stream, limits: Limits) -> Range | None:
        rows = self.instants[stream.exported : stream.exported + limits.rows]
        if not rows:
            return None
        same_day = [at for at in rows if at // DAY_MS == rows[0] // DAY_MS]
        return Range(0, stream.exported + 1, stream.exported + len(same_day), rows[0], same_day[-1], 1)

    def waits_for_drops(self) -> bool:
        return False

    def stored_bytes(self) -> int:
        return 7

    def close(self) -> None:
        self.is_closed = True

    # As a store's shell

    number = 0
    is_available = True
    opened_count = 1

    async def call(self, command: Command) -> Command:
        if isinstance(command, CloseRange):
            self.open = command.range
        elif isinstance(command, FinishRange):
            self.exported, self.open = command.range.last, None
        return command


class World:
    """An exporter over one journal, on a clock that is moved by hand, with a disk that may be full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.now_ms = NOON
        self.journal = Journal()
        self.sources: list[Journal] = []
        self.written: list[tuple[int, int]] = []
        self.is_full = False
        self.in_files: dict[int, int] = {}
        given = JournalSettings(interval_ms=INTERVAL_MS, **settings)
        stores: Any = [(self.journal, self.source)]
        self.exporter = Exporter(
            "contoso", given, Path("/nowhere"), stores, SimpleNamespace(now_ms=lambda: self.now_ms)
        )
        monkeypatch.setattr(export_files, "write", self.write)
        monkeypatch.setattr(export_files, "files_in", lambda directory, namespace: [])
        monkeypatch.setattr(export_files, "last_in", lambda directory, namespace, store: self.in_files)

    def source(self) -> Journal:
        self.sources.append(self.journal)
        return self.journal

    def write(self, directory: Path, place: Place, part: Range, *more: Any) -> None:
        assert self.journal.open == part, "the range was not written down before its file"
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.written.append((part.first, part.last))

    async def look(self) -> bool:
        """What happens from time to time."""
        [store] = self.exporter._stores
        return await self.exporter._try(store)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    world = World(monkeypatch, rows=10)
    yield world
    world.exporter._worker.end()


async def test_a_range_is_closed_when_its_first_row_is_old_enough(world: World) -> None:
    world.journal.instants = [NOON, NOON + 50_000]
    world.now_ms = NOON + INTERVAL_MS - 1
    await world.look()
    assert world.written == []
    world.now_ms += 1
    await world.look()
    assert world.written == [(1, 2)]
    await world.look()
    assert world.written == [(1, 2)]


async def test_a_range_is_closed_when_it_is_full_and_the_rest_waits(world: World) -> None:
    world.journal.instants = [NOON] * 25
    await world.look()
    assert world.written == [(1, 10), (11, 20)]


async def test_a_range_is_closed_when_its_day_is_over(world: World) -> None:
    midnight = 101 * DAY_MS
    world.journal.instants = [midnight - 2, midnight - 1, midnight]
    world.now_ms = midnight + 1
    await world.look()
    assert world.written == [(1, 2)]


async def test_whoever_asks_gets_everything_at_once(world: World) -> None:
    world.journal.instants = [NOON] * 3
    told = await world.exporter.export_now()
    assert world.written == [(1, 3)]
    [store] = told["stores"]
    assert (store["exports"], store["problem"], store["stored_bytes"]) == (True, "", 7)
    assert store["writers"] == [{"writer": 0, "exported": 3, "newest": 3, "waiting_rows": 0}]


async def test_an_unfinished_range_is_written_first_and_as_it_was(world: World) -> None:
    world.journal.instants = [NOON] * 3
    world.journal.open = Range(0, 1, 2, NOON, NOON, 1)
    await world.look()
    assert (world.written, world.journal.open) == ([(1, 2)], None)


async def test_a_full_disk_is_told_once_and_the_same_range_is_tried_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.journal.instants = [NOON]
    world.now_ms += INTERVAL_MS
    world.is_full = True
    with caplog.at_level(logging.ERROR):
        assert not await world.look()
        world.journal.instants.append(NOON)
        assert not await world.look()
    assert [record.getMessage() for record in caplog.records] == [
        "store 0: its journal cannot be exported now: [Errno 28] No space left on device"
    ]
    told = await world.exporter.describe()
    assert "No space left" in told["stores"][0]["problem"]
    world.is_full = False
    assert await world.look()
    assert world.written == [(1, 1), (2, 2)]
    assert (await world.exporter.describe())["stores"][0]["problem"] == ""


async def test_whoever_asks_is_told_of_a_full_disk(world: World) -> None:
    world.journal.instants = [NOON]
    world.is_full = True
    with pytest.raises(BusError, match="No space left") as refused:
        await world.exporter.export_now()
    assert refused.value.fault is Fault.STORE_UNAVAILABLE


async def test_while_another_gateway_exports_this_one_does_not(world: World) -> None:
    world.journal.instants = [NOON]
    world.journal.is_ours = False
    assert await world.look()
    with pytest.raises(BusError, match="Another gateway") as refused:
        await world.exporter.export_now()
    assert (world.written, refused.value.fault) == ([], Fault.SERVER_BUSY)
    world.journal.is_ours = True
    await world.exporter.export_now()
    assert world.written == [(1, 1)]


async def test_a_store_that_is_down_is_let_go_and_read_anew_when_it_is_back(world: World) -> None:
    world.journal.instants = [NOON]
    await world.look()
    world.journal.is_available = False
    assert await world.look()
    assert world.journal.is_closed
    world.journal.is_available = True
    world.journal.opened_count += 1
    await world.exporter.export_now()
    assert (len(world.sources), world.written) == (2, [(1, 1)])


async def test_files_of_another_history_are_not_mixed_with_this_one(world: World) -> None:
    world.journal.instants = [NOON] * 3
    world.in_files = {0: 2}
    with pytest.raises(BusError, match="another directory"):
        await world.exporter.export_now()
    assert (world.written, world.journal.open) == ([], None)


async def test_the_end_exports_everything_even_if_nothing_is_old(world: World) -> None:
    world.journal.instants = [NOON] * 2
    world.exporter.begin()
    await asyncio.sleep(0)
    await world.exporter.close()
    assert (world.written, world.journal.is_closed) == ([(1, 2)], True)
