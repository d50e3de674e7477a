"""Sessions and links: begin, attach, refuse, detach, end (AMQP 1.0, sections 2.5 and 2.6)."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp import LinkRole, NotAttachedError, Settings
from twinbus.amqp.composite import encode_composite
from twinbus.amqp.events import LinkAttached, LinkDetached, SessionBegun, SessionEnded
from twinbus.amqp.frames import amqp_frame
from twinbus.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Source,
    Target,
    Transfer,
)
from twinbus.amqp.types import Symbol

REFUSAL = Error("amqp:not-found", "no such queue", {})


def test_a_begin_is_answered_with_the_channel_it_came_on(peer: Any) -> None:
    [begun] = peer.say(Begin(next_outgoing_id=5, incoming_window=10, outgoing_window=10), channel=9)
    assert isinstance(begun, SessionBegun)
    [(channel, answer, _)] = peer.heard()
    assert channel == 1
    assert (answer.remote_channel, answer.incoming_window) == (9, 2048)
    assert begun.session.remote_window == 10


def test_an_attach_is_echoed_byte_for_byte(peer: Any) -> None:
    # A source with widths that our own encoder would not choose.
    source = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x28\xd0\x00\x00\x00\x0a\x00\x00\x00\x01\xb1\x00\x00\x00\x01q"
    target = b"\x00\x53\x29\xc0\x01\x00"
    body = b"\x00\x53\x12\xc0" + bytes([1 + 3 + 1 + 1 + 2 + 2 + len(source) + len(target), 7])
    body += b"\xa1\x01n\x43\x41\x50\x00\x50\x01" + source + target
    [attached] = peer.send(amqp_frame(0, body))
    assert attached.link.remote.source.address == "q"
    attached.link.accept(max_message_size=1000, properties={Symbol("k"): 1})
    sent = peer.server.take()
    assert source + target in sent
    assert sent.count(b"\xa1\x01n") == 1
    assert (attached.link.snd_settle_mode, attached.link.rcv_settle_mode) == (0, 1)


def test_both_ends_of_an_accepted_link_know_each_other(pair: Any) -> None:
    link, other = pair.link(LinkRole.SENDER, snd_settle_mode=0, rcv_settle_mode=1, properties={Symbol("p"): True})
    assert link.attached
    assert other.attached
    assert (link.role, other.role) == (LinkRole.SENDER, LinkRole.RECEIVER)
    assert (other.snd_settle_mode, other.rcv_settle_mode) == (0, 1)
    assert other.remote.properties == {Symbol("p"): True}
    assert link.remote.max_message_size == Settings().max_message_size
    assert link.remote.source == Source("queue")
    assert not link.refused
    assert pair.at_client(LinkAttached) == [LinkAttached(link)]


def test_the_accepting_end_may_change_what_it_answers(pair: Any) -> None:
    pair.accepts = False
    session, _ = pair.session()
    link = session.attach("n", LinkRole.RECEIVER, Source("q"), Target("t"))
    pair.run()
    assert not link.attached
    [attached] = pair.all(LinkAttached)
    granted = Source("q", filter={Symbol("com.microsoft:session-filter"): "s1"})
    attached.link.accept(source=granted, initial_delivery_count=7, snd_settle_mode=1, rcv_settle_mode=0)
    attached.link.accept()
    pair.run()
    assert link.attached
    assert link.remote.source == granted
    assert link.remote.target == Target("t")
    assert link.delivery_count == 7
    assert (link.snd_settle_mode, link.rcv_settle_mode) == (1, 0)


@pytest.mark.parametrize("role", list(LinkRole))
def test_a_refused_link_is_attached_without_our_terminus_and_then_closed(pair: Any, role: LinkRole) -> None:
    pair.accepts = False
    session, other = pair.session()
    link = session.attach("n", role, Source("q"), Target("q"))
    pair.run()
    pair.all(LinkAttached)[0].link.refuse(REFUSAL)
    pair.run()
    assert link.refused
    assert (link.remote.source is None, link.remote.target is None) == (
        role is LinkRole.RECEIVER,
        role is LinkRole.SENDER,
    )
    assert pair.at_client(LinkDetached) == [LinkDetached(link, True, REFUSAL)]
    assert [event.error for event in pair.all(LinkDetached)] == [None]
    assert not session.links
    assert not other.links
    with pytest.raises(NotAttachedError):
        link.transfer(b"", b"", True)


def test_a_coordinator_is_seen_by_the_caller_who_can_refuse_it(peer: Any) -> None:
    [attached] = peer.say(Attach("tx", 0, False, source=Source(), target=Coordinator(), initial_delivery_count=0))
    assert attached.link.remote.target == Coordinator()
    attached.link.refuse(Error("amqp:not-implemented"))
    assert [type(item) for item in peer.performatives()] == [Attach, Detach]


def test_a_link_that_the_peer_detaches_before_the_answer_is_answered_without_a_terminus(peer: Any) -> None:
    [attached] = peer.say(Attach("n", 3, True, source=Source("q"), target=Target("q")))
    [detached] = peer.say(Detach(3, True))
    assert detached == LinkDetached(attached.link, True, None)
    attach, detach = peer.performatives()
    assert (attach.source, detach) == (None, Detach(0, True))
    attached.link.accept()
    attached.link.refuse(REFUSAL)
    attached.link.detach(REFUSAL)
    attached.link.grant(5)
    attached.link.drained()
    assert peer.heard() == []


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered_in_kind_and_reported_once(pair: Any, closed: bool) -> None:
    link, other = pair.link(LinkRole.SENDER)
    link.detach(closed=closed)
    link.detach()
    pair.run()
    assert pair.all(LinkDetached) == [LinkDetached(other, closed, None)]
    assert pair.at_client(LinkDetached) == [LinkDetached(link, closed, None)]
    assert not link.session.links
    assert not other.session.links


def test_the_server_may_detach_a_link_with_an_error(pair: Any) -> None:
    link, other = pair.link(LinkRole.RECEIVER)
    other.detach(Error("amqp:link:detach-forced", "idle"))
    pair.run()
    assert pair.at_client(LinkDetached) == [LinkDetached(link, True, Error("amqp:link:detach-forced", "idle"))]
    assert pair.all(LinkDetached) == [LinkDetached(other, True, None)]


def test_a_detach_that_crosses_the_answer_to_an_attach_still_ends_the_link(pair: Any) -> None:
    session, other = pair.session()
    link = session.attach("n", LinkRole.SENDER, Source("q"), Target("q"))
    link.detach()
    pair.run()
    assert [event.link for event in pair.at_client(LinkDetached)] == [link]
    assert pair.at_client(LinkAttached) == []
    assert not session.links
    assert not other.links


def test_handles_are_used_again(pair: Any) -> None:
    session, _ = pair.session()
    first, _ = pair.link(LinkRole.SENDER, session, name="a")
    second, _ = pair.link(LinkRole.SENDER, session, name="b")
    first.detach()
    pair.run()
    third, other = pair.link(LinkRole.SENDER, session, name="c")
    assert (second.handle, third.handle, other.handle) == (1, 0, 0)
    assert pair.server.opened


def test_a_session_ends_with_all_its_links(pair: Any) -> None:
    link, other = pair.link(LinkRole.RECEIVER, credit=5)
    other.transfer(b"t", b"x", False)
    pair.run()
    other.session.end(Error("amqp:internal-error"))
    pair.run()
    assert pair.at_client(SessionEnded) == [SessionEnded(link.session, Error("amqp:internal-error"))]
    assert pair.all(SessionEnded) == [SessionEnded(other.session, None)]
    assert pair.all(LinkDetached) == pair.at_client(LinkDetached) == []
    assert not pair.server.sessions
    assert not pair.client.sessions
    assert (link.attached, other.attached, other.sendable) == (False, False, 0)
    with pytest.raises(NotAttachedError):
        other.transfer(b"t", b"x", False)
    other.session.settle([0], ACCEPTED, LinkRole.SENDER)
    other.session.end()
    link.session.end()
    assert pair.server.take() == pair.client.take() == b""


def test_a_channel_is_used_again_after_its_session_ended(pair: Any) -> None:
    session, _ = pair.session()
    session.end()
    pair.run()
    again, other = pair.session()
    assert (again.channel, other.channel) == (0, 0)
    assert pair.server.opened


def test_frames_on_an_ended_channel_and_for_unknown_handles_are_forgiven(peer: Any) -> None:
    late = [
        Detach(1, True),
        Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=1, link_credit=5),
        Transfer(1, 0, b"t", 0, False),
        Disposition(True, 0, 10, True, ACCEPTED),
    ]
    for performative in late:
        assert peer.say(performative) == []
    assert [type(event) for event in peer.say(End())] == [SessionEnded]
    peer.heard()
    for performative in [*late, End()]:
        assert peer.say(performative) == []
    assert peer.heard() == []
    assert peer.server.opened
    assert peer.server.channels.ignored_frames == 5


def test_frames_on_a_channel_that_we_ended_are_ignored_until_the_peer_ends_it(peer: Any) -> None:
    link = peer.attach(LinkRole.SENDER)
    session = link.session
    session.end(Error("amqp:internal-error"))
    session.end()
    assert [type(item) for item in peer.performatives()] == [End]
    assert peer.say(Transfer(0, 300, b"t", 0, False), payload=b"x") == []
    assert peer.say(Attach("n", 5, True)) == []
    assert peer.say(End()) == [SessionEnded(session, None)]
    assert peer.heard() == []
    peer.begin()
    assert peer.server.opened


def test_a_client_that_ends_a_session_before_it_is_answered_hears_of_its_end(pair: Any) -> None:
    pair.open()
    session = pair.client.begin()
    session.end()
    pair.run()
    assert pair.at_client(SessionEnded) == [SessionEnded(session, None)]
    assert pair.at_client(SessionBegun) == []


def test_the_peer_may_answer_frames_with_wide_descriptors(peer: Any) -> None:
    def widened(performative: object) -> bytes:
        body = encode_composite(performative)
        return b"\x00\x80" + bytes(7) + body[2:]

    [attached] = peer.send(amqp_frame(0, widened(Attach("n", 0, False, source=Source(), target=Target()))))
    attached.link.accept()
    [deliveries] = peer.send(amqp_frame(0, widened(Transfer(0, 1, b"t", 0, False)) + b"payload"))
    assert deliveries.items == [(1, b"t", 0, False, b"payload")]
    assert peer.send(amqp_frame(0, widened(Disposition(True, 0, None, True, ACCEPTED)))) == []
    assert [type(event) for event in peer.send(amqp_frame(0, widened(End())))] == [SessionEnded]


def test_a_client_may_begin_and_attach_before_the_servers_open_has_come(make_pair: Any) -> None:
    pair = make_pair(Settings(sasl_required=False, max_frame_size=600))
    pair.client.start()
    session = pair.client.begin()
    link = session.attach("n", LinkRole.SENDER, Source("q"), Target("q"), max_message_size=5000)
    pair.run()
    assert link.attached
    assert (session.max_frame_size, link.max_message_size) == (600, 5000)
    other = pair.all(LinkAttached)[0].link
    assert other.remote.max_message_size == 5000


def test_detaching_a_link_that_was_not_accepted_yet_refuses_it(peer: Any) -> None:
    [attached] = peer.say(Attach("n", 3, True, source=Source("q"), target=Target("q")))
    assert not attached.link.attached
    attached.link.detach(REFUSAL)
    attach, detach = peer.performatives()
    assert (attach.source, attach.target, detach) == (None, Target("q"), Detach(0, True, REFUSAL))
    assert peer.say(Detach(3, True)) == [LinkDetached(attached.link, True, None)]


def test_a_link_is_not_refused_before_it_is_answered(pair: Any) -> None:
    session, _ = pair.session()
    link = session.attach("n", LinkRole.SENDER, Source("q"), Target("q"))
    assert not link.refused
    assert not link.attached
