"""The small checks: what fails each of them, since when, and that none tells where files are."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.broker.health import CERTIFICATE_LIMIT_S, Health
from twinbus.broker.measuring import DISK_FREE_LIMIT_BYTES


@dataclass
class Clock:
    at_ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.at_ms


@dataclass
class Disk:
    answers: bool = True
    free_bytes: int | None = DISK_FREE_LIMIT_BYTES

    async def look_at_disk(self) -> bool:
        return self.answers


def store(number: int, state: str = "up", since_ms: int = 5) -> Any:
    return SimpleNamespace(number=number, state_name=state, since_ms=since_ms, is_available=state in ("up", "full"))


@dataclass
class World:
    stores: list[Any] = field(default_factory=lambda: [store(0), store(1)])
    disk: Disk = field(default_factory=Disk)
    clock: Clock = field(default_factory=Clock)
    wall: Clock = field(default_factory=Clock)
    orphans: list[Any] = field(default_factory=list)
    failing: int = 0
    catalog_problem: str = ""
    expires_s: int | None = None

    def health(self) -> Health:
        exporter = SimpleNamespace(metrics=lambda: {"journal_export_failing": {(): self.failing}})
        quarantine = SimpleNamespace(orphans=lambda: self.orphans, unreadable={})
        hosted: Any = SimpleNamespace(
            stores=self.stores,
            exporter=exporter,
            settings=SimpleNamespace(name="contoso", data_directory="/secret"),
            namespace=SimpleNamespace(quarantine=quarantine),
            data=SimpleNamespace(catalog_problem=self.catalog_problem),
        )
        made = Health([hosted], [self.disk], self.clock, self.wall, self.expires_s)  # type: ignore[list-item]
        made.loop.end()
        return made


@pytest.fixture
def world() -> World:
    return World()


async def test_everything_is_well(world: World) -> None:
    world.expires_s = world.wall.at_ms // 1000 + CERTIFICATE_LIMIT_S
    health = world.health()
    found = {name: (await check()).ok for name, check in health.checks().items()}
    assert found == dict.fromkeys(("store", "catalog", "disk", "clock", "certs", "journal", "loop"), True)
    assert health.serves()


async def test_a_catalog_whose_files_were_taken_away_is_named_without_where_it_is(world: World) -> None:
    world.catalog_problem = "its files in /secret were removed"
    health = world.health()
    finding = await health.checks()["catalog"]()
    assert not finding.ok
    assert health.doubts() == ["the catalog of 'contoso' takes no changes: `twinbus status` says why."]


async def test_a_store_that_is_not_up_is_named_with_its_state(world: World) -> None:
    world.stores = [store(0, "full", 7), store(1), store(2, "hanging", 6)]
    finding = await world.health().checks()["store"]()
    assert finding == (False, "store 0 of 'contoso' is full; store 2 of 'contoso' is hanging.", 6)
    assert world.health().serves()


async def test_without_any_store_nothing_can_be_served(world: World) -> None:
    world.stores = [store(0, "failed"), store(1, "down")]
    assert not world.health().serves()


async def test_a_check_tells_since_when_it_fails_and_forgets_it_when_it_is_well(world: World) -> None:
    check = world.health().checks()["disk"]
    world.disk.free_bytes = DISK_FREE_LIMIT_BYTES - 1
    first = await check()
    assert (first.ok, first.since_ms) == (False, world.wall.at_ms)
    assert "255 MiB" in first.reason
    assert "/secret" not in first.reason
    world.wall.at_ms += 60_000
    assert (await check()).since_ms == first.since_ms
    world.disk.free_bytes = DISK_FREE_LIMIT_BYTES
    assert (await check()).ok
    world.disk.answers = False
    assert (await check()) == (False, "The disk of 'contoso' does not answer.", world.wall.at_ms)


@pytest.mark.parametrize(("ahead_s", "word"), [(6, "ahead of"), (-6, "behind")])
async def test_a_clock_that_was_set_is_noticed(world: World, ahead_s: int, word: str) -> None:
    check = world.health().checks()["clock"]
    world.wall.at_ms += ahead_s * 1000
    finding = await check()
    assert not finding.ok
    assert f"6 s {word} the broker's" in finding.reason


@pytest.mark.parametrize(("left_s", "word"), [(3 * 86_400, "ends in 3.0 days"), (-5, "has ended")])
async def test_a_certificate_that_ends_soon_is_told(world: World, left_s: int, word: str) -> None:
    world.expires_s = world.wall.at_ms // 1000 + left_s
    finding = await world.health().checks()["certs"]()
    assert not finding.ok
    assert word in finding.reason


async def test_a_journal_that_cannot_be_exported_is_told(world: World) -> None:
    check = world.health().checks()["journal"]
    world.failing = 1
    assert (await check()).reason == "The journal of 'contoso' cannot be exported."


async def test_a_late_loop_is_told_for_a_minute(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    health = world.health()
    now = health.loop._loop.time()
    health.loop._due_s = now - 1.5
    health.loop._tick()
    health.loop.end()
    assert not (await health.checks()["loop"]()).ok
    monkeypatch.setattr(health.loop, "_loop", SimpleNamespace(time=lambda: now + 61))
    assert (await health.checks()["loop"]()).ok


async def test_what_is_set_aside_is_said_without_where_it_is(world: World) -> None:
    world.stores, world.orphans = [store(0), store(1, "set-aside")], [object(), object()]
    health = world.health()
    assert health.doubts() == [
        "store 1 of 'contoso' is set aside: `twinbus store list` says why.",
        "2 entities of 'contoso' are set aside: `twinbus store orphans` lists them.",
    ]
    found = await health.checks()["catalog"]()
    assert (found.ok, found.reason) == (False, health.doubts()[1])
