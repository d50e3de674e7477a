"""Messages that move from one queue to another: nothing lost and nothing doubled, on one store and between two."""

from __future__ import annotations

import pytest

from contract.conftest import DEAD, FIRST, PEEK_LOCK, QUEUE, SECOND, TOPIC, ids, publication, record, transfer
from twinbus.model.errors import Fault
from twinbus.model.message import Incoming, Origin, Outcome
from twinbus.store.commands import Acquire, Copy, Drop, Forget, Publish, Send, Transfer

TARGET = 8
FAR = 400  # A queue on another store.
MOVER = Origin("", "forward")
MONTH_MS = 30 * 24 * 3600 * 1000


@pytest.fixture
def pair(bus):
    """A store with two queues."""
    bus.create(TARGET)
    return bus


def unit(message_id, **fields):
    return [Incoming(record(message_id), message_id, **fields)]


def move(bus, *messages, source=QUEUE, target=TARGET):
    """Move locked messages between queues of the store; the results."""
    units = [unit(message.message_id) for message in messages]
    transfers = [transfer(message, source) for message in messages]
    return bus.do(Send(queue=target, units=units, transfers=transfers, origin=MOVER))


def arrive(bus, *numbers, target=TARGET):
    """Have messages arrive from the queue of another store; the results."""
    units = [unit(f"m{number}") for number in numbers]
    return bus.do(Send(queue=target, units=units, transfers=[Transfer(FAR, number) for number in numbers]))


class TestOnOneStore:
    def test_a_message_leaves_one_queue_and_is_in_the_other(self, pair):
        pair.send("a", "b", "c")
        first, second, _ = pair.receive()
        assert move(pair, first, second) == [[1], [2]]
        assert pair.hints.ready == {TARGET}
        assert pair.count(QUEUE).active == 1
        assert ids(pair.receive(queue=TARGET)) == ["a", "b"]

    def test_the_quota_of_the_source_is_free_again(self, pair):
        pair.send("a")
        size = pair.count(QUEUE).size_bytes
        move(pair, *pair.receive())
        assert (pair.count(QUEUE).size_bytes, pair.count(TARGET).size_bytes) == (0, size)

    def test_after_a_crash_it_is_in_one_of_them_alone(self, pair):
        pair.send("a", "b")
        first, _ = pair.receive()
        move(pair, first)
        pair.crash()
        assert ids(pair.receive(queue=QUEUE)) == ["b"]
        assert ids(pair.receive(queue=TARGET)) == ["a"]

    @pytest.mark.parametrize("how", ["used", "expired", "restarted", "unknown", "elsewhere", "dropped"])
    def test_a_lost_lock_moves_nothing(self, pair, how):
        pair.send("a")
        [message] = pair.receive()
        source = QUEUE
        before = 0
        if how == "used":
            move(pair, message)
            before = 1
        elif how == "expired":
            pair.now += 30_000
        elif how == "restarted":
            pair.crash()
        elif how == "unknown":
            source = 4_000
        elif how == "dropped":
            pair.do(Drop(queue=QUEUE))
        else:
            source = DEAD
        [result] = move(pair, message, source=source)
        assert result.fault is Fault.LOCK_LOST
        assert pair.count(TARGET).active == before

    def test_the_same_message_twice_in_one_command_moves_once(self, pair):
        pair.send("a")
        [message] = pair.receive()
        first, second = move(pair, message, message)
        assert first == [1]
        assert second.fault is Fault.LOCK_LOST
        assert pair.count(TARGET).active == 1

    def test_a_refused_message_stays_locked_at_its_source(self, pair):
        pair.create(12, max_size_bytes=4)
        pair.send("a", "long message id")
        short, long = pair.receive()
        results = move(pair, long, short, target=12)
        assert results[0].fault is Fault.QUOTA_EXCEEDED
        assert results[1] == [1]
        assert move(pair, long) == [[1]]

    def test_a_session_queue_refuses_one_without_a_session(self, pair):
        pair.create(12, requires_session=True)
        pair.send("a")
        [message] = pair.receive()
        [result] = move(pair, message, target=12)
        assert result.fault is Fault.NOT_ALLOWED
        moved = Send(queue=12, units=[unit("a", session_id="s")], transfers=[transfer(message)])
        assert pair.do(moved) == [[1]]
        assert pair.accept("s", queue=12).session_id == "s"

    def test_a_missing_target_leaves_everything_as_it_was(self, pair):
        pair.send("a")
        [message] = pair.receive()
        command = Send(queue=4_000, units=[unit("a")], transfers=[transfer(message)])
        pair.commit(command)
        assert command.error.fault is Fault.ENTITY_NOT_FOUND
        assert move(pair, message) == [[1]]

    def test_what_is_sent_and_moved_in_one_commit_is_all_there(self, pair):
        pair.send("a")
        [message] = pair.receive()
        plain = Send(queue=TARGET, units=[unit("b")])
        moved = Send(queue=TARGET, units=[unit("a")], transfers=[transfer(message)])
        taken = Acquire(queue=TARGET, limit=5, mode=PEEK_LOCK, owner=1)
        pair.commit(plain, moved, taken)
        assert sorted(ids(taken.result + pair.receive(queue=TARGET))) == ["a", "b"]
        assert sorted([plain.result[0][0], moved.result[0][0]]) == [1, 2]

    def test_the_journal_tells_both_ends(self, pair):
        pair.send("a", "b")
        move(pair, *pair.receive())
        told = [(e.operation, e.queue, e.message_id, e.sequence_number, e.outcome) for e in pair.journal()[4:]]
        assert sorted(told) == [
            ("forward", QUEUE, "a", 1, "8"),
            ("forward", QUEUE, "b", 2, "8"),
            ("send", TARGET, "a", 1, ""),
            ("send", TARGET, "b", 2, ""),
        ]
        assert {entry.client for entry in pair.journal()[4:]} == {"forward"}


class TestDuplicates:
    @pytest.fixture
    def strict(self, bus):
        bus.create(TARGET, duplicate_window_ms=20_000)
        return bus

    def test_a_duplicate_leaves_its_source_and_is_dropped(self, strict):
        strict.send("a", queue=TARGET)
        strict.send("a", "b", "b")
        assert move(strict, *strict.receive()) == [[0], [2], [0]]
        assert strict.count(QUEUE).active == 0
        assert ids(strict.receive(queue=TARGET)) == ["a", "b"]
        strict.crash()
        assert strict.receive() == []
        assert strict.send("b", queue=TARGET) == [0]

    def test_one_that_was_sent_in_the_same_commit_counts(self, strict):
        strict.send("a")
        [message] = strict.receive()
        plain = Send(queue=TARGET, units=[unit("a")])
        moved = Send(queue=TARGET, units=[unit("a")], transfers=[transfer(message)])
        strict.commit(plain, moved)
        assert sorted([plain.result, moved.result]) == [[[0]], [[1]]]
        assert strict.count(TARGET).active == 1

    def test_one_from_another_store_is_dropped_for_good(self, strict):
        strict.send("m7", queue=TARGET)
        assert arrive(strict, 7) == [[0]]
        strict.pass_ms(20_000)
        assert arrive(strict, 7) == [[0]]
        assert strict.count(TARGET).active == 1

    def test_a_dead_letter_that_returns_to_its_own_queue_is_none(self, strict):
        strict.send("a", queue=TARGET)
        strict.settle(Outcome.DEAD_LETTER, *strict.receive(queue=TARGET), queue=TARGET)
        [message] = strict.receive(queue=TARGET + 1)
        assert move(strict, message, source=TARGET + 1) == [[2]]
        assert ids(strict.receive(queue=TARGET)) == ["a"]

    def test_a_dead_letter_returns_to_its_own_queue_even_if_that_is_full(self, empty):
        empty.create(QUEUE, max_size_bytes=len(record("a")))
        empty.send("a")
        empty.settle(Outcome.DEAD_LETTER, *empty.receive())
        [message] = empty.receive(queue=DEAD)
        assert move(empty, message, source=DEAD, target=QUEUE) == [[2]]


class TestBetweenStores:
    def test_the_same_message_once_more_changes_nothing(self, pair):
        assert arrive(pair, 7, 8) == [[1], [2]]
        assert arrive(pair, 8, 9, 7, 9) == [[0], [3], [0], [0]]
        assert ids(pair.receive(queue=TARGET)) == ["m7", "m8", "m9"]

    def test_it_is_remembered_over_a_crash(self, pair):
        arrive(pair, 7)
        pair.crash()
        assert arrive(pair, 7) == [[0]]
        assert pair.count(TARGET).active == 1

    def test_it_is_remembered_although_the_message_is_gone(self, pair):
        arrive(pair, 7)
        pair.complete(*pair.receive(queue=TARGET), queue=TARGET)
        assert arrive(pair, 7) == [[0]]
        assert pair.count(TARGET).active == 0

    def test_it_is_remembered_for_every_queue_of_the_store(self, pair):
        arrive(pair, 7)
        assert arrive(pair, 7, target=QUEUE) == [[0]]

    def test_numbers_of_another_queue_are_other_messages(self, pair):
        arrive(pair, 7)
        assert pair.do(Send(queue=TARGET, units=[unit("other")], transfers=[Transfer(FAR + 4, 7)])) == [[2]]

    def test_two_commands_of_one_commit_store_it_once(self, pair):
        commands = [Send(queue=TARGET, units=[unit("m7")], transfers=[Transfer(FAR, 7)]) for _ in range(2)]
        pair.commit(*commands)
        assert sorted(command.result for command in commands) == [[[0]], [[1]]]
        assert pair.count(TARGET).active == 1

    def test_a_queue_and_a_topic_of_one_commit_store_it_once(self, topic):
        sent = Send(queue=FIRST, units=[unit("m7")], transfers=[Transfer(FAR, 7)])
        published = Publish(queue=TOPIC, units=[[publication("m7", Copy(SECOND, "m7"))]], transfers=[Transfer(FAR, 7)])
        topic.commit(sent, published)
        assert sorted([sent.result, published.result]) == [[[0]], [[1]]]
        assert topic.count(FIRST).active + topic.count(SECOND).active == 1

    def test_a_refused_message_is_not_remembered(self, pair):
        pair.create(12, max_size_bytes=1)
        [result] = arrive(pair, 7, target=12)
        assert result.fault is Fault.QUOTA_EXCEEDED
        assert arrive(pair, 7) == [[1]]

    def test_what_is_forgotten_is_a_new_message(self, pair):
        arrive(pair, 7, 8)
        pair.do(Forget(queue=FAR, sequence_numbers=[7, 99]))
        assert arrive(pair, 7, 8) == [[3], [0]]

    def test_forgetting_what_is_not_known_is_no_error(self, pair):
        pair.do(Forget(queue=FAR, sequence_numbers=[1, 2]))
        assert arrive(pair, 1) == [[1]]

    def test_after_a_month_it_is_forgotten(self, pair):
        arrive(pair, 7)
        pair.pass_ms(MONTH_MS - 1)
        assert arrive(pair, 7) == [[0]]
        assert pair.store.due_at_ms() <= pair.now + 1
        pair.pass_ms(1)
        assert arrive(pair, 7) == [[2]]


class TestToATopic:
    def publish(self, bus, moved, *queues, message_id="a", **fields):
        unit = [publication(message_id, *[Copy(queue, message_id) for queue in queues], **fields)]
        [result] = bus.do(Publish(queue=TOPIC, units=[unit], transfers=[moved], origin=MOVER))
        return result

    def test_a_message_leaves_its_queue_and_has_its_copies(self, topic):
        topic.create(40)
        topic.send("a", queue=40)
        [message] = topic.receive(queue=40)
        assert self.publish(topic, transfer(message, 40), FIRST, SECOND) == [1]
        assert topic.hints.ready == {FIRST, SECOND}
        topic.crash()
        assert topic.receive(queue=40) == []
        assert ids(topic.receive(queue=FIRST)) == ids(topic.receive(queue=SECOND)) == ["a"]

    def test_one_that_nobody_wants_leaves_its_queue_too(self, topic):
        topic.create(40)
        topic.send("a", queue=40)
        [message] = topic.receive(queue=40)
        assert self.publish(topic, transfer(message, 40)) == [1]
        assert topic.count(40).active == 0

    def test_a_lost_lock_publishes_nothing(self, topic):
        topic.create(40)
        topic.send("a", queue=40)
        [message] = topic.receive(queue=40)
        topic.now += 30_000
        assert self.publish(topic, transfer(message, 40), FIRST).fault is Fault.LOCK_LOST
        assert topic.count(FIRST).active == 0

    def test_a_duplicate_leaves_its_source_and_is_dropped(self, empty):
        empty.create(TOPIC, "topic", duplicate_window_ms=20_000)
        empty.create(FIRST)
        empty.create(40)
        empty.publish("a", to=[FIRST])
        empty.send("a", queue=40)
        [message] = empty.receive(queue=40)
        assert self.publish(empty, transfer(message, 40), FIRST) == [0]
        assert (empty.count(40).active, empty.count(FIRST).active) == (0, 1)

    def test_the_same_message_of_another_store_once_more_changes_nothing(self, topic):
        assert self.publish(topic, Transfer(FAR, 7), FIRST, SECOND) == [1]
        topic.crash()
        assert self.publish(topic, Transfer(FAR, 7), FIRST, SECOND) == [0]
        assert (topic.count(FIRST).active, topic.count(SECOND).active) == (1, 1)
        topic.do(Forget(queue=FAR, sequence_numbers=[7]))
        assert self.publish(topic, Transfer(FAR, 7), FIRST) == [2]

    def test_a_full_subscription_leaves_it_at_its_source(self, topic):
        topic.create(20, max_size_bytes=1)
        assert self.publish(topic, Transfer(FAR, 7), FIRST, 20).fault is Fault.QUOTA_EXCEEDED
        assert self.publish(topic, Transfer(FAR, 7), FIRST) == [1]


class TestOneThatCannotMove:
    def test_it_goes_to_the_transfer_dead_letter_queue(self, bus):
        bus.send("a", ttl_ms=1_000)
        bus.settle(Outcome.TRANSFER_DEAD_LETTER, *bus.receive(), reason="r", description="d")
        assert bus.hints.ready == {QUEUE + 2}
        assert bus.count() == (0, 0, 0, 0, 1, len(record("a")))
        bus.pass_ms(1_000)
        bus.crash()
        [message] = bus.receive(queue=QUEUE + 2)
        found = (message.message_id, message.sequence_number, message.reason, message.description)
        assert found == ("a", 1, "r", "d")
        bus.complete(message, queue=QUEUE + 2)
        assert bus.count() == (0, 0, 0, 0, 0, 0)

    def test_a_dead_letter_can_go_there(self, bus):
        bus.send("a", "b")
        bus.settle(Outcome.DEAD_LETTER, *bus.receive(), reason="first")
        bus.settle(Outcome.TRANSFER_DEAD_LETTER, bus.receive(queue=DEAD)[0], queue=DEAD, reason="second")
        assert bus.count()[3:5] == (1, 1)
        assert [m.reason for m in bus.receive(queue=QUEUE + 2)] == ["second"]

    def test_from_there_it_goes_nowhere_else(self, bus):
        bus.send("a")
        bus.settle(Outcome.TRANSFER_DEAD_LETTER, *bus.receive())
        [message] = bus.receive(queue=QUEUE + 2)
        for outcome in (Outcome.TRANSFER_DEAD_LETTER, Outcome.DEAD_LETTER):
            with pytest.raises(Exception, match="dead-letter") as refused:
                bus.settle(outcome, message, queue=QUEUE + 2)
            assert refused.value.fault is Fault.NOT_ALLOWED
        bus.complete(message, queue=QUEUE + 2)

    def test_the_journal_tells_it(self, bus):
        bus.send("a")
        bus.settle(Outcome.TRANSFER_DEAD_LETTER, *bus.receive())
        last = bus.journal()[-1]
        assert (last.operation, last.queue, last.sequence_number) == ("transfer_deadletter", QUEUE, 1)
