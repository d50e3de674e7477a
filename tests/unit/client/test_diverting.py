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
from twinbus.client.diverting import NO_ID, PATH, SCHEDULED, SESSION_ID, TIME_TO_LIVE, RestoreError, divert, restore
from twinbus.client.errors import ClientError
from twinbus.pair.sdk import messages as sdk

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


@pytest.mark.parametrize("name", [PATH, SESSION_ID, TIME_TO_LIVE, "x-twinbus-own-", f"x-twinbus-own-{PATH}"])
@pytest.mark.parametrize("value", ["mine", 7])
def test_a_property_of_the_applications_that_is_called_as_one_of_ours_comes_back(name: str, value: object) -> None:
    sent = messages.build(b"x", message_id="m", properties={name: value, "other": 1})

    restored = restore(divert(sent, "q"))

    assert restored.path == "q"
    assert messages.read(restored.payload) == messages.read(sent)


def test_the_aliases_are_called_as_documented() -> None:
    names = messages.read(divert(full(), "orders")).properties.keys() - messages.read(full()).properties.keys()

    assert names == {"x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc"}


ALIASES = ["x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc", "x-ms-partitionkey"]
VALUES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=300) | st.binary(max_size=20) | st.uuids()


@given(
    st.dictionaries(
        st.sampled_from([*ALIASES, NO_ID, "x-twinbus-own-", "x-twinbus-own-x-ms-path"]) | st.text(max_size=9), VALUES
    ),
    st.booleans(),
    st.sampled_from([None, "in-order"]),
)
def test_properties_come_back_whatever_they_are_called(
    properties: dict[str, Any], with_everything: bool, backlog_session: str | None
) -> None:
    given = {"session_id": "s", "ttl_ms": 5000, "due_at_ms": WHEN_MS} if with_everything else {}
    sent = messages.build(b"x", message_id="m", properties=properties, **given)

    restored = restore(divert(sent, "q", None, backlog_session))

    assert restored.path == "q"
    assert messages.read(restored.payload) == messages.read(sent)


# What a broker puts in front of a message that it delivers: a header that says nothing but its deliveries.
DELIVERED = b"\x00\x53\x70" + codec.encode([None, None, None, None, UInt(1)])
DELIVERED += b"\x00\x53\x72" + codec.encode({Symbol("x-opt-sequence-number"): Long(5)})


@given(
    st.integers(0, 400),
    st.none() | st.text(min_size=1, max_size=128),
    st.none() | st.text(min_size=1, max_size=128),
    st.none() | st.integers(1, 10**6),
    st.booleans(),
    st.dictionaries(st.text(max_size=20), st.integers(-(2**31), 2**31 - 1) | st.text(max_size=300), max_size=5),
    st.sampled_from([None, "in-order"]),
)
def test_a_message_comes_home_no_larger_than_it_was(
    size: int,
    message_id: str | None,
    session: str | None,
    ttl_s: int | None,
    scheduled: bool,
    properties: dict[str, Any],
    backlog_session: str | None,
) -> None:
    message = ServiceBusMessage(
        b"x" * size,
        session_id=session,
        time_to_live=None if ttl_s is None else timedelta(seconds=ttl_s),
        scheduled_enqueue_time_utc=WHEN if scheduled else None,
        application_properties=properties or None,
    )
    message.message_id = message_id
    sent = sdk.encoded(message)[0]

    diverted = divert(sent, "q", lambda: "0" * 32, backlog_session, bytes_max=len(sent))
    header = DELIVERED if not diverted.startswith(b"\x00\x53\x70") else b""
    restored = restore(header + diverted, WHEN_MS)

    assert len(restored.payload) <= len(sent)
    assert messages.read(restored.payload).message_id == message_id


def test_an_id_that_we_made_stays_where_there_is_room() -> None:
    sent = messages.build(b"x")

    for bytes_max, expected in ((None, "made-up"), (len(sent) + 64, "made-up"), (len(sent) + 63, None)):
        diverted = divert(sent, "q", lambda: "made-up", bytes_max=bytes_max)
        assert messages.read(diverted).message_id == "made-up"
        assert messages.read(restore(diverted).payload).message_id == expected


def test_a_life_begins_anew_with_both_instants() -> None:
    sent = sdk.encoded(ServiceBusMessage(b"x", message_id="m", time_to_live=timedelta(minutes=3)))[0]

    restored = restore(divert(sent, "q"), WHEN_MS).payload
    fields = codec.decode(restored, restored.index(b"\x00\x53\x73") + 3)[0]

    assert fields[8:10] == [Timestamp(WHEN_MS + 180_000), Timestamp(WHEN_MS)]


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
