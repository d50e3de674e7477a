"""Incidents: when one begins, what it counts, when it ends, and that a restart does not forget it."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from twinbus.console import book
from twinbus.console.book import Book
from twinbus.console.clients import tidied
from twinbus.console.incidents import GRACE_S, LATE_S, POINTS_MAX, SAVED_S, Incident, Incidents, Moment, read


def client(diverted: int, moved: int = 0, name: str = "c") -> dict[str, Any]:
    return tidied({"id": name, "state": {"diverted": diverted, "syphon": {"moved": moved}}})


def moment(at_s: float, state: str = "normal", backlog: int = 0, *clients: dict[str, Any], **more: Any) -> Moment:
    return Moment(at_s, state, f"{state}!", 2.0, backlog, more.get("oldest_s"), clients)


def outage(incidents: Incidents) -> Incident:
    """Ten messages are diverted, of which the client says eight, and nine come home."""
    incidents.take(moment(100, "normal", 0, client(5, 2)))
    incidents.take(moment(102, "failing", 0, client(5, 2)))
    incidents.take(moment(104, "diverted", 4, client(9, 2), oldest_s=3.0))
    incidents.take(moment(106, "diverted", 8, client(13, 2), oldest_s=5.0))
    incidents.take(moment(108, "draining", 2, client(13, 2), oldest_s=1.0))
    incidents.take(moment(110, "normal", 0, client(13, 8)))
    return incidents.kept[-1]


def test_an_incident_lasts_until_the_pair_is_normal_again() -> None:
    incidents = Incidents()
    incident = outage(incidents)
    assert len(incidents.kept) == 1
    assert (incident.began_at_s, incident.ended_at_s, incident.why) == (102, 110, "failing!")
    assert [(stage.at_s, stage.state) for stage in incident.stages] == [
        (102, "failing"), (104, "diverted"), (108, "draining"), (110, "normal"),
    ]  # fmt: skip
    assert (incident.diverted, incident.brought_home) == (8, 6)
    assert (incident.greatest_backlog, incident.oldest_s, incident.worst) == (8, 5.0, "diverted")
    assert [point.state for point in incident.points] == [
        "normal", "failing", "diverted", "diverted", "draining", "normal",
    ]  # fmt: skip


def test_what_clients_say_a_little_later_still_counts() -> None:
    incidents = Incidents()
    incident = outage(incidents)
    assert incidents.take(moment(120, "normal", 0, client(13, 10))) is incident
    assert incident.brought_home == 8
    assert incidents.take(moment(122, "normal", 0, client(13, 10))) is None
    assert incidents.take(moment(110 + LATE_S, "normal", 0, client(13, 11))) is None
    assert incident.brought_home == 8


def test_two_that_follow_each_other_count_each_its_own() -> None:
    incidents = Incidents()
    outage(incidents)
    incidents.take(moment(112, "diverted", 3, client(16, 8)))
    incidents.take(moment(114, "normal", 0, client(16, 11)))
    assert [(each.diverted, each.brought_home) for each in incidents.kept] == [(8, 6), (3, 3)]


def test_only_what_is_new_is_saved_and_now_and_then() -> None:
    incidents = Incidents()
    assert incidents.take(moment(100)) is None
    assert incidents.take(moment(102, "failing")) is not None
    assert incidents.take(moment(104, "failing")) is None
    assert incidents.take(moment(102 + SAVED_S, "failing")) is not None


def test_a_pair_that_is_still_starting_is_no_incident() -> None:
    incidents = Incidents()
    incidents.take(moment(100, "both down"))
    incidents.take(moment(102, "failing"))
    incidents.take(moment(104))
    assert not incidents.kept
    late = Incidents()
    late.take(moment(100, "failing"))
    late.take(moment(100 + GRACE_S, "failing"))
    assert late.open is not None


def test_an_outage_between_two_looks_is_told_by_what_was_diverted() -> None:
    incidents = Incidents()
    incidents.take(moment(100, "normal", 0, client(5)))
    missed = incidents.take(moment(115, "normal", 0, client(9), client(7, name="new")))
    assert missed is not None
    assert (missed.began_at_s, missed.ended_at_s, missed.diverted) == (100, 115, 4)


def test_a_long_incident_keeps_its_points_few() -> None:
    incidents = Incidents()
    incidents.take(moment(0))
    for at in range(1, 2_000):
        incidents.take(moment(at, "diverted", at))
    incident = incidents.open
    assert incident is not None
    assert len(incident.points) <= POINTS_MAX
    assert (incident.points[0].at_s, incident.points[-1].at_s) == (0, 1_999)


def test_what_is_exported_can_be_read() -> None:
    incident = outage(Incidents())
    assert read(json.loads(json.dumps(incident.document()))) == incident


class TestBook:
    def test_one_that_is_open_at_a_restart_goes_on(self, tmp_path: Path) -> None:
        before = Incidents()
        first = Book(tmp_path)
        for each in (moment(100), moment(102, "failing"), moment(104, "diverted", 3, client(3))):
            changed = before.take(each)
            if changed is not None:
                first.write(changed.document(), [])
        after = Incidents()
        after.kept.extend(Book(tmp_path).read())
        assert after.open is not None
        after.take(moment(130, "diverted", 5, client(7)))
        after.take(moment(140, "normal", 0, client(7)))
        (incident,) = after.kept
        assert (incident.began_at_s, incident.ended_at_s, incident.diverted) == (102, 140, 7)
        assert [stage.state for stage in incident.stages] == ["failing", "diverted", "normal"]

    def test_a_torn_line_costs_only_itself(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        kept, document = Book(tmp_path), outage(Incidents()).document()
        kept.write(document, [])
        with (tmp_path / book.NAME).open("ab") as file:
            file.write(b'{"id": "x"}\n[]\n\xff\n{"id": "torn')
        kept.write({**document, "id": "next"}, [])
        kept.write({**document, "id": "last"}, [])
        assert [incident.id for incident in Book(tmp_path).read()] == [document["id"], "next", "last"]
        assert [f"line {number} of" in caplog.text for number in range(1, 8)] == [False, *[True] * 4, False, False]

    def test_what_a_full_disk_cuts_off_does_not_swallow_the_next(self, tmp_path: Path) -> None:
        kept, document = Book(tmp_path), outage(Incidents()).document()
        kept.write(document, [])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / book.NAME).stat().st_size + 20, hard))
        try:
            kept.write({**document, "id": "cut"}, [])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not (tmp_path / book.NAME).read_bytes().endswith(b"\n")
        kept.write({**document, "id": "next"}, [])
        assert [incident.id for incident in Book(tmp_path).read()] == [document["id"], "next"]

    def test_the_file_is_bounded(self, tmp_path: Path) -> None:
        kept, document = Book(tmp_path), outage(Incidents()).document()
        for _ in range(book.LINES_MAX + 5):
            kept.write(document, [document])
        assert len((tmp_path / book.NAME).read_text().splitlines()) == 5
        assert len(Book(tmp_path).read()) == 1

    def test_without_a_directory_nothing_is_kept_and_nothing_fails(self, tmp_path: Path) -> None:
        Book(None).write({}, [])
        assert Book(None).read() == []
        Book(tmp_path / "missing").write({}, [])
