"""Hybrid connections are durable before they are visible, and share their names with nobody."""

from __future__ import annotations

import pytest

from twinbus.entities.hybrid import HybridConnection, HybridConnections, overlap
from twinbus.model.errors import BusError, Fault
from twinbus.model.hybrid import HybridConnectionDescription, hybrid_from_document, hybrid_to_document
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.store.catalog import EntityRow


class Catalog:
    """A catalog in memory, which fails when it is told to."""

    def __init__(self) -> None:
        self.rows: dict[int, EntityRow] = {}
        self.is_broken = False
        self._next = 1

    async def take_ids(self, count: int) -> int:
        self._next += count
        return self._next - count

    async def put(self, row: EntityRow) -> None:
        if self.is_broken:
            raise BusError(Fault.STORE_UNAVAILABLE, "The catalog is broken.")
        self.rows[row.id] = row

    async def remove(self, entity: int, parts: object = None) -> None:
        del self.rows[entity]

    async def dropped(self, parts: object) -> None:
        raise AssertionError

    async def take_up(self, row: EntityRow) -> None:
        raise AssertionError

    generation = 0

    async def set_meta(self, key: str, value: str) -> None:
        raise AssertionError


class Clock:
    def now_ms(self) -> int:
        return 7


def make(*others: str) -> tuple[HybridConnections, Catalog]:
    catalog = Catalog()
    return HybridConnections(catalog, Clock(), 4, lambda: others), catalog


def described(name: str) -> HybridConnectionDescription:
    return HybridConnectionDescription(name=name)


async def test_one_that_was_made_is_found_in_any_case_and_from_below() -> None:
    hybrids, _ = make()
    outer, inner = await hybrids.create(described("Demo")), await hybrids.create(described("demo/inner"))
    assert (hybrids.find("dEMO"), hybrids.above("demo/x/y"), hybrids.above("/demo/inner/z")) == (outer, outer, inner)
    assert (hybrids.above("demos"), hybrids.above(""), hybrids.find("demo/x")) == (None, None, None)
    assert hybrids.all() == [outer, inner]


async def test_what_the_catalog_did_not_take_is_not_there() -> None:
    hybrids, catalog = make()
    catalog.is_broken = True
    with pytest.raises(BusError):
        await hybrids.create(described("demo"))
    assert hybrids.all() == []
    catalog.is_broken = False
    assert (await hybrids.create(described("demo"))).description.created_at_ms == 7


@pytest.mark.parametrize("name", ["queue", "QUEUE/below", "a", "a/topic", "a/topic/x"])
async def test_a_queue_s_name_is_taken_with_all_above_and_below(name: str) -> None:
    hybrids, _ = make("queue", "a/topic")
    with pytest.raises(BusError) as refusal:
        await hybrids.create(described(name))
    assert refusal.value.fault is Fault.ENTITY_EXISTS


async def test_a_queue_cannot_take_a_hybrid_connection_s_name() -> None:
    hybrids, _ = make()
    await hybrids.create(described("demo/service"))
    for name in ("demo/service", "Demo", "demo/service/below"):
        with pytest.raises(BusError):
            hybrids.check_free(name)
    hybrids.check_free("demo/other")


async def test_the_catalog_s_rows_bring_them_back_and_changes_of_others_are_taken_over() -> None:
    hybrids, catalog = make()
    made = await hybrids.create(described("demo"))
    await hybrids.update(HybridConnectionDescription(name="DEMO", requires_client_authorization=False))
    again, _ = make()
    restored = again.adopt(catalog.rows[made.id])
    assert (restored.path, restored.description) == ("demo", made.description)
    gone: list[HybridConnection] = []
    again.on_deleted.append(gone.append)
    assert again.adopt(catalog.rows[made.id]) is restored
    again.keep_only(set())
    assert (gone, again.all()) == ([restored], [])


async def test_a_deleted_one_is_told_and_forgotten() -> None:
    hybrids, catalog = make()
    made = await hybrids.create(described("demo"))
    gone: list[HybridConnection] = []
    hybrids.on_deleted.append(gone.append)
    await hybrids.delete("Demo")
    assert (gone, catalog.rows, hybrids.find("demo")) == ([made], {}, None)
    with pytest.raises(BusError):
        await hybrids.delete("demo")


@pytest.mark.parametrize("name", ["", "$hc", "readyz", "Metrics/below", "a//b", "a b"])
async def test_names_that_cannot_be_are_refused(name: str) -> None:
    hybrids, _ = make()
    with pytest.raises(BusError) as refusal:
        await hybrids.create(described(name))
    assert refusal.value.fault is Fault.ARGUMENT


def test_a_description_survives_as_a_document() -> None:
    rule = AuthorizationRule("r", "k", "l", Rights.SEND)
    description = HybridConnectionDescription(name="demo", user_metadata="m", authorization_rules=(rule,))
    assert hybrid_from_document(hybrid_to_document(description)) == description


@pytest.mark.parametrize(
    ("one", "other", "expected"), [("a", "a", True), ("a", "a/b", True), ("a/b", "a", True), ("a", "ab", False)]
)
def test_names_overlap_by_whole_segments(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is expected
