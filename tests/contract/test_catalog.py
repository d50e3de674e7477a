"""The catalog's file keeps what it is told."""

from __future__ import annotations

import apsw
import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.store.catalog import CatalogFile, EntityRow

ORDERS = EntityRow(1, "orders", "queue", 0, '{"x": 1}')
BILLS = EntityRow(2, "bills", "queue", 3, "{}")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "catalog.db")


def test_an_empty_catalog_has_nothing(path):
    assert CatalogFile(path).load() == ({}, [])


def test_entities_and_settings_survive(path):
    catalog = CatalogFile(path)
    catalog.put(BILLS)
    catalog.put(ORDERS)
    catalog.set_meta("next_entity", "3")
    catalog.set_meta("next_entity", "4")
    expected = ({"next_entity": "4"}, [ORDERS, BILLS])
    assert CatalogFile(path).load() == expected  # Without closing: a killed process loses nothing.
    catalog.close()
    assert CatalogFile(path).load() == expected


def test_an_entity_is_replaced_by_number_and_removed(path):
    catalog = CatalogFile(path)
    catalog.put(ORDERS)
    catalog.put(ORDERS._replace(document="{}"))
    assert catalog.load()[1] == [ORDERS._replace(document="{}")]
    catalog.remove(1)
    catalog.remove(1)
    assert catalog.load()[1] == []


def test_a_name_is_taken_once(path):
    catalog = CatalogFile(path)
    catalog.put(ORDERS)
    with pytest.raises(BusError) as refused:
        catalog.put(BILLS._replace(name="orders"))
    assert refused.value.fault is Fault.ENTITY_EXISTS


def test_a_newer_catalog_is_refused(path):
    CatalogFile(path).close()
    newer = apsw.Connection(path)
    newer.execute("UPDATE meta SET value = '99' WHERE key = 'catalog_version'")
    newer.close()
    with pytest.raises(BusError, match="newer Twinbus"):
        CatalogFile(path)


class Disk(apsw.VFS):
    """A disk that can be taken away."""

    def __init__(self) -> None:
        self.gone = False
        super().__init__("catalog-disk", "")

    def xOpen(self, name, flags):  # noqa: N802
        return File(self, name, flags)


class File(apsw.VFSFile):
    def __init__(self, disk, name, flags) -> None:
        self.disk = disk
        super().__init__("", name, flags)

    def xSync(self, flags):  # noqa: N802
        if self.disk.gone:
            raise apsw.IOError("the disk is gone")
        super().xSync(flags)


def test_after_its_disk_has_failed_it_is_opened_anew(path):
    disk = Disk()
    catalog = CatalogFile(path, "catalog-disk")
    catalog.put(ORDERS)
    disk.gone = True
    for change in (lambda: catalog.put(BILLS), lambda: catalog.remove(1), lambda: catalog.take_ids(1)):
        with pytest.raises(BusError) as failed:
            change()
        assert failed.value.fault is Fault.STORE_UNAVAILABLE
    disk.gone = False
    catalog.put(BILLS)
    assert {row.name for row in catalog.load()[1]} >= {"bills"}
    catalog.close()


def test_numbers_are_never_given_out_twice(path):
    catalog = CatalogFile(path)
    assert [catalog.take_ids(1), catalog.take_ids(16), catalog.take_ids(1)] == [1, 2, 18]
    assert CatalogFile(path).take_ids(1) == 19
