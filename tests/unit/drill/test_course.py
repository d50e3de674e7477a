"""The course of a drill, its record and its report: what is remembered, and what people and the console are shown."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from twinbus.drill import course as course_module
from twinbus.drill.course import Course, Moment, Point
from twinbus.drill.ending import Ending
from twinbus.drill.history import Verdict
from twinbus.drill.record import Record
from twinbus.drill.report import page
from twinbus.drill.stage import Plan, config_of
from twinbus.drill.traffic import DESTINATIONS


def ended(
    *, lost: tuple[str, ...] = (), condemned: frozenset[str] = frozenset(), broken: tuple[str, ...] = ()
) -> Ending:
    verdict = Verdict(4, 4, 4 - len(lost), lost, (), 2, 2, condemned)
    return Ending(verdict, broken=broken)


def test_times_are_taken_between_the_first_moments_of_a_name() -> None:
    course = Course("outage", marks={"gone": 3.0, "diverted": 5.5, "back": 9.0})
    course.mark("gone")

    assert course.times() == {"divert": 2.5, "heal": None, "drain": None}


def test_whoever_watches_hears_each_moment() -> None:
    heard: list[Moment] = []
    course = Course("outage", heard.append)
    course.say("the primary is gone")

    assert [moment.what for moment in heard] == ["the primary is gone"]
    assert heard == course.moments


def test_a_long_drill_keeps_fewer_points_over_the_whole_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course_module, "POINTS_MAX", 10)
    course = Course("outage")
    for number in range(100):
        course.acknowledged.add(str(number))
        course.sample()

    assert len(course.points) <= 11
    counts = [point.acknowledged for point in course.points]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] > 80


@pytest.mark.parametrize(
    ("ending", "holds"),
    [
        (ended(), True),
        (ended(lost=("m1",)), False),
        (ended(lost=("m1",), condemned=frozenset({"m1"})), True),
        (ended(condemned=frozenset({"m1"})), False),  # It should be gone, and somebody says it came.
        (ended(lost=("m1", "m2"), condemned=frozenset({"m1"})), False),
        (ended(broken=("another entity diverted",)), False),
    ],
)
def test_a_drill_holds_if_exactly_what_had_to_be_lost_is_lost_and_no_claim_is_broken(
    ending: Ending, holds: bool
) -> None:
    assert ending.holds is holds


async def _recorded(path: Path, course: Course, work: str) -> None:
    async with Record(path, Plan(seed=7), course) as record:
        record.write()
        assert json.loads(path.read_text())["state"] == "running"
        if work == "ends":
            record.ended(Ending(Verdict(2, 2, 1, ("m1",), (), 0, 0)))  # To the drill, m2 may come twice.
        elif work == "breaks":
            raise RuntimeError("no broker")
        elif work == "cancelled":
            raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("work", "state", "why"),
    [("ends", "failed", None), ("breaks", "failed", "no broker"), ("cancelled", "aborted", "it was interrupted")],
)
def test_a_record_tells_how_the_drill_ended_however_it_ended(
    tmp_path: Path, work: str, state: str, why: str | None
) -> None:
    path = tmp_path / "d1" / "record.json"
    course = Course("flap", acknowledged={"m1", "m2"}, received=Counter({"m2": 2}), points=[Point(1.0, 2, 0, 1)])
    try:
        asyncio.run(_recorded(path, course, work))
    except (RuntimeError, asyncio.CancelledError):
        assert work != "ends"

    record = json.loads(path.read_text())
    assert (record["id"], record["state"], record["why"], record["seed"]) == ("d1", state, why, 7)
    assert record["counts"]["duplicated"] == (0 if work == "ends" else 1)
    assert record["counts"]["lost"] == (1 if work == "ends" else 0)
    assert record["ended_at"] is not None
    assert record["points"] == [{"at_s": 1.0, "acknowledged": 2, "diverted": 0, "received": 1}]


def test_the_report_shows_verdict_picture_and_names_and_escapes_what_senders_wrote() -> None:
    course = Course("outage", points=[Point(0.0, 0, 0, 0), Point(2.0, 9, 3, 8)], marks={"gone": 0.5, "back": 1.5})
    course.say("<script>orders</script>: healthy -> suspect")
    told = page(Plan(seed=42), course, ended(lost=("<b>m1</b>",)))

    assert "It does not hold." in told
    assert "lost 1" in told
    assert "<code>&lt;b&gt;m1&lt;/b&gt;</code>" in told
    assert "<script>" not in told
    assert told.count("<polyline") == 3
    assert told.count('class="mark"') == 2


def test_a_long_remark_is_folded_and_whole() -> None:
    ids = ", ".join(f"orders-{number:06}" for number in range(40))
    told = page(Plan(), Course("disaster"), replace(ended(), remarks=("short", f"lost: {ids}")))

    assert "<p>short</p>" in told
    assert told.count("<details>") == 1
    assert f"<p>lost: {ids}</p></details>" in told


def test_the_destinations_are_what_the_brokers_are_given() -> None:
    text = config_of(DESTINATIONS)

    assert text.count("[[queues]]") == 2
    assert 'Name = "carts"\nRequiresSession = true' in text
    assert '[[topics]]\nName = "events"\n[[topics.subscriptions]]\nName = "audit"' in text
