"""A diverted message and the same message restored: what moves, what stays, and what cannot be restored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp import codec
from twinbus.amqp.types import Described, Long, Symbol, Timestamp, UInt
from twinbus.client import messages
from twinbus.client.diverting import PATH, SCHEDULED, SESSION_ID, TIME_TO_LIVE, RestoreError, divert, restore
from twinbus.client.errors import ClientError
from twinbus.pair import sdk

WHEN = datetime(2030, 5, 17, 12, 30, tzinfo=UTC)
WHEN_MS = int(WHEN.timestamp() * 1000)


def full() -> bytes:
    """A message of the official SDK with everything that can be set."""
    message = ServiceBusMessage(
        b"body \x00 bytes",
        message_id="id-1",
        session_id="session-7",
        partition_key="session-7",
        subject="subject",
        content_type="text/plain",
        correlation_id="correlation",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply-session",
        time_to_live=timedelta(minutes=3),
        scheduled_enqueue_time_utc=WHEN,
        application_properties={"text": "x", "number": 7, "real": 1.5, "yes": True, "when": WHEN, "bytes": b"\x01"},
    )
    return sdk.encoded(message)[0]


def test_a_diverted_message_has_no_session_no_life_and_no_schedule_and_knows_its_destination() -> None:
    told = messages.read(divert(full(), "orders"))

    assert (told.session_id, told.ttl_ms, told.scheduled_at_ms) == (None, None, None)
    assert told.properties[PATH] == "orders"
    assert told.properties[SESSION_ID] == "session-7"
    assert told.properties[TIME_TO_LIVE] == 3 * 60 * 10_000_000
    assert told.properties[SCHEDULED] == WHEN


def test_everything_else_stays_as_it_is() -> None:
    before, after = messages.read(full()), messages.read(divert(full(), "orders"))

    for name in ("body", "message_id", "subject", "content_type", "correlation_id", "to", "reply_to", "partition_key"):
        assert getattr(after, name) == getattr(before, name)
    assert after.reply_to_session_id == before.reply_to_session_id
    assert {name: after.properties[name] for name in before.properties} == before.properties


def test_the_syphon_restores_what_was_sent() -> None:
    restored = restore(divert(full(), "Orders/eu"))

    assert restored.path == "Orders/eu"
    assert restored.message_id == "id-1"
    assert messages.read(restored.payload) == messages.read(full())


def test_sections_that_nobody_touched_keep_their_bytes() -> None:
    plain = sdk.encoded(ServiceBusMessage(b"x" * 300, message_id="m", application_properties={"a": 1}))[0]
    restored = restore(divert(plain, "q")).payload

    assert codec.encode("a") + codec.encode(Long(1)) in restored or b"\xa1\x01a" in restored
    assert restored.endswith(plain[plain.index(b"\x00\x53\x75") :][-300:])


@given(
    st.none() | st.text(min_size=1, max_size=128).filter(lambda t: "\0" not in t),
    st.none() | st.integers(min_value=1, max_value=0xFFFFFFFF),
    st.none() | st.integers(min_value=0, max_value=2**45),
    st.binary(max_size=600),
    st.dictionaries(st.text(min_size=1, max_size=20), st.integers(-(2**31), 2**31 - 1) | st.text(max_size=300)),
)
def test_any_message_comes_back_as_it_was(
    session: str | None, ttl_ms: int | None, due: int | None, body: bytes, properties: dict[str, Any]
) -> None:
    sent = messages.build(body, message_id="m", session_id=session, ttl_ms=ttl_ms, due_at_ms=due, properties=properties)

    restored = restore(divert(sent, "q"))

    assert messages.read(restored.payload) == messages.read(sent)


def test_a_life_beyond_what_a_header_can_say_survives() -> None:
    days_ms = 100 * 24 * 3_600_000
    header = b"\x00\x53\x70" + codec.encode([True, None, UInt(0xFFFFFFFF)])
    fields = ["m", *[None] * 7, Timestamp(WHEN_MS + days_ms), Timestamp(WHEN_MS)]
    sent = header + b"\x00\x53\x73" + codec.encode(fields) + b"\x00\x53\x75\xa0\x00"

    assert messages.read(divert(sent, "q")).properties[TIME_TO_LIVE] == days_ms * 10_000
    assert restore(divert(sent, "q")).payload == sent


def test_a_message_without_an_id_gets_one_that_it_keeps() -> None:
    diverted = divert(messages.build(b"x"), "q", lambda: "made-up")

    assert messages.read(diverted).message_id == "made-up"
    assert restore(diverted).message_id == "made-up"
    assert messages.read(divert(messages.build(b"x", message_id="own"), "q", lambda: "no")).message_id == "own"


def test_what_the_backlog_queue_said_about_a_message_does_not_travel() -> None:
    diverted = divert(messages.build(b"x", message_id="m"), "q")
    annotations = b"\x00\x53\x72" + codec.encode(
        {Symbol("x-opt-sequence-number"): Long(5), Symbol("x-opt-partition-key"): "k", Symbol("mine"): 1}
    )
    header = b"\x00\x53\x70" + codec.encode([True, None, None, None, 3])

    told = messages.read(restore(header + annotations + diverted).payload)

    assert (told.sequence_number, told.delivery_count, told.partition_key) == (0, 0, "k")


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, "NoQueuePath"),
        ({PATH: 5}, "NoQueuePath"),
        ({PATH: ""}, "NoQueuePath"),
        ({PATH: "q", SESSION_ID: 5}, "PropertyExtractionFailed"),
        ({PATH: "q", TIME_TO_LIVE: "soon"}, "PropertyExtractionFailed"),
        ({PATH: "q", TIME_TO_LIVE: Described(Symbol("other"), Long(1))}, "PropertyExtractionFailed"),
        ({PATH: "q", SCHEDULED: 12}, "PropertyExtractionFailed"),
    ],
)
def test_a_message_that_does_not_say_where_it_belongs_cannot_be_restored(
    properties: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RestoreError) as caught:
        restore(messages.build(b"x", message_id="m-1", properties=properties))

    assert caught.value.reason == reason
    assert "m-1" in caught.value.text


def test_a_wrong_type_is_named_with_property_and_message() -> None:
    payload = messages.build(b"", message_id="m-1", properties={PATH: "q", SCHEDULED: "later"})

    with pytest.raises(RestoreError, match=r"x-ms-scheduledenqueuetimeutc of message 'm-1' should be a timestamp"):
        restore(payload)


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(ClientError):
        divert(b"\x00\x53\x99", "q")
    with pytest.raises(RestoreError):
        restore(b"\x00\x53\x99")


def test_a_timestamp_keeps_its_type() -> None:
    payload = messages.build(b"", message_id="m", properties={"when": Timestamp(5)})

    assert codec.encode(Timestamp(5)) in restore(divert(payload, "q")).payload
