"""Messages for people, and dead letters made fit to be sent again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from twinbus.amqp import codec
from twinbus.amqp.types import Described, Long, Symbol, Timestamp, UInt
from twinbus.client import ClientError, messages
from twinbus.model.message import Delivered, MessageState
from twinbus.wire import message as wire
from twinbus.wire.sections import APPLICATION_PROPERTIES, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, SEQUENCE, VALUE

NOW_MS = 1_700_000_000_000


def section(code: int, value: Any) -> bytes:
    return bytes((0x00, 0x53, code)) + codec.encode(value)


def delivered(payload: bytes, **told: Any) -> bytes:
    """What the broker makes of a sender's payload."""
    (incoming,) = wire.read(payload, 0, ttl_ceiling_ms=None, new_id=lambda: "made-up")
    facts: dict[str, Any] = {"delivery_count": 3, "enqueued_at_ms": NOW_MS, **told}
    stamped = Delivered(42, incoming.record, incoming.message_id, **facts)
    return wire.stamp(stamped, locked="token" in told)


def test_what_a_sender_says_is_read() -> None:
    payload = messages.build(
        b"hello",
        message_id="id-1",
        session_id="s",
        subject="greeting",
        correlation_id="c",
        content_type="text/plain",
        ttl_ms=5000,
        due_at_ms=NOW_MS,
        partition_key="s",
        properties={"colour": "blue", "size": 5},
    )
    assert messages.read(payload) == messages.Message(
        body=b"hello",
        message_id="id-1",
        session_id="s",
        subject="greeting",
        correlation_id="c",
        content_type="text/plain",
        ttl_ms=5000,
        scheduled_at_ms=NOW_MS,
        partition_key="s",
        properties={"colour": "blue", "size": 5},
    )


def test_what_the_broker_says_is_read() -> None:
    payload = delivered(
        messages.build(b"", message_id="id-1"),
        state=MessageState.DEFERRED,
        token=bytes(16),
        locked_until_ms=NOW_MS + 30_000,
        reason="broken",
        description="no address",
    )
    found = messages.read(payload)
    assert (found.sequence_number, found.delivery_count, found.state) == (42, 3, MessageState.DEFERRED)
    assert (found.enqueued_at_ms, found.locked_until_ms) == (NOW_MS, NOW_MS + 30_000)
    assert (found.dead_letter_reason, found.dead_letter_description) == ("broken", "no address")


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        ("plain", "plain"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (7, "7"),
        (b"\x01\xff", "01ff"),
        (None, None),
    ],
)
def test_an_id_of_any_type_has_one_spelling(message_id: Any, text: str | None) -> None:
    assert messages.read(section(PROPERTIES, [message_id])).message_id == text


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("text", "text"),
        (Symbol("sym"), "sym"),
        (b"\x00", b"\x00"),
        (Timestamp(NOW_MS), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (Timestamp(2**62), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (Timestamp(-(2**62)), datetime(1, 1, 1, tzinfo=UTC)),
        ({"a": [UInt(1), Described(Long(1), True), None]}, {"a": [1, True, None]}),
        (1.5, 1.5),
    ],
)
def test_a_body_that_is_a_value_becomes_a_plain_one(value: Any, plain: Any) -> None:
    body = messages.read(section(VALUE, value)).body
    assert body == plain
    assert type(body) is type(plain)


def test_several_sections_of_a_body_are_one_body() -> None:
    halves = messages.build(b"one, ") + messages.build(b"two")
    assert messages.read(halves).body == b"one, two"
    assert messages.read(section(SEQUENCE, [1]) + section(SEQUENCE, ["b"])).body == [1, "b"]


@pytest.mark.parametrize("payload", [b"\x00", b"nonsense", b"\x00\x53\x75\xa0\xff", section(PROPERTIES, "no list")])
def test_what_is_no_message_is_told_so(payload: bytes) -> None:
    with pytest.raises(ClientError, match="cannot be read"):
        messages.read(payload)
    with pytest.raises(ClientError, match="cannot be read"):
        messages.again(payload)


def test_a_dead_letter_is_sent_again_as_its_sender_sent_it() -> None:
    original = messages.build(
        b"hello",
        message_id="id-1",
        session_id="s",
        subject="greeting",
        ttl_ms=5000,
        partition_key="s",
        properties={"colour": "blue"},
    )
    dead = delivered(original, reason="broken", description="no address", token=bytes(16), locked_until_ms=1)
    sent = messages.again(dead)
    assert messages.read(sent) == messages.read(original)
    # It is what the broker would make of the original, byte for byte.
    one, two = (wire.read(payload, 0, ttl_ceiling_ms=None, new_id=str) for payload in (original, sent))
    assert wire.bare_message(one[0].record) == wire.bare_message(two[0].record)


def test_again_drops_the_schedule_and_keeps_what_is_not_the_brokers() -> None:
    annotations = {
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW_MS),
        Symbol("x-opt-sequence-number"): Long(1),
        Symbol("x-opt-partition-key"): "k",
        Symbol("my-own"): "kept",
    }
    payload = section(HEADER, [True, None, UInt(5000), None, UInt(9)]) + section(MESSAGE_ANNOTATIONS, annotations)
    again = messages.again(payload + messages.build(b"x", message_id="id"))
    header, annotated = codec.decode(again, 0)[0], codec.decode(again, codec.decode(again, 0)[1])[0]
    assert header.value == [True, None, 5000]
    assert annotated.value == {"x-opt-partition-key": "k", "my-own": "kept"}


def test_again_can_give_a_new_id_and_changes_nothing_else() -> None:
    payload = messages.build(b"hello", message_id="old", subject="kept", properties={"a": 1})
    found = messages.read(messages.again(payload, "new"))
    assert found == messages.Message(body=b"hello", message_id="new", subject="kept", properties={"a": 1})
    assert messages.read(messages.again(section(PROPERTIES, []), "new")).message_id == "new"


def test_again_leaves_no_empty_section_behind() -> None:
    payload = section(APPLICATION_PROPERTIES, {"DeadLetterReason": "broken"}) + messages.build(b"x")
    assert messages.again(payload) == messages.build(b"x")


def test_properties_are_added_beside_the_senders_own_which_keep_their_types() -> None:
    payload = messages.build(b"body", message_id="m", properties={"n": 7, "why": "old"})
    found = messages.read(messages.with_properties(payload, {"why": "new", "more": "x"}))
    assert found.properties == {"n": 7, "why": "new", "more": "x"}
    assert (found.body, found.message_id) == (b"body", "m")
    assert messages.read(messages.with_properties(messages.build(b"body"), {"a": "b"})).properties == {"a": "b"}


def test_again_leaves_out_properties_that_are_named() -> None:
    payload = messages.build(b"x", properties={"mark": "mine", "a": 1})
    assert messages.read(messages.again(payload, without=("mark", "other"))).properties == {"a": 1}


def test_number_and_lock_are_found_without_reading_the_rest() -> None:
    disguise = b"\xa3\x15x-opt-sequence-number\x81" + bytes(8)  # A body that looks like what a broker writes.
    locked = delivered(messages.build(disguise), token=bytes(16), locked_until_ms=NOW_MS + 5)
    assert messages.stamped(locked) == messages.Stamp(42, NOW_MS + 5)
    assert messages.stamped(delivered(messages.build(disguise))) == messages.Stamp(42, None)


def test_number_and_lock_are_found_however_they_are_written() -> None:
    told = {Symbol("x-opt-locked-until"): Timestamp(NOW_MS), Symbol("x-opt-sequence-number"): Long(7)}
    payload = section(MESSAGE_ANNOTATIONS, told)
    assert b"\x55\x07" in payload  # A long in one byte, as others may write it.
    assert messages.stamped(payload + messages.build(b"x")) == messages.Stamp(7, NOW_MS)


def test_addresses_for_answers_are_sent() -> None:
    found = messages.read(messages.build(b"x", to="there", reply_to="here", reply_to_session_id="s"))
    assert (found.to, found.reply_to, found.reply_to_session_id) == ("there", "here", "s")
