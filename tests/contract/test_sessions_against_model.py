"""Random histories of sessions against a small model: one holder, strict order, nothing lost."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Outcome
from twinbus.store.commands import ReleaseSession, RenewSession

LOCK_MS = 30_000
NAMES = st.sampled_from("abc")
HOLDERS = st.integers(1, 3)


@dataclass
class Message:
    message_id: str
    session: str
    count: int = 0
    token: bytes | None = None


@dataclass
class Hold:
    holder: int
    until: int


@dataclass
class Model:
    messages: dict[int, Message] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    next_seq: int = 1

    def free(self, session: str) -> list[int]:
        return [seq for seq, m in sorted(self.messages.items()) if m.session == session and m.token is None]

    def end(self, session: str, counted: bool) -> None:
        del self.holds[session]
        for message in self.messages.values():
            if message.session == session and message.token is not None:
                message.token = None
                message.count += counted


class Sessions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.bus = type(self).open_bus(self.folder)
        self.bus.create(requires_session=True, max_delivery_count=1_000, lock_duration_ms=LOCK_MS)
        self.model = Model()
        self.received: list = []

    def teardown(self) -> None:
        assert self.bus.told() == self.bus.resident(4)
        self.bus.close()
        shutil.rmtree(self.folder)

    @rule(names=st.lists(NAMES, min_size=1, max_size=5))
    def send(self, names):
        for name in names:
            seq = self.model.next_seq
            assert self.bus.send(f"m{seq}", session_id=name) == [seq]
            self.model.messages[seq] = Message(f"m{seq}", name)
            self.model.next_seq += 1

    @rule(name=NAMES, holder=HOLDERS)
    def accept(self, name, holder):
        hold = self.model.holds.get(name)
        if hold is not None and hold.holder != holder:
            with pytest.raises(BusError) as refused:
                self.bus.accept(name, holder=holder, owner=holder)
            assert refused.value.fault is Fault.SESSION_HELD
            return
        grant = self.bus.accept(name, holder=holder, owner=holder)
        assert grant == (name, self.bus.now + LOCK_MS)
        self.model.holds[name] = Hold(holder, self.bus.now + LOCK_MS)

    @rule(holder=HOLDERS)
    def accept_next(self, holder):
        free = [(seq, m.session) for seq, m in self.model.messages.items() if m.session not in self.model.holds]
        grant = self.bus.accept(None, holder=holder, owner=holder)
        if not free:
            assert grant is None
            return
        assert grant.session_id == min(free)[1]
        self.model.holds[grant.session_id] = Hold(holder, self.bus.now + LOCK_MS)

    @precondition(lambda self: self.model.holds)
    @rule(data=st.data(), limit=st.integers(1, 4))
    def receive(self, data, limit):
        name = data.draw(st.sampled_from(sorted(self.model.holds)))
        holder = self.model.holds[name].holder
        received = self.bus.receive(limit, session=name, holder=holder, owner=holder)
        assert [m.sequence_number for m in received] == self.model.free(name)[:limit]
        for delivered in received:
            message = self.model.messages[delivered.sequence_number]
            assert (delivered.message_id, delivered.delivery_count) == (message.message_id, message.count)
            message.token = delivered.token
        self.received += received

    @precondition(lambda self: self.received)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.COMPLETE, Outcome.ABANDON, Outcome.RELEASE]))
    def settle(self, data, outcome):
        delivered = data.draw(st.sampled_from(self.received))
        message = self.model.messages.get(delivered.sequence_number)
        if message is None or message.token != delivered.token:
            with pytest.raises(BusError) as refused:
                self.bus.settle(outcome, delivered)
            assert refused.value.fault is Fault.LOCK_LOST
            return
        self.bus.settle(outcome, delivered)
        message.token = None
        message.count += outcome is Outcome.ABANDON
        if outcome is Outcome.COMPLETE:
            del self.model.messages[delivered.sequence_number]

    @rule(name=NAMES, holder=HOLDERS)
    def release(self, name, holder):
        self.bus.do(ReleaseSession(queue=4, session=name, holder=holder))
        if name in self.model.holds and self.model.holds[name].holder == holder:
            self.model.end(name, counted=False)

    @precondition(lambda self: self.model.holds)
    @rule(data=st.data())
    def renew(self, data):
        name = data.draw(st.sampled_from(sorted(self.model.holds)))
        until = self.bus.do(RenewSession(queue=4, session=name, holder=self.model.holds[name].holder))
        self.model.holds[name].until = until
        assert until == self.bus.now + LOCK_MS

    @rule(owner=HOLDERS)
    def break_off(self, owner):
        self.bus.drop_locks(owner)
        for name in [name for name, hold in self.model.holds.items() if hold.holder == owner]:
            self.model.end(name, counted=True)

    @rule(duration=st.sampled_from([1, 10_000, LOCK_MS]))
    def wait(self, duration):
        self.bus.pass_ms(duration)
        for name in [name for name, hold in self.model.holds.items() if hold.until <= self.bus.now]:
            self.model.end(name, counted=True)

    @rule()
    def crash(self):
        self.bus.crash()
        for name in list(self.model.holds):
            self.model.end(name, counted=True)

    @invariant()
    def the_store_holds_what_the_model_holds(self):
        held = [(m.sequence_number, m.message_id, m.session_id, m.delivery_count) for m in self.bus.peek()]
        assert held == [(seq, m.message_id, m.session, m.count) for seq, m in sorted(self.model.messages.items())]


def test_any_history_of_sessions_agrees_with_the_model(open_bus):
    machine = type("Sessions", (Sessions,), {"open_bus": staticmethod(open_bus)})
    chosen = settings(
        max_examples=open_bus.examples, stateful_step_count=40, suppress_health_check=list(HealthCheck), deadline=None
    )
    run_state_machine_as_test(machine, settings=chosen)
