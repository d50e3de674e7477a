"""Dispositions both ways, settle modes first and second (AMQP 1.0, sections 2.6.12 and 2.7.6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twinbus.amqp import LinkRole
from twinbus.amqp.codec import encode, encode_list
from twinbus.amqp.composite import encode_any
from twinbus.amqp.events import SessionEnded, Settlements
from twinbus.amqp.frames import amqp_frame
from twinbus.amqp.performatives import ACCEPTED, RELEASED, Disposition, Error, Modified, Received, Rejected
from twinbus.amqp.types import Described, Symbol, UInt, ULong

DEAD_LETTER = Rejected(Error("com.microsoft:dead-letter", "why", {Symbol("DeadLetterReason"): "because"}))
OUTCOMES = [ACCEPTED, RELEASED, DEAD_LETTER, Modified(True, False, {Symbol("a"): 1}), Received(1, 2), None]


@pytest.mark.parametrize("state", OUTCOMES)
def test_mode_first_the_receiver_settles_at_once(pair: Any, state: Any) -> None:
    link, other = pair.link(LinkRole.RECEIVER, credit=10)
    ids = [other.transfer(b"%d" % n, b"x", False) for n in range(3)]
    pair.run()
    link.session.settle(ids, state, LinkRole.RECEIVER)
    pair.run()
    assert pair.all(Settlements) == [Settlements(other, [(n, b"%d" % n, state, True) for n in ids])]
    assert not other.session.outgoing
    assert not link.session.incoming


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED, DEAD_LETTER, Modified(True, True)])
def test_mode_second_the_receiver_waits_for_the_sender_to_settle(pair: Any, state: Any) -> None:
    link, other = pair.link(LinkRole.RECEIVER, credit=10, rcv_settle_mode=1)
    ids = [other.transfer(b"%d" % n, b"x", False) for n in range(3)]
    pair.run()
    link.session.settle(ids, state, LinkRole.RECEIVER, settled=False)
    pair.run()
    assert pair.all(Settlements) == [Settlements(other, [(n, b"%d" % n, state, False) for n in ids])]
    assert set(other.session.outgoing) == set(link.session.incoming) == set(ids)
    other.session.settle(ids, state, LinkRole.SENDER)
    pair.run()
    assert pair.at_client(Settlements) == [Settlements(link, [(n, b"%d" % n, state, True) for n in ids])]
    assert not other.session.outgoing
    assert not link.session.incoming


def test_a_sender_learns_the_outcome_of_what_it_sent(pair: Any) -> None:
    link, other = pair.link(LinkRole.SENDER, credit=10)
    ids = [link.transfer(b"%d" % n, b"x", False) for n in range(4)]
    settled_already = link.transfer(b"s", b"x", True)
    pair.run()
    other.session.settle([*ids[:2], settled_already], ACCEPTED, LinkRole.RECEIVER)
    other.session.settle([ids[3], ids[2]], DEAD_LETTER, LinkRole.RECEIVER)
    pair.run()
    outcomes = [item for event in pair.at_client(Settlements) for item in event.items]
    assert outcomes == [
        (0, b"0", ACCEPTED, True),
        (1, b"1", ACCEPTED, True),
        (2, b"2", DEAD_LETTER, True),
        (3, b"3", DEAD_LETTER, True),
    ]
    assert all(item[2] is ACCEPTED for item in outcomes[:2])


def test_neighbouring_ids_share_a_disposition_and_others_do_not(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    for _ in range(10):
        link.transfer(b"t", b"", False)
    peer.heard()
    link.session.settle([7, 1, 0, 2, 4, 5, 99, 1], ACCEPTED, LinkRole.SENDER)
    assert peer.performatives() == [
        Disposition(False, 0, 2, True, ACCEPTED),
        Disposition(False, 4, 5, True, ACCEPTED),
        Disposition(False, 7, 7, True, ACCEPTED),
    ]
    link.session.settle([0, 1, 99], ACCEPTED, LinkRole.SENDER)
    assert peer.heard() == []
    link.session.settle([3, 3, 6], RELEASED, LinkRole.SENDER, settled=False)
    assert [(item.first, item.last, item.settled) for item in peer.performatives()] == [(3, 3, False), (6, 6, False)]
    assert set(link.session.outgoing) == {3, 6, 8, 9}


def test_a_disposition_may_span_links_and_ids_that_nobody_knows(peer: Any) -> None:
    first, second = peer.attach(LinkRole.RECEIVER, 0), peer.attach(LinkRole.RECEIVER, 1)
    for link in (first, first, second, first):
        link.transfer(b"t", b"", False)
    first.transfer(b"t", b"", True)
    events = peer.say(Disposition(True, 1, 200, True, ACCEPTED))
    assert [(event.link, [item[0] for item in event.items]) for event in events] == [
        (first, [1]),
        (second, [2]),
        (first, [3]),
    ]
    assert set(first.session.outgoing) == {0}
    assert peer.say(Disposition(True, 1, 200, True, ACCEPTED)) == []


def test_the_largest_range_costs_no_more_than_what_is_unsettled(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    for _ in range(5):
        link.transfer(b"t", b"", False)
    [event] = peer.say(Disposition(True, 0, 2**31 - 1, True, ACCEPTED))
    assert [item[0] for item in event.items] == [0, 1, 2, 3, 4]


def test_a_range_may_wrap_around(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    link.session.next_delivery_id = 2**32 - 2
    for _ in range(4):
        link.transfer(b"t", b"", False)
    [event] = peer.say(Disposition(True, 2**32 - 1, 1, True, ACCEPTED))
    assert [item[0] for item in event.items] == [2**32 - 1, 0, 1]


def test_a_range_that_ends_before_it_begins_ends_the_session(peer: Any) -> None:
    [ended] = peer.say(Disposition(True, 5, 4, True, ACCEPTED))
    assert isinstance(ended, SessionEnded)
    assert ended.error.condition == "amqp:invalid-field"  # type: ignore[union-attr]
    assert peer.server.opened


def test_dispositions_one_after_the_other_come_as_one_event(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    for _ in range(3):
        link.transfer(b"t", b"", False)
    [event] = peer.say(*(Disposition(True, n, None, True, ACCEPTED) for n in range(3)))
    assert [item[0] for item in event.items] == [0, 1, 2]


def test_an_unsettled_disposition_leaves_the_delivery_unsettled(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    link.transfer(b"t", b"", False)
    for _ in range(2):
        [event] = peer.say(Disposition(True, 0, None, False, RELEASED))
        assert event.items == [(0, b"t", RELEASED, False)]
        assert event.items[0][2] is RELEASED
    assert 0 in link.session.outgoing


def test_a_state_of_a_kind_that_is_not_ours_is_passed_on(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    link.transfer(b"t", b"", False)
    transactional = Described(ULong(0x34), [b"tx", Described(ULong(0x24), [])])
    [event] = peer.say(Disposition(True, 0, None, False, transactional))
    assert event.items == [(0, b"t", transactional, False)]


def test_what_is_unsettled_ends_with_its_link(pair: Any) -> None:
    session, other_session = pair.session()
    link, other = pair.link(LinkRole.RECEIVER, session, credit=5, name="a")
    keeps, keeps_other = pair.link(LinkRole.RECEIVER, session, credit=5, name="b")
    gone = other.transfer(b"t", b"x", False)
    kept = keeps_other.transfer(b"u", b"x", False)
    pair.run()
    link.detach()
    pair.run()
    assert set(other_session.outgoing) == {kept}
    session.settle([gone, kept], ACCEPTED, LinkRole.RECEIVER)
    pair.run()
    assert pair.all(Settlements) == [Settlements(keeps_other, [(kept, b"u", ACCEPTED, True)])]
    assert keeps.attached


states = st.sampled_from([*OUTCOMES, Described(ULong(0x34), [b"tx"])])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.booleans(),
    st.integers(0, 20),
    st.one_of(st.none(), st.integers(0, 20)),
    st.sampled_from([None, True, False]),
    states,
    st.sampled_from([None, True, False]),
    st.integers(2, 6),
)
def test_the_quick_way_to_read_a_disposition_agrees_with_the_general_one(
    make_peer: Any, role: bool, first: int, last: int | None, settled: Any, state: Any, batchable: Any, count: int
) -> None:
    numbers = encode(UInt(first)), encode(None if last is None else UInt(last))
    parts = [encode(role), *numbers, encode(settled), encode_any(state), encode(batchable)][:count]
    body = b"".join(parts)
    list32 = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(parts).to_bytes(4, "big") + body
    outcomes = []
    for field_list in (encode_list(parts), list32):
        peer = make_peer()
        peer.open()
        peer.begin()
        link = peer.attach(LinkRole.RECEIVER)
        for _ in range(10):
            link.transfer(b"t", b"", False)
        events = peer.send(amqp_frame(0, b"\x00\x53\x15" + field_list))
        seen = [(type(event), getattr(event, "items", None), getattr(event, "error", None)) for event in events]
        outcomes.append((seen, list(link.session.outgoing)))
    assert outcomes[0] == outcomes[1]
