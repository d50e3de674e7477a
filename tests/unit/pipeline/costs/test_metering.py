"""Metering by its SQL, answered by DuckDB: no JVM is needed to know what is counted."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.small_journal import Answers, moved, row
from twinbus.pipeline.costs.metering import (
    KINDS,
    MESSAGES,
    OPERATIONS,
    OTHER,
    STAGES,
    UNIT_BYTES,
    Meter,
    hours_sql,
    metering_sql,
    peaks,
    units_of,
)

PAGE = Path(__file__).parents[4] / "docs" / "journal.md"
BACKLOG = "contoso/x-servicebus-transfer/3"
START_MS = 1_794_787_200_000  # 2026-11-16, midnight in UTC.


def metered(rows: list[dict[str, Any]], since_ms: int | None = None, until_ms: int | None = None) -> list[Meter]:
    return [Meter(*found) for found in Answers(rows).ask(metering_sql("journal", since_ms, until_ms))]


def by_stage(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """How often, and how many bytes."""
    times: Counter[str] = Counter()
    carried: Counter[str] = Counter()
    for found in metered(rows):
        if found.stage:
            times[found.stage] += found.times
            carried[found.stage] += found.bytes
    return {stage: (times[stage], carried[stage]) for stage in times}


@given(st.integers(0, 10 * UNIT_BYTES))
def test_every_64_kb_that_have_begun_are_one_unit_and_nothing_is_one_too(size: int) -> None:
    units = units_of(size)
    assert units >= 1
    assert units * UNIT_BYTES >= size
    assert units == 1 or (units - 1) * UNIT_BYTES < size


def test_96_kb_are_two_operations_to_send_two_to_receive_and_one_to_complete() -> None:
    size = 96 * 1024
    rows = [row(operation, bytes=size) for operation in ("send", "receive", "complete")]
    assert {found.kind: found.units for found in metered(rows)} == {"send": 2, "receive": 2, "settle": 1}


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (row("send"), "send"),
        (row("send", outcome="duplicate"), "send"),
        (row("send", outcome="ping"), "ping"),
        (row("send", outcome="quota-exceeded", tracking_id="t"), "refused"),
        (row("send", connection="", client="forward"), "forward"),
        (row("forward", connection="", client="forward"), "own"),
        (row("receive", connection="", client="forward"), "own"),
        (row("complete", connection="", client="topic", outcome="published"), "own"),
        (row("forward", connection="http", client="api"), "settle"),  # A redrive: somebody's receive, send, complete.
        (row("copy"), "own"),
        (row("schedule"), "schedule"),
        (row("cancel"), "cancel"),
        (row("activate", connection="", client="broker"), "own"),
        (row("receive"), "receive"),
        (row("receive_delete"), "receive"),
        (row("receive", outcome="empty"), "empty_receive"),
        (row("complete"), "settle"),
        (row("abandon"), "settle"),
        (row("defer"), "settle"),
        (row("deadletter"), "settle"),
        (row("deadletter", outcome="MaxDeliveryCountExceeded"), "own"),
        (row("renew"), "renew"),
        (row("renew_session"), "renew"),
        (row("get_session_state"), "session"),
        (row("peek", client="broker"), "peek"),
        (row("manage", connection="http", client=""), "manage"),
        (row("delete"), "delete"),
        (row("drop", connection="", client="broker"), "own"),
        (row("relay_listen", connection="http", client="relay"), "listener"),
        (row("relay_request", connection="http", client="relay"), "relayed"),
        (row("connect", ""), "connect"),
        (row("disconnect", "", outcome="5000"), "own"),
        (row("something_new"), OTHER),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value['operation']}-{value['client']}",
)
def test_each_operation_is_of_a_kind(told: dict[str, Any], kind: str) -> None:
    assert [found.kind for found in metered([told])] == [kind]


def test_every_operation_that_the_page_names_is_known() -> None:
    tables = re.findall(r"(?m)^\| operation \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE.read_text())
    cells = [line.split("|")[1] for table in tables for line in table.splitlines()]
    operations = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert {"send", "relay_listen"} <= operations
    found = metered([row(name, entity=name) for name in operations])
    assert [meter.entity for meter in found if meter.kind == OTHER] == []


@pytest.mark.parametrize(("model", "operations"), [(MESSAGES, 4), (OPERATIONS, 6)])
def test_a_moved_message_is_four_operations_by_one_document_and_six_by_the_other(model: Any, operations: int) -> None:
    assert sum(found.billed(model) for found in metered(moved("m"))) == operations


def test_a_moved_message_carries_its_bytes_through_four_stages() -> None:
    rows = [*moved("m", size=1000), row("send", message_id="direct", bytes=10)]
    assert by_stage(rows) == {
        "diverted": (1, 1000),
        "fetched": (1, 1000),
        "moved": (1, 1000),
        "delivered": (1, 1000),
        "sent": (1, 10),
    }


def test_a_send_whose_answer_was_lost_is_not_taken_for_the_way_home() -> None:
    """It arrived at the primary before the same message was diverted; the syphon then brings a second copy."""
    rows = [row("send", at_s=-10, message_id="m", bytes=7), *moved("m", size=7)]
    stages = by_stage(rows)
    assert stages["sent"] == (1, 7)
    assert stages["moved"] == (1, 7)


def test_what_both_copies_of_an_active_message_cost_is_no_move() -> None:
    rows = [row("send", namespace=name, message_id="m", bytes=7) for name in ("contoso", "fabrikam")]
    assert by_stage(rows) == {"sent": (2, 14)}


def test_an_ordered_backlog_is_a_backlog_in_any_spelling_and_its_dead_letters_are_not() -> None:
    ordered = "Contoso/X-ServiceBus-Transfer-Ordered/0"
    rows = [row("send", ordered, bytes=5), row("receive", ordered, bytes=5)]
    rows.append(row("receive", BACKLOG, sub_queue="$DeadLetterQueue", bytes=3))
    assert by_stage(rows) == {"diverted": (1, 5), "fetched": (1, 5), "delivered": (1, 3)}


def test_a_note_counts_as_often_as_it_says() -> None:
    (found,) = metered([row("receive", BACKLOG, outcome="empty", count=40)])
    assert (found.kind, found.times, found.units) == ("empty_receive", 40, 40)


def test_only_what_was_done_in_between_is_counted() -> None:
    rows = [row("send", at_s=at_s) for at_s in (0, 1, 2, 3)]
    (found,) = metered(rows, START_MS + 1000, START_MS + 3000)
    assert found.times == 2


def connected(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(hour.hour, hour.connections) for hour in peaks(Answers(rows).ask(hours_sql("journal")))]


def test_an_hour_has_as_many_connections_as_there_were_at_once() -> None:
    rows = [row("connect", at_s=0, connection="a#1"), row("disconnect", at_s=10, connection="a#1")]
    rows += [row("connect", at_s=5, connection="b#2"), row("disconnect", at_s=30, connection="b#2")]
    rows += [row("connect", at_s=20, connection="c#3"), row("disconnect", at_s=4000, connection="c#3")]
    assert connected(rows) == [("2026-11-16 00:00:00", 2), ("2026-11-16 01:00:00", 1)]


def test_a_connection_counts_in_the_hours_in_which_it_says_nothing() -> None:
    rows = [
        row("connect", at_s=0),
        row("disconnect", at_s=4 * 3600 + 1),
        row("manage", at_s=6 * 3600, connection="http"),
    ]
    assert [count for _, count in connected(rows)] == [1, 1, 1, 1, 1, 0, 0]


def test_a_connection_whose_broker_was_killed_lasted_until_it_was_last_heard_of() -> None:
    rows = [row("connect", at_s=0), row("send", at_s=3700), row("send", at_s=9000, connection="later#1")]
    assert [count for _, count in connected(rows)] == [1, 1, 1]


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 40_000)), min_size=1, max_size=12))
@settings(max_examples=15)
def test_peaks_are_those_of_a_count_at_every_second_of_change(spans: list[tuple[int, int]]) -> None:
    spans = [(min(span), max(span)) for span in spans]
    rows = [row("connect", at_s=began, connection=f"c#{place}") for place, (began, _) in enumerate(spans)]
    rows += [row("disconnect", at_s=ended, connection=f"c#{place}") for place, (_, ended) in enumerate(spans)]
    hours = range(min(began for began, _ in spans) // 3600, max(ended for _, ended in spans) // 3600 + 1)
    expected = []
    for hour in hours:
        moments = {hour * 3600} | {at for span in spans for at in span if at // 3600 == hour}
        # Who ended at the border to this hour ended in it, and who begins at an instant is there with who ends at it.
        expected.append(max(sum(began <= at <= ended for began, ended in spans) for at in moments))
    assert [count for _, count in connected(rows)] == expected


ROWS = st.builds(
    lambda operation, entity, at_s, more: row(operation, entity, at_s, **more),
    st.sampled_from(
        ["send", "schedule", "receive", "receive_delete", "complete", "abandon", "copy", "peek", "renew", "expire_lock"]
    ),
    st.sampled_from(["orders", "events/Subscriptions/audit", BACKLOG]),
    st.integers(0, 200_000),
    st.fixed_dictionaries(
        {
            "namespace": st.sampled_from(["contoso", "fabrikam"]),
            "message_id": st.sampled_from(["", "a", "b", "c"]),
            "outcome": st.sampled_from(["", "", "ping", "empty", "duplicate"]),
            "bytes": st.integers(0, 200_000),
            "count": st.integers(1, 3),
            "client": st.sampled_from(["link", "forward", "broker"]),
            "connection": st.sampled_from(["", "app#1"]),
        }
    ),
)


@settings(max_examples=20)
@given(st.lists(ROWS, min_size=5, max_size=60))
def test_the_query_counts_as_a_loop_over_the_rows_does(rows: list[dict[str, Any]]) -> None:
    assert {found[:5]: found[5:] for found in metered(rows)} == looped(rows)


def looped(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], tuple[int, int, int]]:
    """The same, told in another way."""
    fetched: dict[str, tuple[Any, str]] = {}
    kinds = [looped_kind(told) for told in rows]
    for told, kind in zip(rows, kinds, strict=True):
        if told["entity"] == BACKLOG and kind == "receive" and told["message_id"]:
            at, where = fetched.get(told["message_id"], (told["at"], told["namespace"]))
            fetched[told["message_id"]] = (min(at, told["at"]), min(where, told["namespace"]))
    sums: dict[tuple[str, ...], Counter[str]] = {}
    for told, kind in zip(rows, kinds, strict=True):
        at_home = told["entity"] != BACKLOG
        if kind in ("send", "schedule"):
            since, where = fetched.get(told["message_id"], (None, ""))
            came_home = since is not None and at_home and where != told["namespace"] and since <= told["at"]
            stage = "diverted" if not at_home else "moved" if came_home else "sent"
        else:
            carried = {"receive": "delivered" if at_home else "fetched", "forward": "forwarded", "ping": "pinged"}
            stage = carried.get(kind, "")
        key = (told["namespace"], told["entity"], told["at"].date().isoformat(), kind, stage)
        found = sums.setdefault(key, Counter())
        found["times"] += told["count"]
        found["units"] += told["count"] * (units_of(told["bytes"]) if stage else 1)
        found["bytes"] += told["bytes"] if stage else 0
    return {key: (found["times"], found["units"], found["bytes"]) for key, found in sums.items()}


def looped_kind(told: dict[str, Any]) -> str:
    operation, outcome = told["operation"], told["outcome"]
    if not told["connection"] and told["client"] == "forward" and operation == "send":
        return "forward"
    if (not told["connection"] and told["client"] in ("forward", "broker")) or operation in ("copy", "expire_lock"):
        return "own"
    match operation, outcome:
        case "send", "ping":
            return "ping"
        case "receive", "empty":
            return "empty_receive"
        case (("receive" | "receive_delete"), _):
            return "receive"
        case (("complete" | "abandon"), _):
            return "settle"
    return str(operation)


def test_each_model_bills_kinds_that_there_are() -> None:
    known = {kind.name for kind in KINDS}
    assert known >= MESSAGES.billed
    assert known >= OPERATIONS.billed
    assert OPERATIONS.billed > MESSAGES.billed
    assert len(set(STAGES)) == len(STAGES)
