"""The journal tells every operation that changed something, exactly once, in its transaction."""

from __future__ import annotations

import pytest

from twinbus.model.message import Incoming, Origin, Outcome, ReceiveMode
from twinbus.store.commands import Note, Record, Send


def told(bus):
    return [(entry.operation, entry.message_id, entry.sequence_number, entry.outcome) for entry in bus.journal()]


def test_a_message_life_is_told_in_order(bus):
    bus.send("a")
    bus.settle(Outcome.ABANDON, *bus.receive())
    bus.complete(*bus.receive())
    assert told(bus) == [
        ("send", "a", 1, ""),
        ("receive", "a", 1, ""),
        ("abandon", "a", 1, ""),
        ("receive", "a", 1, ""),
        ("complete", "a", 1, ""),
    ]
    assert [entry.delivery_count for entry in bus.journal()] == [0, 0, 0, 1, 1]


def test_an_entry_says_who_when_where_and_how_much(bus):
    bus.do(
        Send(
            queue=4,
            units=[[Incoming(b"x" * 7, "a")], [Incoming(b"x" * 8, "b"), Incoming(b"x" * 9, "c")]],
            origin=Origin("connection-9", "the client"),
        )
    )
    entries = bus.journal()
    assert [(e.message_id, e.sequence_number, e.bytes) for e in entries] == [("a", 1, 7), ("b", 2, 8), ("c", 3, 9)]
    assert {(e.at_ms, e.queue, e.connection, e.client, e.batch, e.count) for e in entries} == {
        (bus.now, 4, "connection-9", "the client", 1, 1)
    }


def test_every_other_way_is_told(empty):
    empty.create(max_delivery_count=2, duplicate_window_ms=20_000, dead_letter_on_expiry=True)
    empty.send("later", due_at_ms=empty.now + 1_000)
    empty.send("later")
    empty.send("brief", ttl_ms=500)
    empty.pass_ms(1_000)
    empty.receive(1, mode=ReceiveMode.RECEIVE_AND_DELETE)
    empty.send("twice")
    empty.receive()
    empty.pass_ms(30_000)
    empty.settle(Outcome.ABANDON, *empty.receive())
    assert told(empty) == [
        ("schedule", "later", 1, ""),
        ("send", "later", 0, "duplicate"),
        ("send", "brief", 2, ""),
        ("ttl_expire", "brief", 2, "deadletter"),
        ("activate", "later", 3, "1"),
        ("receive_delete", "later", 3, ""),
        ("send", "twice", 4, ""),
        ("receive", "twice", 4, ""),
        ("expire_lock", "twice", 4, ""),
        ("receive", "twice", 4, ""),
        ("abandon", "twice", 4, ""),
        ("deadletter", "twice", 4, "MaxDeliveryCountExceeded"),
    ]


def test_a_refused_operation_is_not_told(bus):
    bus.send("a")
    [message] = bus.receive()
    bus.complete(message)
    before = told(bus)
    command = bus.commit  # A second complete changes nothing.
    from twinbus.store.commands import Complete

    command(Complete(queue=4, tokens=[message.token]))
    assert told(bus) == before


def test_notes_are_told_with_their_tracking_id(bus):
    bus.do(
        Record(
            queue=0,
            origin=Origin("connection-1", "client"),
            notes=[
                Note("empty_poll", 4, count=12),
                Note("refused", 4, outcome="quota-exceeded", message_id="m", bytes=9, tracking_id="t-1"),
            ],
        )
    )
    first, second = bus.journal()
    assert (first.operation, first.count, first.connection) == ("empty_poll", 12, "connection-1")
    assert (second.outcome, second.message_id, second.bytes, second.tracking_id) == ("quota-exceeded", "m", 9, "t-1")


def test_rows_have_no_gaps_over_restarts_and_trimming(bus):
    if not bus.factory.has_one_journal:
        pytest.skip("each gateway writes a stream of its own: test_two_gateways")
    day = 24 * 3600 * 1000
    for message_id in "abc":
        bus.send(message_id)
    bus.crash()
    bus.send("d")
    bus.pass_ms(8 * day)
    assert [row.id for row in bus.store.journal_after(0, 100)] == [4]
    bus.restart()
    bus.send("e")
    assert [row.id for row in bus.store.journal_after(0, 100)] == [4, 5]


def test_a_clock_that_was_set_back_makes_no_gap(bus):
    if not bus.factory.has_one_journal:
        pytest.skip("each gateway writes a stream of its own: test_two_gateways")
    day = 24 * 3600 * 1000
    bus.send("old")
    bus.now += 6 * day
    bus.send("young")
    bus.now -= 5 * day
    bus.send("old again")
    bus.now += 7 * day + day // 2
    bus.send("now")
    bus.sweep()
    assert [row.id for row in bus.store.journal_after(0, 100)] == [2, 3, 4]


def test_the_journal_is_as_durable_as_what_it_tells(bus):
    bus.send("a")
    bus.complete(*bus.receive())
    bus.crash()
    assert [operation for operation, *_ in told(bus)] == ["send", "receive", "complete"]
