"""The AMQP core against hostile peers: valid conversations that a seeded mutator damages, cut and splices.

    PYTHONPATH=src python tests/fuzz/test_amqp_fuzz.py SEED COUNT

runs COUNT conversations from SEED on; under pytest a short run is part of the tests. A failure names its seed.
"""

from __future__ import annotations

import sys
import time
from random import Random
from uuid import UUID

import pytest

from twinbus.amqp import Connection, LinkRole, NotAttachedError, Role, Settings
from twinbus.amqp.codec import DecodeError, decode, encode, skip
from twinbus.amqp.composite import decode_composite, encode_composite
from twinbus.amqp.events import (
    ConnectionClosed,
    ConnectionFailed,
    Deliveries,
    Event,
    LinkAttached,
    LinkFlow,
    Oversized,
    SaslInit,
    Settlements,
)
from twinbus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, amqp_frame, sasl_frame
from twinbus.amqp.handshake import MAX_SASL_FRAME_SIZE
from twinbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Source,
    Target,
    Transfer,
)
from twinbus.amqp.performatives import SaslInit as SaslInitFrame
from twinbus.amqp.types import Array, Described, Symbol, Timestamp, UInt, ULong

CONVERSATIONS = 1500
VALUES = 3000
SETTINGS = Settings(
    max_frame_size=2048, max_sessions=4, max_links=4, max_unsettled=20, max_message_size=2000, message_size_slack=100
)

# Lengths, counts, constructors and ids that lie at some border.
BORDERS = [0x00, 0x01, 0x40, 0x43, 0x45, 0x52, 0x53, 0x70, 0x7F, 0x80, 0xA0, 0xB0, 0xC0, 0xC1, 0xD0, 0xE0, 0xF0, 0xFF]


def value_seeds() -> list[bytes]:
    guid = UUID(int=5)
    return [
        encode(value)
        for value in (
            [None, True, UInt(5), "text", b"binary", Symbol("symbol"), 1.5, guid, Timestamp(7)],
            {Symbol("x-opt-sequence-number"): 5, "key": ["nested", {"deep": [1, 2, 3]}]},
            Array([guid, guid]),
            Array([Array([Symbol("a")]), Array([Symbol("b")])]),
            Array([UInt(1), UInt(2)], 0x70, (Symbol("d"),)),
            Described(ULong(0x73), ["id", None, "to", "subject"]),
            ["x" * 300, b"y" * 300],
        )
    ]


def conversation_seeds() -> list[list[bytes]]:
    """Frames of clients that behave, each a list that the mutator may reorder, drop, repeat and damage."""

    def said(performative: object, channel: int = 0, payload: bytes = b"") -> bytes:
        return amqp_frame(channel, encode_composite(performative) + payload)

    begin = Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=100)
    source, target = Source("q", filter={Symbol("f"): "v"}), Target("q")
    start = [
        SASL_HEADER,
        sasl_frame(encode_composite(SaslInitFrame("PLAIN", b"\x00u\x00p", "h"))),
        AMQP_HEADER,
        said(Open("c", "h", 2048, 10, 1000, properties={Symbol("product"): "p"})),
        said(begin),
    ]
    flow = Flow(next_incoming_id=0, incoming_window=50, next_outgoing_id=0, outgoing_window=5, handle=1, link_credit=9)
    sending = [
        said(Attach("s", 0, False, 0, 1, source, target, initial_delivery_count=0)),
        *(said(Transfer(0, number, b"%d" % number, 0, False), payload=b"body") for number in (1, 300, 70_000)),
        said(Transfer(0, 5, b"t", 0x80013700, False, True), payload=b"a" * 1500),
        said(Transfer(0), payload=b"b" * 1500),
        said(Transfer(0, 6, b"t", 0, False, True), payload=b"c"),
        said(Transfer(0, aborted=True)),
    ]
    receiving = [
        said(Attach("r", 1, True, 0, 1, source, target, properties={Symbol("com.microsoft:timeout"): UInt(1)})),
        said(flow),
        said(Disposition(True, 0, 3, False, ACCEPTED)),
        said(Disposition(True, 0, 1, True, Rejected(Error("a:b", "c", {Symbol("d"): "e"})))),
        said(Disposition(True, 2, None, True, Modified(True, False, {Symbol("k"): 1}))),
        said(Flow(incoming_window=9, next_outgoing_id=3, outgoing_window=9, handle=1, link_credit=3, drain=True)),
        said(Flow(incoming_window=9, next_outgoing_id=3, outgoing_window=9, echo=True)),
    ]
    end = [said(Detach(0, True)), said(Detach(1, True, Error("x:y"))), EMPTY_FRAME, said(End()), said(Close())]
    return [
        [*start, *sending, *end],
        [*start, *receiving, *end],
        [*start, *sending, *receiving, *end],
        [*start, said(begin, 1), said(begin, 2), *sending, *receiving, said(End(), 1), *end],
        [AMQP_HEADER, *start[3:], *sending, *receiving],
    ]


def damaged(data: bytes, random: Random) -> bytes:
    """A few bytes changed, removed, inserted or repeated."""
    changed = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        at = random.randrange(len(changed) + 1)
        kind = random.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] = random.randrange(256)
        elif kind == 1 and at < len(changed):
            changed[at] = random.choice(BORDERS)
        elif kind == 2:
            del changed[at : at + random.randrange(1, 9)]
        elif kind == 3:
            changed[at:at] = random.randbytes(random.randrange(1, 9))
        else:
            changed[at:at] = changed[at : at + random.randrange(1, 30)]
    return bytes(changed)


def resized(frame: bytes, random: Random) -> bytes:
    """A damaged body in a frame whose size is right, so that the damage reaches what is behind the framing."""
    if frame[:4] == b"AMQP":
        return damaged(frame, random)
    body = damaged(frame[8:], random)
    return (len(body) + 8).to_bytes(4, "big") + frame[4:8] + body


def hostile_conversation(random: Random) -> bytes:
    frames = list(random.choice(conversation_seeds()))
    for _ in range(random.randrange(4)):
        kind, at = random.randrange(4), random.randrange(len(frames))
        if kind == 0:
            frames.insert(random.randrange(len(frames) + 1), frames[at])
        elif kind == 1 and len(frames) > 1:
            del frames[at]
        elif kind == 2:
            frames[at] = resized(frames[at], random)
        else:
            frames[at] = damaged(frames[at], random)
    return b"".join(frames)


def answer(server: Connection, events: list[Event], random: Random) -> int:
    """Does what a broker might do with the events; gives how often they told that the connection is over."""
    over = 0
    for event in events:
        if isinstance(event, SaslInit):
            over += answer(server, server.sasl_outcome(random.random() < 0.95), random)
        elif isinstance(event, ConnectionFailed | ConnectionClosed):
            over += 1
        elif isinstance(event, LinkAttached):
            if random.random() < 0.8:
                event.link.accept()
                event.link.grant(10)
            else:
                event.link.refuse(Error("amqp:not-found", "no", None))
        elif isinstance(event, LinkFlow) and event.link.role is LinkRole.SENDER:
            for _ in range(event.link.sendable):
                event.link.transfer(random.randbytes(16), bytes(random.choice((0, 10, 3000))), random.random() < 0.3)
            if event.link.drain:
                event.link.drained()
        elif isinstance(event, Deliveries):
            event.link.session.settle([item[0] for item in event.items], ACCEPTED, LinkRole.RECEIVER)
        elif isinstance(event, Oversized):
            event.link.session.settle([event.delivery_id], RELEASED, LinkRole.RECEIVER)
        elif isinstance(event, Settlements):
            waiting = [item[0] for item in event.items if not item[3]]
            event.link.session.settle(waiting, ACCEPTED, event.link.role)
    return over


def converse(seed: int) -> None:
    """One hostile conversation; it may end in any way but an exception, a loop or frames that nobody could read."""
    random = Random(seed)
    data = hostile_conversation(random)
    server = Connection(Role.SERVER, "server", SETTINGS)
    if data.startswith(AMQP_HEADER):
        server = Connection(Role.SERVER, "server", Settings(sasl_required=False, max_frame_size=2048))
    position, written, over = 0, b"", 0
    while position < len(data):
        size = random.choice((1, 7, 30, 100, 100, 3000))
        events = server.receive(data[position : position + size], position)
        position += size
        over += answer(server, events, random)
        assert server._inbox.size <= MAX_SASL_FRAME_SIZE
        written += server.take()
    over += answer(server, server.tick(10**9), random)
    written += server.take()
    assert over == 1
    assert server.closed
    check_readable(written)
    for session in server.sessions:
        for link in session.links.values():
            with pytest.raises(NotAttachedError):
                link.transfer(b"", b"", True)


def check_readable(written: bytes) -> None:
    """Everything that the server wrote is made of headers and whole frames with valid performatives."""
    position = 0
    while position < len(written):
        if written[position : position + 4] == b"AMQP":
            position += 8
            continue
        size = int.from_bytes(written[position : position + 4], "big")
        assert 8 <= size <= len(written) - position
        if size > 8:
            decode_composite(written, position + 8, position + size)
        position += size


def check_value(seed: int) -> None:
    """Damaged values are decoded or refused; what is decoded encodes to something that decodes."""
    random = Random(seed)
    data = damaged(random.choice(value_seeds()), random)
    try:
        value, after = decode(data)
    except DecodeError:
        return
    assert after == skip(data)
    decode(encode(value))


@pytest.mark.parametrize("first", range(0, CONVERSATIONS, 250))
def test_a_hostile_conversation_ends_the_connection_and_nothing_else(first: int) -> None:
    for seed in range(first, first + 250):
        try:
            converse(seed)
        except Exception as error:
            raise AssertionError(f"conversation of seed {seed}") from error


def test_a_damaged_value_is_decoded_or_refused() -> None:
    for seed in range(VALUES):
        try:
            check_value(seed)
        except Exception as error:
            raise AssertionError(f"value of seed {seed}") from error


def test_the_seeds_themselves_are_conversations_without_a_violation() -> None:
    for frames in conversation_seeds():
        server = Connection(Role.SERVER, "server", Settings(sasl_required=False, max_frame_size=2048))
        random = Random(0)
        random.random = lambda: 0.5  # type: ignore[method-assign]
        for frame in frames:
            events = server.receive(frame, 0)
            assert not any(isinstance(event, ConnectionFailed) for event in events)
            answer(server, events, random)
        assert server.remote is not None


if __name__ == "__main__":
    start, count = int(sys.argv[1]), int(sys.argv[2])
    began, slowest = time.perf_counter(), 0.0
    for number in range(start, start + count):
        at = time.perf_counter()
        try:
            converse(number)
            check_value(number)
        except BaseException:
            print(f"seed {number}")
            raise
        slowest = max(slowest, time.perf_counter() - at)
    print(f"{count} conversations in {time.perf_counter() - began:.1f} s, the slowest {slowest * 1000:.1f} ms")
