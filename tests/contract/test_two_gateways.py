"""Several gateways on one PostgreSQL store: what one holds the other does not get, and what one does the other sees."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from contract.conftest import FIRST, PEEK_LOCK, REMOVE, SECOND, TOPIC, Bus, PostgresFactory, ids
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, Outcome, Settlement
from twinbus.sql.postgres import Listener
from twinbus.store.commands import (
    AcceptSession,
    Acquire,
    Complete,
    Configure,
    Copy,
    Create,
    Drop,
    DropLocks,
    Peek,
    Publication,
    Publish,
    QueueSettings,
    ReleaseSession,
    Send,
    Settle,
    Sweep,
)
from twinbus.store.journal import read
from twinbus.store.postgres.waking import hints_of


def fault_of(action, *arguments, **options):
    with pytest.raises(BusError) as refused:
        action(*arguments, **options)
    return refused.value.fault


@pytest.fixture
def factory(postgres):
    return PostgresFactory(postgres, poll_ms=1_000)


@pytest.fixture
def one(factory):
    bus = Bus(factory)
    bus.create()
    yield bus
    bus.close()


@pytest.fixture
def other(one, factory):
    bus = Bus(factory)
    # Each learns of the other by its next look around.
    one.sweep()
    bus.sweep()
    one.sweep()
    yield bus
    bus.close()


class TestLocks:
    def test_what_one_has_locked_the_other_does_not_get(self, one, other):
        one.send("a", "b", "c")
        assert ids(one.receive(2)) == ["a", "b"]
        assert ids(other.receive()) == ["c"]
        assert one.receive() == other.receive() == []

    def test_a_token_is_good_at_every_gateway(self, one, other):
        one.send("a", "b")
        first, second = one.receive()
        other.complete(first)
        other.settle(Outcome.ABANDON, second)
        assert fault_of(one.complete, first) is Fault.LOCK_LOST
        assert [(m.message_id, m.delivery_count) for m in one.receive()] == [("b", 1)]

    def test_a_broken_connection_drops_the_locks_of_its_own_gateway_only(self, one, other):
        one.send("a", "b")
        one.receive(1, owner=7)
        other.receive(1, owner=7)
        assert other.drop_locks(owner=7) == 1
        assert ids(other.receive()) == ["b"]
        assert one.drop_locks(owner=7) == 1

    def test_a_killed_gateway_s_locks_last_until_they_expire_and_count(self, one, other):
        one.send("a")
        one.receive()
        other.now += 29_999
        other.sweep()
        assert other.receive() == []
        other.now += 1
        other.sweep()
        assert [(m.message_id, m.delivery_count) for m in other.receive()] == [("a", 1)]

    def test_a_new_gateway_leaves_the_locks_of_others_alone(self, one, factory):
        one.send("a")
        [message] = one.receive()
        newcomer = Bus(factory)
        newcomer.sweep()
        assert newcomer.receive() == []
        newcomer.close()
        one.complete(message)

    def test_a_gateway_that_leaves_gives_back_only_what_was_its_own(self, one, other):
        one.send("a", "b")
        [mine] = one.receive(1)
        other.receive(1)
        other.store.close()
        one.complete(mine)
        assert [(m.message_id, m.delivery_count) for m in one.receive()] == [("b", 1)]


class TestSessions:
    @pytest.fixture(autouse=True)
    def _queue(self, one):
        one.create(8, requires_session=True)

    def test_a_session_has_one_holder_among_all_gateways(self, one, other):
        one.send("a", queue=8, session_id="s")
        one.send("b", queue=8, session_id="t")
        one.accept("s", holder=1, queue=8)
        assert fault_of(other.accept, "s", holder=1, queue=8) is Fault.SESSION_HELD
        assert fault_of(other.receive, queue=8, session="s", holder=1) is Fault.SESSION_LOCK_LOST
        assert other.accept(None, holder=1, queue=8).session_id == "t"
        assert other.accept(None, holder=2, queue=8) is None

    def test_a_released_session_goes_to_the_other(self, one, other):
        one.send("a", queue=8, session_id="s")
        one.accept("s", queue=8)
        one.receive(queue=8, session="s", holder=1)
        one.do(ReleaseSession(queue=8, session="s", holder=1))
        other.accept("s", queue=8)
        assert [(m.message_id, m.delivery_count) for m in other.receive(queue=8, session="s", holder=1)] == [("a", 0)]

    def test_who_lost_a_session_is_told_at_his_own_gateway(self, one, other, postgres, factory):
        listener = Listener(postgres.connection_url, factory.schema)
        one.accept("s", holder=5, queue=8)
        other.now += 30_000
        other.do(Sweep(queue=0))
        assert other.hints.lost_sessions == []
        heard = [payload for _, payload in listener.wait(5)]
        listener.close()
        assert [hints_of(payload, one.store.gateway).lost_sessions for payload in heard] == [[(8, "s", 5)]]
        assert [hints_of(payload, other.store.gateway).lost_sessions for payload in heard] == [[]]


class TestWaking:
    def test_a_send_wakes_the_other_gateway_and_not_its_own(self, one, other, postgres, factory):
        listener = Listener(postgres.connection_url, factory.schema)
        one.send("a")
        [(_, payload)] = listener.wait(5)
        listener.close()
        assert hints_of(payload, other.store.gateway).ready == {4}
        assert hints_of(payload, one.store.gateway).ready == set()

    def test_nobody_is_notified_where_nobody_else_is(self, one, postgres, factory):
        listener = Listener(postgres.connection_url, factory.schema)
        one.sweep()
        one.send("a")
        assert listener.wait(0.2) == []
        listener.close()

    def test_a_sweep_finds_what_was_missed_and_only_once(self, one, other):
        one.send("a")
        other.do(Sweep(queue=0))
        assert 4 in other.hints.ready
        other.do(Sweep(queue=0))
        assert other.hints.ready == set()

    def test_one_s_own_doings_are_not_news(self, one, other):
        one.send("a")
        one.do(Sweep(queue=0))
        assert one.hints.ready == set()

    def test_a_sweep_is_due_every_second(self, one):
        one.sweep()
        assert one.store.due_at_ms() == one.now + 1_000


class TestSettings:
    def test_are_those_that_another_gateway_has_set(self, one, other):
        one.do(Configure(queue=4, settings=QueueSettings(lock_duration_ms=5_000)))
        one.send("a")
        assert other.receive()[0].locked_until_ms == other.now + 5_000

    def test_a_change_drops_the_locks_of_all_gateways(self, one, other):
        one.send("a")
        [message] = one.receive()
        other.do(Configure(queue=4, settings=QueueSettings()))
        assert fault_of(one.complete, message) is Fault.LOCK_LOST

    def test_an_entity_that_another_dropped_is_gone(self, one, other):
        one.do(Drop(queue=4))
        assert fault_of(other.send, "a") is Fault.ENTITY_DELETED

    def test_one_that_two_create_at_once_exists_once(self, one, other):
        errors = in_threads(
            *[lambda bus=bus: bus.do(Create(queue=40, settings=QueueSettings())) for bus in (one, other)]
        )
        assert errors == []
        assert one.send("a", queue=40) == [1]
        assert other.send("b", queue=40) == [2]


def test_each_gateway_writes_a_journal_without_gaps(one, other):
    for number in range(3):
        one.send(f"a{number}")
        other.send(f"b{number}")
    for bus, name in ((one, "a"), (other, "b")):
        rows = bus.store.journal_after(0, 100)
        assert [row.id for row in rows] == [1, 2, 3]
        assert [entry.message_id for row in rows for entry in read(row)] == [f"{name}{number}" for number in range(3)]
    one.now += 8 * 24 * 3600 * 1000
    one.sweep()
    assert [row.id for row in one.store.journal_after(0, 100)] == [3]
    one.send("later")
    assert [row.id for row in one.store.journal_after(0, 100)] == [3, 4]


def test_a_clock_that_was_set_back_makes_no_gap_in_any_journal(one, other):
    day = 24 * 3600 * 1000
    one.send("old")
    other.send("old")
    one.now += 6 * day
    one.send("young")
    one.now -= 5 * day
    one.send("old again")
    one.now += 7 * day + day // 2
    one.send("now")
    one.sweep()
    assert [row.id for row in one.store.journal_after(0, 100)] == [2, 3, 4]
    assert [row.id for row in other.store.journal_after(0, 100)] == [1]  # Its newest, which gives the next number.
    one.now += 6 * day
    one.sweep()
    assert [row.id for row in one.store.journal_after(0, 100)] == [4]


# Concurrency: each gateway on a thread of its own.


def in_threads(*actions):
    """Run actions at the same time; what they raised."""
    errors = []

    def guarded(action):
        try:
            action()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return errors


def test_the_order_of_numbers_is_the_order_of_visibility(one, other, factory):
    watcher = Bus(factory)
    one.create(8)
    sending = threading.Event()
    sending.set()

    def send(bus, queues):
        for number in range(60):
            bus.commit(*[Send(queue=q, units=[[Incoming(b"x", f"{number}")]]) for q in queues for _ in range(2)])

    def watch():
        seen = 0
        while sending.is_set() or seen < 240:
            peek = Peek(queue=4, from_sequence_number=0, limit=1_000)
            watcher.do(peek)
            numbers = [message.sequence_number for message in peek.result]
            assert numbers == list(range(1, len(numbers) + 1))
            seen = len(numbers)

    watching = threading.Thread(target=lambda: watched.extend(in_threads(watch)))
    watched = []
    watching.start()
    # They take their queues in opposite orders, and do not block each other for good.
    assert in_threads(lambda: send(one, (4, 8)), lambda: send(other, (8, 4))) == []
    sending.clear()
    watching.join(60)
    watcher.close()
    assert watched == []
    assert (one.count(4).active, one.count(8).active) == (240, 240)


@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_storm_nothing_is_lost_and_the_counts_are_exact(one, factory, seed):
    one.create(8, max_delivery_count=3)
    gateways = [one, Bus(factory), Bus(factory)]
    sent, done = Counter(), Counter()
    guard = threading.Lock()

    def storm(bus, name):
        chance = random.Random(f"{seed} {name}")
        held = []
        for step in range(40):
            queue = chance.choice((4, 8))
            send = Send(queue=queue, units=[[Incoming(b"x" * 10, f"{name}-{step}-{n}")] for n in range(4)])
            take = Acquire(queue=queue, limit=6, mode=chance.choice((PEEK_LOCK, PEEK_LOCK, REMOVE)), owner=1)
            group = [send, take]
            settled = []
            for at, message in held:
                outcome = chance.choice((Outcome.COMPLETE, Outcome.ABANDON, Outcome.DEAD_LETTER, Outcome.RELEASE))
                settle = Settle(queue=at, settlements=[Settlement(message.token, outcome)])
                settled.append((settle, outcome, message))
            group += [settle for settle, _, _ in settled]
            if chance.random() < 0.2:
                group.append(DropLocks(queue=0, owner=1))
            bus.commit(*group)
            assert [command.error for command in group if command.error] == []
            with guard:
                sent.update(message.message_id for unit in send.units for message in unit)
                done.update(
                    m.message_id for s, outcome, m in settled if outcome is Outcome.COMPLETE and not s.result[0]
                )
                if take.mode is REMOVE:
                    done.update(message.message_id for message in take.result)
            held = [(queue, message) for message in take.result if message.token]

    assert in_threads(*[lambda bus=bus, n=n: storm(bus, n) for n, bus in enumerate(gateways)]) == []
    left = Counter()
    for queue in (4, 5, 8, 9):
        left.update(message.message_id for message in one.peek(queue=queue))
    for queue in (4, 8):
        counts = one.count(queue)
        assert counts.active == len(one.peek(queue=queue))
        assert counts.dead_letter == len(one.peek(queue=queue + 1))
        assert counts.size_bytes == 10 * (counts.active + counts.dead_letter)
    assert done + left == sent
    assert set(sent.values()) == {1}
    for bus in gateways[1:]:
        bus.close()


def test_a_session_never_has_two_holders_under_concurrency(one, other):
    one.create(8, requires_session=True)
    one.send("a", queue=8, session_id="s")
    inside = []
    overlaps = []

    def hold(bus, name):
        for _ in range(60):
            accept = AcceptSession(queue=8, session="s", owner=1, holder=1)
            bus.commit(accept)
            if accept.error is None:
                inside.append(name)
                bus.receive(queue=8, session="s", holder=1)
                overlaps.append(len(inside) > 1)
                inside.remove(name)
                bus.commit(ReleaseSession(queue=8, session="s", holder=1))

    assert in_threads(lambda: hold(one, "one"), lambda: hold(other, "other")) == []
    assert overlaps
    assert not any(overlaps)


def test_the_last_two_copies_taken_at_the_same_time_leave_no_record(one, other, factory):
    for queue in (FIRST, SECOND):
        one.create(queue)
    copies = [Copy(queue, "m") for queue in (FIRST, SECOND)]
    units = [[Publication(Incoming(b"x", "m"), copies)] for _ in range(40)]
    one.do(Publish(queue=TOPIC, units=units))

    def take(bus, queue):
        for _ in range(40):
            [message] = bus.receive(1, queue=queue)
            bus.do(Complete(queue=queue, tokens=[message.token]))

    assert in_threads(lambda: take(one, FIRST), lambda: take(other, SECOND)) == []
    assert factory.bodies(None) == 0
    one.is_harmed = other.is_harmed = True  # What was made as a queue is a topic here, as no broker would have it.


@pytest.mark.parametrize("seed", [1, 2])
def test_connections_cut_at_any_moment_lose_nothing_that_was_accepted(one, factory, postgres, seed):
    gateways = [one, Bus(factory)]
    accepted, unknown, gone, perhaps_gone = set(), set(), set(), set()
    cuts = []
    ending = threading.Event()

    def cut():
        chance = random.Random(seed)
        while not ending.wait(chance.uniform(0.005, 0.03)):
            connection = chance.choice(gateways).store._connection
            if connection is not None and not connection.closed:
                cuts.append(postgres.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid]))

    def work(bus, name):
        held = []
        for step in range(80):
            sent = [f"{name}-{step}-{number}" for number in range(3)]
            send = Send(queue=4, units=[[Incoming(b"x" * 10, message_id)] for message_id in sent])
            complete = Complete(queue=4, tokens=[message.token for message in held])
            take = Acquire(queue=4, limit=2, mode=PEEK_LOCK, owner=1)
            bus.commit(send, complete, take)
            (accepted if send.error is None else unknown).update(sent)
            if complete.error is None:
                results = zip(held, complete.result, strict=True)
                gone.update(message.message_id for message, refusal in results if refusal is None)
            else:
                perhaps_gone.update(message.message_id for message in held)
            for command in (send, complete, take):
                assert command.error is None or command.error.fault is Fault.STORE_UNAVAILABLE
            held = take.result if take.error is None else []

    cutting = threading.Thread(target=cut)
    cutting.start()
    errors = in_threads(*[lambda bus=bus, n=n: work(bus, n) for n, bus in enumerate(gateways)])
    ending.set()
    cutting.join()
    assert errors == []
    assert cuts
    for bus in gateways:
        bus.commit(Sweep(queue=0))  # So that each is connected again.
    left = Counter(message.message_id for message in one.peek(limit=10_000))
    assert set(left.values()) == {1}
    assert accepted <= left.keys() | gone | perhaps_gone
    assert left.keys() <= accepted | unknown
    assert not left.keys() & gone
    counts = one.count()
    assert (counts.active, counts.size_bytes) == (len(left), 10 * len(left))
    assert factory.bodies(None) == len(left)
    gateways[1].close()
