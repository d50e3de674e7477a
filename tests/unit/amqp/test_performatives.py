"""Composite types: fields, defaults, and what is refused (AMQP 1.0, sections 1.4, 2.7, 2.8, 3.4, 3.5, 5.3)."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp.codec import DecodeError, encode
from twinbus.amqp.composite import compose, decode_composite, encode_any, encode_composite, field_bytes, fields_of
from twinbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from twinbus.amqp.types import Array, Described, Raw, Symbol, UByte, UInt, ULong

# As another peer may write them, and we read them: what says nothing at the end is left out.
SHORT: list[tuple[Any, str]] = [
    (Open("c"), "005310c00401a10163"),
    (Open("c", max_frame_size=512), "005310c00a03a101634070" + "00000200"),
    (Open("c", idle_time_out=1000), "005310c01205a1016340" + "70ffffffff" + "60ffff" + "70000003e8"),
    (Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=6), "005311c007044043" + "5205" + "5206"),
    (Begin(remote_channel=1, next_outgoing_id=1, incoming_window=0, outgoing_window=0), "005311c0080460000152014343"),
    (Attach("n", 0, True), "005312c00603a1016e4341"),
    (Attach("n", 0, False, 0, 1), "005312c00a05a1016e434250005001"),
    (Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3), "005313c0080440520152025203"),
    (Transfer(0, 1, b"t", 0, False), "005314c00905" + "435201" + "a00174" + "4342"),
    (Disposition(True, 1, 2, True, ACCEPTED), "005315c00b05" + "4152015202" + "41" + "00532445"),
    (Detach(1, True), "005316c00402520141"),
    (End(), "00531745"),
    (Close(), "00531845"),
]

# As we write them.
EXAMPLES: list[tuple[Any, str]] = [
    (Open("c"), "005310c0130aa101634070ffffffff60ffff404040404040"),
    (Open("c", max_frame_size=512), "005310c0130aa1016340700000020060ffff404040404040"),
    (Open("c", idle_time_out=1000), "005310c0170aa101634070ffffffff60ffff70000003e84040404040"),
    (Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=6), "005311c00f0840435205520670ffffffff404040"),
    (
        Begin(remote_channel=1, next_outgoing_id=1, incoming_window=0, outgoing_window=0),
        "005311c010086000015201434370ffffffff404040",
    ),
    (Attach("n", 0, True), "005312c0130ea1016e434150025000404040424040404040"),
    (Attach("n", 0, False, 0, 1), "005312c0130ea1016e434250005001404040424040404040"),
    (Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3), "005313c00f0b4052015202520340404040424240"),
    (Transfer(0, 1, b"t", 0, False), "005314c00f0b435201a001744342424040424242"),
    (Disposition(True, 1, 2, True, ACCEPTED), "005315c00c064152015202410053244542"),
    (Detach(1, True), "005316c0050352014140"),
    (End(), "005317c0020140"),
    (Close(), "005318c0020140"),
    (Close(Error("x")), "005318c00c01" + "00531dc00603a301784040"),
    (Received(1, 2), "005323c0050252015302"),
    (ACCEPTED, "00532445"),
    (Rejected(Error("x", "d", {})), "005325c01001" + "00531dc00a03a30178a10164c10100"),
    (RELEASED, "00532645"),
    (Modified(True, False), "005327c003024142"),
    (Source("q"), "005328c00401a10171"),
    (Target("q"), "005329c00401a10171"),
    (Coordinator([Symbol("x")]), "005330c00701e00401a30178"),
    (SaslMechanisms([Symbol("A"), Symbol("B")]), "005340c00901e00602a301410142"),
    (SaslInit("A", b"", "h"), "005341c00903a30141a000a10168"),
    (SaslChallenge(b"?"), "005342c00401a0013f"),
    (SaslResponse(b"!"), "005343c00401a00121"),
    (SaslOutcome(0), "005344c003015000"),
]


@pytest.mark.parametrize(("value", "raw"), EXAMPLES)
def test_a_composite_is_written_and_read(value: Any, raw: str) -> None:
    data = bytes.fromhex(raw)
    assert encode_composite(value).hex() == raw
    assert decode_composite(data) == (value, len(data))
    assert decode_composite(b"\xff" + data + b"\xff", 1) == (value, len(data) + 1)
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            decode_composite(data[:length])


@pytest.mark.parametrize(("value", "raw"), SHORT)
def test_fields_at_the_end_may_be_left_out_by_the_peer(value: Any, raw: str) -> None:
    data = bytes.fromhex(raw)
    assert decode_composite(data) == (value, len(data))


@pytest.mark.parametrize("value", [value for value, _ in SHORT])
def test_a_performative_always_has_all_its_fields_because_clients_index_them(value: Any) -> None:
    assert encode_composite(value)[5] == len(fields_of(type(value)))


def test_an_error_always_has_three_fields_because_clients_index_them() -> None:
    for error in (Error("a"), Error("a", "b"), Error("a", None, {})):
        value, _ = decode_composite(encode_composite(error))
        assert value == error
        assert encode_composite(error)[5] == 3


def test_a_default_between_other_fields_is_spelled_out() -> None:
    body = encode_composite(Begin(next_outgoing_id=0, incoming_window=0, outgoing_window=0, properties={"a": "b"}))
    assert b"\x70\xff\xff\xff\xff" in body


def test_a_descriptor_may_be_wide_or_symbolic() -> None:
    wide = b"\x00\x80" + (0x18).to_bytes(8, "big") + b"\x45"
    assert decode_composite(wide) == (Close(), len(wide))
    named = b"\x00" + encode(Symbol("amqp:sasl-outcome:list")) + encode([UByte(0)])
    assert decode_composite(named)[0] == SaslOutcome(0)


TARGET = Described(ULong(0x29), [])
WRONG_FIELDS: list[tuple[str, int, Any]] = [
    ("an open without its container", 0x10, []),
    ("an open with null for its container", 0x10, [None]),
    ("an open with a symbol for its container", 0x10, [Symbol("c")]),
    ("an open whose host is a number", 0x10, ["c", UInt(5)]),
    ("a begin whose channel is a uint", 0x11, [UInt(0), UInt(0), UInt(0), UInt(0)]),
    ("a begin without windows", 0x11, [None, UInt(0)]),
    ("an attach whose source is a string", 0x12, ["n", UInt(0), True, None, None, "q"]),
    ("an attach whose source is a target", 0x12, ["n", UInt(0), True, None, None, TARGET]),
    ("an attach whose properties are a list", 0x12, ["n", UInt(0), True, *[None] * 10, []]),
    ("a disposition whose state is a string", 0x15, [True, UInt(0), None, True, "accepted"]),
    ("a detach that is closed by a number", 0x16, [UInt(0), UInt(1)]),
    ("a close with a number for its error", 0x18, [ULong(1)]),
    ("a close with an outcome for its error", 0x18, [Described(ULong(0x24), [])]),
    ("an error without a condition", 0x18, [Described(ULong(0x1D), [])]),
    ("mechanisms that are a string", 0x40, ["ANONYMOUS"]),
    ("mechanisms that are numbers", 0x40, [Array([UInt(1)])]),
]
MALFORMED: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("no descriptor", b"\x45"),
    ("an unknown code", b"\x00\x53\xff\x45"),
    ("an unknown name", b"\x00" + encode(Symbol("amqp:unknown:list")) + b"\x45"),
    ("a string for a descriptor", b"\x00" + encode("amqp:close:list") + b"\x45"),
    ("a map where a list belongs", b"\x00\x53\x18" + encode({})),
    ("more fields than there are", b"\x00\x53\x18" + encode([None, None])),
    ("an error that is a map", b"\x00\x53\x18" + encode([Described(ULong(0x1D), {})])),
    ("a list whose size is wrong", b"\x00\x53\x16\xc0\x04\x01\x43\x40\x40"),
]


@pytest.mark.parametrize(("code", "items"), [case[1:] for case in WRONG_FIELDS], ids=[case[0] for case in WRONG_FIELDS])
def test_a_field_that_is_missing_or_of_the_wrong_type_is_invalid(code: int, items: list[Any]) -> None:
    with pytest.raises(DecodeError) as refusal:
        decode_composite(encode(Described(ULong(code), items)))
    assert refusal.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize("data", [case[1] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_a_composite_that_is_none_is_malformed(data: bytes) -> None:
    with pytest.raises(DecodeError) as refusal:
        decode_composite(data)
    assert refusal.value.condition == "amqp:decode-error"


def test_a_field_of_several_symbols_takes_a_single_one_too() -> None:
    for encoded in (encode(Symbol("x")), encode(Array([Symbol("x")]))):
        body = encode_composite(Target("q", capabilities=Raw(encoded)))  # type: ignore[arg-type]
        assert decode_composite(body)[0].capabilities == [Symbol("x")]


def test_termini_are_read_and_unknown_ones_kept() -> None:
    source = Source("q", filter={Symbol("com.microsoft:session-filter"): None}, default_outcome=RELEASED)
    attach = Attach("n", 3, True, source=source, target=Described(ULong(0x1234), [UInt(1)]))
    decoded, _ = decode_composite(encode_composite(attach))
    assert decoded == attach
    assert decoded.source.filter == {Symbol("com.microsoft:session-filter"): None}
    coordinated = Attach("n", 3, True, target=Coordinator())
    assert decode_composite(encode_composite(coordinated))[0] == coordinated


def test_a_value_is_composed_when_its_descriptor_is_known() -> None:
    assert compose(Described(ULong(0x24), [])) == ACCEPTED
    assert compose(Described(Symbol("amqp:modified:list"), [True])) == Modified(True)
    unknown = Described(ULong(0x34), [b"tx"])
    assert compose(unknown) is unknown
    assert compose("text") == "text"
    with pytest.raises(DecodeError):
        compose(Described(ULong(0x24), {}))


def test_the_bytes_of_a_field_are_found_without_decoding_it() -> None:
    source, target = Source("q" * 300, filter={Symbol("a"): "b"}), Target("t")
    body = encode_composite(Attach("n", 0, True, source=source, target=target))
    assert field_bytes(body, 0, len(body), 5) == encode_any(source)
    assert field_bytes(body, 0, len(body), 6) == encode_any(target)
    assert field_bytes(body, 0, len(body), 13) is None
    bare = encode_composite(Attach("n", 0, True, max_message_size=1))
    assert field_bytes(bare, 0, len(bare), 5) is None
    assert field_bytes(b"\x00\x53\x18\x45", 0, 4, 0) is None


def test_a_class_is_its_own_table_of_fields() -> None:
    assert [(field.name, field.kind, field.required) for field in fields_of(Detach)] == [
        ("handle", "uint", True),
        ("closed", "boolean", False),
        ("error", "error", False),
    ]
