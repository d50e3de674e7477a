"""What a sender sent, read: fields, limits, batches, sections in any order, and malformed bytes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp import _encode
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp import codec
from twinbus.amqp.types import Described, Symbol, Timestamp, UInt, ULong
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Incoming
from twinbus.wire.message import BATCH_FORMAT, bare_message, read, stamp
from twinbus.wire.outgoing import batch, build

Read = Callable[..., Incoming]
Encode = Callable[[Any], bytes]

NEW_ID = "f" * 32
DAY_MS = 24 * 60 * 60 * 1000


def section(code: int, value: Any) -> bytes:
    return bytes((0x00, 0x53, code)) + codec.encode(value)


def read_any(payload: bytes, message_format: int = 0) -> list[Incoming]:
    return read(payload, message_format, ttl_ceiling_ms=None, new_id=lambda: NEW_ID)


class TestOfficialPythonClient:
    def test_a_plain_message(self, azure_encode: Encode, read_one: Read) -> None:
        payload = azure_encode(ServiceBusMessage(b"hello", message_id="m-1"))
        incoming = read_one(payload)
        assert incoming[1:6] == ("m-1", None, None, None, None)
        assert bare_message(incoming.record) == payload

    def test_everything_that_routing_needs(self, azure_encode: Encode, read_one: Read) -> None:
        due = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
        incoming = read_one(
            azure_encode(
                ServiceBusMessage(
                    "text",
                    message_id="m-2",
                    session_id="s-1",
                    partition_key="s-1",
                    time_to_live=timedelta(seconds=90),
                    scheduled_enqueue_time_utc=due,
                    content_type="text/plain",
                    subject="a subject",
                    correlation_id="c",
                    to="t",
                    reply_to="r",
                    reply_to_session_id="rs",
                    application_properties={"n": 1, "s": "x", "b": True, "f": 1.5},
                )
            )
        )
        assert incoming[1:6] == ("m-2", "s-1", 90_000, int(due.timestamp() * 1000), "s-1")

    def test_a_message_without_body(self, azure_encode: Encode, read_one: Read) -> None:
        payload = azure_encode(ServiceBusMessage(None, message_id="m-3"))
        assert bare_message(read_one(payload).record) == payload

    def test_each_message_of_a_batch(self, azure_encode: Encode) -> None:
        messages = ServiceBusMessageBatch(1 << 20)
        for number in range(3):
            messages.add_message(ServiceBusMessage(b"x" * 300, message_id=f"m-{number}", session_id=f"s-{number}"))
        incoming = read_any(azure_encode(messages), BATCH_FORMAT)
        assert [(one.message_id, one.session_id) for one in incoming] == [
            ("m-0", "s-0"),
            ("m-1", "s-1"),
            ("m-2", "s-2"),
        ]

    @pytest.mark.parametrize(
        "body",
        [
            {"data_body": [b"one", b"two"]},
            {"sequence_body": [["a", 1], [None]]},
            {"value_body": {"key": ["a", 1.5]}},
            {"value_body": None},
        ],
    )
    def test_annotated_messages_with_every_section(
        self, azure_encode: Encode, read_one: Read, body: dict[str, Any]
    ) -> None:
        # This client writes the delivery annotations last.
        message = AmqpAnnotatedMessage(
            **body,
            properties={"message_id": "m", "group_id": "g"},
            application_properties={"k": "v"},
            annotations={"mine": 1},
            delivery_annotations={"hop": 1},
            footer={"f": 1},
            header={"durable": True, "priority": 5},
        )
        output = bytearray()
        _encode.encode_payload(output, PyamqpTransport.to_outgoing_amqp_message(message))
        bare = bare_message(read_one(bytes(output)).record)
        codes, pos = [], 0
        while pos < len(bare):
            codes.append(bare[pos + 2])
            end = codec.skip(bare, pos + 3)
            assert bare[pos:end] in bytes(output)
            pos = end
        assert codes[:2] == [0x73, 0x74]
        assert set(codes[2:-1]) <= {0x75, 0x76, 0x77}
        assert codes[-1] == 0x78


class TestProton:
    @pytest.mark.parametrize(
        ("kind", "message_id", "text"),
        [
            (None, "an id", "an id"),
            (None, uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
            ("ulong", 7, "7"),
            ("ulong", 0, "0"),
            ("ulong", 2**64 - 1, "18446744073709551615"),
            (None, b"\x01\xff", "01ff"),
        ],
    )
    def test_ids_of_every_type_have_one_spelling(
        self, proton: Any, read_one: Read, kind: str | None, message_id: Any, text: str
    ) -> None:
        typed = message_id if kind is None else getattr(proton, kind)(message_id)
        payload = bytes(proton.Message(id=typed, body="b").encode())
        assert read_one(payload).message_id == text

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            *((None, value) for value in (b"data", "text", 42, None, True, {"a": 1}, ["a", 1], b"")),
            ("Described", ("d", 1)),
            ("timestamp", (1,)),
        ],
    )
    def test_bodies_of_every_kind_are_kept(self, proton: Any, read_one: Read, kind: str | None, value: Any) -> None:
        body = value if kind is None else getattr(proton, kind)(*value)
        payload = bytes(proton.Message(id="m", group_id="g", body=body, inferred=False).encode())
        incoming = read_one(payload)
        assert (incoming.message_id, incoming.session_id) == ("m", "g")
        kept = proton.Message()
        kept.decode(bare_message(incoming.record))
        assert kept.body == body

    @pytest.mark.parametrize("body", [[1, "two"], b"x" * 100_000])
    def test_sequences_and_large_data(self, proton: Any, read_one: Read, body: object) -> None:
        payload = bytes(proton.Message(id="m", body=body, inferred=True).encode())
        assert payload.endswith(bare_message(read_one(payload).record))


class TestMessageId:
    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            section(0x75, b"body"),
            section(0x73, []) + section(0x75, b"body"),
            section(0x73, [None]) + section(0x75, b"body"),
            section(0x73, [""]) + section(0x75, b"body"),
            section(0x73, [None, b"user", "to"]) + section(0x74, {"a": 1}) + section(0x75, b"body"),
            section(0x73, [None, None, "x" * 240]) + section(0x75, b"body"),
            section(0x74, {"a": 1}) + section(0x75, b"body"),
        ],
    )
    def test_a_missing_one_is_assigned_where_receivers_see_it(self, read_one: Read, payload: bytes) -> None:
        incoming = read_one(payload)
        assert incoming.message_id == NEW_ID
        bare = bare_message(incoming.record)
        properties, after = codec.decode(bare, 3)
        assert properties[0] == NEW_ID
        if payload[2:3] == b"\x73":
            sent, sent_end = codec.decode(payload, 3)
            assert properties[1:6] == sent[1:]
            assert bare[after:] == payload[sent_end:]
        else:
            assert bare[after:] == payload

    def test_each_message_of_a_batch_gets_its_own(self) -> None:
        ids = iter(["1" * 32, "2" * 32])
        payload = batch([build(b"a"), build(b"b")])
        incoming = read(payload, BATCH_FORMAT, ttl_ceiling_ms=None, new_id=lambda: next(ids))
        assert [one.message_id for one in incoming] == ["1" * 32, "2" * 32]


class TestTimeToLive:
    @pytest.mark.parametrize(
        ("sent", "ceiling", "effective", "shown"),
        [
            (None, None, None, None),
            (1000, None, 1000, 1000),
            (None, 5000, 5000, 5000),
            (1000, 5000, 1000, 1000),
            (9000, 5000, 5000, 5000),
            (0, None, 0, 0),
            (None, 60 * DAY_MS, 60 * DAY_MS, 0xFFFFFFFF),
            (1000, 60 * DAY_MS, 1000, 1000),
            (0xFFFFFFFF, None, 0xFFFFFFFF, 0xFFFFFFFF),
        ],
    )
    def test_the_entity_lowers_and_supplies_it(
        self,
        read_one: Read,
        at_rest: Callable[..., Delivered],
        azure_decode: Callable[[bytes], Any],
        sent: int | None,
        ceiling: int | None,
        effective: int | None,
        shown: int | None,
    ) -> None:
        incoming = read_one(build(b"x", message_id="m", ttl_ms=sent), ttl_ceiling_ms=ceiling)
        assert incoming.ttl_ms == effective
        assert azure_decode(stamp(at_rest(incoming), locked=True)).header.ttl == shown

    @pytest.mark.parametrize(("ceiling", "effective"), [(None, 100 * DAY_MS), (80 * DAY_MS, 80 * DAY_MS)])
    def test_two_instants_tell_what_the_header_cannot(
        self, read_one: Read, ceiling: int | None, effective: int
    ) -> None:
        instants = [Timestamp(ENQUEUED + 100 * DAY_MS), Timestamp(ENQUEUED)]
        payload = section(0x70, [None, None, UInt(0xFFFFFFFF)]) + section(
            0x73, ["m", None, None, None, None, None, None, None, *instants]
        )
        assert read_one(payload, ttl_ceiling_ms=ceiling).ttl_ms == effective


ENQUEUED = 1_700_000_000_000

# Sections in the order of the specification; each may be missing, and any order must mean the same.
SECTIONS: dict[int, bytes] = {
    0x70: section(0x70, [True, None, UInt(7000), None, UInt(3)]),
    0x71: section(0x71, {Symbol("x-opt-lock-token"): uuid.UUID(int=1)}),
    0x72: section(0x72, {Symbol("x-opt-partition-key"): "p", Symbol("mine"): 1}),
    0x73: section(0x73, ["m", None, "to", None, None, None, None, None, None, None, "s"]),
    0x74: section(0x74, {"a": 1, "b": "two"}),
    0x75: section(0x75, b"one") + section(0x75, b"two"),
    0x78: section(0x78, {Symbol("footer"): 1}),
}


class TestSections:
    @given(st.sets(st.sampled_from(sorted(SECTIONS))).flatmap(lambda codes: st.permutations(sorted(codes))))
    def test_any_order_means_the_same(self, codes: list[int]) -> None:
        shuffled = b"".join(SECTIONS[code] for code in codes)
        ordered = b"".join(SECTIONS[code] for code in sorted(codes))
        assert read_any(shuffled) == read_any(ordered)

    @given(st.permutations(sorted(SECTIONS)), st.data())
    def test_long_and_symbolic_descriptors_are_made_short(self, codes: list[int], data: st.DataObject) -> None:
        names = {
            0x70: "header:list",
            0x71: "delivery-annotations:map",
            0x72: "message-annotations:map",
            0x73: "properties:list",
            0x74: "application-properties:map",
            0x75: "data:binary",
            0x78: "footer:map",
        }
        written = []
        for code in codes:
            long = b"\x00\x80" + code.to_bytes(8, "big")
            symbolic = b"\x00" + codec.encode(Symbol(f"amqp:{names[code]}"))
            lead = data.draw(st.sampled_from([long, symbolic, b"\x00\x53" + bytes((code,))]))
            written.append(SECTIONS[code].replace(b"\x00\x53" + bytes((code,)), lead))
        assert read_any(b"".join(written)) == read_any(b"".join(SECTIONS[code] for code in sorted(codes)))

    def test_what_only_the_broker_says_is_dropped_and_the_rest_kept(self, read_one: Read) -> None:
        kept = {Symbol("mine"): "x" * 300, Symbol("x-opt-via-partition-key"): "v", Symbol("other"): None}
        own = {
            Symbol("x-opt-sequence-number"): 9,
            Symbol("x-opt-enqueued-time"): Timestamp(1),
            Symbol("x-opt-locked-until"): Timestamp(2),
            Symbol("x-opt-message-state"): 1,
            Symbol("x-opt-enqueue-sequence-number"): 4,
        }
        with_own = read_one(section(0x72, {**own, **kept}) + SECTIONS[0x73])
        assert with_own == read_one(section(0x72, kept) + SECTIONS[0x73])

    def test_a_described_body_is_carried(self, read_one: Read) -> None:
        payload = SECTIONS[0x73] + section(0x77, Described(ULong(5), ["a"]))
        assert bare_message(read_one(payload).record) == payload
        assert bare_message(read_one(payload + SECTIONS[0x78]).record) == payload + SECTIONS[0x78]


class TestLimits:
    @pytest.mark.parametrize(
        "payload",
        [
            build(b"", message_id="m" * 129),
            build(b"", message_id="m", session_id="s" * 129),
            build(b"", message_id="m", partition_key="p" * 129),
            build(b"", message_id="a\0b"),
            build(b"", message_id="a\0b", subject="x"),
            build(b"", message_id="m", session_id="\0"),
            build(b"", message_id="m", properties={"p": "x" * 32_768}),
            build(b"", message_id="m", properties={str(n): "x" * 20_000 for n in range(4)}),
            section(0x72, {Symbol(f"a{n}"): "x" * 20_000 for n in range(4)}),
            section(0x72, {Symbol("x-opt-scheduled-enqueue-time"): "tomorrow"}),
            section(0x72, {Symbol("x-opt-partition-key"): 5}),
            section(0x73, [b"x" * 65]),
        ],
        ids=range(12),
    )
    def test_beyond_a_limit_is_an_argument_error(self, payload: bytes) -> None:
        with pytest.raises(BusError) as caught:
            read_any(payload)
        assert caught.value.fault is Fault.ARGUMENT

    @pytest.mark.parametrize(
        "payload",
        [
            build(b"", message_id="ä" * 128, session_id="s" * 128, partition_key="p" * 128),
            build(b"", message_id="m", properties={"p": "x" * 32_000, "q": "x" * 32_000}),
            build(b"x" * 1_000_000, message_id="m"),
        ],
        ids=range(3),
    )
    def test_up_to_the_limit_is_accepted(self, payload: bytes) -> None:
        assert len(read_any(payload)) == 1


MALFORMED = {
    "no descriptor": b"\x53\x75\xa0\x00",
    "unknown section": section(0x79, []),
    "unknown name of a section": b"\x00" + codec.encode(Symbol("amqp:nonsense:list")) + b"\x45",
    "descriptor only": b"\x00\x53\x75",
    "half a descriptor": b"\x00\x53",
    "data cut off": b"\x00\x53\x75\xa0\x05abc",
    "large data cut off": b"\x00\x53\x75\xb0\x00\x00\x10\x00abc",
    "length cut off": b"\x00\x53\x75\xb0\x00\x00",
    "data that is a string": section(0x75, "text"),
    "properties that are a map": section(0x73, {}),
    "annotations that are a list": section(0x72, []),
    "properties twice": SECTIONS[0x73] + SECTIONS[0x73],
    "two values": section(0x77, 1) + section(0x77, 2),
    "data and value": section(0x75, b"") + section(0x77, 2),
    "value, then data": section(0x77, 2) + section(0x75, b""),
    "sequence and data": section(0x76, []) + section(0x75, b""),
    "id that is a boolean": section(0x73, [True]),
    "id that is not UTF-8": b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff",
    "id that runs over its list": b"\x00\x53\x73\xc0\x04\x01\xa1\x09a\x00\x53\x75\xa0\x0512345",
    "more fields counted than there are": b"\x00\x53\x73\xc0\x04\x05\xa1\x01a",
    "fewer fields counted than there are": b"\x00\x53\x73\xc0\x06\x01\xa1\x01a@@",
    "list without its count": b"\x00\x53\x73\xc0\x00\x00\x53\x75\xa0\x00",
    "large list without its count": b"\x00\x53\x73\xd0\x00\x00\x00\x02\x00\x00",
    "absurd count": b"\x00\x53\x73\xd0\x00\x00\x00\x05\xff\xff\xff\xff@",
    "map with a lone key": b"\x00\x53\x74\xc1\x04\x01\xa1\x01a",
    "annotations with a lone key": b"\x00\x53\x72\xc1\x04\x01\xa3\x01a",
    "empty map that counts one": b"\x00\x53\x72\xc1\x01\x01",
    "property name that is a number": section(0x74, {5: 1}),
    "property that is no text": b"\x00\x53\x74\xc1\x07\x02\xa1\x01a\xa1\x01\xff",
    "property nested too deep": section(0x74, {"a": b""})[:3]
    + b"\xd1\x00\x00\x01\x07\x00\x00\x00\x02\xa1\x01a"
    + b"\xc0\xff\x01" * 86,
    "header field of the wrong type": section(0x70, ["durable"]),
    "time to live that is a long": section(0x70, [None, None, 5]),
    "oversized header": section(0x70, [None] * 70),
}


class TestMalformed:
    @pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
    def test_is_a_decode_error_and_nothing_else(self, payload: bytes) -> None:
        with pytest.raises(BusError) as caught:
            read_any(payload)
        assert caught.value.fault is Fault.DECODE

    @pytest.mark.parametrize(
        "payload",
        [b"", section(0x73, ["m"]), section(0x77, "x"), batch([build(b"a")]) + section(0x77, 1), batch([b"\xff"])],
    )
    def test_batches_that_hold_no_messages(self, payload: bytes) -> None:
        with pytest.raises(BusError) as caught:
            read_any(payload, BATCH_FORMAT)
        assert caught.value.fault is Fault.DECODE

    def test_an_unknown_message_format(self) -> None:
        with pytest.raises(BusError) as caught:
            read_any(build(b"x"), 1)
        assert caught.value.fault is Fault.DECODE

    WHOLE = b"".join(SECTIONS.values())

    @given(st.binary(max_size=40))
    def test_noise_is_refused_or_carried(self, noise: bytes) -> None:
        self.refused_or_deliverable(noise)

    @given(
        st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=3),
        st.integers(0, len(WHOLE)),
    )
    def test_what_is_accepted_after_damage_can_be_delivered(self, damage: list[tuple[int, int]], length: int) -> None:
        payload = bytearray(self.WHOLE)
        for place, value in damage:
            payload[place] = value
        self.refused_or_deliverable(bytes(payload))
        self.refused_or_deliverable(bytes(payload[:length]))

    def refused_or_deliverable(self, payload: bytes) -> None:
        fault, incoming = None, None
        try:
            (incoming,) = read_any(payload)
        except BusError as error:
            fault = error.fault
        if incoming is None:
            assert fault in (Fault.DECODE, Fault.ARGUMENT)
            return
        delivered = Delivered(1, incoming.record, incoming.message_id, 0, 1, reason="r")
        sent = stamp(delivered, locked=False)
        pos, codes = 0, []
        while pos < len(sent):
            assert sent[pos : pos + 2] == b"\x00\x53"
            codes.append(sent[pos + 2])
            pos = codec.skip(sent, pos + 3)
        assert codes == sorted(codes)
