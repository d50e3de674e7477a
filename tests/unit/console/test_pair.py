"""What the console says about a pair, from what both namespaces last told."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.console.asking import Memory
from twinbus.console.clients import next_ping_s, outboxes_of, tidied
from twinbus.console.pages import picture
from twinbus.console.pages.entities import drifted, merged
from twinbus.console.pages.message import best_view, hex_dump, shown_as
from twinbus.console.pages.messages import preview
from twinbus.console.pair import (
    Look,
    Pair,
    PairWatch,
    Side,
    Standing,
    Watched,
    clients_of,
    is_backlog,
    judge,
    state_of,
)
from twinbus.console.signing import Credential

SUMS = {"active": 5, "scheduled": 0, "deferred": 0, "locked": 1, "dead_letter": 0, "transfer_dead_letter": 0,
        "arriving": 2.5, "leaving": 2.0}  # fmt: skip


async def nowhere() -> str:
    raise OSError


def half(role: str, *, up: bool = True, backlog: int = 0, clients: list[dict[str, Any]] | None = None) -> Watched:
    side = Side(role, Credential("root", "key"), nowhere, "localhost", name=role)
    queue = {"name": "primary/x-servicebus-transfer/0", "active": backlog, "deferred": 0, "scheduled": 0, "locked": 0,
             "dead_letter": 0, "bytes": 0}  # fmt: skip
    look = Look(100.0, 2.0, {"namespace": role}, SUMS, [queue], clients or [], None, {"told": False, "why": ""})
    return Watched(side, "http://localhost", look, None if up else "it cannot be reached")


def client(number: int = 1, ill: str | None = None, **more: Any) -> dict[str, Any]:
    state = tidied({"state": {"ill": {"orders": ill} if ill else {}, "ill_count": 1 if ill else 0, **more}})["state"]
    return {
        "id": f"c{number}",
        "kind": "paired-client",
        "host": "h",
        "process": number,
        "seen_at": "2026",
        "state": state,
    }


def syphon(**said: Any) -> dict[str, Any]:
    record = {"id": "s", "kind": "syphon", "host": "h", "process": 9, "seen_at": "2026"}
    return tidied({**record, "pair": "primary", "state": {"syphon": {"moved": 4, **said}}})


SYPHON = syphon()


@pytest.mark.parametrize(
    ("primary", "secondary", "state"),
    [
        (half("primary"), half("secondary"), "normal"),
        (half("primary"), half("secondary", up=False), "unprotected"),
        (half("primary", up=False), half("secondary"), "failing"),
        (half("primary", up=False), half("secondary", clients=[client(ill="failed over")]), "diverted"),
        (half("primary"), half("secondary", clients=[client(ill="failed over")]), "diverted"),
        (half("primary"), half("secondary", clients=[client(ill="suspect")]), "suspect"),
        (half("primary"), half("secondary", backlog=7), "stranded"),
        (half("primary"), half("secondary", backlog=7, clients=[syphon()]), "draining"),
        (half("primary"), half("secondary", backlog=7, clients=[syphon(queues="0-3")]), "draining"),
        (half("primary"), half("secondary", backlog=7, clients=[syphon(queues="1-3")]), "stranded"),
        (half("primary"), half("secondary", backlog=7, clients=[syphon(waits_for="primary")]), "waiting"),
        (half("primary"), half("secondary", backlog=7, clients=[syphon(blocked={"orders": "no"})]), "waiting"),
        (half("primary", up=False), half("secondary", up=False), "both down"),
    ],
)
def test_the_state_of_a_pair(primary: Watched, secondary: Watched, state: str) -> None:
    assert state_of(primary, secondary)[0] == state


def test_a_backlog_that_nobody_brings_home_is_told() -> None:
    assert "start `twinbus syphon`" in state_of(half("primary"), half("secondary", backlog=7))[2]
    assert "brings them home" in state_of(half("primary"), half("secondary", backlog=7, clients=[SYPHON]))[2]


def test_a_backlog_that_nobody_would_bring_home_is_told_while_the_primary_is_down() -> None:
    primary = half("primary", up=False)
    assert "start `twinbus syphon`" in state_of(primary, half("secondary", backlog=7))[2]
    assert "no syphon drains" in state_of(primary, half("secondary", backlog=7, clients=[syphon(queues="5")]))[2]
    assert "syphon" not in state_of(primary, half("secondary", backlog=7, clients=[SYPHON]))[2]


def test_clients_of_another_primary_are_not_of_this_pair() -> None:
    other = {**SYPHON, "pair": "another"}
    assert clients_of(half("primary"), half("secondary", clients=[other])) == []
    assert state_of(half("primary"), half("secondary", backlog=7, clients=[other]))[0] == "stranded"


def test_a_state_is_told_with_since_when_it_is_so() -> None:
    standing = Standing()
    judge(standing, half("primary"), half("secondary"), 100.0)
    judge(standing, half("primary", up=False), half("secondary"), 130.0)
    judge(standing, half("primary", up=False), half("secondary"), 132.0)
    assert (standing.state, standing.since_s) == ("failing", 130.0)
    assert [point.state for point in standing.points] == ["normal", "failing", "failing"]


def test_the_newer_record_of_a_client_counts() -> None:
    old, new = client(ill="failed over"), client()
    new["seen_at"] = "2027"
    assert clients_of(half("primary", clients=[old]), half("secondary", clients=[new])) == [new]


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {"ill": [1], "diverted": "many", "pings": -1, "syphon": 3},
        {"ill": {"q": {}}, "ill_count": 1e300, "syphon": {"moved": None, "problem": {}}},
        {"ping": {"next_in_s": "soon"}, "outbox": {"waiting": True, "oldest_s": -1}},
    ],
)
def test_whatever_stands_in_a_record_the_pair_is_judged_and_drawn(state: Any) -> None:
    record = {"id": "x", "kind": "paired-client", "host": "h", "process": 1, "seen_at": "never", "state": state}
    made = tidied(record)
    assert set(made["state"]) == {"ill", "syphon", "ill_count", "diverted", "pings", "ping", "outbox"}
    primary, secondary = half("primary"), half("secondary", clients=[made])
    assert state_of(primary, secondary)[0] in ("normal", "suspect")
    watch = PairWatch(Pair(primary.side, secondary.side), Memory())
    watch.primary, watch.secondary = primary, secondary
    assert "1 paired alive" in picture.draw(watch, [made])


def test_the_next_ping_is_counted_on_from_what_a_client_last_said() -> None:
    quick, slow = client(1, ping={"next_in_s": 4, "every_s": 10}), client(2, ping={"next_in_s": 90, "every_s": 60})
    quick["seen_at"] = slow["seen_at"] = "1970-01-01T00:01:40Z"
    assert next_ping_s([quick, slow], 100.0) == 104.0
    assert next_ping_s([quick, slow], 121.0) == 124.0
    assert next_ping_s([slow], 195.0) == 250.0
    assert next_ping_s([client(3)], 100.0) is None


def test_outboxes_are_put_together() -> None:
    first = client(1, outbox={"waiting": 3, "set_aside": 1, "oldest_s": 7.5})
    second = client(2, outbox={"waiting": 0, "set_aside": 0, "oldest_s": None})
    assert outboxes_of([first, second, client(3)]) == (3, 7.5)
    assert outboxes_of([client(3)]) is None


def test_backlog_queues_are_told_by_the_primarys_name() -> None:
    assert is_backlog("Contoso/x-servicebus-transfer/3", "contoso")
    assert not is_backlog("other/x-servicebus-transfer/3", "contoso")
    assert is_backlog("other/x-servicebus-transfer/3", None)
    assert not is_backlog("orders", None)


def test_a_timeline_needs_two_moments() -> None:
    standing = Standing()
    judge(standing, half("primary"), half("secondary"), 100.0)
    assert "<svg" not in picture.timeline(standing.points)
    judge(standing, half("primary"), half("secondary", backlog=3), 102.0)
    assert "up to 3" in picture.timeline(standing.points)


# Lists of two namespaces


def page(*names: str, total: int | None = None) -> dict[str, Any]:
    return {"entities": [{"name": name} for name in names], "total": len(names) if total is None else total}


def test_two_pages_are_merged_by_name() -> None:
    rows, goes_on = merged([page("a", "C"), page("b", "c")])
    assert [(name, first is not None, second is not None) for name, first, second in rows] == [
        ("a", True, False), ("b", False, True), ("C", True, True),
    ]  # fmt: skip
    assert not goes_on


def test_a_merged_page_is_no_longer_than_one() -> None:
    rows, goes_on = merged([page("a", "c", total=9), page("b", "d", total=2)], top=3)
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert goes_on
    assert merged([None, page("b")])[0] == [("b", None, {"name": "b"})]


def test_drift_is_told_only_where_both_have_it() -> None:
    same = {"kind": "queue", "status": "Active", "requires_session": False, "partitioned": False}
    assert drifted(same, {**same, "status": "Disabled"}) == ["status"]
    assert drifted(same, None) == []


# Bodies


def test_bodies_are_shown_as_what_they_are() -> None:
    assert best_view(b'{"a": 1}') == "json"
    assert best_view(b"7") == "text"
    assert best_view("grüß".encode()) == "text"
    assert best_view(b"\xff\x00") == "hex"
    assert shown_as("json", b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert shown_as("json", b"{no") == "{no"
    assert hex_dump(b"Hi\x00").split() == ["000000", "48", "69", "00", "Hi·"]


def test_a_preview_is_one_line_even_if_it_is_cut_within_a_letter() -> None:
    assert preview("YSAgCiBi") == "a b"
    assert preview("w6TDpMM=") == "ää"
    assert preview("/wD/AA==") == "ff 00 ff 00"
