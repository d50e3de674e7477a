"""The record that copies share: it stays while one of them needs it, and goes with the last, whichever way they go."""

from __future__ import annotations

import pytest

from contract.conftest import FIRST, REMOVE, SECOND, SUBSCRIPTIONS, TOPIC, bodies, ids, publication, record
from twinbus.model.message import Outcome
from twinbus.store import sweeping
from twinbus.store.commands import Acquire, Copy, DeleteBatch, Drop, Publish, Sweep


def leave_by(bus, queue, way):
    """Have the one message of a queue leave it for good."""
    if way == "complete":
        bus.complete(*bus.receive(queue=queue), queue=queue)
    elif way == "receive-and-delete":
        bus.receive(queue=queue, mode=REMOVE)
    elif way == "dead-letter":
        bus.settle(Outcome.DEAD_LETTER, *bus.receive(queue=queue), queue=queue)
        bus.complete(*bus.receive(queue=queue + 1), queue=queue + 1)
    elif way == "purge":
        bus.now += 1
        assert bus.do(DeleteBatch(queue=queue, limit=10, before_ms=bus.now)) == 1
    elif way == "defer":
        [message] = bus.receive(queue=queue)
        bus.settle(Outcome.DEFER, message, queue=queue)
        bus.receive_deferred(message.sequence_number, queue=queue, mode=REMOVE)
    elif way == "expiry":
        bus.pass_ms(60_000)
    else:
        bus.do(Drop(queue=queue))
        bus.sweep()


WAYS = ("complete", "receive-and-delete", "dead-letter", "purge", "defer", "drop")


@pytest.mark.parametrize("last", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_it_goes_with_the_last_copy_in_any_order_and_way(topic, first, last):
    topic.publish("a", to=[FIRST, SECOND])
    leave_by(topic, FIRST, first)
    assert bodies(topic) == 1
    assert [m.record for m in topic.peek(queue=SECOND)] == [record("a")]
    leave_by(topic, SECOND, last)
    assert bodies(topic) == 0


@pytest.mark.parametrize("other", WAYS)
def test_expiry_frees_it_only_if_it_was_the_last(topic, other):
    for order in ("expiry first", "expiry last"):
        queue = 100 if order == "expiry first" else 200
        topic.create(queue)
        topic.create(queue + 4)
        topic.publish("a", to=[Copy(queue, "a", ttl_ms=60_000), queue + 4])
        ways = [(queue, "expiry"), (queue + 4, other)]
        for target, way in ways if order == "expiry first" else reversed(ways):
            assert bodies(topic) == 1
            leave_by(topic, target, way)
        assert bodies(topic) == 0


def test_expiry_into_the_dead_letter_queue_keeps_it(topic):
    topic.create(20, dead_letter_on_expiry=True)
    topic.publish("a", to=[Copy(20, "a", ttl_ms=1_000), FIRST])
    topic.complete(*topic.receive(queue=FIRST), queue=FIRST)
    topic.pass_ms(1_000)
    [dead] = topic.receive(queue=21)
    assert dead.record == record("a")
    topic.complete(dead, queue=21)
    assert bodies(topic) == 0


def test_all_copies_may_go_in_one_commit(topic):
    topic.publish("a", "b", to=[*SUBSCRIPTIONS])
    topic.commit(*[Acquire(queue=queue, limit=1, mode=REMOVE, owner=1) for queue in SUBSCRIPTIONS])
    assert bodies(topic) == 1
    topic.commit(*[Acquire(queue=queue, limit=1, mode=REMOVE, owner=1) for queue in SUBSCRIPTIONS])
    assert bodies(topic) == 0


def test_copies_that_come_and_go_in_one_commit_leave_nothing(topic):
    publish = Publish(queue=TOPIC, units=[[publication("a", Copy(FIRST, "a"), Copy(SECOND, "a"))]])
    takes = [Acquire(queue=queue, limit=1, mode=REMOVE, owner=1) for queue in (FIRST, SECOND)]
    topic.commit(publish, *takes)
    for queue in (FIRST, SECOND):
        topic.receive(queue=queue, mode=REMOVE)
    assert [topic.count(queue).active for queue in SUBSCRIPTIONS] == [0, 0, 0]
    assert bodies(topic) == 0


def test_abandoning_until_it_is_dead_lettered_keeps_it(topic):
    topic.create(20, max_delivery_count=2)
    topic.publish("a", to=[20, FIRST])
    for _ in range(2):
        topic.settle(Outcome.ABANDON, *topic.receive(queue=20), queue=20)
    topic.receive(queue=FIRST, mode=REMOVE)
    assert [(m.record, m.delivery_count) for m in topic.receive(queue=21)] == [(record("a"), 2)]
    assert bodies(topic) == 1


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_a_new_start_in_between_changes_nothing(topic, end):
    topic.publish("a", "b", to=[*SUBSCRIPTIONS])
    topic.receive(queue=FIRST)
    getattr(topic, end)()
    topic.receive(queue=FIRST, mode=REMOVE)
    topic.publish("c", to=[*SUBSCRIPTIONS])
    getattr(topic, end)()
    assert bodies(topic) == 3
    for queue in SUBSCRIPTIONS:
        got = topic.receive(queue=queue)
        assert [m.record for m in got] == [record(m.message_id) for m in got]
        topic.complete(*got, queue=queue)
        getattr(topic, end)()
    assert bodies(topic) == 0


def test_after_a_start_with_nothing_but_shared_records_ordinary_ones_are_stored(topic):
    topic.publish("a", to=[FIRST, SECOND])
    topic.restart()
    topic.send("b", "c", queue=FIRST)
    topic.publish("d", to=[FIRST, SECOND])
    assert [m.record for m in topic.receive(queue=FIRST, mode=REMOVE)] == [record(name) for name in "abcd"]
    assert bodies(topic) == 2
    topic.receive(queue=SECOND, mode=REMOVE)
    assert bodies(topic) == 0


def test_a_dropped_subscription_frees_its_copies_in_chunks(topic, monkeypatch):
    monkeypatch.setattr(sweeping, "CHUNK", 7)
    topic.publish(*[f"m{number}" for number in range(50)], to=[FIRST, SECOND])
    topic.receive(20, queue=SECOND, mode=REMOVE)
    topic.do(Drop(queue=FIRST))
    left = [bodies(topic)]
    while topic.do(Sweep(queue=0)):
        left.append(bodies(topic))
    assert left[0] == 50
    assert len(left) > 50 / 7
    assert bodies(topic) == 30
    assert len(topic.receive(queue=SECOND, mode=REMOVE)) == 30
    assert bodies(topic) == 0


def test_a_damaged_record_is_set_aside_in_each_queue(topic):
    topic.publish("a", to=[FIRST, SECOND])
    topic.publish("b", to=[FIRST, SECOND])
    topic.restart()
    topic.factory.damage(topic.store, "a")
    topic.is_harmed = True
    for queue in (FIRST, SECOND):
        assert ids(topic.receive(queue=queue, mode=REMOVE)) == ["b"]
    assert [e.queue for e in topic.journal() if e.operation == "damaged"] == [FIRST, SECOND]
    assert bodies(topic) == 1
