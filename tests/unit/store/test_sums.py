"""What commits did, in numbers that only grow."""

from __future__ import annotations

import itertools

import duckdb

from twinbus.model.message import Origin
from twinbus.pipeline.costs import metering
from twinbus.store.commands import Note
from twinbus.store.journal import JournalPage
from twinbus.store.sums import KINDS, Sums, kind_of

CLIENT = Origin("c#1", "app")
BROKER = Origin("", "broker")


def counted(*pages: JournalPage) -> Sums:
    sums = Sums()
    for page in pages:
        sums.add(page)
    return sums


def page(operation: str, ids: list[str], origin: Origin = CLIENT, outcome: str = "", sizes: int = 10) -> JournalPage:
    made = JournalPage()
    made.add(operation, 4, origin, (ids, list(range(1, len(ids) + 1)), [0], [sizes] * len(ids)), outcome)
    return made


def test_messages_are_counted_by_what_became_of_them() -> None:
    sums = counted(
        page("send", ["a", "b"]),
        page("send", ["a"], outcome="duplicate"),
        page("receive", ["a", "b"]),
        page("complete", ["a"]),
        page("deadletter", ["b"], outcome="MaxDeliveryCountExceeded"),
        page("ttl_expire", ["c"], BROKER, "deadletter"),
        page("expire_lock", ["d", "e"], BROKER),
    )
    assert sums.events == {
        "stored": 3,
        "duplicate_dropped": 1,
        "delivered": 2,
        "completed": 1,
        "deadlettered": 2,
        "expired": 1,
        "lock_expired": 2,
    }


def test_what_the_broker_does_by_itself_is_nobodys_message_and_not_billed() -> None:
    forwarded = Origin("", "forward")
    sums = counted(
        page("receive", ["a"], forwarded), page("send", ["a"], forwarded), page("complete", ["a"], forwarded)
    )
    assert sums.events == {}
    assert sums.billable == {"forward": 1}


def test_a_large_message_is_billed_once_for_each_64_kb() -> None:
    made = JournalPage()
    made.add("send", 4, CLIENT, (["a", "b", "c"], [1, 2, 3], [0], [65_536, 65_537, 200_000]))
    assert counted(made).billable == {"send": 1 + 2 + 4}
    assert counted(page("receive", ["a", "b"], sizes=70_000)).billable == {"receive": 4}


def test_copies_of_what_was_published_are_not_sent_again() -> None:
    made = JournalPage()
    made.copies([8, 12], CLIENT, (4, 1), (["a"], [1, 1], [10]))
    sums = counted(made)
    assert (sums.events, sums.billable) == ({}, {})


def test_notes_stand_for_as_many_operations_as_they_say() -> None:
    made = JournalPage()
    made.note(Note("receive", 4, outcome="empty", count=7), CLIENT)
    sums = counted(made)
    assert sums.events == {}
    assert sums.billable == {"empty_receive": 7}


def test_kinds_are_those_that_are_metered_from_the_journals_files() -> None:
    operations = [
        "send", "schedule", "copy", "cancel", "receive", "receive_delete", "complete", "abandon", "release", "defer",
        "deadletter", "transfer_deadletter", "forward", "expire_lock", "drop_lock", "ttl_expire", "activate", "delete",
        "drop", "damaged", "peek", "renew", "renew_session", "get_session_state", "set_session_state", "list_sessions",
        "manage", "connect", "disconnect", "relay_listen", "relay_connect", "relay_request", "relay_response", "fault",
    ]  # fmt: skip
    outcomes = ["", "duplicate", "ping", "empty", "published", "MaxDeliveryCountExceeded", "quota-exceeded"]
    who = [("", "broker"), ("", "forward"), ("", "topic"), ("c#1", "app"), ("http:::1", "root"), ("c#2", "broker")]
    rows = [
        (operation, connection, client, outcome, tracking_id)
        for operation, (connection, client), outcome, tracking_id in itertools.product(
            operations, who, outcomes, ("", "0af1")
        )
    ]
    told = {row: kind_of(*row) for row in rows}
    values = ", ".join(str(row) for row in rows)
    cases = " ".join(f"WHEN {kind.condition} THEN '{kind.name}'" for kind in metering.KINDS)
    query = (
        f"SELECT *, CASE {cases} END FROM (VALUES {values}) AS j(operation, connection, client, outcome, tracking_id)"
    )
    metered = {tuple(row[:5]): row[5] for row in duckdb.sql(query).fetchall()}
    assert {row: kind or "own" for row, kind in told.items()} == metered
    assert set(KINDS) == {kind.name for kind in metering.KINDS} - {"own"}
