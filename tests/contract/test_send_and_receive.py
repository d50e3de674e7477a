"""Sending and receiving: numbers, order, quota, duplicates, modes."""

from __future__ import annotations

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, Outcome, ReceiveMode
from twinbus.store.commands import Acquire, Complete, DeleteBatch, Send

REMOVE = ReceiveMode.RECEIVE_AND_DELETE


def ids(messages):
    return [message.message_id for message in messages]


def test_numbers_start_at_one_and_have_no_gaps(bus):
    assert bus.send("a", "b") == [1, 2]
    assert bus.send("c") == [3]


def test_numbers_go_on_after_a_restart_of_an_empty_queue(bus):
    bus.send("a", "b")
    bus.complete(*bus.receive())
    bus.restart()
    assert bus.send("c") == [3]


def test_messages_arrive_byte_for_byte_and_in_order(bus):
    bus.send("a", "b", "c", size=100)
    received = bus.receive()
    assert ids(received) == ["a", "b", "c"]
    assert [message.record for message in received] == [m.encode() + b"\x00\xff\xc0" + b"\xfe" * 96 for m in "abc"]
    assert [message.enqueued_at_ms for message in received] == [bus.now] * 3
    assert [message.delivery_count for message in received] == [0, 0, 0]


def test_empty_records_and_odd_ids_are_kept(bus):
    command = Send(queue=4, units=[[Incoming(b"", 'quote " \\ \n é 漢 \U0001f680')], [Incoming(b"x", "")]])
    bus.do(command)
    assert [(m.record, m.message_id) for m in bus.receive()] == [
        (b"", 'quote " \\ \n é 漢 \U0001f680'),
        (b"x", ""),
    ]


def test_a_locked_message_is_not_handed_out_again(bus):
    bus.send("a", "b")
    assert ids(bus.receive(1)) == ["a"]
    assert ids(bus.receive()) == ["b"]
    assert bus.receive() == []


def test_sends_completes_and_acquires_of_one_commit_follow_each_other(bus):
    bus.send("a")
    [first] = bus.receive()
    acquire = Acquire(queue=4, limit=10, mode=ReceiveMode.PEEK_LOCK, owner=1)
    complete = Complete(queue=4, tokens=[first.token])
    bus.commit(acquire, complete, Send(queue=4, units=[[Incoming(b"b", "b")]]))
    assert complete.result == [None]
    assert ids(acquire.result + bus.receive()) == ["b"]


def test_several_senders_of_one_commit_get_numbers_in_order_of_arrival(bus):
    sends = [Send(queue=4, units=[[Incoming(b"x", f"{sender}-{n}")] for n in range(2)]) for sender in "abc"]
    bus.commit(*sends)
    assert [send.result for send in sends] == [[[1], [2]], [[3], [4]], [[5], [6]]]


def test_many_queues_and_kinds_in_one_commit(empty):
    for queue in range(4, 84, 4):
        empty.create(queue)
    sends = [
        Send(queue=queue, units=[[Incoming(b"x", f"{queue}-{n}", None, None if n else 5_000)] for n in range(3)])
        for queue in range(4, 84, 4)
    ]
    empty.commit(*sends)
    for queue in range(4, 84, 4):
        assert ids(empty.receive(queue=queue)) == [f"{queue}-{n}" for n in range(3)]


def test_an_acquire_is_bounded_by_bytes_but_hands_out_at_least_one(bus):
    bus.send("a", "b", "c", size=1000)
    assert ids(bus.receive(max_bytes=2_500)) == ["a", "b"]
    assert bus.hints.ready == {4}
    assert ids(bus.receive(max_bytes=1)) == ["c"]


def test_a_backlog_comes_out_whole_and_in_order(bus):
    sent = [f"m{n}" for n in range(1_500)]
    for start in range(0, 1_500, 300):
        bus.send(*sent[start : start + 300])
    received = []
    while batch := bus.receive(70):
        received += ids(batch)
    assert received == sent


def test_large_messages_are_read_in_small_pages(bus):
    bus.send(*"abcdef", size=600_000)
    bus.restart()
    assert [ids(bus.receive(2)) for _ in range(4)] == [["a", "b"], ["c", "d"], ["e", "f"], []]


def test_receive_and_delete_removes_in_the_same_commit(bus):
    bus.send("a", "b")
    [message] = bus.receive(1, mode=REMOVE)
    assert (message.message_id, message.token, message.locked_until_ms) == ("a", b"", 0)
    bus.crash()
    assert ids(bus.peek()) == ["b"]
    assert bus.count().active == 1


def test_a_message_may_be_sent_and_removed_in_one_commit(bus):
    acquire = Acquire(queue=4, limit=1, mode=REMOVE, owner=1)
    bus.commit(acquire, Send(queue=4, units=[[Incoming(b"x", "a")]]))
    if not acquire.result:  # A store need not hand out what the same commit has stored.
        acquire.result = bus.receive(1, mode=REMOVE)
    assert ids(acquire.result) == ["a"]
    assert bus.peek() == []
    assert bus.count().size_bytes == 0


def test_a_send_hints_that_the_queue_is_ready(bus):
    bus.send("a")
    assert bus.hints.ready == {4}


def test_a_unit_is_stored_whole_or_not_at_all_when_the_entity_is_full(empty):
    empty.create(max_size_bytes=1_000)
    command = Send(
        queue=4,
        units=[
            [Incoming(b"x" * 600, "a")],
            [Incoming(b"x" * 300, "b"), Incoming(b"x" * 300, "c")],
            [Incoming(b"x" * 400, "d")],
        ],
    )
    empty.do(command)
    assert command.result[0] == [1]
    assert command.result[1].fault is Fault.QUOTA_EXCEEDED
    assert command.result[2] == [2]
    assert ids(empty.peek()) == ["a", "d"]


def test_the_quota_counts_dead_letters_and_is_freed_by_completing(empty):
    empty.create(max_size_bytes=1_000)
    empty.send("a", size=700)
    empty.settle(Outcome.DEAD_LETTER, *empty.receive())
    with pytest.raises(BusError) as refused:
        empty.send("b", size=700)
    assert refused.value.fault is Fault.QUOTA_EXCEEDED
    empty.complete(*empty.receive(queue=5), queue=5)
    assert empty.send("b", size=700) == [2]


class TestDuplicates:
    @pytest.fixture
    def bus(self, empty):
        empty.create(duplicate_window_ms=20_000)
        return empty

    def test_a_second_message_with_the_same_id_is_accepted_and_dropped(self, bus):
        assert bus.send("a") == [1]
        assert bus.send("a", "b") == [0, 2]
        assert ids(bus.receive()) == ["a", "b"]

    def test_also_within_one_commit_and_one_unit(self, bus):
        first = Send(queue=4, units=[[Incoming(b"1", "a"), Incoming(b"2", "a")]])
        second = Send(queue=4, units=[[Incoming(b"3", "a")], [Incoming(b"4", "b")]])
        bus.commit(first, second)
        assert (first.result, second.result) == ([[1, 0]], [[0], [2]])

    def test_also_after_the_first_was_completed_and_after_a_restart(self, bus):
        bus.send("a")
        bus.complete(*bus.receive())
        bus.crash()
        assert bus.send("a") == [0]

    def test_not_after_the_window(self, bus):
        bus.send("a")
        bus.pass_ms(20_000)
        assert bus.send("a") == [2]

    def test_not_when_the_first_was_refused(self, empty):
        empty.create(queue=8, duplicate_window_ms=20_000, max_size_bytes=100)
        with pytest.raises(BusError):
            empty.send("a", queue=8, size=200)
        assert empty.send("a", queue=8) == [1]

    def test_not_without_an_id(self, bus):
        assert bus.send("", "") == [1, 2]

    def test_scheduled_messages_count_both_ways(self, bus):
        assert bus.send("a", due_at_ms=bus.now + 1_000) == [1]
        assert bus.send("a") == [0]
        assert bus.send("b") == [2]
        assert bus.send("b", due_at_ms=bus.now + 1_000) == [0]

    def test_the_window_may_be_changed(self, bus):
        from twinbus.store.commands import Configure, QueueSettings

        bus.send("a")
        bus.do(Configure(queue=4, settings=QueueSettings(duplicate_window_ms=60_000)))
        bus.pass_ms(30_000)
        assert bus.send("a") == [0]


class TestKeyedDuplicates:
    @pytest.fixture
    def bus(self, empty):
        empty.create(duplicate_window_ms=20_000, keyed_duplicates=True)
        return empty

    def test_the_same_id_under_another_partition_key_is_another_message(self, bus):
        assert bus.send("a", partition_key="x") == [1]
        assert bus.send("a", partition_key="y") == [2]
        assert bus.send("a") == [3]
        assert bus.send("a", "b", partition_key="x") == [0, 4]

    def test_where_the_key_ends_and_the_id_begins_is_no_matter_of_chance(self, bus):
        assert bus.send("bc", partition_key="a") == [1]
        assert bus.send("c", partition_key="ab") == [2]
        assert bus.send("1:abc") == [3]

    def test_without_a_key_the_id_alone_counts_and_without_an_id_nothing(self, bus):
        assert bus.send("a", "a") == [1, 0]
        assert bus.send("", "", partition_key="x") == [2, 3]

    def test_it_is_remembered_over_a_crash_and_forgotten_after_the_window(self, bus):
        bus.send("a", partition_key="x")
        bus.crash()
        assert bus.send("a", partition_key="x") == [0]
        bus.pass_ms(20_000)
        assert bus.send("a", partition_key="x") == [2]


def test_without_keyed_duplicates_the_key_is_no_matter(empty):
    empty.create(duplicate_window_ms=20_000)
    assert empty.send("a", partition_key="x") == [1]
    assert empty.send("a", partition_key="y") == [0]


def test_peek_shows_messages_in_any_state_without_taking_them(bus):
    bus.send("a", "b", "c")
    bus.send("later", due_at_ms=bus.now + 60_000)
    locked, deferred, _ = bus.receive()
    bus.settle(Outcome.DEFER, deferred)
    seen = bus.peek()
    assert [(m.message_id, m.state.name) for m in seen] == [
        ("a", "ACTIVE"),
        ("b", "DEFERRED"),
        ("c", "ACTIVE"),
        ("later", "SCHEDULED"),
    ]
    assert {m.token for m in seen} == {b""}
    assert ids(bus.peek(start=3)) == ["c", "later"]
    assert ids(bus.peek(limit=2)) == ["a", "b"]
    bus.complete(locked)


def test_peek_can_be_narrowed_to_active_messages_locked_or_not(bus):
    bus.send("a", "b", "c", session_id="s")
    bus.send("later", due_at_ms=bus.now + 60_000)
    locked, deferred, _ = bus.receive()
    bus.settle(Outcome.DEFER, deferred)
    assert ids(bus.peek(active_only=True)) == ["a", "c"]
    assert ids(bus.peek(active_only=True, start=2)) == ["c"]
    assert ids(bus.peek(active_only=True, session="s", limit=1)) == ["a"]
    assert ids(bus.peek(active_only=True, session="t")) == []
    bus.complete(locked)


def test_peek_is_bounded_by_bytes(bus):
    bus.send("a", "b", "c", size=1_000)
    assert ids(bus.peek(max_bytes=2_100)) == ["a", "b"]
    assert ids(bus.peek(max_bytes=10)) == ["a"]


def test_peek_sees_what_the_same_commit_sent(bus):
    from twinbus.store.commands import Peek

    peek = Peek(queue=4, from_sequence_number=0, limit=10)
    bus.commit(peek, Send(queue=4, units=[[Incoming(b"x", "a")]]))
    assert ids(peek.result) == ["a"]


@pytest.mark.parametrize("mode", [REMOVE, ReceiveMode.PEEK_LOCK])
def test_an_acquire_can_be_limited_by_frames_of_which_the_last_message_may_take_more(bus, mode):
    bus.send("a", "b", size=1_000)  # With what the broker says of it, a message takes three frames of 600 bytes.
    bus.send("c", "d", "e", size=10)
    acquire = Acquire(queue=4, limit=4, mode=mode, owner=1, frame_bytes=600)
    bus.commit(acquire)
    assert ids(acquire.result) == ["a", "b"]
    assert acquire.truncated
    assert ids(bus.receive(2, frame_bytes=600)) == ["c", "d"]
    assert ids(bus.receive(2, frame_bytes=600)) == ["e"]


def test_an_acquire_that_was_withdrawn_hands_out_nothing(bus):
    bus.send("a")
    acquire = Acquire(queue=4, limit=1, mode=REMOVE, owner=1, withdrawn=True)
    bus.commit(acquire)
    assert (acquire.result, acquire.error) == ([], None)
    assert ids(bus.receive()) == ["a"]


def test_batch_delete_removes_old_unlocked_active_messages(bus):
    bus.send("locked", "deferred")
    bus.settle(Outcome.DEFER, bus.receive()[1])
    bus.send("a", "b", "c")
    bus.pass_ms(1_000)
    bus.send("young")
    assert bus.do(DeleteBatch(queue=4, limit=2, before_ms=bus.now)) == 2
    assert ids(bus.peek()) == ["locked", "deferred", "c", "young"]
    assert bus.do(DeleteBatch(queue=4, limit=100, before_ms=bus.now)) == 1
    assert ids(bus.receive()) == ["young"]
    assert bus.count().active == 2


def test_a_batch_delete_of_every_state_leaves_only_the_locked_ones(bus):
    bus.send("locked", "deferred", "both", "a", "b")
    _, deferred, both, *_ = taken = bus.receive()
    bus.settle(Outcome.DEFER, deferred, both)
    bus.settle(Outcome.RELEASE, *taken[3:])
    bus.receive_deferred(both.sequence_number)
    bus.send("later", due_at_ms=bus.now + 60_000)
    bus.pass_ms(1_000)
    bus.send("young")
    assert bus.do(DeleteBatch(queue=4, limit=3, before_ms=bus.now, every_state=True)) == 3
    assert bus.do(DeleteBatch(queue=4, limit=3, before_ms=bus.now, every_state=True)) == 1
    assert ids(bus.peek()) == ["locked", "both", "young"]
    assert bus.count()[:3] == (2, 1, 0)


def test_a_dead_letter_queue_can_be_emptied(bus):
    bus.send("a", "b")
    first, second = bus.receive()
    bus.settle(Outcome.DEAD_LETTER, first, second)
    bus.settle(Outcome.DEFER, bus.receive(1, queue=5)[0], queue=5)
    assert bus.do(DeleteBatch(queue=5, limit=10, before_ms=bus.now + 1, every_state=True)) == 2
    assert bus.count() == (0, 0, 0, 0, 0, 0)


def test_what_a_batch_delete_removes_is_not_handed_out_by_the_same_commit(bus):
    bus.send(*[f"m{n}" for n in range(600)])
    bus.restart()
    bus.receive(1)
    acquire = Acquire(queue=4, limit=1_000, mode=ReceiveMode.PEEK_LOCK, owner=1)
    bus.commit(acquire, DeleteBatch(queue=4, limit=598, before_ms=bus.now + 1))
    assert ids(acquire.result) == ["m599"]
    assert bus.count().active == 2


def test_commands_about_an_unknown_queue_are_refused(empty):
    for attempt in (lambda: empty.send("a"), empty.receive, empty.peek, empty.count):
        with pytest.raises(BusError) as refused:
            attempt()
        assert refused.value.fault is Fault.ENTITY_NOT_FOUND
