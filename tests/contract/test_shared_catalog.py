"""The catalog in PostgreSQL, under several gateways at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest

from support.postgres import PostgresServer
from twinbus.model.errors import BusError, Fault
from twinbus.sql.postgres import connect
from twinbus.store.catalog import EntityRow
from twinbus.store.postgres.catalog import CatalogDatabase

ORDERS = EntityRow(1, "Orders", "queue", 0, '{"x": 1}')
BILLS = EntityRow(2, "bills", "queue", 3, "{}")
_namespaces = count(1)

NewCatalog = Callable[[], CatalogDatabase]


@pytest.fixture
def new_catalog(postgres: PostgresServer) -> Iterator[NewCatalog]:
    """Opens the same catalog as often as asked, each time as another gateway."""
    namespace = f"Catalog-{next(_namespaces)}"
    opened: list[CatalogDatabase] = []

    def open_one() -> CatalogDatabase:
        catalog = CatalogDatabase(partial(connect, postgres.connection_url), namespace)
        opened.append(catalog)
        catalog.join(f"gateway {len(opened)}")
        return catalog

    yield open_one
    for catalog in opened:
        catalog.close()


@pytest.fixture
def catalog(new_catalog: NewCatalog) -> CatalogDatabase:
    return new_catalog()


@pytest.fixture
def other(catalog: CatalogDatabase, new_catalog: NewCatalog) -> CatalogDatabase:
    return new_catalog()


def refused(fault: Fault, operation: Callable[[], object]) -> str:
    with pytest.raises(BusError) as error:
        operation()
    assert error.value.fault is fault
    return error.value.text


def test_an_empty_catalog_has_nothing(catalog: CatalogDatabase) -> None:
    assert catalog.load() == ({}, [])


def test_entities_and_settings_are_seen_by_all(catalog: CatalogDatabase, other: CatalogDatabase) -> None:
    assert catalog.take_ids(2) == 1
    catalog.put(BILLS)
    catalog.take_ids(1)
    other.take_ids(1)
    catalog.set_meta("key", "1")
    catalog.set_meta("key", "2")
    assert other.load() == ({"key": "2"}, [BILLS])


def test_numbers_are_given_out_once(catalog: CatalogDatabase, other: CatalogDatabase) -> None:
    assert [catalog.take_ids(1), other.take_ids(16), catalog.take_ids(1)] == [1, 2, 18]


def test_a_name_is_taken_once_whatever_its_case(catalog: CatalogDatabase, other: CatalogDatabase) -> None:
    catalog.take_ids(1)
    other.take_ids(1)
    catalog.put(ORDERS, 0)
    refused(Fault.ENTITY_EXISTS, lambda: other.put(BILLS._replace(name="ORDERS"), 0))


def test_a_row_that_another_has_changed_is_not_overwritten(catalog: CatalogDatabase, other: CatalogDatabase) -> None:
    catalog.take_ids(1)
    first = catalog.put(ORDERS, 0)
    second = other.put(ORDERS._replace(document="{}"), first)
    assert "another gateway" in refused(Fault.SERVER_BUSY, lambda: catalog.put(ORDERS, first))
    assert catalog.put(ORDERS, second) > second
    other.remove(1)
    refused(Fault.SERVER_BUSY, lambda: catalog.put(ORDERS, second + 1))
    assert catalog.load() == ({}, [])
    changed = catalog.set_meta("key", "1", 0)
    refused(Fault.SERVER_BUSY, lambda: other.set_meta("key", "2", 0))
    assert other.set_meta("key", "2", changed) > changed


def test_only_what_changed_is_read_again(catalog: CatalogDatabase, other: CatalogDatabase) -> None:
    catalog.take_ids(2)
    first = catalog.put(ORDERS)
    known = other.read()
    assert [row for row, _ in known.rows] == [ORDERS]
    assert other.read(known.change) == (known.change, {}, [], set())
    catalog.take_ids(1)
    second = catalog.put(BILLS._replace(id=3))
    assert other.read(known.change) == (second, {}, [(BILLS._replace(id=3), second)], {1, 3})
    gone = catalog.remove(1)
    assert other.read(second) == (gone, {}, [], {3})
    # A database that is older than what one knew, after a failover without a synchronous standby, is read whole.
    assert [row.id for row, _ in other.read(first + 1000).rows] == [3]


def test_what_a_gateway_is_making_is_known_to_all_until_it_is_made(
    catalog: CatalogDatabase, other: CatalogDatabase
) -> None:
    catalog.take_ids(3)
    assert other.making([1, 2, 3, 4]) == {1, 2, 3}
    catalog.put(ORDERS, 0)
    assert other.making([1, 2, 3, 4]) == set()
    other.take_ids(1)
    other.leave()
    assert catalog.making([4]) == set()


def test_a_gateway_that_was_given_up_cannot_finish_what_it_began(
    catalog: CatalogDatabase, other: CatalogDatabase, postgres: PostgresServer
) -> None:
    other.take_ids(1)
    silence(postgres, other)
    catalog.beat(0)
    assert [gateway.number for gateway in catalog.gateways()] == [catalog.gateway]
    assert catalog.making([1]) == set()
    refused(Fault.SERVER_BUSY, lambda: other.put(ORDERS, 0))
    assert not other.beat(0).is_known
    other.rejoin("back")
    assert other.beat(0).is_known
    assert other.take_ids(1) == 2
    other.put(BILLS, 0)


def silence(postgres: PostgresServer, catalog: CatalogDatabase) -> None:
    """Let time pass for one gateway."""
    postgres.execute(
        f"UPDATE \"{catalog.channel}\".gateway SET beat_at = beat_at - interval '1 minute' WHERE number = %s",
        (catalog.gateway,),
    )


def test_a_change_has_spread_when_all_that_are_alive_have_seen_it(
    catalog: CatalogDatabase, other: CatalogDatabase, new_catalog: NewCatalog, postgres: PostgresServer
) -> None:
    dead = new_catalog()
    change = catalog.set_meta("key", "1")
    assert catalog.behind(change) == 2
    silence(postgres, dead)
    assert catalog.behind(change) == 1
    other.beat(change)
    assert catalog.behind(change) == 0


def test_the_last_use_of_an_entity_is_that_through_any_gateway(
    catalog: CatalogDatabase, other: CatalogDatabase
) -> None:
    assert catalog.share_use({1: 500, 2: 100}) == {1: 500, 2: 100}
    assert other.share_use({1: 400, 2: 300}) == {1: 500, 2: 300}
    for at_ms in (1, 1_794_789_258_046, 2):  # Statements are prepared sooner or later; the numbers must still fit.
        assert catalog.share_use({7: at_ms, 1_000_000: 1})[1_000_000] == 1
    assert catalog.share_use({}) == {}


def test_gateways_start_one_after_the_other(catalog: CatalogDatabase, other: CatalogDatabase) -> None:
    catalog.begin_start()
    other._connection.execute("SET lock_timeout = '50ms'")
    refused(Fault.SERVER_BUSY, other.begin_start)
    catalog.end_start()
    other.begin_start()
    other.end_start()


def test_a_lost_connection_is_made_anew(catalog: CatalogDatabase, other: CatalogDatabase) -> None:
    catalog.take_ids(1)
    for each in (catalog, other):
        each._connection.close()
    catalog.put(ORDERS, 0)
    assert other.load()[1] == [ORDERS]


def test_a_newer_catalog_is_refused(
    catalog: CatalogDatabase, new_catalog: NewCatalog, postgres: PostgresServer
) -> None:
    postgres.execute(f'UPDATE "{catalog.channel}".counter SET version = 99')
    assert "newer Twinbus" in refused(Fault.STORE_UNAVAILABLE, new_catalog)
