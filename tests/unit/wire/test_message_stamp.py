"""What a receiver gets, as the official client reads it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceivedMessage
from azure.servicebus._pyamqp.message import Message as AmqpMessage

from twinbus.amqp import codec
from twinbus.amqp.types import Symbol
from twinbus.model.message import Delivered, Incoming, MessageState
from twinbus.wire.message import bare_message, merge_properties, stamp, within_ttl
from twinbus.wire.outgoing import build

Read = Callable[..., Incoming]
Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]
AtRest = Callable[..., Delivered]

TOKEN = UUID("00112233-4455-6677-8899-aabbccddeeff")
ENQUEUED_MS = 1_700_000_000_000
LOCKED_MS = 1_700_000_030_000
PLAIN = {b"x-opt-enqueued-time": ENQUEUED_MS, b"x-opt-sequence-number": 1}
LOCKED = {**PLAIN, b"x-opt-locked-until": LOCKED_MS}


@pytest.fixture
def plain(azure_encode: Encode, read_one: Read) -> Incoming:
    return read_one(azure_encode(ServiceBusMessage(b"body", message_id="m", partition_key="p")))


class TestAnnotations:
    def test_a_locked_message_has_exactly_these(self, plain: Incoming, at_rest: AtRest, azure_decode: Decode) -> None:
        message = azure_decode(stamp(at_rest(plain), locked=True))
        assert message.message_annotations == {**LOCKED, b"x-opt-partition-key": b"p"}
        assert message.delivery_annotations == {b"x-opt-lock-token": TOKEN}

    def test_a_removed_message_has_exactly_these(self, plain: Incoming, at_rest: AtRest, azure_decode: Decode) -> None:
        message = azure_decode(stamp(at_rest(plain, token=b""), locked=False))
        assert message.message_annotations == {**PLAIN, b"x-opt-partition-key": b"p"}
        assert message.delivery_annotations == {}

    @pytest.mark.parametrize("state", list(MessageState))
    def test_a_peeked_message_tells_its_state_and_no_lock(
        self, plain: Incoming, at_rest: AtRest, azure_decode: Decode, state: MessageState
    ) -> None:
        message = azure_decode(stamp(at_rest(plain, state=state), locked=False, peeked=True))
        assert message.message_annotations == {
            **PLAIN,
            b"x-opt-partition-key": b"p",
            b"x-opt-message-state": int(state),
        }

    def test_a_deferred_message_that_is_received_tells_its_state(
        self, plain: Incoming, at_rest: AtRest, azure_decode: Decode
    ) -> None:
        message = azure_decode(stamp(at_rest(plain, state=MessageState.DEFERRED), locked=True))
        assert message.message_annotations == {**LOCKED, b"x-opt-partition-key": b"p", b"x-opt-message-state": 1}

    def test_the_scheduled_time_is_kept(
        self, azure_encode: Encode, read_one: Read, at_rest: AtRest, azure_decode: Decode
    ) -> None:
        due = datetime(2030, 1, 1, tzinfo=UTC)
        incoming = read_one(azure_encode(ServiceBusMessage(b"", scheduled_enqueue_time_utc=due)))
        message = azure_decode(stamp(at_rest(incoming), locked=True))
        assert message.message_annotations == {
            **LOCKED,
            b"x-opt-scheduled-enqueue-time": int(due.timestamp() * 1000),
        }

    def test_numbers_keep_their_range(self, plain: Incoming, at_rest: AtRest, azure_decode: Decode) -> None:
        number = (15 << 48) + 12345
        message = azure_decode(stamp(at_rest(plain, sequence_number=number, delivery_count=2**31), locked=True))
        assert message.message_annotations[b"x-opt-sequence-number"] == number
        assert message.header.delivery_count == 2**31

    def test_many_large_annotations_of_the_sender(self, read_one: Read, at_rest: AtRest, azure_decode: Decode) -> None:
        sent = {Symbol(f"a-{n}"): "x" * n for n in range(300)}
        incoming = read_one(b"\x00\x53\x72" + codec.encode(sent) + build(b"x", message_id="m"))
        message = azure_decode(stamp(at_rest(incoming), locked=True))
        assert message.message_annotations == {**LOCKED, **{k.encode(): v.encode() for k, v in sent.items()}}


class TestHeader:
    def test_fields_the_sender_left_out_stay_out(self, plain: Incoming, at_rest: AtRest, azure_decode: Decode) -> None:
        header = azure_decode(stamp(at_rest(plain, delivery_count=3), locked=True)).header
        assert tuple(header) == (None, None, None, None, 3)

    def test_fields_the_sender_set_come_back(
        self, proton: Any, read_one: Read, at_rest: AtRest, azure_decode: Decode
    ) -> None:
        sent = proton.Message(id="m", durable=True, priority=9, ttl=5.0, first_acquirer=True, body=b"x")
        sent.delivery_count = 8
        header = azure_decode(stamp(at_rest(read_one(bytes(sent.encode()))), locked=True)).header
        assert tuple(header) == (True, 9, 5000, True, 0)


class TestBareMessage:
    def test_is_sent_as_it_came(
        self, azure_encode: Encode, read_one: Read, at_rest: AtRest, azure_decode: Decode
    ) -> None:
        payload = azure_encode(
            ServiceBusMessage(
                "ä body",
                message_id="m",
                session_id="s",
                time_to_live=timedelta(minutes=1),
                content_type="c/t",
                application_properties={"k": 1},
            )
        )
        incoming = read_one(payload)
        sent = stamp(at_rest(incoming), locked=True)
        assert sent.endswith(bare_message(incoming.record))
        before, after = azure_decode(payload), azure_decode(sent)
        assert after.properties == before.properties
        assert after.application_properties == before.application_properties
        assert after.data == before.data
        assert after.header.ttl == before.header.ttl == 60_000

    def test_proton_reads_it(self, proton: Any, plain: Incoming, at_rest: AtRest) -> None:
        message = proton.Message()
        message.decode(stamp(at_rest(plain, delivery_count=2), locked=True))
        assert (message.id, message.delivery_count, message.body) == ("m", 2, b"body")
        assert message.instructions == {"x-opt-lock-token": TOKEN}


class TestChangedProperties:
    def test_an_overlay_replaces_the_sent_ones(self, read_one: Read, at_rest: AtRest, azure_decode: Decode) -> None:
        incoming = read_one(build(b"body", message_id="m", properties={"a": 1, "b": "two"}))
        overlay = merge_properties(incoming.record, None, {"b": "changed", Symbol("c"): 3})
        message = azure_decode(stamp(at_rest(incoming, overlay=overlay), locked=True))
        assert message.application_properties == {b"a": 1, b"b": b"changed", b"c": 3}
        assert message.data == [b"body"]

    def test_changes_add_up(self, read_one: Read, at_rest: AtRest, azure_decode: Decode) -> None:
        incoming = read_one(build(b"body", message_id="m"))
        first = merge_properties(incoming.record, None, {"a": 1})
        second = merge_properties(incoming.record, first, {"b": None})
        message = azure_decode(stamp(at_rest(incoming, overlay=second), locked=False))
        assert message.application_properties == {b"a": 1, b"b": None}

    @pytest.mark.parametrize("properties", [None, {}, {"a": 1}, {"DeadLetterReason": "old", "a": 1}])
    @pytest.mark.parametrize(("reason", "description"), [("why", "because"), ("why", None), (None, "ä" * 4096)])
    def test_why_it_was_dead_lettered_is_told_as_the_client_reads_it(
        self,
        read_one: Read,
        at_rest: AtRest,
        azure_decode: Decode,
        properties: dict[str, Any] | None,
        reason: str | None,
        description: str | None,
    ) -> None:
        incoming = read_one(build(b"body", message_id="m", properties=properties))
        sent = stamp(at_rest(incoming, reason=reason, description=description), locked=True)
        received = received_message(azure_decode(sent))
        assert received.dead_letter_error_description == description
        assert received.dead_letter_reason == (reason or (properties or {}).get("DeadLetterReason"))
        assert (received.application_properties or {}).get(b"a") == (properties or {}).get("a")
        assert next(received.body) == b"body"

    def test_a_message_without_any_body_or_properties(
        self, read_one: Read, at_rest: AtRest, azure_decode: Decode
    ) -> None:
        message = azure_decode(stamp(at_rest(read_one(b""), reason="why"), locked=True))
        assert message.properties.message_id == b"f" * 32
        assert message.application_properties == {b"DeadLetterReason": b"why"}


def received_message(message: AmqpMessage) -> ServiceBusReceivedMessage:
    frame = [0, 0, TOKEN.bytes_le, 0, False, False]
    return ServiceBusReceivedMessage(message, receive_mode="peeklock", receiver=None, frame=frame)


def test_the_official_client_finds_everything_it_looks_for(
    azure_encode: Encode, read_one: Read, at_rest: AtRest, azure_decode: Decode
) -> None:
    incoming = read_one(
        azure_encode(ServiceBusMessage(b"x", message_id="m", session_id="s", time_to_live=timedelta(seconds=5)))
    )
    delivered = at_rest(incoming, state=MessageState.DEFERRED, delivery_count=4, sequence_number=77)
    received = received_message(azure_decode(stamp(delivered, locked=True)))
    assert received.message_id == "m"
    assert received.session_id == "s"
    assert received.sequence_number == 77
    assert received.delivery_count == 4
    assert received.state is ServiceBusMessageState.DEFERRED
    assert received.lock_token == TOKEN
    assert received.enqueued_time_utc == datetime.fromtimestamp(ENQUEUED_MS / 1000, UTC)
    assert received.locked_until_utc == datetime.fromtimestamp(LOCKED_MS / 1000, UTC)
    assert received.expires_at_utc == received.enqueued_time_utc + timedelta(seconds=5)


class TestTimeToLiveOfCopies:
    @pytest.mark.parametrize(
        ("sent_s", "ceiling_ms", "told_s"), [(60, 5_000, 5), (60, 90_000, 60), (None, 5_000, 5), (None, None, None)]
    )
    def test_the_shorter_one_is_told_and_nothing_else_changes(
        self,
        azure_encode: Encode,
        read_one: Read,
        at_rest: AtRest,
        azure_decode: Decode,
        sent_s: int | None,
        ceiling_ms: int | None,
        told_s: int | None,
    ) -> None:
        ttl = None if sent_s is None else timedelta(seconds=sent_s)
        message = ServiceBusMessage(b"body", message_id="m", partition_key="p", time_to_live=ttl)
        kept = at_rest(read_one(azure_encode(message)))
        (told,) = within_ttl([kept], ceiling_ms)
        before, after = (azure_decode(stamp(one, locked=True)) for one in (kept, told))
        assert after.header.ttl == (None if told_s is None else told_s * 1000)
        assert after.header.delivery_count == before.header.delivery_count
        assert (after.message_annotations, after.data) == (before.message_annotations, before.data)
        assert bare_message(told.record) == bare_message(kept.record)
