"""A merge's account: who was first, whose copy never came, and nothing counted twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.merging.sightings import PRIMARY, SECONDARY, SIDES, Alone, Sighting, Sightings

WINDOW_S = 10


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[Sightings]:
    found = Sightings(tmp_path / "sightings.db", WINDOW_S)
    yield found
    found.close()


def copy(tag: str, side: str, received_ms: int) -> Sighting:
    return Sighting("orders", tag, side, received_ms)


def test_the_side_whose_copy_came_first_is_counted_when_the_window_is_over(seen: Sightings) -> None:
    seen.record("q", 0, [copy("a", PRIMARY, 5), copy("a", SECONDARY, 3), copy("b", PRIMARY, 5)])
    seen.record("q", 1, [copy("b", SECONDARY, 6)])
    assert seen.settle(10_003) == []
    assert (seen.totals().first, seen.totals().open) == ({PRIMARY: 0, SECONDARY: 0}, 2)
    assert seen.settle(10_006) == []
    assert (seen.totals().first, seen.totals().open) == ({PRIMARY: 1, SECONDARY: 1}, 0)
    assert seen.totals().copies == {PRIMARY: 2, SECONDARY: 2}


def test_a_second_copy_that_never_came_is_told_once(seen: Sightings) -> None:
    seen.record("q", 0, [copy("a", SECONDARY, 3)])
    assert seen.settle(10_003) == []
    assert seen.settle(10_004) == [Alone("orders", "a", SECONDARY, 3)]
    assert seen.settle(20_000) == []
    assert seen.totals().alone == {PRIMARY: 0, SECONDARY: 1}
    assert seen.alone() == [Alone("orders", "a", SECONDARY, 3)]


def test_a_second_copy_after_the_window_is_late_and_no_longer_missing(seen: Sightings) -> None:
    seen.record("q", 0, [copy("a", PRIMARY, 3)])
    seen.settle(10_004)
    seen.record("q", 1, [copy("a", SECONDARY, 11_000)])
    assert (seen.totals().late, seen.totals().alone, seen.totals().open) == (1, {PRIMARY: 0, SECONDARY: 0}, 0)
    assert seen.alone() == []


def test_a_message_that_one_side_brings_twice_has_still_one_copy(seen: Sightings) -> None:
    seen.record("q", 0, [copy("a", PRIMARY, 3), copy("a", PRIMARY, 4)])
    assert [each.tag for each in seen.settle(20_000)] == ["a"]


def test_consumers_are_apart(seen: Sightings) -> None:
    seen.record("q", 0, [copy("a", PRIMARY, 3), Sighting("invoices", "a", SECONDARY, 3)])
    assert len(seen.settle(20_000)) == 2


def test_a_batch_that_is_run_again_is_counted_once(tmp_path: Path) -> None:
    for _ in range(2):  # The process was killed in between, and begins anew.
        seen = Sightings(tmp_path / "sightings.db", WINDOW_S)
        for number in range(2):
            seen.record("q", number, [copy(f"m{number}", PRIMARY, 3)], untagged=1)
        assert seen.totals().copies[PRIMARY] == 2
        assert (seen.totals().untagged, seen.totals().open) == (2, 2)
        seen.close()


def test_another_checkpoint_counts_for_itself(seen: Sightings) -> None:
    assert seen.record("q", 0, [copy("a", PRIMARY, 3)])
    assert not seen.record("q", 0, [copy("a", PRIMARY, 3)])
    assert seen.record("r", 0, [copy("b", PRIMARY, 3)])


def test_what_the_watermark_dropped_is_remembered(seen: Sightings) -> None:
    seen.dropped(3)
    seen.dropped(2)
    assert seen.totals().dropped == 5


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(SIDES), st.integers(0, 5_000)), max_size=30))
def test_every_message_is_counted_once(
    tmp_path_factory: pytest.TempPathFactory, copies: list[tuple[int, str, int]]
) -> None:
    seen = Sightings(tmp_path_factory.mktemp("seen") / "sightings.db", WINDOW_S)
    for number, (tag, side, at) in enumerate(sorted(copies, key=lambda each: each[2])):
        seen.record("q", number, [copy(str(tag), side, at)])
    seen.settle(100_000)
    totals = seen.totals()
    both = {tag for tag, _, _ in copies if {side for other, side, _ in copies if other == tag} == set(SIDES)}
    assert sum(totals.first.values()) == len(both)
    assert sum(totals.alone.values()) == len({tag for tag, _, _ in copies} - both)
    assert sum(totals.copies.values()) == len(copies)
    seen.close()
