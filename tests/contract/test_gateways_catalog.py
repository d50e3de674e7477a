"""Two gateways' views of one catalog in PostgreSQL: each hears of what the other changed, and of nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import count

import pytest
import pytest_asyncio

from support.postgres import PostgresServer
from twinbus.broker import shared_catalog
from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.clock import DatabaseClock
from twinbus.broker.listening import Listening
from twinbus.broker.shared_catalog import SharedCatalog
from twinbus.entities.shared import CatalogChanges
from twinbus.model.errors import BusError, Fault
from twinbus.sql.postgres import connect
from twinbus.store.catalog import EntityRow
from twinbus.store.postgres import catalog as postgres_catalog
from twinbus.store.postgres.catalog import CatalogDatabase

_namespaces = count(1)


class Gateway:
    """A catalog, and what was taken over from it."""

    def __init__(self, url: str, namespace: str, label: str) -> None:
        self.clock = DatabaseClock()
        self.catalog = SharedCatalog(CatalogDatabase(partial(connect, url), namespace), self.clock, label)
        self.taken: list[CatalogChanges] = []
        self._url = url

    async def start(self) -> Gateway:
        await self.catalog.join(1)
        await self.catalog.load()
        self.catalog.begin(self.taken.append)
        post = asyncio.get_running_loop().call_soon_threadsafe
        self.listening = Listening(DatabaseAddress(self._url), {self.catalog.channel: self.catalog.heard}, post)
        await self.catalog.started()
        return self

    async def close(self) -> None:
        self.listening.close()
        await self.catalog.close()

    def rows(self) -> list[EntityRow]:
        return [row for changes in self.taken for row in changes.rows]

    async def new_row(self, name: str) -> EntityRow:
        row = EntityRow(await self.catalog.take_ids(1), name, "queue", 0, "{}")
        await self.catalog.put(row)
        return row


Gateways = tuple[Gateway, Gateway]


@pytest_asyncio.fixture
async def both(postgres: PostgresServer) -> AsyncIterator[Gateways]:
    namespace = f"Gateways-{next(_namespaces)}"
    first = await Gateway(postgres.connection_url, namespace, "first").start()
    second = await Gateway(postgres.connection_url, namespace, "second").start()
    yield first, second
    await first.close()
    await second.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def refused(call: Awaitable[None]) -> Fault:
    with pytest.raises(BusError) as error:
        await call
    return error.value.fault


async def test_a_change_is_taken_over_by_the_other_and_not_given_back(both: Gateways) -> None:
    here, there = both
    row = await here.new_row("orders")
    await here.catalog.set_meta("key", "value")
    await here.catalog.spread()
    await until(lambda: any(changes.meta for changes in there.taken))
    assert there.rows() == [row]
    assert there.taken[-1].ids == {row.id}
    assert there.taken[-1].meta == {"key": "value"}
    await here.catalog.refresh()
    assert here.rows() == []
    await there.catalog.remove(row.id)
    await until(lambda: here.taken and not here.taken[-1].ids)


@pytest.fixture
def by_notices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gateway finds a change with its next beat, and nobody is given up."""
    monkeypatch.setattr(shared_catalog, "BEAT_S", 3600.0)
    monkeypatch.setattr(shared_catalog, "SPREAD_S", 3600.0)
    monkeypatch.setattr(postgres_catalog, "STALE_S", 3600)


async def test_a_change_has_spread_as_soon_as_the_notice_of_it_has(by_notices_alone: None, both: Gateways) -> None:
    here, there = both
    rows = []
    for number in range(10):
        rows.append(await here.new_row(f"queue-{number}"))
        await here.catalog.spread()
        assert there.rows() == rows  # Not a moment later.


async def test_own_changes_of_one_row_may_overtake_the_answers(both: Gateways) -> None:
    here, there = both
    row = await here.new_row("orders")
    documents = [row._replace(document=f'{{"x": {number}}}') for number in range(5)]
    await asyncio.gather(*(here.catalog.put(each) for each in documents))
    await here.catalog.spread()
    assert there.rows()[-1] == documents[-1]


async def test_a_row_that_the_other_has_changed_is_refused_and_then_taken_over(both: Gateways) -> None:
    here, there = both
    row = await here.new_row("orders")
    await here.catalog.spread()
    theirs, ours = row._replace(document='{"x": "theirs"}'), row._replace(document='{"x": "ours"}')
    answers = await asyncio.gather(there.catalog.put(theirs), here.catalog.put(ours), return_exceptions=True)
    (problem,) = [answer for answer in answers if answer is not None]
    assert isinstance(problem, BusError)
    assert problem.fault is Fault.SERVER_BUSY
    loser, winner = (here, theirs) if answers[0] is None else (there, ours)
    await until(lambda: loser.rows()[-1:] == [winner])
    await loser.catalog.put(winner._replace(document='{"x": "again"}'))  # On the row as it is now.


async def test_settings_are_not_overwritten_either(both: Gateways) -> None:
    here, there = both
    await here.catalog.set_meta("key", "1")
    await here.catalog.spread()
    await there.catalog.set_meta("key", "2")
    await there.catalog.spread()
    await here.catalog.set_meta("key", "3")
    answers = [here.catalog.set_meta("key", "4"), there.catalog.set_meta("key", "4")]
    faults = [answer for answer in await asyncio.gather(*answers, return_exceptions=True) if answer is not None]
    assert [fault.fault for fault in faults if isinstance(fault, BusError)] in ([], [Fault.SERVER_BUSY])


async def test_a_name_that_the_other_took_is_refused(both: Gateways) -> None:
    here, there = both
    await here.new_row("orders")
    row = EntityRow(await there.catalog.take_ids(1), "ORDERS", "queue", 0, "{}")
    assert await refused(there.catalog.put(row)) is Fault.ENTITY_EXISTS


async def test_the_clock_is_the_databases(both: Gateways, postgres: PostgresServer) -> None:
    (told_ms,) = postgres.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")[0]
    for gateway in both:
        assert abs(gateway.clock.now_ms() - told_ms) < 500


async def test_they_know_of_each_other(both: Gateways) -> None:
    here, there = both
    await until(lambda: [member.label for member in here.catalog.members] == ["first", "second"])
    assert here.catalog.gateway != there.catalog.gateway
