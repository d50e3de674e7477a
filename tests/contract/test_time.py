"""Time to live and scheduling, without any receiver."""

from __future__ import annotations

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import MessageState, Outcome, ReceiveMode
from twinbus.store.commands import Acquire, CancelScheduled, Configure, QueueSettings, Sweep


def ids(messages):
    return [message.message_id for message in messages]


@pytest.fixture
def keeping(empty):
    """A store with a queue that dead-letters what expires."""
    empty.create(dead_letter_on_expiry=True)
    return empty


class TestTimeToLive:
    def test_an_expired_message_is_removed_without_any_receiver(self, bus):
        bus.send("short", ttl_ms=1_000)
        bus.send("long")
        assert bus.store.due_at_ms() <= bus.now + 1_000
        bus.pass_ms(1_000)
        assert ids(bus.peek()) == ["long"]
        assert bus.count().active == 1

    def test_or_dead_lettered_if_the_entity_says_so(self, keeping):
        keeping.send("short", ttl_ms=1_000)
        keeping.pass_ms(1_000)
        assert keeping.hints.ready == {5}
        [dead] = keeping.receive(queue=5)
        assert dead.reason == "TTLExpiredException"

    def test_an_expired_message_is_not_handed_out_even_before_a_sweep(self, keeping):
        keeping.send("short", ttl_ms=1_000)
        keeping.send("long")
        keeping.now += 1_000
        assert ids(keeping.receive()) == ["long"]
        assert ids(keeping.receive(queue=5)) == ["short"]
        keeping.sweep()
        assert keeping.count().dead_letter == 1

    def test_a_locked_message_does_not_expire(self, bus):
        bus.send("short", ttl_ms=1_000)
        [message] = bus.receive()
        bus.pass_ms(2_000)
        bus.complete(message)

    def test_a_message_that_expired_under_lock_expires_when_it_is_given_back(self, keeping):
        keeping.send("short", ttl_ms=1_000)
        [message] = keeping.receive()
        keeping.pass_ms(2_000)
        keeping.settle(Outcome.ABANDON, message)
        assert keeping.receive() == []
        assert [m.reason for m in keeping.receive(queue=5)] == ["TTLExpiredException"]

    def test_locked_messages_past_their_time_do_not_keep_the_store_busy(self, bus):
        bus.send("short", ttl_ms=1_000)
        bus.receive()
        bus.pass_ms(2_000)
        assert bus.store.due_at_ms() > bus.now

    def test_a_deferred_message_does_not_expire_by_itself(self, keeping):
        keeping.send("short", ttl_ms=1_000)
        keeping.settle(Outcome.DEFER, *keeping.receive())
        keeping.pass_ms(60_000)
        assert ids(keeping.receive_deferred(1)) == ["short"]

    def test_a_dead_letter_has_no_time_to_live(self, bus):
        bus.send("short", ttl_ms=60_000)
        bus.settle(Outcome.DEAD_LETTER, *bus.receive())
        bus.pass_ms(120_000)
        assert ids(bus.receive(queue=5)) == ["short"]

    def test_more_than_a_sweep_takes_at_once(self, bus):
        bus.send(*[f"m{n}" for n in range(2_500)], ttl_ms=1_000)
        bus.send("stays")
        bus.pass_ms(1_000)
        assert bus.count().active == 1
        assert ids(bus.receive()) == ["stays"]

    def test_what_a_sweep_removes_is_not_handed_out_by_the_same_commit(self, bus):
        bus.send(*[f"m{n}" for n in range(1_500)], ttl_ms=1_000)
        bus.restart()
        bus.now += 1_000
        acquire = Acquire(queue=4, limit=1_000, mode=ReceiveMode.PEEK_LOCK, owner=1)
        bus.commit(acquire, Sweep(queue=0))
        bus.sweep()
        assert acquire.result == []
        assert bus.count().active == 0
        assert [entry.operation for entry in bus.journal()].count("ttl_expire") == 1_500

    def test_expiry_survives_a_restart(self, bus):
        bus.send("short", ttl_ms=1_000)
        bus.crash()
        bus.pass_ms(1_000)
        assert bus.peek() == []


class TestScheduling:
    def test_a_scheduled_message_is_not_handed_out_before_its_time(self, bus):
        due = bus.now + 10_000
        assert bus.send("later", due_at_ms=due) == [1]
        assert bus.send("now") == [2]
        assert ids(bus.receive()) == ["now"]
        assert bus.count().scheduled == 1
        bus.pass_ms(9_999)
        assert bus.receive() == []
        assert bus.peek()[0].state is MessageState.SCHEDULED

    def test_at_its_time_it_gets_a_new_number_and_joins_the_end(self, bus):
        bus.send("later", due_at_ms=bus.now + 10_000)
        bus.send("now")
        assert bus.store.due_at_ms() <= bus.now + 10_000
        bus.pass_ms(10_000)
        assert bus.hints.ready == {4}
        now, later = bus.receive()
        assert (now.sequence_number, later.sequence_number) == (2, 3)
        assert (later.message_id, later.enqueued_at_ms) == ("later", bus.now)
        assert (bus.count().scheduled, bus.count().active) == (0, 2)

    def test_messages_become_active_in_the_order_of_their_times(self, bus):
        bus.send("second", due_at_ms=bus.now + 2_000)
        bus.send("first", due_at_ms=bus.now + 1_000)
        bus.pass_ms(3_000)
        assert ids(bus.receive()) == ["first", "second"]

    def test_a_time_in_the_past_means_now(self, bus):
        bus.send("a", due_at_ms=bus.now)
        assert ids(bus.receive()) == ["a"]

    def test_time_to_live_begins_at_the_scheduled_time(self, bus):
        bus.send("a", due_at_ms=bus.now + 5_000, ttl_ms=10_000)
        bus.pass_ms(5_000)
        bus.pass_ms(9_999)
        assert ids(bus.peek()) == ["a"]
        bus.pass_ms(1)
        assert bus.peek() == []

    def test_a_message_whose_time_to_live_ended_before_anyone_swept_is_removed(self, bus):
        bus.send("a", due_at_ms=bus.now + 1_000, ttl_ms=1_000)
        bus.pass_ms(60_000)
        assert bus.peek() == []
        assert bus.count().active == 0

    def test_cancelling_removes_all_or_none(self, bus):
        first, second = bus.send("a", "b", due_at_ms=bus.now + 1_000)
        bus.send("c")
        for numbers in ([first, 3], [first, 99]):
            with pytest.raises(BusError) as refused:
                bus.do(CancelScheduled(queue=4, sequence_numbers=numbers))
            assert refused.value.fault is Fault.MESSAGE_NOT_FOUND
        bus.do(CancelScheduled(queue=4, sequence_numbers=[first, second]))
        bus.pass_ms(1_000)
        assert ids(bus.peek()) == ["c"]
        assert bus.count().scheduled == 0

    def test_schedules_survive_a_crash(self, bus):
        bus.send("later", due_at_ms=bus.now + 10_000)
        bus.crash()
        bus.pass_ms(20_000)
        [later] = bus.receive()
        assert (later.message_id, later.enqueued_at_ms) == ("later", bus.now)


def test_a_change_of_settings_may_make_expired_messages_dead_letters(bus):
    bus.send("short", ttl_ms=1_000)
    bus.do(Configure(queue=4, settings=QueueSettings(dead_letter_on_expiry=True)))
    bus.pass_ms(1_000)
    assert bus.count().dead_letter == 1
