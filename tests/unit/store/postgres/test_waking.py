"""What one gateway tells the others, and what they make of it."""

from __future__ import annotations

from twinbus.store.commands import Hints
from twinbus.store.postgres.waking import LARGEST_PAYLOAD, hints_of, payload_of

ONE, OTHER, THIRD = 7, 8, 9


def test_hints_come_out_as_they_went_in_except_at_their_own_gateway():
    hints = Hints({4, 9}, {4: {"a", "é\0"}}, [])
    payload = payload_of(ONE, hints)
    assert hints_of(payload, OTHER) == hints
    assert hints_of(payload, ONE) == Hints()


def test_a_lost_session_is_told_to_its_own_gateway_by_the_number_it_knows():
    payload = payload_of(ONE, Hints(lost_sessions=[(4, "s", OTHER << 32 | 5), (4, "t", 6)]))
    assert hints_of(payload, OTHER).lost_sessions == [(4, "s", 5)]
    assert hints_of(payload, THIRD).lost_sessions == []


def test_nothing_to_tell_is_not_told():
    assert payload_of(ONE, Hints()) is None
    assert payload_of(ONE, Hints(lost_sessions=[(4, "mine", 6)])) is None


def test_too_many_sessions_are_left_out():
    hints = Hints({4}, {4: {f"session {number}" for number in range(2_000)}})
    payload = payload_of(ONE, hints)
    assert len(payload) <= LARGEST_PAYLOAD
    assert hints_of(payload, OTHER) == Hints({4})


def test_and_too_many_queues_are_left_to_the_poll():
    assert payload_of(ONE, Hints(set(range(4, 40_000, 4)))) is None
