"""Publishing: a copy for each subscription, all or nothing, and its record stored once until the last copy is gone."""

from __future__ import annotations

import pytest

from contract.conftest import (
    FIRST,
    PEEK_LOCK,
    REMOVE,
    SECOND,
    SUBSCRIPTIONS,
    THIRD,
    TOPIC,
    bodies,
    ids,
    publication,
    record,
    transfer,
)
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, MessageState, Outcome
from twinbus.store.commands import (
    Acquire,
    CancelScheduled,
    Copy,
    Drop,
    Publication,
    Publish,
    Send,
    Sweep,
)


def told(bus):
    return [(e.operation, e.queue, e.message_id, e.sequence_number, e.outcome) for e in bus.journal()]


class TestFanOut:
    def test_every_subscription_gets_a_copy_under_its_own_number(self, topic):
        topic.send("other", queue=SECOND)
        assert topic.publish("a", "b", to=[FIRST, SECOND]) == [1, 2]
        topic.now += 5
        assert topic.publish("c", to=[SECOND, THIRD]) == [3]
        held = [[(m.sequence_number, m.message_id, m.record) for m in topic.peek(queue=q)] for q in SUBSCRIPTIONS]
        assert held == [
            [(1, "a", record("a")), (2, "b", record("b"))],
            [(1, "other", record("other")), (2, "a", record("a")), (3, "b", record("b")), (4, "c", record("c"))],
            [(1, "c", record("c"))],
        ]
        assert topic.peek(queue=THIRD)[0].enqueued_at_ms == topic.now
        assert topic.count(TOPIC) == (0, 0, 0, 0, 0, 0)
        assert topic.count(FIRST).active == 2
        assert topic.count(FIRST).size_bytes == len(record("a")) * 2

    def test_the_record_is_stored_once(self, topic):
        topic.publish("a", to=[*SUBSCRIPTIONS], size=5_000)
        assert bodies(topic) == 1

    def test_copies_differ_in_what_was_given(self, topic):
        copies = [
            Copy(FIRST, "x", "s", 1_000, b"\x01\x00", None, "r", "d"),
            Copy(SECOND, "y", record=b"own\xff"),
            Copy(THIRD, "a"),
        ]
        topic.publish("a", to=copies)
        [first], [second], [third] = (topic.receive(queue=queue) for queue in SUBSCRIPTIONS)
        assert (first.message_id, first.session_id, first.overlay) == ("x", "s", b"\x01\x00")
        assert (first.reason, first.description, first.record) == ("r", "d", record("a"))
        assert (second.message_id, second.record, second.overlay) == ("y", b"own\xff", None)
        assert (third.message_id, third.record, third.session_id) == ("a", record("a"), None)
        assert bodies(topic) == 2

    def test_two_copies_may_go_to_one_queue(self, topic):
        topic.publish("a", "b", to=[FIRST, FIRST, SECOND])
        assert ids(topic.receive(queue=FIRST)) == ["a", "a", "b", "b"]
        assert bodies(topic) == 2

    def test_different_looks_of_many_messages_keep_their_order(self, topic):
        for number in range(20):
            copies = [
                Copy(FIRST, f"m{number}", ttl_ms=None if number % 3 else 90_000),
                Copy(SECOND, f"m{number}", overlay=b"%d" % number if number % 2 else None),
                *([Copy(THIRD, f"m{number}", record=b"own%d" % number)] if number % 5 == 0 else []),
            ]
            topic.commit(Publish(queue=TOPIC, units=[[publication(f"m{number}", *copies)]]))
        expected = [(number + 1, f"m{number}", record(f"m{number}")) for number in range(20)]
        for queue in (FIRST, SECOND):
            got = topic.receive(queue=queue)
            assert [(m.sequence_number, m.message_id, m.record) for m in got] == expected
        assert [m.overlay for m in got][:4] == [None, b"1", None, b"3"]
        assert [m.record for m in topic.receive(queue=THIRD)] == [b"own0", b"own5", b"own10", b"own15"]

    def test_sends_and_publishes_of_one_commit_are_all_stored(self, topic):
        send = Send(queue=FIRST, units=[[Incoming(record("sent"), "sent")]])
        publish = Publish(queue=TOPIC, units=[[publication("a", Copy(FIRST, "a"), Copy(SECOND, "a"))]])
        alone = Publish(queue=TOPIC, units=[[publication("b", Copy(FIRST, "b"))]])
        acquire = Acquire(queue=SECOND, limit=10, mode=REMOVE, owner=1)
        topic.commit(acquire, publish, send, alone)
        topic.crash()
        assert [(m.message_id, m.record) for m in topic.receive(queue=FIRST)] == [
            (name, record(name)) for name in ("sent", "a", "b")
        ]
        assert ids(acquire.result + topic.receive(queue=SECOND)) == ["a"]

    def test_nobody_subscribed_is_no_error(self, topic):
        assert topic.publish("a", to=[]) == [1]
        assert bodies(topic) == 0

    def test_a_subscription_that_is_gone_is_passed_over(self, topic):
        topic.do(Drop(queue=SECOND))
        assert topic.publish("a", to=[FIRST, SECOND, 400]) == [1]
        assert ids(topic.receive(queue=FIRST)) == ["a"]
        topic.sweep()
        topic.publish("b", to=[SECOND])
        assert bodies(topic) == 1

    def test_a_topic_that_is_gone_takes_nothing(self, topic):
        topic.do(Drop(queue=TOPIC))
        with pytest.raises(BusError) as caught:
            topic.publish("a", to=[FIRST])
        assert caught.value.fault is Fault.ENTITY_DELETED
        assert topic.count(FIRST).active == 0

    def test_the_time_to_live_is_the_copy_s_own(self, topic):
        topic.publish("a", to=[Copy(FIRST, "a", ttl_ms=1_000), Copy(SECOND, "a", ttl_ms=2_000), THIRD])
        topic.pass_ms(1_000)
        assert [ids(topic.peek(queue=queue)) for queue in SUBSCRIPTIONS] == [[], ["a"], ["a"]]
        topic.pass_ms(1_000)
        assert [ids(topic.peek(queue=queue)) for queue in SUBSCRIPTIONS] == [[], [], ["a"]]

    def test_receivers_of_every_target_are_hinted_at(self, topic):
        topic.create(20, requires_session=True)
        topic.publish("a", to=[FIRST, SECOND, Copy(20, "a", "s")])
        assert topic.hints.ready == {FIRST, SECOND, 20}
        assert topic.hints.sessions == {20: {"s"}}

    def test_two_thousand_subscriptions_are_served_by_one_commit(self, topic):
        queues = [4 * number for number in range(100, 2_100)]
        for queue in queues:
            topic.create(queue)
        before = topic.store.synced_commits
        assert topic.publish("a", "b", to=queues) == [1, 2]
        assert topic.store.synced_commits == before + 1
        assert bodies(topic) == 2
        takes = [Acquire(queue=queue, limit=2, mode=REMOVE, owner=1) for queue in queues]
        topic.commit(*takes)
        assert all(ids(take.result) == ["a", "b"] for take in takes)
        assert bodies(topic) == 0

    def test_subscriptions_that_nobody_receives_from_leave_memory_to_others(self, topic):
        for number in range(300):
            topic.publish(f"m{number}", to=[FIRST, SECOND], size=200_000)
        memory = topic.store._memory
        assert memory.cached <= memory.cache_bytes // 2
        assert len(topic.receive(1_000, queue=FIRST, max_bytes=1 << 40)) == 300


class TestSessions:
    def test_a_copy_without_a_session_id_goes_to_the_dead_letter_queue(self, topic):
        topic.create(20, requires_session=True)
        topic.publish("a", to=[FIRST, Copy(20, "a", ttl_ms=5_000)])
        assert topic.hints.ready == {FIRST, 21}
        topic.publish("b", to=[Copy(20, "b", "s")])
        [dead] = topic.receive(queue=21)
        assert (dead.message_id, dead.reason, dead.record) == ("a", "Session id is null.", record("a"))
        assert dead.sequence_number == 1
        topic.pass_ms(5_000)
        assert topic.count(20).dead_letter == 1
        topic.accept("s", queue=20)
        [message] = topic.receive(queue=20, session="s", holder=1)
        assert (message.message_id, message.sequence_number) == ("b", 2)

    def test_a_held_session_gets_its_copies_in_order(self, topic):
        topic.create(20, requires_session=True)
        topic.accept("s", queue=20)
        topic.publish("a", "b", to=[Copy(20, "x", "s"), Copy(20, "y", "t"), FIRST])
        topic.publish("c", to=[Copy(20, "z", "s")])
        assert ids(topic.receive(queue=20, session="s", holder=1)) == ["x", "x", "z"]

    def test_a_failed_filter_s_copy_in_the_dead_letter_queue_never_meets_another_number(self, topic):
        topic.publish("a", to=[FIRST, SECOND])
        topic.publish("b", to=[Copy(FIRST + 1, "b", reason="FilterException", description="why")])
        topic.publish("c", to=[FIRST])
        topic.settle(Outcome.DEAD_LETTER, *topic.receive(queue=FIRST), queue=FIRST)
        assert [(m.sequence_number, m.message_id, m.reason) for m in topic.receive(queue=FIRST + 1)] == [
            (1, "a", None),
            (2, "b", "FilterException"),
            (3, "c", None),
        ]


class TestQuota:
    def test_a_unit_is_refused_whole_if_one_target_has_no_room(self, topic):
        topic.create(20, max_size_bytes=100)
        units = [
            [publication("a", Copy(20, "a"), Copy(FIRST, "a"), size=60)],
            [publication("b", Copy(FIRST, "b"), size=60), publication("c", Copy(20, "c"), size=60)],
            [publication("d", Copy(20, "d"), size=40)],
        ]
        command = Publish(queue=TOPIC, units=units)
        topic.commit(command)
        assert command.result[0] == [1]
        assert command.result[1].fault is Fault.QUOTA_EXCEEDED
        assert command.result[2] == [2]
        assert ids(topic.peek(queue=FIRST)) == ["a"]
        assert ids(topic.peek(queue=20)) == ["a", "d"]

    def test_a_copy_counts_its_own_record_in_its_own_queue(self, topic):
        topic.create(20, max_size_bytes=10)
        topic.publish("a", to=[Copy(20, "a", record=b"x" * 10), FIRST], size=500)
        assert (topic.count(20).size_bytes, topic.count(FIRST).size_bytes) == (10, 500)
        with pytest.raises(BusError) as caught:
            topic.publish("b", to=[Copy(20, "b", record=b"x")])
        assert caught.value.fault is Fault.QUOTA_EXCEEDED

    def test_two_copies_in_one_entity_are_added_up(self, topic):
        topic.create(20, max_size_bytes=100)
        with pytest.raises(BusError) as caught:
            topic.publish("a", to=[20, Copy(21, "a", reason="r")], size=60)
        assert caught.value.fault is Fault.QUOTA_EXCEEDED
        assert topic.count(20).size_bytes == 0

    def test_what_waits_in_the_topic_counts_against_the_topic(self, empty):
        empty.create(TOPIC, "topic", max_size_bytes=100)
        empty.create(FIRST)
        empty.publish("later", to=[], size=60, due_at_ms=empty.now + 1_000)
        with pytest.raises(BusError) as caught:
            empty.publish("too much", to=[], size=60, due_at_ms=empty.now + 1_000)
        assert caught.value.fault is Fault.QUOTA_EXCEEDED
        assert empty.publish("now", to=[FIRST], size=60) == [2]


class TestDuplicates:
    @pytest.fixture
    def topic(self, empty):
        empty.create(TOPIC, "topic", duplicate_window_ms=20_000, max_size_bytes=1_000)
        empty.create(FIRST)
        empty.create(SECOND)
        return empty

    def test_the_topic_drops_them_before_they_are_copied(self, topic):
        assert topic.publish("a", "a", "b", to=[FIRST, SECOND]) == [1, 0, 2]
        topic.restart()
        assert topic.publish("a", "c", to=[FIRST, SECOND]) == [0, 3]
        for queue in (FIRST, SECOND):
            assert ids(topic.receive(queue=queue)) == ["a", "b", "c"]

    def test_one_in_the_same_unit_is_dropped(self, topic):
        unit = [publication(name, Copy(FIRST, name)) for name in ("a", "b", "a", "", "")]
        assert topic.do(Publish(queue=TOPIC, units=[unit])) == [[1, 2, 0, 3, 4]]

    def test_an_id_may_come_again_after_the_window(self, topic):
        topic.publish("a", to=[FIRST])
        topic.pass_ms(20_000)
        assert topic.publish("a", to=[FIRST]) == [2]

    def test_a_refused_unit_leaves_no_trace(self, topic):
        topic.create(20, max_size_bytes=10)
        with pytest.raises(BusError):
            topic.publish("a", to=[20, FIRST], size=60)
        assert topic.publish("a", to=[FIRST], size=60) == [1]

    def test_scheduled_ones_count_and_their_copies_do_not_meet_themselves(self, topic):
        assert topic.publish("a", to=[], due_at_ms=topic.now + 1_000) == [1]
        assert topic.publish("a", to=[FIRST]) == [0]
        topic.pass_ms(1_000)
        [message] = topic.receive(queue=TOPIC)
        unit = [publication("a", Copy(FIRST, "a"))]
        assert topic.do(Publish(queue=TOPIC, units=[unit], transfers=[transfer(message, TOPIC)])) == [[2]]
        assert ids(topic.receive(queue=FIRST)) == ["a"]


class TestScheduled:
    def publish(self, topic, message, *queues):
        copies = [Copy(queue, message.message_id) for queue in queues]
        unit = [Publication(Incoming(message.record, message.message_id), copies)]
        [result] = topic.do(Publish(queue=TOPIC, units=[unit], transfers=[transfer(message, TOPIC)]))
        return result

    def test_it_waits_in_the_topic_and_is_published_when_it_is_due(self, topic):
        assert topic.publish("a", to=[], due_at_ms=topic.now + 1_000) == [1]
        assert topic.peek(queue=TOPIC)[0].state is MessageState.SCHEDULED
        assert topic.hints.ready == set()
        assert topic.store.due_at_ms() <= topic.now + 1_000
        topic.now += 1_000
        topic.do(Sweep(queue=0))
        assert topic.hints.ready == {TOPIC}
        [message] = topic.receive(queue=TOPIC)
        assert (message.message_id, message.sequence_number) == ("a", 2)
        assert self.publish(topic, message, FIRST, SECOND) == [2]
        assert topic.hints.ready == {FIRST, SECOND}
        assert topic.count(TOPIC) == (0, 0, 0, 0, 0, 0)
        assert [m.record for m in topic.receive(queue=FIRST)] == [record("a")]
        assert bodies(topic) == 1

    def test_it_can_be_cancelled(self, topic):
        [number] = topic.publish("a", to=[], due_at_ms=topic.now + 1_000)
        topic.do(CancelScheduled(queue=TOPIC, sequence_numbers=[number]))
        topic.pass_ms(1_000)
        assert topic.receive(queue=TOPIC) == []

    def test_one_whose_time_came_on_the_way_to_the_store_is_not_lost(self, topic):
        topic.publish("a", to=[], due_at_ms=topic.now - 1)
        assert topic.store.due_at_ms() <= topic.now
        topic.sweep()
        assert ids(topic.receive(queue=TOPIC)) == ["a"]

    def test_one_whose_time_has_come_is_published_at_once(self, topic):
        topic.publish("a", to=[FIRST], due_at_ms=topic.now - 1)
        assert ids(topic.receive(queue=FIRST)) == ["a"]
        assert topic.count(TOPIC) == (0, 0, 0, 0, 0, 0)

    def test_its_time_to_live_begins_at_its_time(self, topic):
        topic.publish("a", to=[], due_at_ms=topic.now + 1_000, ttl_ms=500)
        topic.pass_ms(1_000)
        assert topic.count(TOPIC).active == 1
        topic.pass_ms(500)
        assert topic.count(TOPIC).active == 0

    def test_a_token_is_used_up(self, topic):
        topic.publish("a", to=[], due_at_ms=topic.now + 1_000)
        topic.pass_ms(1_000)
        [message] = topic.receive(queue=TOPIC)
        self.publish(topic, message, FIRST)
        assert self.publish(topic, message, FIRST).fault is Fault.LOCK_LOST
        assert topic.count(FIRST).active == 1
        topic.crash()
        assert topic.receive(queue=TOPIC) == []
        assert ids(topic.receive(queue=FIRST)) == ["a"]

    @pytest.mark.parametrize("how", ["expired", "restarted", "unknown"])
    def test_a_lost_token_publishes_nothing(self, topic, how):
        topic.publish("a", to=[], due_at_ms=topic.now + 1_000)
        topic.pass_ms(1_000)
        [message] = topic.receive(queue=TOPIC)
        if how == "expired":
            topic.now += 30_000
        elif how == "restarted":
            topic.crash()
        else:
            message = message._replace(token=b"x" * 16)
        assert self.publish(topic, message, FIRST).fault is Fault.LOCK_LOST
        assert topic.count(FIRST).active == 0
        topic.pass_ms(30_000)
        assert [(m.message_id, m.delivery_count) for m in topic.receive(queue=TOPIC)] == [("a", 1)]

    def test_a_lost_token_refuses_only_its_own_message(self, topic):
        topic.publish("a", "b", to=[], due_at_ms=topic.now + 1_000)
        topic.pass_ms(1_000)
        first, second = topic.receive(queue=TOPIC)
        units = [[publication(m.message_id, Copy(FIRST, m.message_id))] for m in (first, first, second)]
        moves = [transfer(m, TOPIC) for m in (first, first, second)]
        command = Publish(queue=TOPIC, units=units, transfers=moves)
        topic.commit(command)
        assert command.result[1].fault is Fault.LOCK_LOST
        assert command.result[::2] == [[3], [4]]
        assert ids(topic.receive(queue=FIRST)) == ["a", "b"]

    def test_a_full_subscription_leaves_it_locked_in_the_topic(self, topic):
        topic.create(20, max_size_bytes=1)
        topic.publish("a", to=[], due_at_ms=topic.now + 1_000)
        topic.pass_ms(1_000)
        [message] = topic.receive(queue=TOPIC)
        assert self.publish(topic, message, 20).fault is Fault.QUOTA_EXCEEDED
        assert self.publish(topic, message, FIRST) == [2]


class TestJournal:
    def test_each_copy_is_told_with_the_message_that_it_was_made_from(self, topic):
        topic.publish("x", to=[])
        topic.publish("a", "b", to=[FIRST, SECOND])
        topic.complete(*topic.receive(queue=SECOND), queue=SECOND)
        assert told(topic) == [
            ("send", TOPIC, "x", 1, ""),
            ("send", TOPIC, "a", 2, ""),
            ("send", TOPIC, "b", 3, ""),
            ("copy", FIRST, "a", 1, "4/2"),
            ("copy", FIRST, "b", 2, "4/3"),
            ("copy", SECOND, "a", 1, "4/2"),
            ("copy", SECOND, "b", 2, "4/3"),
            ("receive", SECOND, "a", 1, ""),
            ("receive", SECOND, "b", 2, ""),
            ("complete", SECOND, "a", 1, ""),
            ("complete", SECOND, "b", 2, ""),
        ]
        assert {(e.connection, e.client, e.bytes) for e in topic.journal() if e.operation == "copy"} == {
            ("connection-1", "sender", len(record("a")))
        }

    def test_a_message_without_copies_in_between_does_not_blur_which_is_which(self, topic):
        units = [
            [publication("a", Copy(FIRST, "a"), Copy(SECOND, "a"))],
            [publication("x")],
            [publication("b", Copy(FIRST, "b"), Copy(SECOND, "b"))],
        ]
        topic.do(Publish(queue=TOPIC, units=units))
        copies = {entry[1:] for entry in told(topic) if entry[0] == "copy"}
        assert copies == {(queue, *rest) for queue in (FIRST, SECOND) for rest in (("a", 1, "4/1"), ("b", 2, "4/3"))}

    def test_a_single_copy_a_duplicate_and_a_schedule_are_told(self, empty):
        empty.create(TOPIC, "topic", duplicate_window_ms=20_000)
        empty.create(FIRST)
        empty.publish("a", "a", to=[Copy(FIRST, "y", record=b"own")])
        empty.publish("later", to=[], due_at_ms=empty.now + 1_000)
        empty.pass_ms(1_000)
        [message] = empty.receive(queue=TOPIC, mode=PEEK_LOCK)
        unit = [publication("later", Copy(FIRST, "later"))]
        empty.do(Publish(queue=TOPIC, units=[unit], transfers=[transfer(message, TOPIC)]))
        assert told(empty) == [
            ("send", TOPIC, "a", 1, ""),
            ("send", TOPIC, "a", 0, "duplicate"),
            ("copy", FIRST, "y", 1, "4/1"),
            ("schedule", TOPIC, "later", 2, ""),
            ("activate", TOPIC, "later", 3, "2"),
            ("receive", TOPIC, "later", 3, ""),
            ("complete", TOPIC, "later", 3, "published"),
            ("copy", FIRST, "later", 2, "4/3"),
        ]

    def test_a_fan_out_is_told_in_few_bytes(self, topic):
        queues = [4 * number for number in range(100, 600)]
        for queue in queues:
            topic.create(queue)
        topic.publish("a", to=queues)
        [row] = topic.store.journal_after(0, 10)
        assert len(row.ops) < 10 * len(queues)
        assert [e.queue for e in topic.journal()[1:]] == queues
