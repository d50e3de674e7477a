"""Entities come and go, counts are kept, and each has its own numbers."""

from __future__ import annotations

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Outcome
from twinbus.store.commands import Configure, Create, Drop, QueueSettings
from twinbus.store.quarantine import SetAside


def ids(messages):
    return [message.message_id for message in messages]


def test_creating_twice_changes_nothing(bus):
    bus.send("a")
    bus.create(max_delivery_count=1)
    bus.settle(Outcome.ABANDON, *bus.receive())
    assert ids(bus.receive()) == ["a"]


def test_an_entity_may_be_created_and_used_in_one_commit(empty):
    from twinbus.model.message import Incoming
    from twinbus.store.commands import Send

    send = Send(queue=4, units=[[Incoming(b"x", "a")]])
    empty.commit(send, Create(queue=4, settings=QueueSettings()))
    assert (send.error, send.result) == (None, [[1]])


def test_queues_have_numbers_of_their_own(bus):
    bus.create(queue=8)
    assert (bus.send("a"), bus.send("b", queue=8), bus.send("c", queue=8)) == ([1], [1], [2])


def test_settings_survive_a_restart(bus):
    bus.do(Configure(queue=4, settings=QueueSettings(lock_duration_ms=5_000, max_delivery_count=1)))
    bus.restart()
    bus.send("a")
    [message] = bus.receive()
    assert message.locked_until_ms == bus.now + 5_000
    bus.settle(Outcome.ABANDON, message)
    assert ids(bus.receive(queue=5)) == ["a"]


def test_a_dropped_entity_is_gone_at_once_and_its_rows_follow(bus):
    bus.create(queue=8, duplicate_window_ms=20_000)
    bus.send(*[f"m{n}" for n in range(2_300)], queue=8)
    bus.settle(Outcome.DEAD_LETTER, *bus.receive(queue=8), queue=8)
    bus.send("stays")
    bus.do(Drop(queue=8))
    with pytest.raises(BusError) as refused:
        bus.send("late", queue=8)
    assert refused.value.fault is Fault.ENTITY_DELETED
    bus.crash()
    bus.sweep()
    with pytest.raises(BusError) as refused:
        bus.send("late", queue=8)
    assert refused.value.fault is Fault.ENTITY_NOT_FOUND
    assert ids(bus.receive()) == ["stays"]


def test_locks_of_a_dropped_entity_are_lost(bus):
    bus.send("a")
    bus.receive()
    bus.do(Drop(queue=4))
    assert bus.drop_locks() == 0
    bus.pass_ms(60_000)
    bus.crash()
    bus.sweep()


def test_an_entity_that_is_served_is_not_dropped_as_one_that_is_set_aside(bus):
    bus.send("a", "b")
    bus.receive(limit=1)
    with pytest.raises(BusError) as refused:
        bus.do(Drop(queue=4, only_aside=True))
    assert refused.value.fault is Fault.NOT_ALLOWED
    assert ids(bus.receive()) == ["b"]
    bus.do(SetAside(queue=0, entities=[1]))
    bus.do(Drop(queue=4, only_aside=True))
    with pytest.raises(BusError):
        bus.send("late")


def test_what_was_deferred_is_active_in_an_entity_whose_messages_go_elsewhere(bus):
    bus.send("first", "second", "third", "dead", ttl_ms=1_000)
    first, second, third, dead = bus.receive()
    bus.settle(Outcome.DEFER, first, third)
    bus.settle(Outcome.DEAD_LETTER, dead)
    bus.settle(Outcome.DEFER, *bus.receive(queue=5), queue=5)
    bus.complete(second)
    bus.do(SetAside(queue=0, entities=[1]))
    bus.pass_ms(2_000)
    bus.do(SetAside(queue=0, entities=[1], aside=False, undefer=True))
    bus.sweep()  # A deferred message does not expire, and is not made to by this.
    assert (bus.count().active, bus.count().deferred, bus.count().dead_letter) == (2, 0, 1)
    assert [(message.sequence_number, message.message_id) for message in bus.receive()] == [(1, "first"), (3, "third")]
    assert ids(bus.receive(queue=5)) == ["dead"]
    bus.crash()
    bus.pass_ms(60_000)
    assert bus.verify() == []
    assert ids(bus.receive()) == ["first", "third"]


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_counts_are_those_of_the_messages(bus, end):
    bus.send("active", "locked", "deferred", "dead", "gone", size=20)
    bus.send("scheduled", due_at_ms=bus.now + 1_000, size=20)
    _, _, deferred, dead, gone = bus.receive()
    bus.settle(Outcome.DEFER, deferred)
    bus.settle(Outcome.DEAD_LETTER, dead)
    bus.complete(gone)
    before = bus.count()
    assert before._asdict() == {
        "active": 2,
        "deferred": 1,
        "scheduled": 1,
        "dead_letter": 1,
        "transfer_dead_letter": 0,
        "size_bytes": 100,
    }
    getattr(bus, end)()
    assert bus.count() == before
