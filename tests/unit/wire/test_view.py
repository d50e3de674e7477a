"""Records as rules see them: what is read out of a message, and what an action's changes make of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage

from twinbus.amqp import codec
from twinbus.amqp.types import Int, Long, Symbol, Timestamp, UInt, ULong
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Incoming
from twinbus.wire import view
from twinbus.wire.message import stamp
from twinbus.wire.outgoing import build
from twinbus.wire.sections import PROPERTIES, list_section

ReadOne = Callable[..., Incoming]
AtRest = Callable[..., Delivered]
Decode = Callable[[bytes], Any]
Encode = Callable[[ServiceBusMessage], bytes]

DATA = b"\x00\x53\x75\xa0\x01x"


def with_fields(*fields: Any) -> bytes:
    """A message whose properties section has exactly these fields."""
    return list_section(PROPERTIES, len(fields), b"".join(map(codec.encode, fields))) + DATA


@pytest.fixture
def full(azure_encode: Encode, read_one: ReadOne) -> bytes:
    """The record of a message in which the official client has set everything that rules can ask for."""
    message = ServiceBusMessage(
        "body",
        message_id="id",
        correlation_id="correlation",
        to="destination",
        reply_to="answers",
        subject="label",
        session_id="session",
        reply_to_session_id="answer session",
        content_type="text/plain",
        partition_key="session",
        scheduled_enqueue_time_utc=datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC),
        time_to_live=datetime.timedelta(seconds=90),
        application_properties={"colour": "red", "size": 10},
    )
    return read_one(azure_encode(message)).record


@pytest.fixture
def told(at_rest: AtRest, azure_decode: Decode) -> Callable[[bytes, view.Changed], Any]:
    """What the official client reads out of a changed copy."""

    def tell(record: bytes, changed: view.Changed) -> Any:
        incoming = Incoming(changed.record or record, "id")
        return azure_decode(stamp(at_rest(incoming, overlay=changed.overlay), locked=True))

    return tell


class TestSystemProperties:
    def test_everything_that_the_official_client_sets_is_found_by_its_name(self, full: bytes) -> None:
        assert view.system_properties(full) == {
            "Size": len(full),
            "MessageId": "id",
            "CorrelationId": "correlation",
            "To": "destination",
            "ReplyTo": "answers",
            "Label": "label",
            "SessionId": "session",
            "ReplyToSessionId": "answer session",
            "ContentType": "text/plain",
            "PartitionKey": "session",
            "ScheduledEnqueueTimeUtc": 1_893_456_000_000,
            "TimeToLive": 90_000,
        }

    def test_texts_are_plain_texts_whatever_they_were_sent_as(self, full: bytes) -> None:
        assert {type(value) for value in view.system_properties(full).values()} == {int, str, Timestamp}

    def test_what_is_not_set_is_left_out(self, read_one: ReadOne) -> None:
        record = read_one(build(b"x", message_id="m", session_id="s")).record
        assert view.system_properties(record) == {"Size": len(record), "MessageId": "m", "SessionId": "s"}

    def test_a_message_without_properties_has_the_id_that_the_broker_gave_it(self, read_one: ReadOne) -> None:
        assert view.system_properties(read_one(DATA).record)["MessageId"] == "f" * 32

    @pytest.mark.parametrize(
        ("sent", "seen"),
        [
            ("text", "text"),
            (UUID("00112233-4455-6677-8899-aabbccddeeff"), "00112233-4455-6677-8899-aabbccddeeff"),
            (ULong(7), "7"),
            (b"\x01\xff", "01ff"),
        ],
    )
    def test_ids_of_every_type_have_one_spelling(self, read_one: ReadOne, sent: Any, seen: str) -> None:
        incoming = read_one(with_fields(sent, None, None, None, None, sent))
        found = view.system_properties(incoming.record)
        assert (found["MessageId"], found["CorrelationId"]) == (seen, seen)
        assert incoming.message_id == seen


class TestUserProperties:
    def test_values_come_with_their_types(self, azure_encode: Encode, read_one: ReadOne) -> None:
        instant = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
        sent: dict[str | bytes, Any] = {
            "text": "red",
            "number": 7,
            "real": 2.5,
            "flag": True,
            "id": UUID(int=5),
            "price": Decimal("1.25"),
            "at": instant,
        }
        record = read_one(azure_encode(ServiceBusMessage("body", application_properties=sent))).record
        found = view.user_properties(record)
        assert found == {**sent, "at": int(instant.timestamp() * 1000)}
        assert found["flag"] is True
        assert isinstance(found["at"], Timestamp)

    def test_names_keep_their_case(self, read_one: ReadOne) -> None:
        record = read_one(build(b"x", message_id="m", properties={"Colour": "red", "colour": "blue"})).record
        assert view.user_properties(record) == {"Colour": "red", "colour": "blue"}

    def test_a_message_may_have_none(self, read_one: ReadOne) -> None:
        assert view.user_properties(read_one(DATA).record) == {}


class TestTimeToLive:
    @pytest.mark.parametrize("ttl_ms", [1, 255, 256, 90_000, 2**32 - 1])
    def test_it_is_what_the_sender_gave(self, read_one: ReadOne, ttl_ms: int) -> None:
        assert view.ttl_ms(read_one(build(b"x", message_id="m", ttl_ms=ttl_ms)).record) == ttl_ms

    def test_a_message_may_have_none(self, read_one: ReadOne) -> None:
        assert view.ttl_ms(read_one(build(b"x", message_id="m")).record) is None
        assert view.ttl_ms(read_one(DATA).record) is None

    def test_a_ceiling_that_was_applied_when_the_message_came_still_holds(self, read_one: ReadOne) -> None:
        given = build(b"x", message_id="m", ttl_ms=90_000)
        assert view.ttl_ms(read_one(given, ttl_ceiling_ms=5_000).record) == 5_000
        assert view.ttl_ms(read_one(DATA, ttl_ceiling_ms=5_000).record) == 5_000

    def test_annotations_behind_the_header_do_not_disturb(self, full: bytes, read_one: ReadOne) -> None:
        payload = build(b"x", message_id="m", ttl_ms=300, due_at_ms=5_000, partition_key="p")
        assert view.ttl_ms(read_one(payload).record) == 300
        assert view.ttl_ms(full) == 90_000


class TestChange:
    def test_application_properties_are_set_added_and_removed(
        self, full: bytes, told: Callable[[bytes, view.Changed], Any]
    ) -> None:
        changed = view.change(full, {"colour": "blue", "new": 1.5}, ["size"], {})
        assert changed.record is None, "the body is shared as long as only application properties change"
        message = told(full, changed)
        assert message.application_properties == {b"colour": b"blue", b"new": 1.5}
        assert message.properties.message_id == b"id"
        assert b"".join(message.data) == b"body"

    def test_without_changes_there_is_nothing_to_keep(self, full: bytes) -> None:
        assert view.change(full, {}, [], {}) == (None, None)

    def test_removing_a_name_that_is_not_there_changes_no_value(
        self, full: bytes, told: Callable[[bytes, view.Changed], Any]
    ) -> None:
        message = told(full, view.change(full, {}, ["absent"], {}))
        assert message.application_properties == {b"colour": b"red", b"size": 10}

    def test_everything_can_be_removed(self, full: bytes, told: Callable[[bytes, view.Changed], Any]) -> None:
        assert not told(full, view.change(full, {}, ["colour", "size"], {})).application_properties

    def test_every_system_property_of_the_message_can_be_set(
        self, full: bytes, told: Callable[[bytes, view.Changed], Any]
    ) -> None:
        changes = {
            "MessageId": "id 2",
            "CorrelationId": "correlation 2",
            "To": "destination 2",
            "ReplyTo": "answers 2",
            "Label": "label 2",
            "SessionId": "session 2",
            "ReplyToSessionId": "answer session 2",
            "ContentType": "text/html",
            "PartitionKey": "partition 2",
            "ViaPartitionKey": "via 2",
            "ScheduledEnqueueTimeUtc": 1_900_000_000_000,
            "TimeToLive": 60_000,
        }
        changed = view.change(full, {}, [], changes)
        assert changed.overlay is None
        assert changed.record is not None
        found = view.system_properties(changed.record)
        assert found == {**changes, "Size": len(changed.record)}
        message = told(full, changed)
        assert message.properties.subject == b"label 2"
        assert message.properties.group_id == b"session 2"
        assert message.properties.content_type == b"text/html"
        assert message.application_properties == {b"colour": b"red", b"size": 10}
        assert message.header.ttl == 60_000
        assert message.message_annotations[b"x-opt-partition-key"] == b"partition 2"
        assert message.message_annotations[b"x-opt-scheduled-enqueue-time"] == 1_900_000_000_000
        assert b"".join(message.data) == b"body"

    def test_a_time_to_live_beyond_what_the_header_can_say_is_the_longest_it_can(
        self, full: bytes, told: Callable[[bytes, view.Changed], Any]
    ) -> None:
        assert told(full, view.change(full, {}, [], {"TimeToLive": 2**40})).header.ttl == 2**32 - 1

    def test_header_and_annotations_can_be_given_to_a_message_without_any(
        self, read_one: ReadOne, told: Callable[[bytes, view.Changed], Any]
    ) -> None:
        record = read_one(DATA).record
        message = told(record, view.change(record, {}, [], {"TimeToLive": 60_000, "PartitionKey": "p"}))
        assert message.header.ttl == 60_000
        assert message.message_annotations[b"x-opt-partition-key"] == b"p"
        assert b"".join(message.data) == b"x"

    def test_a_content_type_is_a_symbol_as_the_specification_wants_it(self, full: bytes) -> None:
        changed = view.change(full, {}, [], {"ContentType": "text/html"})
        assert changed.record is not None
        assert codec.encode(Symbol("text/html")) in changed.record

    def test_one_system_property_leaves_the_others_as_they_are(self, full: bytes) -> None:
        changed = view.change(full, {}, [], {"Label": "other"})
        assert changed.record is not None
        assert view.system_properties(changed.record) == {
            **view.system_properties(full),
            "Label": "other",
            "Size": len(changed.record),
        }

    def test_a_system_property_can_be_taken_away(self, full: bytes) -> None:
        gone = ("Label", "ContentType", "PartitionKey", "TimeToLive")
        changed = view.change(full, {}, [], dict.fromkeys(gone))
        assert changed.record is not None
        found = view.system_properties(changed.record)
        assert found == {
            **{name: value for name, value in view.system_properties(full).items() if name not in gone},
            "Size": len(changed.record),
        }

    def test_a_message_with_fewer_fields_gets_those_that_are_set(self, read_one: ReadOne) -> None:
        record = read_one(build(b"x", message_id="m")).record
        changed = view.change(record, {}, [], {"ReplyToSessionId": "r"})
        assert changed.record is not None
        assert view.system_properties(changed.record) == {
            "Size": len(changed.record),
            "MessageId": "m",
            "ReplyToSessionId": "r",
        }

    def test_both_kinds_together(self, full: bytes, told: Callable[[bytes, view.Changed], Any]) -> None:
        message = told(full, view.change(full, {"RuleName": "rule"}, ["colour"], {"To": "elsewhere"}))
        assert message.application_properties == {b"size": 10, b"RuleName": b"rule"}
        assert message.properties.to == b"elsewhere"
        assert b"".join(message.data) == b"body"

    def test_annotations_and_footer_stay(self, read_one: ReadOne, at_rest: AtRest, azure_decode: Decode) -> None:
        footer = b"\x00\x53\x78\xc1\x05\x02\xa3\x01f\x41"
        incoming = read_one(build(b"x", message_id="m", partition_key="p", due_at_ms=5_000) + footer)
        changed = view.change(incoming.record, {"a": 1}, [], {"Label": "l"})
        assert changed.record is not None
        message = azure_decode(stamp(at_rest(incoming, record=changed.record, overlay=changed.overlay), locked=False))
        assert message.message_annotations[b"x-opt-partition-key"] == b"p"
        assert message.message_annotations[b"x-opt-scheduled-enqueue-time"] == 5_000
        assert message.footer == {b"f": True}

    def test_a_message_without_properties_or_body_can_be_changed(
        self, read_one: ReadOne, told: Callable[[bytes, view.Changed], Any]
    ) -> None:
        record = read_one(b"").record
        message = told(record, view.change(record, {"a": Int(1)}, [], {"Label": "l"}))
        assert message.properties.subject == b"l"
        assert message.application_properties == {b"a": 1}

    @pytest.mark.parametrize("number", ["1.25", "-7", "0", "12345678901234567890.12345678", "1E+20", "-0.001"])
    def test_a_decimal_is_told_as_the_official_client_tells_it(
        self, azure_encode: Encode, read_one: ReadOne, number: str
    ) -> None:
        value = Decimal(number)
        theirs = read_one(
            azure_encode(ServiceBusMessage(b"x", message_id="m", application_properties={"price": value}))
        ).record
        assert view.user_properties(theirs) == {"price": value}
        ours = view.change(read_one(build(b"x", message_id="m")).record, {"price": value}, [], {})
        assert ours.overlay is not None
        assert ours.overlay in theirs

    @pytest.mark.parametrize(
        "value", [object(), "x" * 70_000, Long(2**70), Decimal("1E+7000"), Decimal("NaN"), Decimal("9" * 35)]
    )
    def test_a_value_that_no_message_can_carry_is_an_argument_error(self, full: bytes, value: object) -> None:
        with pytest.raises(BusError) as refused:
            view.change(full, {"a": value}, [], {})
        assert refused.value.fault is Fault.ARGUMENT

    def test_so_is_a_system_property(self, full: bytes) -> None:
        with pytest.raises(BusError, match="system property cannot be encoded") as refused:
            view.change(full, {}, [], {"Label": object()})
        assert refused.value.fault is Fault.ARGUMENT


class TestForwarding:
    @pytest.fixture
    def once(self, full: bytes, at_rest: AtRest) -> bytes:
        return view.forwarded(at_rest(Incoming(full, "id"), sequence_number=7))

    def test_the_first_number_is_told_and_stays(self, once: bytes, at_rest: AtRest, azure_decode: Decode) -> None:
        twice = view.forwarded(at_rest(Incoming(once, "id"), sequence_number=99))
        for record in (once, twice):
            told = azure_decode(stamp(at_rest(Incoming(record, "id"), sequence_number=3), locked=True))
            assert told.message_annotations[b"x-opt-enqueue-sequence-number"] == 7
            assert told.message_annotations[b"x-opt-sequence-number"] == 3
            assert told.message_annotations[b"x-opt-partition-key"] == b"session"
            assert told.properties.message_id == b"id"
            assert told.data == [b"body"]

    def test_hops_are_counted_and_no_receiver_sees_them(
        self, full: bytes, once: bytes, at_rest: AtRest, azure_decode: Decode
    ) -> None:
        record = full
        for count in range(5):
            assert view.hops(record) == count
            record = view.forwarded(at_rest(Incoming(record, "id")))
        before, after = (
            azure_decode(stamp(at_rest(Incoming(each, "id")), locked=True)).message_annotations
            for each in (once, record)
        )
        assert before.keys() == after.keys()

    def test_changed_properties_become_part_of_it(self, full: bytes, at_rest: AtRest) -> None:
        overlay = view.change(full, {"size": 11}, (), {}).overlay
        record = view.forwarded(at_rest(Incoming(full, "id"), overlay=overlay))
        assert view.user_properties(record) == {"colour": "red", "size": 11}

    def test_what_rules_ask_for_stays(self, full: bytes, once: bytes) -> None:
        assert view.system_properties(once) | {"Size": 0} == view.system_properties(full) | {"Size": 0}

    def test_an_action_of_a_rule_keeps_hops_and_number(
        self, once: bytes, at_rest: AtRest, azure_decode: Decode
    ) -> None:
        changed = view.change(once, {}, (), {"SessionId": "other", "TimeToLive": 5_000}).record
        assert changed is not None
        assert view.hops(changed) == 1
        told = azure_decode(stamp(at_rest(Incoming(changed, "id")), locked=True))
        assert told.message_annotations[b"x-opt-enqueue-sequence-number"] == 7

    def test_a_dead_letter_tells_where_and_why_it_died(
        self, full: bytes, at_rest: AtRest, azure_decode: Decode
    ) -> None:
        dead = at_rest(Incoming(full, "id"), sequence_number=7, reason="why", description="how")
        for source in ("first/queue", "second"):
            record = view.forwarded_dead_letter(dead, source)
            told = azure_decode(stamp(at_rest(Incoming(record, "id")), locked=True))
            assert told.message_annotations[b"x-opt-deadletter-source"] == source.encode()
            assert told.message_annotations[b"x-opt-enqueue-sequence-number"] == 7
            assert told.application_properties[b"DeadLetterReason"] == b"why"
            assert told.application_properties[b"DeadLetterErrorDescription"] == b"how"
            assert told.application_properties[b"colour"] == b"red"
            assert told.header.ttl is None
            dead = at_rest(Incoming(record, "id"), sequence_number=8, reason="why", description="how")

    def test_a_dead_letter_begins_to_count_anew(self, full: bytes, at_rest: AtRest) -> None:
        record = full
        for _ in range(4):
            record = view.forwarded(at_rest(Incoming(record, "id")))
        assert view.hops(view.forwarded_dead_letter(at_rest(Incoming(record, "id")), "q")) == 1


def test_the_partition_key_is_found(full: bytes, read_one: ReadOne) -> None:
    assert view.partition_key(full) == "session"
    assert view.partition_key(read_one(build(b"x", message_id="m")).record) is None


def test_a_life_beyond_the_header_is_found_too(read_one: ReadOne) -> None:
    header = b"\x00\x53\x70" + codec.encode([None, None, UInt(0xFFFFFFFF)])
    fields = ["m", *[None] * 7, Timestamp(60 * 86_400_000 + 5), Timestamp(5)]
    assert view.ttl_ms(read_one(header + with_fields(*fields)).record) == 60 * 86_400_000
    assert view.ttl_ms(read_one(header + with_fields("m")).record) == 0xFFFFFFFF
