"""Session windows both ways (AMQP 1.0, section 2.5.6)."""

from __future__ import annotations

from typing import Any

from twinbus.amqp import LinkRole, Settings
from twinbus.amqp.events import Deliveries, SessionEnded, WindowOpened
from twinbus.amqp.performatives import Detach, Flow, Transfer


def deliveries(events: list[Any]) -> int:
    return sum(len(event.items) for event in events if isinstance(event, Deliveries))


def flow(seen: int | None, window: int, **fields: Any) -> Flow:
    return Flow(next_incoming_id=seen, incoming_window=window, next_outgoing_id=0, outgoing_window=9, **fields)


def test_what_the_peers_window_does_not_take_waits_until_it_opens(make_peer: Any) -> None:
    peer = make_peer()
    peer.open(max_frame_size=512)
    peer.begin(incoming_window=2)
    link = peer.attach(LinkRole.RECEIVER)
    ids = [link.transfer(b"%d" % n, bytes(700), False) for n in range(3)]
    assert ids == [0, 1, 2]
    assert len(peer.heard()) == 2
    peer.say(flow(1, 2))
    assert len(peer.heard()) == 1
    peer.say(flow(3, 1))
    [(_, transfer, payload)] = peer.heard()
    assert (transfer.delivery_id, len(payload) > 0) == (None, True)
    peer.say(flow(None, 5))
    [(_, transfer, _)] = peer.heard()
    assert transfer.delivery_id == 2
    peer.say(flow(5, 100))
    assert [frame[1].more for frame in peer.heard()] == [False]
    link.transfer(b"x", b"y", True)
    assert len(peer.heard()) == 1
    assert link.session.remote_window == 98


def test_who_wants_the_window_is_told_once_when_it_takes_more_than_what_waits(make_peer: Any) -> None:
    peer = make_peer()
    peer.open()
    peer.begin(incoming_window=0)
    link = peer.attach(LinkRole.RECEIVER)
    link.transfer(b"1", b"", True)
    session = link.session
    assert session.sendable_frames == -1
    session.wants_window = True
    assert not any(isinstance(event, WindowOpened) for event in peer.say(flow(0, 1)))
    assert session.sendable_frames == 0
    assert [event.session for event in peer.say(flow(1, 1)) if isinstance(event, WindowOpened)] == [session]
    assert not any(isinstance(event, WindowOpened) for event in peer.say(flow(1, 5)))


def test_a_small_delivery_does_not_overtake_one_that_waits(make_peer: Any) -> None:
    peer = make_peer()
    peer.open()
    peer.begin(incoming_window=0)
    link = peer.attach(LinkRole.RECEIVER)
    for number in range(3):
        link.transfer(b"%d" % number, b"", True)
    link.credit = 5
    link.drained()
    link.detach()
    assert peer.heard() == []
    peer.say(flow(0, 2))
    assert [frame[1].delivery_id for frame in peer.heard()] == [0, 1]
    peer.say(flow(2, 1))
    last, drained, detach = peer.performatives()
    assert (last.delivery_id, drained.drain, detach) == (2, True, Detach(0, True))


def test_a_peer_that_claims_to_have_seen_more_frames_than_there_were_is_forgiven(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    peer.say(flow(1000, 7))
    assert link.session.remote_window == 7


def test_frame_numbers_wrap_around(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    session = link.session
    session.next_outgoing_id = 2**32 - 1
    session.next_delivery_id = 2**32 - 1
    assert [link.transfer(b"t", b"", False) for _ in range(3)] == [2**32 - 1, 0, 1]
    peer.say(flow(0, 10))
    assert session.remote_window == 8
    peer.heard()
    session.send_flow()
    [answer] = peer.performatives()
    assert answer.next_outgoing_id == 2


def test_our_window_opens_again_when_half_of_it_is_used(make_peer: Any) -> None:
    peer = make_peer(Settings(sasl_required=False, incoming_window=10))
    peer.open()
    peer.begin()
    session = peer.attach(LinkRole.SENDER).session
    for number in range(4):
        peer.say(Transfer(0, number, b"t", 0, True))
    assert peer.heard() == []
    peer.say(Transfer(0, 4, b"t", 0, True))
    [answer] = peer.performatives()
    assert (answer.next_incoming_id, answer.incoming_window, answer.handle) == (5, 10, None)
    assert session.window_left == 10


def test_a_held_window_stays_used_until_it_is_let_go(make_peer: Any) -> None:
    peer = make_peer(Settings(sasl_required=False, incoming_window=10))
    peer.open()
    peer.begin()
    link = peer.attach(LinkRole.SENDER)
    session = link.session
    session.hold = True
    for number in range(12):
        assert deliveries(peer.say(Transfer(0, number, b"t", 0, True))) == 1
    assert peer.heard() == []
    assert session.window_left == -2
    link.grant(5)
    [answer] = peer.performatives()
    assert (answer.incoming_window, answer.link_credit) == (0, 5)
    session.hold = True
    session.hold = False
    [answer] = peer.performatives()
    assert (answer.incoming_window, answer.next_incoming_id) == (10, 12)
    session.hold = True
    session.hold = False
    assert peer.heard() == []


def test_a_window_that_is_overrun_by_far_ends_the_session(make_peer: Any) -> None:
    peer = make_peer(Settings(sasl_required=False, incoming_window=4, window_overrun=3))
    peer.open()
    peer.begin()
    session = peer.attach(LinkRole.SENDER).session
    session.hold = True
    for number in range(7):
        assert peer.say(Transfer(0, 300 + number, b"t", 0, True))
    events = peer.say(Transfer(0, 400, b"t", 0, True))
    assert isinstance(events[0], SessionEnded)
    assert events[0].error.condition == "amqp:session:window-violation"  # type: ignore[union-attr]
    assert peer.server.opened


def test_two_ends_with_small_windows_move_many_deliveries(make_pair: Any) -> None:
    small = Settings(incoming_window=3, max_frame_size=600)
    pair = make_pair(small, small)
    to_server, _ = pair.link(LinkRole.SENDER, credit=200)
    to_client, other = pair.link(LinkRole.RECEIVER, to_server.session, credit=200, name="back")
    for number in range(50):
        to_server.transfer(b"%d" % number, bytes(number * 30), False)
        other.transfer(b"%d" % number, bytes(number * 30), False)
    pair.run()
    for events in (pair.server_events, pair.client_events):
        sizes = [len(item[4]) for event in events if isinstance(event, Deliveries) for item in event.items]
        assert sizes == [number * 30 for number in range(50)]
    assert to_client.credit_left == 150


def test_a_flow_that_asks_for_an_echo_gets_one(peer: Any) -> None:
    peer.say(flow(0, 5, echo=True))
    [answer] = peer.performatives()
    assert (answer.handle, answer.incoming_window) == (None, 2048)
    peer.attach(LinkRole.RECEIVER, 3)
    peer.say(flow(0, 5, echo=True, handle=3, link_credit=8, delivery_count=0))
    [answer] = peer.performatives()
    assert (answer.handle, answer.link_credit, answer.delivery_count) == (0, 8, 0)
    peer.say(flow(0, 5, echo=True, drain=True, handle=3, link_credit=8, delivery_count=0))
    assert peer.heard() == []


def test_flows_that_a_sender_emits_change_nothing_but_what_is_available(peer: Any) -> None:
    link = peer.attach(LinkRole.SENDER)
    link.grant(100)
    peer.heard()
    peer.say(flow(0, 5, handle=0, link_credit=10_000, delivery_count=50, available=3))
    assert (link.credit, link.delivery_count, link.available) == (100, 0, 3)
    assert peer.heard() == []


def test_credit_that_went_below_zero_is_no_credit(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    peer.say(flow(0, 50, handle=0, link_credit=2, delivery_count=0))
    for _ in range(4):
        link.transfer(b"t", b"", True)
    peer.say(flow(0, 50, handle=0, link_credit=2, delivery_count=0))
    assert (link.credit, link.sendable) == (0, 0)
