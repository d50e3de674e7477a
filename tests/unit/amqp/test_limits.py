"""Every limit, and every kind of violation with the condition that the peer is told (AMQP 1.0, section 2.8)."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp import Connection, LinkRole, NotAttachedError, Role, Settings
from twinbus.amqp.codec import encode
from twinbus.amqp.composite import encode_composite
from twinbus.amqp.events import ConnectionFailed, Deliveries, LinkAttached, SessionEnded
from twinbus.amqp.frames import AMQP_HEADER, SASL_HEADER, amqp_frame, sasl_frame
from twinbus.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from twinbus.amqp.types import Described, Symbol, ULong

BEGIN = Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)
DEEP = b"\xc0\x02\x01\x40"
for _ in range(40):
    DEEP = b"\xd0" + (len(DEEP) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + DEEP


def raw(body: bytes, channel: int = 0) -> bytes:
    return amqp_frame(channel, body)


def said(performative: object, channel: int = 0) -> bytes:
    return amqp_frame(channel, encode_composite(performative))


VIOLATIONS: list[tuple[str, bytes, str]] = [
    ("a frame above our maximum", b"\x00\x01\x00\x01\x02\x00\x00\x00", "amqp:connection:framing-error"),
    ("a frame of four thousand million bytes", b"\xff\xff\xff\xff\x02\x00\x00\x00", "amqp:connection:framing-error"),
    ("a frame smaller than its header", b"\x00\x00\x00\x07\x02\x00\x00\x00", "amqp:connection:framing-error"),
    ("a data offset inside the header", b"\x00\x00\x00\x08\x01\x00\x00\x00", "amqp:connection:framing-error"),
    ("a data offset behind the frame", b"\x00\x00\x00\x08\x03\x00\x00\x00", "amqp:connection:framing-error"),
    ("nothing but an offset", b"\x00\x00\x00\x0d\x03\x00\x00\x00xxxx\x00", "amqp:decode-error"),
    ("a frame of an unknown type", b"\x00\x00\x00\x08\x02\x07\x00\x00", "amqp:connection:framing-error"),
    ("a SASL frame after SASL", sasl_frame(encode_composite(SaslOutcome(0))), "amqp:connection:framing-error"),
    ("a body that is no described value", raw(b"\x40"), "amqp:decode-error"),
    ("an unknown performative", raw(b"\x00\x53\x99\x45"), "amqp:decode-error"),
    ("a truncated performative", raw(b"\x00\x53\x13\xc0\x10\x04\x40"), "amqp:decode-error"),
    ("bytes behind a performative", raw(encode_composite(BEGIN) + b"x", 3), "amqp:decode-error"),
    ("a composite that is no performative", said(Source("q")), "amqp:not-allowed"),
    ("a mandatory field missing", raw(b"\x00\x53\x11\x45", 3), "amqp:invalid-field"),
    ("a field of a wrong type", raw(b"\x00\x53\x16" + encode(["handle"])), "amqp:invalid-field"),
    ("a truncated transfer", raw(b"\x00\x53\x14\xc0\x20\x05\x43\x43\xa0\x01t\x43\x42"), "amqp:decode-error"),
    ("a transfer with a wrong type", raw(b"\x00\x53\x14" + encode(["h", "i", "t", "f", True])), "amqp:invalid-field"),
    ("a transfer without a handle", raw(b"\x00\x53\x14\x45"), "amqp:invalid-field"),
    ("a truncated disposition", raw(b"\x00\x53\x15\xc0\x20\x05\x41\x43\x40\x41\x00\x53\x24\x45"), "amqp:decode-error"),
    ("bytes behind a disposition", raw(encode_composite(Disposition(True, 0)) + b"\x40"), "amqp:decode-error"),
    ("values that nest too deep", raw(b"\x00\x53\x18" + DEEP), "amqp:decode-error"),
    ("a map with half a pair", raw(b"\x00\x53\x10\xc0\x09\x0a\xa1\x01c" + b"\xc1\x02\x01\x40"), "amqp:decode-error"),
    ("a second open", said(Open("again")), "amqp:illegal-state"),
    ("a channel above our maximum", said(BEGIN, 1024), "amqp:connection:framing-error"),
    ("a channel in use", said(BEGIN, 0), "amqp:not-allowed"),
    (
        "an answer to a begin that nobody sent",
        said(Begin(remote_channel=5, next_outgoing_id=0, incoming_window=1, outgoing_window=1), 3),
        "amqp:not-allowed",
    ),
    ("an attach on a channel without a session", said(Attach("n", 0, True), 9), "amqp:not-allowed"),
    ("a transfer on a channel without a session", said(Transfer(0, 300, b"t", 0, False), 9), "amqp:not-allowed"),
    ("an end on a channel without a session", said(End(), 9), "amqp:not-allowed"),
]


@pytest.mark.parametrize("piece", [None, 1], ids=["whole", "byte-by-byte"])
@pytest.mark.parametrize(("data", "condition"), [case[1:] for case in VIOLATIONS], ids=[case[0] for case in VIOLATIONS])
def test_a_violation_closes_the_connection_with_its_condition(
    peer: Any, data: bytes, condition: str, piece: int | None
) -> None:
    peer.attach(LinkRole.SENDER)
    pieces = [data] if piece is None else [data[n : n + 1] for n in range(len(data))]
    for part in pieces:
        peer.send(part)
    failed = peer.events[-1]
    assert isinstance(failed, ConnectionFailed)
    assert failed.error.condition == condition
    assert peer.performatives() == [Close(failed.error)]
    assert peer.server.closed
    assert peer.send(data) == []
    assert peer.server.take() == b""
    assert peer.server.tick(10**9) == []


def test_nothing_is_buffered_of_a_frame_that_is_too_large(peer: Any) -> None:
    peer.send(b"\x7f\xff\xff\xff\x02\x00\x00\x00")
    assert peer.server.wants_close
    assert peer.server._inbox.size == 0


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (said(BEGIN), "amqp:illegal-state"),
        (said(Close()), "amqp:illegal-state"),
        (said(Open("c", max_frame_size=511)), "amqp:invalid-field"),
        (said(Open("c"))[:-1] + b"\xff", "amqp:decode-error"),
    ],
)
def test_a_bad_beginning_is_answered_with_open_and_close(make_peer: Any, data: bytes, condition: str) -> None:
    peer = make_peer()
    peer.send(AMQP_HEADER)
    [failed] = peer.send(data)
    assert failed.error.condition == condition
    answers = peer.performatives()
    assert [type(answer) for answer in answers] == [Open, Close]
    assert answers[1].error == failed.error


@pytest.mark.parametrize(
    "data",
    [
        sasl_frame(encode_composite(SaslOutcome(0))),
        sasl_frame(b"\x00\x53\x41\x45"),
        said(Open("c")),
        b"\x00\x00\x10\x01\x02\x01\x00\x00",
        sasl_frame(b"\x00"),
    ],
    ids=["outcome from a client", "init without a mechanism", "an AMQP frame", "a large frame", "rubbish"],
)
def test_a_violation_during_sasl_just_ends_the_connection(data: bytes) -> None:
    server = Connection(Role.SERVER, "server", Settings())
    server.receive(SASL_HEADER, 0)
    server.take()
    [failed] = server.receive(data, 0)
    assert isinstance(failed, ConnectionFailed)
    assert server.take() == b""
    assert server.closed


def test_a_challenge_is_not_supported_by_the_client() -> None:
    client = Connection(Role.CLIENT, "client", Settings())
    client.start("PLAIN", b"x")
    [failed] = client.receive(SASL_HEADER + sasl_frame(b"\x00\x53\x42\xc0\x03\x01\xa0\x00"), 0)
    assert isinstance(failed, ConnectionFailed)
    assert failed.error.condition == "amqp:illegal-state"


def test_sessions_are_limited_and_one_too_many_is_ended(make_peer: Any) -> None:
    peer = make_peer(Settings(sasl_required=False, max_sessions=2))
    peer.open()
    peer.begin(0)
    peer.begin(1)
    assert peer.say(BEGIN, channel=2) == []
    begin, end = peer.performatives()
    assert (begin.remote_channel, end.error.condition) == (2, "amqp:resource-limit-exceeded")
    assert peer.say(Attach("n", 0, True), channel=2) == []
    assert peer.say(End(), channel=2) == []
    assert len(peer.server.sessions) == 2
    assert peer.server.opened


def test_we_use_no_more_channels_than_the_peer_has(make_peer: Any) -> None:
    peer = make_peer()
    peer.open(channel_max=0)
    peer.begin(0)
    [failed] = peer.say(BEGIN, channel=1)
    assert failed.error.condition == "amqp:resource-limit-exceeded"


def test_a_client_is_told_when_the_server_has_no_channel_left(make_pair: Any) -> None:
    pair = make_pair(Settings(channel_max=0))
    pair.session()
    with pytest.raises(NotAttachedError):
        pair.client.begin()


def test_links_are_limited_and_one_too_many_is_refused(make_pair: Any) -> None:
    pair = make_pair(Settings(max_links=1))
    session, _ = pair.session()
    first, _ = pair.link(LinkRole.SENDER, session, name="a")
    second = session.attach("b", LinkRole.RECEIVER, Source("q"), Target("q"))
    pair.run()
    assert len(pair.all(LinkAttached)) == 1
    assert second.refused
    [_, detached] = pair.client_events[-2:]
    assert detached.error.condition == "amqp:resource-limit-exceeded"
    assert first.attached
    assert len(pair.server.sessions[0].links) == 1


def test_a_handle_in_use_ends_the_session(peer: Any) -> None:
    peer.attach(LinkRole.SENDER, 3)
    [ended] = peer.say(Attach("other", 3, True))
    assert isinstance(ended, SessionEnded)
    assert peer.performatives() == [End(Error("amqp:session:handle-in-use", "handle 3 is in use"))]
    assert peer.server.opened
    assert peer.say(End()) == []


def test_a_handle_above_the_maximum_closes_the_connection(make_peer: Any) -> None:
    peer = make_peer(Settings(sasl_required=False, handle_max=7))
    peer.open()
    peer.begin()
    [failed] = peer.say(Attach("n", 8, True))
    assert failed.error.condition == "amqp:connection:framing-error"


@pytest.mark.parametrize("first_id", [0, 300])
def test_unsettled_deliveries_are_limited(make_peer: Any, first_id: int) -> None:
    peer = make_peer(Settings(sasl_required=False, max_unsettled=3))
    peer.open()
    peer.begin()
    peer.attach(LinkRole.SENDER)
    for number in range(3):
        [event] = peer.say(Transfer(0, first_id + number, b"t", 0, False))
        assert isinstance(event, Deliveries)
    assert [type(event) for event in peer.say(Transfer(0, first_id + 9, b"t", 0, True))] == [Deliveries]
    [ended] = peer.say(Transfer(0, first_id + 3, b"t", 0, False))
    assert isinstance(ended, SessionEnded)
    assert ended.error.condition == "amqp:resource-limit-exceeded"  # type: ignore[union-attr]


def test_what_we_may_send_is_limited_by_what_the_peer_leaves_unsettled(make_peer: Any) -> None:
    peer = make_peer(Settings(sasl_required=False, max_unsettled=3))
    peer.open()
    peer.begin()
    link = peer.attach(LinkRole.RECEIVER)
    peer.say(
        Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=0, link_credit=100, delivery_count=0)
    )
    assert link.sendable == 3
    link.transfer(b"t", b"", False)
    link.transfer(b"t", b"", True)
    assert link.sendable == 2
    peer.say(Disposition(True, 0, None, True, ACCEPTED))
    assert link.sendable == 3


def test_a_performative_that_does_not_fit_the_peers_frames_closes_the_connection(make_peer: Any) -> None:
    peer = make_peer()
    peer.open(max_frame_size=512)
    peer.begin()
    [attached] = peer.say(Attach("n" * 200, 0, True, source=Source("q" * 200), target=Target("t")))
    attached.link.accept(properties={Symbol("p"): "x" * 300})
    [failed] = peer.server.tick(0)
    assert failed.error.condition == "amqp:frame-size-too-small"
    assert [type(item) for item in peer.performatives()] == [Close]
    attached.link.detach()
    assert peer.server.take() == b""


def test_a_frame_of_exactly_our_maximum_is_taken(make_peer: Any) -> None:
    peer = make_peer(Settings(sasl_required=False, max_frame_size=512))
    peer.open()
    peer.begin()
    peer.attach(LinkRole.SENDER)
    body = encode_composite(Transfer(0, 1, b"t", 0, True))
    [event] = peer.send(amqp_frame(0, body + bytes(512 - 8 - len(body))))
    assert isinstance(event, Deliveries)
    [failed] = peer.send(amqp_frame(0, body + bytes(513 - 8 - len(body))))
    assert isinstance(failed, ConnectionFailed)


def test_an_extended_frame_header_is_skipped(peer: Any) -> None:
    peer.attach(LinkRole.SENDER)
    body = encode_composite(Transfer(0, 300, b"t", 0, True)) + b"payload"
    frame = (len(body) + 16).to_bytes(4, "big") + b"\x04\x00\x00\x00" + b"extended" + body
    [event] = peer.send(frame)
    assert event.items == [(300, b"t", 0, True, b"payload")]
    assert peer.send(b"\x00\x00\x00\x08\x02\x00\x00\x07") == []


def test_unknown_outcomes_and_descriptors_inside_of_fields_are_no_violation(peer: Any) -> None:
    unknown = Described(Symbol("vendor:thing"), [1])
    [attached] = peer.say(Attach("n", 0, True, source=Source("q", default_outcome=unknown), target=unknown))
    assert attached.link.remote.target == unknown
    assert peer.say(Disposition(True, 0, None, True, Described(ULong(0x9999), []))) == []
    assert peer.say(Detach(77)) == []
    assert peer.server.opened


def test_sasl_init_of_four_kilobytes_is_borne() -> None:
    server = Connection(Role.SERVER, "server", Settings())
    [event] = server.receive(SASL_HEADER + sasl_frame(encode_composite(SaslInit("X", bytes(4000)))), 0)
    assert event.response == bytes(4000)  # type: ignore[union-attr]
