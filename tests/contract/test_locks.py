"""Locks: how long they hold, how they end, and what each end counts."""

from __future__ import annotations

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Outcome, ReceiveMode
from twinbus.store.commands import Acquire, Complete, Configure, DeleteBatch, DropLocks, Inspect, QueueSettings, Renew


def ids(messages):
    return [message.message_id for message in messages]


def fault_of(action, *arguments, **options):
    with pytest.raises(BusError) as refused:
        action(*arguments, **options)
    return refused.value.fault


def test_a_lock_holds_for_the_lock_duration(bus):
    bus.send("a")
    [message] = bus.receive()
    assert message.locked_until_ms == bus.now + 30_000
    bus.pass_ms(29_999)
    assert bus.receive() == []
    bus.complete(message)


def test_an_expired_lock_counts_a_delivery_and_the_message_is_first_again(bus):
    bus.send("a", "b", "c")
    bus.receive(1)
    bus.pass_ms(30_000)
    assert bus.hints.ready == {4}
    assert [(m.message_id, m.delivery_count) for m in bus.receive()] == [("a", 1), ("b", 0), ("c", 0)]


def test_an_expired_lock_is_lost_even_before_anyone_swept(bus):
    bus.send("a")
    [message] = bus.receive()
    bus.now += 30_000
    assert fault_of(bus.complete, message) is Fault.LOCK_LOST
    assert fault_of(bus.settle, Outcome.ABANDON, message) is Fault.LOCK_LOST


def test_the_store_says_when_the_next_lock_ends(bus):
    bus.send("a")
    bus.sweep()
    bus.receive()
    assert bus.store.due_at_ms() == bus.now + 30_000


def test_a_late_settle_never_touches_a_newer_lock(bus):
    bus.send("a")
    [late] = bus.receive()
    bus.pass_ms(30_000)
    [newer] = bus.receive()
    assert fault_of(bus.complete, late) is Fault.LOCK_LOST
    bus.complete(newer)


def test_a_token_is_good_for_its_own_queue_only(bus):
    bus.create(queue=8)
    bus.send("a")
    [message] = bus.receive()
    assert fault_of(bus.complete, message, queue=8) is Fault.LOCK_LOST
    bus.complete(message)


def test_a_message_is_settled_once(bus):
    bus.send("a")
    [message] = bus.receive()
    command = Complete(queue=4, tokens=[message.token, message.token, b"?" * 16])
    bus.do(command)
    assert [error and error.fault for error in command.result] == [None, Fault.LOCK_LOST, Fault.LOCK_LOST]


def test_a_renewed_lock_holds_longer(bus):
    bus.send("a", "b")
    first, second = bus.receive()
    bus.pass_ms(20_000)
    assert bus.do(Renew(queue=4, tokens=[first.token])) == [bus.now + 30_000]
    bus.pass_ms(10_000)
    assert ids(bus.receive()) == ["b"]
    bus.pass_ms(19_999)
    bus.complete(first)
    assert fault_of(bus.complete, second) is Fault.LOCK_LOST


def test_a_lost_lock_cannot_be_renewed(bus):
    bus.send("a")
    [message] = bus.receive()
    bus.pass_ms(30_000)
    [refused] = bus.do(Renew(queue=4, tokens=[message.token]))
    assert refused.fault is Fault.LOCK_LOST


def test_a_broken_connection_drops_its_locks_and_counts(bus):
    bus.create(queue=8)
    bus.send("a", "b")
    bus.send("c", queue=8)
    mine = bus.receive(1, owner=1) + bus.receive(queue=8, owner=1)
    [other] = bus.receive(owner=2)
    assert bus.drop_locks(owner=1) == 2
    assert bus.hints.ready == {4, 8}
    assert fault_of(bus.complete, mine[0]) is Fault.LOCK_LOST
    bus.complete(other)
    assert [(m.message_id, m.delivery_count) for m in bus.receive() + bus.receive(queue=8)] == [("a", 1), ("c", 1)]


def test_a_change_of_settings_drops_locks_and_counts(bus):
    bus.send("a")
    [message] = bus.receive()
    bus.do(Configure(queue=4, settings=QueueSettings(lock_duration_ms=5_000)))
    assert fault_of(bus.complete, message) is Fault.LOCK_LOST
    [again] = bus.receive()
    assert (again.delivery_count, again.locked_until_ms) == (1, bus.now + 5_000)


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_a_restart_drops_locks_and_counts(bus, end):
    bus.send("a", "b", "c")
    done, locked = bus.receive(2)
    bus.complete(done)
    getattr(bus, end)()
    assert fault_of(bus.complete, locked) is Fault.LOCK_LOST
    assert [(m.message_id, m.delivery_count) for m in bus.receive()] == [("b", 1), ("c", 0)]


def test_a_restart_counts_only_what_was_locked_at_its_end(bus):
    bus.send("abandoned", "released", "deferred", "expired", "locked")
    abandoned, released, deferred, _, _ = bus.receive(5)
    bus.settle(Outcome.ABANDON, abandoned)
    bus.settle(Outcome.RELEASE, released)
    bus.settle(Outcome.DEFER, deferred)
    bus.crash()
    assert [(m.message_id, m.delivery_count) for m in bus.peek()] == [
        ("abandoned", 1),
        ("released", 0),
        ("deferred", 0),
        ("expired", 1),
        ("locked", 1),
    ]
    bus.crash()
    assert [m.delivery_count for m in bus.peek()] == [1, 0, 0, 1, 1]


def test_restarts_use_up_deliveries_too(empty):
    empty.create(max_delivery_count=2)
    empty.send("a")
    for _ in range(2):
        empty.receive()
        empty.crash()
    assert empty.receive() == []
    assert empty.receive(queue=5)[0].reason == "MaxDeliveryCountExceeded"


def test_inspect_reads_locked_messages_by_token(bus):
    bus.send("a", "b")
    first, second = bus.receive()
    bus.complete(second)
    assert bus.do(Inspect(queue=4, tokens=[first.token, second.token])) == [first, None]


def test_many_returned_messages_keep_their_order(bus):
    sent = [f"m{n}" for n in range(300)]
    bus.send(*sent)
    bus.receive(200)
    bus.pass_ms(30_000)
    assert ids(bus.receive(1_000)) == sent


def test_more_returned_messages_than_are_remembered_come_back_all_the_same(bus, monkeypatch):
    from twinbus.store import volatile

    monkeypatch.setattr(volatile, "RETURNED_LIMIT", 10)
    sent = [f"m{n}" for n in range(60)]
    bus.send(*sent)
    kept = bus.receive(20, owner=2)
    bus.receive(40, owner=1)
    bus.complete(*kept[5:8])
    bus.drop_locks(owner=1)
    assert ids(bus.receive(1_000)) == sent[20:]
    bus.complete(*kept[:5], *kept[8:])
    assert bus.count().active == 40


def test_more_expired_locks_than_a_sweep_takes_at_once(bus):
    sent = [f"m{n}" for n in range(2_500)]
    bus.send(*sent)
    bus.receive(2_500)
    bus.pass_ms(30_000)
    assert ids(bus.receive(2_500)) == sent


def test_a_returned_message_comes_before_newer_ones_although_another_was_deleted(bus):
    bus.send("a", "b")
    bus.receive()
    bus.pass_ms(1)
    bus.drop_locks()
    bus.do(DeleteBatch(queue=4, limit=1, before_ms=bus.now))
    bus.send("c")
    assert [ids(bus.receive(1)) for _ in range(3)] == [["b"], ["c"], []]


def test_locks_dropped_and_taken_again_in_one_commit_count(bus):
    bus.send("a")
    bus.receive()
    acquire = Acquire(queue=4, limit=1, mode=ReceiveMode.PEEK_LOCK, owner=2)
    bus.commit(acquire, DropLocks(queue=0, owner=1))
    assert [m.delivery_count for m in acquire.result] == [1]
