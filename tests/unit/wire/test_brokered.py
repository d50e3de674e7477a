"""Messages as REST has them: written as AMQP, read back, and the bodies that only AMQP can have."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from twinbus.amqp import codec
from twinbus.amqp.types import Described, Int, Symbol, Timestamp, UByte
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered
from twinbus.wire import brokered, view
from twinbus.wire import message as wire_message
from twinbus.wire.sections import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, SEQUENCE, VALUE

NOW_MS = 1_700_000_000_000


def section(code: int, value: Any) -> bytes:
    return bytes((0x00, 0x53, code)) + codec.encode(value)


def received(payload: bytes, **marks: Any) -> brokered.Received:
    (incoming,) = wire_message.read(payload, 0, ttl_ceiling_ms=None, new_id=lambda: "new")
    return brokered.read(Delivered(1, incoming.record, incoming.message_id, 0, NOW_MS, **marks))


def test_everything_a_sender_can_say_comes_back() -> None:
    system = dict.fromkeys(["To", "Label", "ReplyTo", "CorrelationId", "SessionId", "ReplyToSessionId"], "x")
    system |= {"MessageId": "m", "ContentType": "text/plain", "PartitionKey": "x", "ViaPartitionKey": "y"}
    user = {"s": "text", "b": True, "i": 2**62, "f": 0.5, "d": Timestamp(NOW_MS)}
    payload = brokered.encode(b"\x00body", system | {"TimeToLive": 5_000, "ScheduledEnqueueTimeUtc": 7}, user, NOW_MS)
    found = received(payload)
    assert found.system == system | {"ScheduledEnqueueTimeUtc": 7}
    assert (found.user, found.body, found.ttl_ms) == (user, b"\x00body", 5_000)
    (incoming,) = wire_message.read(payload, 0, ttl_ceiling_ms=None, new_id=str)
    assert incoming[1:6] == ("m", "x", 5_000, 7, "x")


def test_a_message_that_says_nothing_is_a_body() -> None:
    payload = brokered.encode(b"x", {}, {}, NOW_MS)
    assert payload == section(DATA, b"x")
    assert received(payload) == brokered.Received({"MessageId": "new"}, {}, b"x", None)


@pytest.mark.parametrize("ttl_ms", [1, 2**32 - 1, 2**32, 10**12])
def test_a_time_to_live_is_kept_even_where_the_header_is_too_small_for_it(ttl_ms: int) -> None:
    assert received(brokered.encode(b"", {"TimeToLive": ttl_ms}, {}, NOW_MS)).ttl_ms == ttl_ms


@pytest.mark.parametrize(
    ("system", "user"),
    [
        ({"Label": "\ud800"}, {}),
        ({"ContentType": "größe"}, {}),
        ({}, {"n": 2**63}),
        ({}, {"\ud800": 1}),
        ({"ScheduledEnqueueTimeUtc": 2**70}, {}),
    ],
)
def test_what_amqp_cannot_say_is_refused(system: dict[str, Any], user: dict[str, Any]) -> None:
    with pytest.raises(BusError) as refused:
        brokered.encode(b"", system, user, NOW_MS)
    assert refused.value.fault is Fault.ARGUMENT


def test_application_properties_are_told_as_far_as_rest_has_their_types() -> None:
    guid = UUID(int=7)
    sent = {
        "ubyte": UByte(3),
        "int": Int(-3),
        "symbol": Symbol("s"),
        "guid": guid,
        "span": Described(Symbol("com.microsoft:timespan"), 15_000_000),
        "uri": Described(Symbol("com.microsoft:uri"), "http://x"),
        "binary": b"x",
        "null": None,
    }
    found = received(section(APPLICATION_PROPERTIES, sent) + section(DATA, b"")).user
    assert found == {"ubyte": 3, "int": -3, "symbol": "s", "guid": str(guid), "span": 1.5}


def test_why_a_message_is_dead_is_among_its_properties() -> None:
    found = received(brokered.encode(b"", {}, {"a": 1}, NOW_MS), reason="Why", description="Because")
    assert found.user == {"a": 1, "DeadLetterReason": "Why", "DeadLetterErrorDescription": "Because"}


def test_changed_properties_replace_the_senders() -> None:
    payload = brokered.encode(b"", {}, {"a": 1, "b": 1}, NOW_MS)
    (incoming,) = wire_message.read(payload, 0, ttl_ceiling_ms=None, new_id=str)
    changed = view.change(incoming.record, {"a": 2}, ["b"], {})
    assert received(payload, overlay=changed.overlay).user == {"a": 2}


@pytest.mark.parametrize(
    ("payload", "body"),
    [
        (section(DATA, b"a") + section(DATA, b"b"), b"ab"),
        (section(VALUE, "größe"), "größe".encode()),
        (section(VALUE, b"\xff"), b"\xff"),
        (section(VALUE, None), b""),
        (section(VALUE, True), b"true"),
        (section(VALUE, 7), b"7"),
        (section(VALUE, {"a": [1, None], "t": Timestamp(5)}), b'{"a":[1,null],"t":5}'),
        (section(VALUE, {7: b"\x00", "u": UUID(int=1)}), None),
        (section(VALUE, float("nan")), b'"nan"'),
        (section(VALUE, Described(Symbol("x:y"), [1])), b"[1]"),
        (section(SEQUENCE, [1, "a"]) + section(SEQUENCE, [b"\x01"]), b'[1,"a","AQ=="]'),
    ],
)
def test_a_body_of_amqp_is_told_as_bytes(payload: bytes, body: bytes | None) -> None:
    found = received(payload).body
    if body is None:
        assert json.loads(found) == {"7": "AA==", "u": str(UUID(int=1))}
    else:
        assert found == body


def test_a_body_that_cannot_be_decoded_is_told_as_it_is_encoded() -> None:
    broken = bytes((0x00, 0x53, VALUE)) + b"\xa1\x02\xff\xfe"
    assert received(broken).body == broken


def test_a_partition_key_that_came_as_binary_is_told_as_text() -> None:
    annotations = {Symbol("x-opt-partition-key"): b"key", Symbol("x-opt-via-partition-key"): 7}
    payload = section(MESSAGE_ANNOTATIONS, annotations) + section(DATA, b"")
    assert received(payload).system == {"MessageId": "new", "PartitionKey": "key", "ViaPartitionKey": 7}


def test_a_forwarded_message_tells_its_first_number_and_where_it_died() -> None:
    (incoming,) = wire_message.read(brokered.encode(b"x", {}, {}, NOW_MS), 0, ttl_ceiling_ms=None, new_id=lambda: "m")
    record = view.forwarded_dead_letter(Delivered(7, incoming.record, "m", 0, NOW_MS, reason="Why"), "here")
    found = brokered.read(Delivered(1, record, "m", 0, NOW_MS))
    assert found.system == {"MessageId": "m", "EnqueuedSequenceNumber": 7, "DeadLetterSource": "here"}
    assert found.user == {"DeadLetterReason": "Why"}
