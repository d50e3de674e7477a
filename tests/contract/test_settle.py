"""Settling: complete, abandon, release, defer and dead-letter, and the dead-letter queue itself."""

from __future__ import annotations

import pytest

from contract.conftest import DEAD, QUEUE
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import MessageState, Outcome, ReceiveMode, Settlement
from twinbus.store.commands import Settle


def ids(messages):
    return [message.message_id for message in messages]


def fault_of(action, *arguments, **options):
    with pytest.raises(BusError) as refused:
        action(*arguments, **options)
    return refused.value.fault


def test_complete_removes_for_good(bus):
    bus.send("a", "b")
    bus.complete(bus.receive(1)[0])
    bus.crash()
    assert ids(bus.peek()) == ["b"]
    assert bus.count().size_bytes == len(b"b\x00\xff\xc0")


def test_abandon_counts_and_returns_at_once(bus):
    bus.send("a", "b")
    bus.settle(Outcome.ABANDON, bus.receive(1)[0])
    assert bus.hints.ready == {4}
    assert [(m.message_id, m.delivery_count) for m in bus.receive()] == [("a", 1), ("b", 0)]


def test_abandon_may_change_properties(bus):
    bus.send("a")
    bus.settle(Outcome.ABANDON, *bus.receive(), overlay=b"\x00changed")
    bus.settle(Outcome.ABANDON, *bus.receive())
    bus.crash()
    [message] = bus.receive()
    assert (message.overlay, message.delivery_count) == (b"\x00changed", 2)


def test_release_does_not_count(bus):
    bus.send("a", "b")
    bus.settle(Outcome.RELEASE, *bus.receive())
    assert [(m.message_id, m.delivery_count) for m in bus.receive()] == [("a", 0), ("b", 0)]


def test_a_deferred_message_is_fetched_by_number_only(bus):
    bus.send("a", "b")
    first, second = bus.receive()
    bus.settle(Outcome.DEFER, first, overlay=b"later")
    bus.settle(Outcome.RELEASE, second)
    assert ids(bus.receive()) == ["b"]
    [deferred] = bus.receive_deferred(1)
    assert (deferred.state, deferred.overlay, deferred.delivery_count) == (MessageState.DEFERRED, b"later", 0)
    bus.complete(deferred)
    assert bus.count().deferred == 0


def test_deferred_messages_are_handed_out_all_or_none(bus):
    bus.send("a", "b", "c")
    bus.settle(Outcome.DEFER, *bus.receive(2))
    assert fault_of(bus.receive_deferred, 1, 3) is Fault.MESSAGE_NOT_FOUND
    assert fault_of(bus.receive_deferred, 1, 99) is Fault.MESSAGE_NOT_FOUND
    assert ids(bus.receive_deferred(2, 1)) == ["b", "a"]
    assert fault_of(bus.receive_deferred, 1) is Fault.MESSAGE_NOT_FOUND


def test_a_deferred_message_may_be_received_and_deleted(bus):
    bus.send("a")
    bus.settle(Outcome.DEFER, *bus.receive())
    assert ids(bus.receive_deferred(1, mode=ReceiveMode.RECEIVE_AND_DELETE)) == ["a"]
    assert bus.peek() == []
    assert bus.count().deferred == 0


@pytest.mark.parametrize(("end", "count"), [("abandon", 1), ("release", 0), ("expire", 1), ("drop", 1), ("crash", 1)])
def test_a_deferred_message_that_comes_back_is_deferred_still(bus, end, count):
    bus.send("a")
    bus.settle(Outcome.DEFER, *bus.receive())
    [message] = bus.receive_deferred(1)
    if end == "expire":
        bus.pass_ms(30_000)
    elif end == "drop":
        bus.drop_locks()
    elif end == "crash":
        bus.crash()
    else:
        bus.settle(Outcome[end.upper()], message)
    assert bus.receive() == []
    assert bus.receive_deferred(1)[0].delivery_count == count


def test_a_dead_lettered_message_keeps_its_number_and_says_why(bus):
    bus.send("a", "b")
    _, message = bus.receive()
    bus.settle(Outcome.DEAD_LETTER, message, reason="bad", description="very bad", overlay=b"why")
    assert bus.hints.ready == {5}
    [dead] = bus.receive(queue=5)
    assert (dead.sequence_number, dead.reason, dead.description, dead.overlay) == (2, "bad", "very bad", b"why")
    assert dead.enqueued_at_ms == message.enqueued_at_ms
    assert bus.count()._asdict() == {
        "active": 1,
        "deferred": 0,
        "scheduled": 0,
        "dead_letter": 1,
        "transfer_dead_letter": 0,
        "size_bytes": 8,
    }


def test_dead_letters_come_in_any_order_and_all_come_out(bus):
    bus.send("a", "b", "c", "d")
    a, b, c, d = bus.receive()
    bus.settle(Outcome.DEAD_LETTER, c)
    assert ids(bus.receive(queue=5)) == ["c"]
    bus.settle(Outcome.DEAD_LETTER, a, d)
    bus.settle(Outcome.DEAD_LETTER, b)
    assert ids(bus.receive(queue=5)) == ["a", "b", "d"]


def test_a_dead_letter_cannot_be_dead_lettered_again(bus):
    bus.send("a")
    bus.settle(Outcome.DEAD_LETTER, *bus.receive())
    [dead] = bus.receive(queue=5)
    assert fault_of(bus.settle, Outcome.DEAD_LETTER, dead, queue=5) is Fault.NOT_ALLOWED
    bus.complete(dead, queue=5)


def test_a_dead_letter_is_never_delivered_too_often(empty):
    empty.create(max_delivery_count=1)
    empty.send("a")
    empty.settle(Outcome.ABANDON, *empty.receive())
    for count in range(1, 5):
        [dead] = empty.receive(queue=5)
        assert dead.delivery_count == count
        empty.settle(Outcome.ABANDON, dead, queue=5)


@pytest.mark.parametrize("end", ["abandon", "expire", "drop"])
def test_over_max_delivery_count_a_message_is_dead_lettered(empty, end):
    empty.create(max_delivery_count=3)
    empty.send("a")
    for delivery in range(3):
        [message] = empty.receive()
        assert message.delivery_count == delivery
        if end == "abandon":
            empty.settle(Outcome.ABANDON, message)
        elif end == "expire":
            empty.pass_ms(30_000)
        else:
            empty.drop_locks()
    assert empty.receive() == []
    [dead] = empty.receive(queue=5)
    assert (dead.reason, dead.delivery_count) == ("MaxDeliveryCountExceeded", 3)


def test_one_command_may_settle_in_several_ways(bus):
    bus.send(*"abcde")
    messages = bus.receive()
    outcomes = [Outcome.COMPLETE, Outcome.ABANDON, Outcome.RELEASE, Outcome.DEFER, Outcome.DEAD_LETTER]
    settlements = [Settlement(m.token, outcome) for m, outcome in zip(messages, outcomes, strict=True)]
    assert bus.do(Settle(queue=4, settlements=settlements)) == [None] * 5
    assert [(m.message_id, m.delivery_count) for m in bus.receive()] == [("b", 1), ("c", 0)]
    assert ids(bus.receive_deferred(4)) == ["d"]
    assert ids(bus.receive(queue=5)) == ["e"]


class TestAbandonWithADelay:
    def test_it_waits_and_then_joins_the_end_of_the_queue(self, bus):
        bus.send("a", "b")
        bus.settle(Outcome.ABANDON, bus.receive(1)[0], delay_ms=1_000)
        assert bus.count()[:3] == (1, 0, 1)
        assert bus.store.due_at_ms() <= bus.now + 1_000
        assert ids(bus.receive()) == ["b"]
        bus.pass_ms(999)
        assert bus.receive() == []
        bus.pass_ms(1)
        assert QUEUE in bus.hints.ready
        [message] = bus.receive()
        assert (message.message_id, message.sequence_number, message.delivery_count) == ("a", 3, 1)
        assert bus.count()[:3] == (2, 0, 0)

    def test_it_survives_a_crash(self, bus):
        bus.send("a")
        bus.settle(Outcome.ABANDON, *bus.receive(), delay_ms=1_000, overlay=b"changed")
        bus.crash()
        assert bus.receive() == []
        bus.pass_ms(1_000)
        assert [(m.message_id, m.delivery_count, m.overlay) for m in bus.receive()] == [("a", 1, b"changed")]

    def test_the_last_delivery_still_dead_letters(self, empty):
        empty.create(max_delivery_count=2)
        empty.send("a")
        empty.settle(Outcome.ABANDON, *empty.receive(), delay_ms=1_000)
        empty.pass_ms(1_000)
        empty.settle(Outcome.ABANDON, *empty.receive(), delay_ms=1_000)
        assert empty.count()[:4] == (0, 0, 0, 1)

    def test_its_time_to_live_goes_on(self, bus):
        bus.send("a", ttl_ms=1_500)
        bus.settle(Outcome.ABANDON, *bus.receive(), delay_ms=1_000)
        bus.pass_ms(1_000)
        assert bus.count()[:3] == (1, 0, 0)
        bus.pass_ms(500)
        assert bus.count()[:3] == (0, 0, 0)

    def test_a_session_keeps_its_order(self, sessions):
        sessions.send("a", "b", session_id="s")
        sessions.accept("s")
        fields = {"session": "s", "holder": 1}
        sessions.settle(Outcome.ABANDON, sessions.receive(1, **fields)[0], delay_ms=1_000)
        assert [(m.message_id, m.delivery_count) for m in sessions.receive(**fields)] == [("a", 1), ("b", 0)]

    def test_a_dead_letter_is_there_again_at_once(self, bus):
        bus.send("a")
        bus.settle(Outcome.DEAD_LETTER, *bus.receive())
        bus.settle(Outcome.ABANDON, *bus.receive(queue=DEAD), queue=DEAD, delay_ms=1_000)
        assert ids(bus.receive(queue=DEAD)) == ["a"]

    def test_a_deferred_one_stays_deferred(self, bus):
        bus.send("a")
        bus.settle(Outcome.DEFER, *bus.receive())
        bus.settle(Outcome.ABANDON, *bus.receive_deferred(1), delay_ms=1_000)
        assert [(m.message_id, m.delivery_count) for m in bus.receive_deferred(1)] == [("a", 1)]

    def test_a_message_that_is_given_back_untouched_does_not_wait(self, bus):
        bus.send("a")
        bus.settle(Outcome.RELEASE, *bus.receive(), delay_ms=1_000)
        assert ids(bus.receive()) == ["a"]
