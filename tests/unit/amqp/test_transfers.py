"""Deliveries both ways: whole, in parts, interleaved, aborted, too large (AMQP 1.0, section 2.6.12 to 2.6.14)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twinbus.amqp import LinkRole, Settings
from twinbus.amqp.codec import EncodeError, encode, encode_list
from twinbus.amqp.composite import encode_composite
from twinbus.amqp.events import Deliveries, LinkDetached, LinkFlow, Oversized
from twinbus.amqp.frames import amqp_frame
from twinbus.amqp.performatives import Source, Target, Transfer
from twinbus.amqp.types import UInt

BATCH_FORMAT = 0x80013700


def items(events: list[Any]) -> list[Any]:
    return [item for event in events if isinstance(event, Deliveries) for item in event.items]


def test_deliveries_of_one_call_come_as_one_event(peer: Any) -> None:
    link = peer.attach(LinkRole.SENDER)
    frames = [
        amqp_frame(0, encode_composite(Transfer(0, 998 + n, b"%d" % n, 0, n == 1)) + b"m%d" % n) for n in range(4)
    ]
    [event] = peer.send(b"".join(frames))
    assert event == Deliveries(
        link,
        [
            (998, b"0", 0, False, b"m0"),
            (999, b"1", 0, True, b"m1"),
            (1000, b"2", 0, False, b"m2"),
            (1001, b"3", 0, False, b"m3"),
        ],
    )
    assert set(link.session.incoming) == {998, 1000, 1001}


def test_deliveries_on_two_links_come_in_their_order(peer: Any) -> None:
    first, second = peer.attach(LinkRole.SENDER, 0), peer.attach(LinkRole.SENDER, 1)
    order = [0, 0, 1, 0, 1, 1]
    events = peer.send(
        b"".join(amqp_frame(0, encode_composite(Transfer(h, n, b"t", 0, True))) for n, h in enumerate(order))
    )
    assert [(event.link, [item[0] for item in event.items]) for event in events] == [
        (first, [0, 1]),
        (second, [2]),
        (first, [3]),
        (second, [4, 5]),
    ]


def test_ids_out_of_order_and_more_deliveries_than_credit_are_forgiven(peer: Any) -> None:
    link = peer.attach(LinkRole.SENDER)
    link.grant(1)
    for delivery_id in (7, 3, 500, 4):
        assert items(peer.say(Transfer(0, delivery_id, b"t", 0, False)))
    assert link.credit_left == -3
    assert peer.server.opened


@pytest.mark.parametrize("size", [0, 1, 600, 70_000, 200_000])
@pytest.mark.parametrize("message_format", [0, BATCH_FORMAT])
@pytest.mark.parametrize("role", list(LinkRole))
def test_a_delivery_of_any_size_arrives_whole(make_pair: Any, size: int, message_format: int, role: LinkRole) -> None:
    settings = Settings(max_frame_size=4096) if size == 200_000 else Settings()
    pair = make_pair(settings, settings)
    if pair.piece == 1 and size > 70_000:
        pair.piece = 1000
    link, other = pair.link(role, credit=5)
    sender = link if role is LinkRole.SENDER else other
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    ids = [
        sender.transfer(b"", payload, True, message_format),
        sender.transfer(b"t" * 16, payload, False, message_format),
        sender.transfer(b"u" * 32, b"end", False),
    ]
    pair.run()
    events = pair.server_events if role is LinkRole.SENDER else pair.client_events
    assert items(events) == [
        (ids[0], b"", message_format, True, payload),
        (ids[1], b"t" * 16, message_format, False, payload),
        (ids[2], b"u" * 32, 0, False, b"end"),
    ]
    assert ids == [0, 1, 2]


def test_no_frame_is_larger_than_the_peer_takes(make_peer: Any) -> None:
    for max_frame_size in (512, 513, 1000):
        peer = make_peer()
        peer.open(max_frame_size=max_frame_size)
        peer.begin()
        link = peer.attach(LinkRole.RECEIVER)
        for size in range(max_frame_size - 60, max_frame_size + 10):
            link.transfer(b"0123456789abcdef", bytes(size), False)
            link.transfer(b"0123456789abcdef", bytes(size), False, BATCH_FORMAT)
            data, position, sent = peer.server.take(), 0, 0
            while position < len(data):
                frame_size = int.from_bytes(data[position : position + 4], "big")
                assert frame_size <= max_frame_size
                position += frame_size
                sent += 1
            assert sent in (2, 3, 4)


def test_the_message_format_is_always_written_and_later_frames_do_not_name_the_delivery(make_peer: Any) -> None:
    peer = make_peer()
    peer.open(max_frame_size=512)
    peer.begin()
    link = peer.attach(LinkRole.RECEIVER)
    link.transfer(b"a", b"x", False)
    link.transfer(b"b", bytes(1200), True)
    whole, first, second, third = peer.heard()
    assert whole[1] == Transfer(0, 0, b"a", 0, False)
    assert first[1] == Transfer(0, 1, b"b", 0, True, True)
    assert second[1] == Transfer(0, None, None, None, True, True)
    assert third[1] == Transfer(0, None, None, None, True)
    assert first[2] + second[2] + third[2] == bytes(1200)


def test_a_tag_has_at_most_32_bytes(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER)
    with pytest.raises(EncodeError):
        link.transfer(b"x" * 33, b"", False)
    assert link.session.next_delivery_id == 0


def test_later_frames_may_repeat_the_delivery_or_leave_it_out(peer: Any) -> None:
    peer.attach(LinkRole.SENDER)
    assert peer.say(Transfer(0, 1, b"t", 5, False, True), payload=b"a") == []
    assert peer.say(Transfer(0, 1, b"t", 5, False, True), payload=b"b") == []
    assert peer.say(Transfer(0, None, None, None, True, True), payload=b"c") == []
    assert items(peer.say(Transfer(0), payload=b"d")) == [(1, b"t", 5, True, b"abcd")]


def test_deliveries_in_parts_on_several_links_may_interleave(peer: Any) -> None:
    links = [peer.attach(LinkRole.SENDER, handle) for handle in range(3)]
    for handle in (0, 1, 2):
        assert peer.say(Transfer(handle, handle, b"t", 0, False, True), payload=b"a%d" % handle) == []
    assert [event.items for event in peer.say(Transfer(1, more=False), payload=b"b1")] == [
        [(1, b"t", 0, False, b"a1b1")]
    ]
    assert [event.link for event in peer.say(Transfer(0), Transfer(2))] == [links[0], links[2]]


def test_an_aborted_delivery_is_dropped_and_the_link_goes_on(peer: Any) -> None:
    link = peer.attach(LinkRole.SENDER)
    link.grant(10)
    assert peer.say(Transfer(0, 1, b"t", 0, False, True), payload=b"a") == []
    assert peer.say(Transfer(0, 1, aborted=True), payload=b"b") == []
    assert peer.say(Transfer(0, 2, b"u", 0, False, aborted=True)) == []
    assert items(peer.say(Transfer(0, 3, b"v", 0, False), payload=b"c")) == [(3, b"v", 0, False, b"c")]
    assert link.credit_left == 7
    assert set(link.session.incoming) == {3}


@pytest.mark.parametrize(
    ("transfer", "condition"),
    [
        (Transfer(0, None, b"t"), "amqp:invalid-field"),
        (Transfer(0, 1, None), "amqp:invalid-field"),
        (Transfer(0, 300, b"x" * 33, 0, False), "amqp:invalid-field"),
    ],
)
def test_a_delivery_without_an_id_or_tag_detaches_its_link_only(peer: Any, transfer: Transfer, condition: str) -> None:
    link = peer.attach(LinkRole.SENDER)
    [detached] = peer.say(transfer)
    assert isinstance(detached, LinkDetached)
    assert (detached.link, detached.closed, detached.error.condition) == (link, True, condition)  # type: ignore[union-attr]
    [answer] = peer.performatives()
    assert answer.error == detached.error
    assert peer.server.opened


def test_a_delivery_inside_another_one_detaches_the_link(peer: Any) -> None:
    peer.attach(LinkRole.SENDER)
    peer.say(Transfer(0, 1, b"t", 0, False, True))
    [detached] = peer.say(Transfer(0, 2, b"u", 0, False))
    assert detached.error.condition == "amqp:not-allowed"


def test_a_delivery_that_is_too_large_is_swallowed_and_the_link_goes_on(make_peer: Any) -> None:
    peer = make_peer(Settings(sasl_required=False, max_frame_size=4096, message_size_slack=50))
    peer.open()
    peer.begin()
    link = peer.attach(LinkRole.SENDER)
    link.limit_message_size(1000)
    assert items(peer.say(Transfer(0, 0, b"t", 0, False), payload=bytes(1050)))
    assert peer.say(Transfer(0, 1, b"u", 0, False), payload=bytes(1051)) == [Oversized(link, 1, b"u", False, 1051)]
    assert peer.say(Transfer(0, 300, b"u", 0, True), payload=bytes(1051)) == [Oversized(link, 300, b"u", True, 1051)]
    for _ in range(100):
        assert peer.say(Transfer(0, 2, b"v", 0, False, True), payload=bytes(4000)) == []
        assert sum(map(len, link._partial.pieces)) <= 1050
    assert peer.say(Transfer(0, 2), payload=b"x") == [Oversized(link, 2, b"v", False, 400_001)]
    assert items(peer.say(Transfer(0, 3, b"w", 0, False), payload=b"small"))
    assert set(link.session.incoming) == {0, 1, 2, 3}


def test_the_size_that_is_allowed_is_what_the_link_was_accepted_with(pair: Any) -> None:
    pair.accepts = False
    session, _ = pair.session()
    link = session.attach("n", LinkRole.SENDER, Source("q"), Target("q"))
    pair.run()
    other = pair.server.sessions[0].links[0]
    other.accept(max_message_size=1000)
    pair.run()
    assert link.remote.max_message_size == 1000
    assert other.size_limit == 1000 + Settings().message_size_slack
    other.limit_message_size(0)
    assert other.size_limit == Settings().max_message_size + Settings().message_size_slack


def test_credit_is_granted_used_and_granted_again(pair: Any) -> None:
    link, other = pair.link(LinkRole.SENDER, credit=3)
    assert (link.credit, link.sendable) == (3, 3)
    for _ in range(2):
        link.transfer(b"t", b"x", False)
    pair.run()
    assert (link.sendable, other.credit_left) == (1, 1)
    other.grant(10)
    link.transfer(b"t", b"x", False)
    pair.run()
    assert (link.sendable, other.credit_left) == (9, 9)
    assert [event.link for event in pair.at_client(LinkFlow)] == [link, link]


def test_credit_before_the_attach_is_answered_counts_from_the_start(pair: Any) -> None:
    pair.accepts = False
    session, _ = pair.session()
    link = session.attach("n", LinkRole.RECEIVER, Source("q"), Target("q"))
    link.grant(5)
    pair.run()
    other = pair.server.sessions[0].links[0]
    assert (other.credit, other.sendable) == (5, 0)
    other.accept(initial_delivery_count=2**32 - 2)
    for _ in range(3):
        other.transfer(b"t", b"x", True)
    pair.run()
    assert other.sendable == 2
    assert link.credit_left == 2
    link.grant(7)
    pair.run()
    assert other.sendable == 7


def test_a_drain_is_answered_behind_what_was_sent(pair: Any) -> None:
    link, other = pair.link(LinkRole.RECEIVER)
    link.grant(10, drain=True)
    pair.run()
    assert (other.drain, other.credit) == (True, 10)
    other.transfer(b"t", b"x", False)
    other.drained()
    assert (other.credit, other.drain) == (0, False)
    pair.run()
    assert [type(event) for event in pair.client_events[-2:]] == [Deliveries, LinkFlow]
    assert (link.credit, link.drain, link.delivery_count) == (0, False, 10)
    link.grant(1)
    pair.run()
    assert other.sendable == 1


def test_the_answer_to_a_drain_says_so_on_the_wire(peer: Any) -> None:
    link = peer.attach(LinkRole.RECEIVER, 4)
    link.credit = 6
    link.drained()
    [flow] = peer.performatives()
    assert (flow.handle, flow.link_credit, flow.drain, flow.delivery_count) == (0, 0, True, 6)


plain = st.tuples(
    st.integers(0, 300),
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    st.one_of(st.none(), st.binary(max_size=40)),
    st.one_of(st.none(), st.sampled_from([0, 1, 255, 256, BATCH_FORMAT])),
    st.sampled_from([None, True, False]),
    st.sampled_from([None, True, False]),
    st.none(),
    st.none(),
    st.sampled_from([None, False, True]),
    st.sampled_from([None, False, True]),
    st.sampled_from([None, False, True]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plain, st.integers(1, 11), st.binary(max_size=20))
def test_the_quick_way_to_read_a_transfer_agrees_with_the_general_one(
    make_peer: Any, fields: Any, count: int, payload: bytes
) -> None:
    handle, delivery_id, tag, message_format, *rest = fields
    numbers = [None if n is None else UInt(n) for n in (handle, delivery_id, message_format)]
    parts = [encode(item) for item in (numbers[0], numbers[1], tag, numbers[2], *rest)][:count]
    list8 = encode_list(parts)
    body = b"".join(parts)
    list32 = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(parts).to_bytes(4, "big") + body
    outcomes = []
    for field_list in (list8, list32):
        peer = make_peer()
        peer.open()
        peer.begin()
        peer.attach(LinkRole.SENDER, handle)
        events = peer.send(amqp_frame(0, b"\x00\x53\x14" + field_list + payload))
        session = peer.server.sessions[0]
        outcomes.append(
            (
                [(type(event), getattr(event, "items", None), getattr(event, "error", None)) for event in events],
                session.window_left,
                list(session.incoming),
            )
        )
    assert outcomes[0] == outcomes[1]
