"""Random histories of a topic against a model: every copy is in its place, no record is kept or freed wrongly."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from contract.conftest import transfer
from contract.test_against_model import ACTIVE, DEFERRED, LOCK_MS, MAX_DELIVERIES, SCHEDULED, Message, Model
from twinbus.model.errors import Fault
from twinbus.model.message import Incoming, Outcome, ReceiveMode, Settlement
from twinbus.store.commands import (
    Acquire,
    Copy,
    DeleteBatch,
    Drop,
    DropLocks,
    Publication,
    Publish,
    Send,
    Settle,
)

TOPIC = 4
ROOM = 3_000


@dataclass
class Held(Message):
    record: bytes = b""
    overlay: bytes | None = None
    body: int = 0  # Copies with the same number share a record.


# A subscription by place, time to live, overlay, whether it has a record of its own, whether its filter failed.
COPY = st.tuples(
    st.integers(0, 3),
    st.sampled_from([None, None, 3_000, 40_000]),
    st.sampled_from([None, None, b"\x00overlay"]),
    st.integers(0, 4).map(lambda drawn: drawn == 0),
    st.integers(0, 6).map(lambda drawn: drawn == 0),
)
# A transfer dead-letter queue is to a store what a dead-letter queue is; one of them is enough for the model.
OUTCOMES = [outcome for outcome in Outcome if outcome is not Outcome.TRANSFER_DEAD_LETTER]
PUBLICATION = st.tuples(st.lists(COPY, max_size=6), st.sampled_from([0, 10, 300]))


def alike_together(copies):
    """Several copies of one message in one queue are numbered in this order."""
    groups: dict[tuple, list[Copy]] = {}
    for copy in copies:
        shape = copy[1:] if copy.queue & 3 == 0 else copy._replace(ttl_ms=None)[1:]
        groups.setdefault(shape, []).append(copy)
    return [copy for group in groups.values() for copy in group]


class TopicHistory(RuleBasedStateMachine):
    """A topic with four subscriptions, which are sometimes deleted and made anew under another number."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.bus = type(self).open_bus(self.folder)
        self.bus.create(TOPIC, "topic")
        self.topic = Model()
        self.subscriptions: list[int] = []
        self.models: dict[int, Model] = {}
        self.entities = 1
        for _ in range(4):
            self.subscribe()
        self.count = 0
        self.bodies = 0
        self.tokens: list[tuple[int, bytes]] = []

    def subscribe(self) -> None:
        self.entities += 1
        queue = self.entities * 4
        self.bus.create(queue, lock_duration_ms=LOCK_MS, max_delivery_count=MAX_DELIVERIES, max_size_bytes=ROOM)
        self.subscriptions.append(queue)
        self.models[queue] = Model()

    def teardown(self) -> None:
        self.bus.sweep()  # What was deleted with its subscription is told a moment later.
        assert self.bus.told(frozenset({TOPIC})) == self.bus.resident(TOPIC, *self.subscriptions)
        self.bus.close()
        shutil.rmtree(self.folder)

    def new_body(self) -> int:
        self.bodies += 1
        return self.bodies

    def publication(self, drawn, message_id=None):
        copies, size = drawn
        if message_id is None:
            self.count += 1
            message_id = f"m{self.count}"
        made = []
        for place, (subscription, ttl, overlay, own, failed) in enumerate(copies):
            record = b"%s of its own, %d" % (message_id.encode(), place) if own else None
            reason = "FilterException" if failed else None
            queue = self.subscriptions[subscription] + failed
            made.append(Copy(queue, message_id, None, ttl, overlay, record, reason))
        return Publication(Incoming(message_id.encode() + b"\xff" * size, message_id), made)

    # What is published.

    @rule(
        units=st.lists(st.lists(PUBLICATION, min_size=1, max_size=2), min_size=1, max_size=3),
        takes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=3),
        send=st.booleans(),
    )
    def publish(self, units, takes, send):
        command = Publish(queue=TOPIC, units=[[self.publication(drawn) for drawn in unit] for unit in units])
        acquires = [
            Acquire(
                queue=self.subscriptions[place],
                limit=limit,
                mode=ReceiveMode.RECEIVE_AND_DELETE if remove else ReceiveMode.PEEK_LOCK,
                owner=1,
            )
            for place, limit, remove in takes
        ]
        sends = [Send(queue=self.subscriptions[0], units=[[Incoming(b"plain", "plain")]])] if send else []
        before = {queue: set(model.available()) for queue, model in self.models.items()}
        self.bus.commit(command, *acquires, *sends)
        for sent in sends:
            self.check_send(sent)
        for unit, result in zip(command.units, command.result, strict=True):
            self.check_unit(unit, result)
        for acquire in acquires:
            self.check_acquire(acquire, before[acquire.queue])

    @rule(delay=st.integers(-1, 20_000))
    def schedule(self, delay):
        publication = self.publication(([], 5))
        message = publication.message._replace(due_at_ms=self.bus.now + delay)
        command = Publish(queue=TOPIC, units=[[publication._replace(message=message)]])
        self.bus.commit(command)
        due = max(message.due_at_ms, self.bus.now)
        held = Held(message.message_id, len(message.record), SCHEDULED, due=due)
        held.record, held.body = message.record, self.new_body()
        assert command.result == [[self.topic.add(held)]]

    @rule(drawn=st.lists(COPY, max_size=6), again=st.booleans())
    def publish_what_is_due(self, drawn, again):
        for delivered in self.bus.receive(queue=TOPIC):
            seq = delivered.sequence_number
            assert self.topic.main[seq].record == delivered.record
            publication = self.publication((drawn, 5), delivered.message_id)
            count = 2 if again else 1
            moves = [transfer(delivered, TOPIC)] * count
            command = Publish(queue=TOPIC, units=[[publication]] * count, transfers=moves)
            self.bus.commit(command)
            if self.has_room([publication]):
                if again:
                    assert command.result[1].fault is Fault.LOCK_LOST
                self.check_unit([publication], command.result[0], seq)
                del self.topic.main[seq]
            else:
                assert {error.fault for error in command.result} == {Fault.QUOTA_EXCEEDED}
                self.bus.settle(Outcome.RELEASE, delivered, queue=TOPIC)

    # What becomes of the copies.

    @rule(place=st.integers(0, 3), limit=st.integers(1, 5), remove=st.booleans())
    def acquire(self, place, limit, remove):
        mode = ReceiveMode.RECEIVE_AND_DELETE if remove else ReceiveMode.PEEK_LOCK
        command = Acquire(queue=self.subscriptions[place], limit=limit, mode=mode, owner=1)
        before = set(self.models[command.queue].available())
        self.bus.commit(command)
        self.check_acquire(command, before)

    @rule(data=st.data())
    def settle(self, data):
        if not self.tokens:
            return
        chosen = data.draw(
            st.lists(st.tuples(st.sampled_from(self.tokens), st.sampled_from(OUTCOMES)), min_size=1, max_size=4)
        )
        commands = [Settle(queue=queue, settlements=[Settlement(token, way)]) for (queue, token), way in chosen]
        self.bus.commit(*commands)
        for command in commands:
            [settlement] = command.settlements
            self.check_settle(self.models.get(command.queue), command, settlement)

    @rule(place=st.integers(0, 3), limit=st.integers(1, 3))
    def empty_the_dead_letter_queue(self, place, limit):
        queue = self.subscriptions[place]
        taken = self.bus.receive(limit, queue=queue + 1, mode=ReceiveMode.RECEIVE_AND_DELETE)
        dead = self.models[queue].dead
        assert [(m.sequence_number, m.record) for m in taken] == [(seq, dead[seq].record) for seq in sorted(dead)][
            :limit
        ]
        for message in taken:
            del dead[message.sequence_number]

    @rule(place=st.integers(0, 3), limit=st.integers(1, 5))
    def purge(self, place, limit):
        queue = self.subscriptions[place]
        self.bus.now += 1
        self.bus.do(DeleteBatch(queue=queue, limit=limit, before_ms=self.bus.now))
        model = self.models[queue]
        for seq in model.available()[:limit]:
            del model.main[seq]

    @rule()
    def break_off(self):
        self.bus.do(DropLocks(queue=0, owner=1))
        self.unlock(lambda message: True)

    @rule(place=st.integers(0, 3))
    def delete_a_subscription(self, place):
        queue = self.subscriptions.pop(place)
        self.bus.do(Drop(queue=queue))
        del self.models[queue]
        self.bus.sweep()
        self.pass_time()
        self.subscribe()

    @rule(duration=st.sampled_from([1, 5_000, LOCK_MS]))
    def wait(self, duration):
        self.bus.now += duration
        self.bus.sweep()
        self.pass_time()

    @rule(crash=st.booleans())
    def restart(self, crash):
        if crash:
            self.bus.crash()
        else:
            self.bus.restart()
        self.unlock(lambda message: True)

    # What the model expects.

    def pass_time(self):
        now = self.bus.now
        self.unlock(lambda message: message.until <= now)
        for model in self.models.values():
            model.expire(now)
        self.topic.activate(now)

    def unlock(self, fallen):
        for model in self.models.values():
            model.drop(self.bus.now, fallen)

    def has_room(self, unit):
        demand: dict[int, int] = {}
        for message, copies in unit:
            for copy in copies:
                queue = copy.queue & ~3
                demand[queue] = demand.get(queue, 0) + len(copy.record or message.record)
        return all(size + self.held_bytes(queue) <= ROOM for queue, size in demand.items())

    def held_bytes(self, queue):
        model = self.models[queue]
        return sum(message.size for message in [*model.main.values(), *model.dead.values()])

    def check_unit(self, unit, result, number=0):
        if not self.has_room(unit):
            assert result.fault is Fault.QUOTA_EXCEEDED
            return
        for message, copies in unit:
            shared = self.new_body()
            for copy in alike_together(copies):
                record = copy.record or message.record
                held = Held(copy.message_id, len(record), enqueued=self.bus.now)
                held.record, held.overlay = record, copy.overlay
                held.body = self.new_body() if copy.record else shared
                model = self.models[copy.queue & ~3]
                if copy.queue & 3:
                    model.dead[model.next_seq] = held
                    model.next_seq += 1
                else:
                    held.expires = None if copy.ttl_ms is None else self.bus.now + copy.ttl_ms
                    model.add(held)
        if number:
            assert result == [number]
        else:
            assert result == list(range(self.topic.next_seq, self.topic.next_seq + len(unit)))
            self.topic.next_seq += len(unit)

    def check_send(self, command):
        model = self.models[command.queue]
        if self.held_bytes(command.queue) + 5 > ROOM:
            assert command.result[0].fault is Fault.QUOTA_EXCEEDED
            return
        held = Held("plain", 5, enqueued=self.bus.now)
        held.record, held.body = b"plain", self.new_body()
        assert command.result == [[model.add(held)]]

    def check_acquire(self, command, before):
        model = self.models[command.queue]
        available = model.available()[: command.limit]
        got = [m.sequence_number for m in command.result]
        assert got == available[: len(got)]
        # What the same commit has stored may wait for the next acquire; everything older must not.
        assert all(seq not in before for seq in available[len(got) :])
        for delivered in command.result:
            message = model.main[delivered.sequence_number]
            assert (delivered.record, delivered.overlay) == (message.record, message.overlay)
            assert delivered.delivery_count == message.count
            if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
                del model.main[delivered.sequence_number]
            else:
                message.until, message.owner, message.token = delivered.locked_until_ms, 1, delivered.token
                self.tokens.append((command.queue, delivered.token))

    def check_settle(self, model, command, settlement):
        if model is None:
            assert command.error.fault in (Fault.ENTITY_DELETED, Fault.ENTITY_NOT_FOUND)
            return
        seq = model.locked(settlement.token)
        if seq is None:
            assert command.result[0].fault is Fault.LOCK_LOST
            return
        assert command.result == [None]
        message = model.main[seq]
        message.until = None
        if settlement.outcome is Outcome.COMPLETE:
            del model.main[seq]
        elif settlement.outcome is Outcome.DEFER:
            message.state = DEFERRED
        elif settlement.outcome is Outcome.DEAD_LETTER:
            message.state = ACTIVE
            model.dead[seq] = model.main.pop(seq)
        else:
            model.unlock(seq, settlement.outcome is Outcome.ABANDON, self.bus.now)

    @invariant()
    def the_store_holds_what_the_model_holds(self):
        queues = [(TOPIC, self.topic.main)]
        for queue, model in self.models.items():
            queues += [(queue, model.main), (queue + 1, model.dead)]
            assert self.bus.count(queue).size_bytes == self.held_bytes(queue)
        for queue, expected in queues:
            held = [(m.sequence_number, m.record, m.state, m.delivery_count) for m in self.bus.peek(queue=queue)]
            assert held == [(seq, m.record, m.state, m.count) for seq, m in sorted(expected.items())]
        in_use = {message.body for _, messages in queues for message in messages.values()}
        assert self.bus.factory.bodies(self.bus.store) == len(in_use)


def test_any_history_of_a_topic_agrees_with_the_model(open_bus):
    machine = type("TopicHistory", (TopicHistory,), {"open_bus": staticmethod(open_bus)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=min(25, open_bus.examples),
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
            deadline=None,
        ),
    )
