"""Status records: bounded in number, size and time, and refused when they are not what they should be."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.admin import clients
from twinbus.admin.clients import ClientRecords
from twinbus.model.errors import BusError, Fault


class Times:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def records(times: Times) -> ClientRecords:
    return ClientRecords(times, str)


def body(**changes: Any) -> dict[str, Any]:
    return {"kind": "paired-client", "pair": "contoso", "host": "h", "process": 1, "state": {"diverted": 2}} | changes


def test_a_record_is_shown_with_its_times(records: ClientRecords) -> None:
    records.put("a", body(ttl=30))

    assert records.all() == [{**body(), "id": "a", "seen_at": "1000", "expires_at": "31000"}]


def test_a_record_is_gone_when_its_time_is_over(records: ClientRecords, times: Times) -> None:
    records.put("a", body(ttl=30))
    times.now += 29_999
    assert len(records.all()) == 1
    times.now += 1
    assert records.all() == []


def test_a_renewed_record_lives_on_and_is_the_latest(records: ClientRecords, times: Times) -> None:
    records.put("a", body(ttl=30))
    records.put("b", body(ttl=60))
    times.now += 20_000
    records.put("a", body(ttl=30, state={"diverted": 3}))
    times.now += 20_000
    assert [(found["id"], found["state"]["diverted"]) for found in records.all()] == [("b", 2), ("a", 3)]


def test_there_are_only_so_many(records: ClientRecords, times: Times) -> None:
    for number in range(clients.RECORDS_MAX):
        records.put(f"n{number}", body(ttl=10))
    with pytest.raises(BusError) as refused:
        records.put("one-more", body())
    assert refused.value.fault is Fault.QUOTA_EXCEEDED
    records.put("n7", body(ttl=10))  # One that is there may be renewed.
    times.now += 10_000
    records.put("one-more", body())
    assert [found["id"] for found in records.all()] == ["one-more"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"kind": "robot"}, "kind"),
        ({"kind": None}, "kind"),
        ({"pair": ""}, "pair"),
        ({"pair": 5}, "pair"),
        ({"host": "x" * 261}, "host"),
        ({"host": "a\x1b[2J"}, "host"),
        ({"process": "1"}, "process"),
        ({"process": True}, "process"),
        ({"ttl": 601}, "ttl"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": 1.5}, "ttl"),
        ({"state": []}, "state"),
        ({"state": {"x": "y" * 8192}}, "state"),
        ({"state": {"x": float("nan")}}, "state"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_is_not_a_record_is_refused(records: ClientRecords, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(BusError, match=f"'{word}'"):
        records.put("a", body(**changes))
    assert records.all() == []


def test_removing_what_is_not_there_is_no_fault(records: ClientRecords) -> None:
    records.put("a", body())

    assert records.remove("b") == {"removed": False}
    assert records.remove("a") == {"removed": True}
    assert records.all() == []
