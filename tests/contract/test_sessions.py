"""Sessions: one holder, strict order, state, and what the end of a hold does."""

from __future__ import annotations

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Outcome
from twinbus.store.commands import (
    Configure,
    GetSessionState,
    ListSessions,
    QueueSettings,
    ReleaseSession,
    Renew,
    RenewSession,
    SetSessionState,
)


def ids(messages):
    return [message.message_id for message in messages]


def fault_of(action, *arguments, **options):
    with pytest.raises(BusError) as refused:
        action(*arguments, **options)
    return refused.value.fault


def set_state(bus, session, state):
    bus.do(SetSessionState(queue=4, session=session, state=state))


def get_state(bus, session):
    return bus.do(GetSessionState(queue=4, session=session))


def listed(bus, after=None, skip=0, limit=100):
    return bus.do(ListSessions(queue=4, updated_after_ms=after, skip=skip, limit=limit))


class TestAccept:
    def test_a_named_session_is_locked_for_the_lock_duration(self, sessions):
        grant = sessions.accept("s")
        assert (grant.session_id, grant.locked_until_ms) == ("s", sessions.now + 30_000)

    def test_a_held_session_is_refused_to_others_and_renewed_for_its_holder(self, sessions):
        sessions.accept("s", holder=1)
        assert fault_of(sessions.accept, "s", holder=2) is Fault.SESSION_HELD
        sessions.pass_ms(1_000)
        assert sessions.accept("s", holder=1).locked_until_ms == sessions.now + 30_000

    def test_next_is_the_free_session_whose_first_message_is_oldest(self, sessions):
        for session in ("b", "a", "b", "c"):
            sessions.send(session, session_id=session)
        assert [sessions.accept(None, holder=n).session_id for n in (1, 2, 3)] == ["b", "a", "c"]
        assert sessions.accept(None, holder=4) is None

    def test_next_needs_an_available_message(self, sessions):
        sessions.accept("empty")
        set_state(sessions, "empty", b"state")
        sessions.do(ReleaseSession(queue=4, session="empty", holder=1))
        sessions.send("later", session_id="scheduled", due_at_ms=sessions.now + 1_000)
        sessions.send("gone", session_id="deferred")
        sessions.accept("deferred", holder=2)
        sessions.settle(Outcome.DEFER, *sessions.receive(session="deferred", holder=2))
        sessions.do(ReleaseSession(queue=4, session="deferred", holder=2))
        assert sessions.accept(None, holder=3) is None
        sessions.pass_ms(1_000)
        assert sessions.hints.sessions == {4: {"scheduled"}}
        assert sessions.accept(None, holder=3).session_id == "scheduled"

    def test_the_end_of_one_hold_lets_the_next_receiver_in(self, sessions):
        sessions.send("a", session_id="s")
        sessions.accept("s", holder=1)
        sessions.do(ReleaseSession(queue=4, session="s", holder=1))
        assert sessions.hints.sessions == {4: {"s"}}
        assert sessions.accept(None, holder=2).session_id == "s"

    def test_only_its_holder_can_release_a_session(self, sessions):
        sessions.accept("s", holder=1)
        sessions.do(ReleaseSession(queue=4, session="s", holder=2))
        assert fault_of(sessions.accept, "s", holder=2) is Fault.SESSION_HELD

    def test_an_entity_without_sessions_offers_none(self, bus):
        assert fault_of(bus.accept, "s") is Fault.NOT_ALLOWED


class TestMessages:
    def test_a_message_without_session_id_is_refused(self, sessions):
        assert fault_of(sessions.send, "a") is Fault.NOT_ALLOWED

    def test_a_holder_gets_the_messages_of_its_session_in_order(self, sessions):
        for message_id in ("a1", "b1", "a2", "b2"):
            sessions.send(message_id, session_id=message_id[0])
        sessions.accept("a")
        received = sessions.receive(session="a", holder=1)
        assert [(m.message_id, m.session_id, m.locked_until_ms) for m in received] == [
            ("a1", "a", sessions.now + 30_000),
            ("a2", "a", sessions.now + 30_000),
        ]
        sessions.send("a3", session_id="a")
        sessions.send("b3", session_id="b")
        assert ids(sessions.receive(session="a", holder=1)) == ["a3"]
        assert sessions.receive(session="a", holder=1) == []

    def test_a_long_session_comes_out_in_order(self, sessions):
        sent = [f"m{n}" for n in range(700)]
        for start in range(0, 700, 100):
            sessions.send(*sent[start : start + 100], session_id="s")
            sessions.send("between", session_id="other")
        sessions.accept("s")
        received = []
        while batch := sessions.receive(60, session="s", holder=1):
            received += ids(batch)
        assert received == sent

    def test_nobody_else_gets_them(self, sessions):
        sessions.send("a", session_id="s")
        sessions.accept("s", holder=1)
        assert fault_of(sessions.receive, session="s", holder=2) is Fault.SESSION_LOCK_LOST
        assert fault_of(sessions.receive, session="t", holder=1) is Fault.SESSION_LOCK_LOST
        assert fault_of(sessions.receive) is Fault.NOT_ALLOWED

    def test_abandoned_messages_come_first_again(self, sessions):
        sessions.send("a", "b", session_id="s")
        sessions.accept("s")
        first, _ = sessions.receive(session="s", holder=1)
        sessions.settle(Outcome.ABANDON, first)
        assert [(m.message_id, m.delivery_count) for m in sessions.receive(session="s", holder=1)] == [("a", 1)]

    def test_the_dead_letter_queue_needs_no_session(self, sessions):
        sessions.send("a", session_id="s")
        sessions.accept("s")
        sessions.settle(Outcome.DEAD_LETTER, *sessions.receive(session="s", holder=1))
        [dead] = sessions.receive(queue=5)
        assert (dead.message_id, dead.session_id) == ("a", "s")

    def test_a_deferred_message_is_fetched_within_the_held_session(self, sessions):
        sessions.send("a", session_id="s")
        sessions.accept("s")
        sessions.settle(Outcome.DEFER, *sessions.receive(session="s", holder=1))
        sessions.accept("t", holder=2)
        assert fault_of(sessions.receive_deferred, 1, session="t") is Fault.MESSAGE_NOT_FOUND
        [deferred] = sessions.receive_deferred(1, session="s")
        sessions.complete(deferred)

    def test_peek_can_be_narrowed_to_a_session(self, sessions):
        for message_id in ("a1", "b1", "a2"):
            sessions.send(message_id, session_id=message_id[0])
        assert ids(sessions.peek(session="a")) == ["a1", "a2"]
        assert ids(sessions.peek()) == ["a1", "b1", "a2"]

    def test_a_plain_queue_keeps_session_ids_and_pays_no_heed(self, bus):
        bus.send("a", session_id="s")
        bus.send("b")
        assert [(m.message_id, m.session_id) for m in bus.receive()] == [("a", "s"), ("b", None)]


class TestEnd:
    @pytest.fixture
    def held(self, sessions):
        sessions.send("a", "b", session_id="s")
        sessions.accept("s", holder=7, owner=3)
        sessions.locked = sessions.receive(session="s", holder=7, owner=3)
        return sessions

    def again(self, bus):
        bus.accept("s", holder=8)
        return [(m.message_id, m.delivery_count) for m in bus.receive(session="s", holder=8)]

    def test_releasing_counts_no_delivery(self, held):
        held.do(ReleaseSession(queue=4, session="s", holder=7))
        assert held.hints.lost_sessions == []
        assert fault_of(held.complete, held.locked[0]) is Fault.LOCK_LOST
        assert self.again(held) == [("a", 0), ("b", 0)]

    def test_released_messages_are_not_counted_by_a_later_crash(self, held):
        held.do(ReleaseSession(queue=4, session="s", holder=7))
        held.crash()
        assert self.again(held) == [("a", 0), ("b", 0)]

    def test_expiry_counts_and_tells_the_holder(self, held):
        held.pass_ms(30_000)
        assert held.hints.lost_sessions == [(4, "s", 7)]
        assert held.hints.sessions == {4: {"s"}}
        assert self.again(held) == [("a", 1), ("b", 1)]

    def test_expiry_is_noticed_without_a_sweep(self, held):
        held.now += 30_000
        assert fault_of(held.receive, session="s", holder=7) is Fault.SESSION_LOCK_LOST
        assert fault_of(held.complete, held.locked[0]) is Fault.LOCK_LOST
        assert self.again(held) == [("a", 1), ("b", 1)]

    def test_a_broken_connection_counts_and_frees_the_session(self, held):
        assert held.drop_locks(owner=3) == 2
        assert held.hints.lost_sessions == [(4, "s", 7)]
        assert self.again(held) == [("a", 1), ("b", 1)]

    def test_a_change_of_settings_counts_and_frees_the_session(self, held):
        held.do(Configure(queue=4, settings=QueueSettings(requires_session=True)))
        assert held.hints.lost_sessions == [(4, "s", 7)]
        assert self.again(held) == [("a", 1), ("b", 1)]

    def test_a_crash_counts_and_frees_the_session(self, held):
        held.crash()
        assert self.again(held) == [("a", 1), ("b", 1)]

    def test_messages_are_locked_as_long_as_their_session(self, held):
        held.pass_ms(20_000)
        assert held.do(RenewSession(queue=4, session="s", holder=7)) == held.now + 30_000
        held.pass_ms(20_000)
        assert held.hints.lost_sessions == []
        held.complete(held.locked[0])

    def test_a_message_lock_in_a_session_is_not_renewed_by_itself(self, held):
        [refused] = held.do(Renew(queue=4, tokens=[held.locked[0].token]))
        assert refused.fault is Fault.NOT_ALLOWED

    def test_a_lost_session_cannot_be_renewed(self, held):
        assert fault_of(held.do, RenewSession(queue=4, session="s", holder=8)) is Fault.SESSION_LOCK_LOST
        assert held.do(RenewSession(queue=4, session="s")) == held.now + 30_000
        held.pass_ms(30_000)
        assert fault_of(held.do, RenewSession(queue=4, session="s", holder=7)) is Fault.SESSION_LOCK_LOST


class TestState:
    def test_is_none_until_set_and_again_when_cleared(self, sessions):
        sessions.accept("s")
        assert get_state(sessions, "s") is None
        set_state(sessions, "s", b"\x00one")
        assert get_state(sessions, "s") == b"\x00one"
        set_state(sessions, "s", b"")
        assert get_state(sessions, "s") == b""
        set_state(sessions, "s", None)
        assert get_state(sessions, "s") is None

    def test_needs_a_held_session_to_be_set_but_not_to_be_read(self, sessions):
        sessions.accept("s")
        set_state(sessions, "s", b"kept")
        sessions.pass_ms(30_000)
        assert fault_of(set_state, sessions, "s", b"late") is Fault.SESSION_LOCK_LOST
        assert get_state(sessions, "s") == b"kept"

    def test_outlives_its_messages_and_a_crash(self, sessions):
        sessions.send("a", session_id="s")
        sessions.accept("s")
        set_state(sessions, "s", b"kept")
        sessions.complete(*sessions.receive(session="s", holder=1))
        sessions.crash()
        assert get_state(sessions, "s") == b"kept"
        assert listed(sessions) == ["s"]


class TestList:
    def test_names_sessions_with_messages_or_state_in_order(self, sessions):
        sessions.send("1", session_id="m")
        sessions.send("2", session_id="b")
        sessions.accept("a")
        set_state(sessions, "a", b"x")
        assert listed(sessions) == ["a", "b", "m"]
        assert listed(sessions, skip=1, limit=1) == ["b"]

    def test_or_those_whose_state_changed_after_an_instant(self, sessions):
        for session in ("a", "b"):
            sessions.accept(session)
            set_state(sessions, session, b"x")
            sessions.pass_ms(1_000)
        assert listed(sessions, after=sessions.now - 1_500) == ["b"]
        assert listed(sessions, after=0) == ["a", "b"]
