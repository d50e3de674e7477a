"""Values and their bytes, both ways (AMQP 1.0, Part 1)."""

from __future__ import annotations

import math
import re
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec import MAX_DEPTH, DecodeError, EncodeError, decode, decode_items, encode, skip
from twinbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Long,
    Raw,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")

# Each value with its smallest encoding: encode gives these bytes, decode gives this value, with its type.
SMALLEST: list[tuple[Any, str]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(0), "5000"),
    (UByte(255), "50ff"),
    (UShort(0), "600000"),
    (UShort(65535), "60ffff"),
    (UInt(0), "43"),
    (UInt(1), "5201"),
    (UInt(255), "52ff"),
    (UInt(256), "7000000100"),
    (UInt(2**32 - 1), "70ffffffff"),
    (ULong(0), "44"),
    (ULong(255), "53ff"),
    (ULong(256), "800000000000000100"),
    (ULong(2**64 - 1), "80ffffffffffffffff"),
    (Byte(-128), "5180"),
    (Byte(127), "517f"),
    (Short(-32768), "618000"),
    (Short(1), "610001"),
    (Int(0), "5400"),
    (Int(-1), "54ff"),
    (Int(127), "547f"),
    (Int(128), "7100000080"),
    (Int(-(2**31)), "7180000000"),
    (Long(0), "5500"),
    (Long(-128), "5580"),
    (Long(128), "810000000000000080"),
    (Long(-(2**63)), "818000000000000000"),
    (Float32(1.5), "723fc00000"),
    (-2.5, "82c004000000000000"),
    (math.inf, "827ff0000000000000"),
    (Decimal32(b"\x01\x02\x03\x04"), "7401020304"),
    (Decimal64(bytes(range(8))), "840001020304050607"),
    (Decimal128(bytes(range(16))), "94000102030405060708090a0b0c0d0e0f"),
    (Char("A"), "7300000041"),
    (Char("\U0001f600"), "730001f600"),
    (Timestamp(0), "830000000000000000"),
    (Timestamp(1_700_000_000_000), "830000018bcfe56800"),
    (Timestamp(-1), "83ffffffffffffffff"),
    (GUID, "9800112233445566778899aabbccddeeff"),
    (b"", "a000"),
    (b"\x00\xff", "a00200ff"),
    (b"x" * 255, "a0ff" + "78" * 255),
    (b"x" * 256, "b000000100" + "78" * 256),
    ("", "a100"),
    ("é", "a102c3a9"),
    ("x" * 255, "a1ff" + "78" * 255),
    ("x" * 256, "b100000100" + "78" * 256),
    (Symbol(""), "a300"),
    (Symbol("amqp:accepted:list"), "a312616d71703a61636365707465643a6c697374"),
    (Symbol("x" * 256), "b300000100" + "78" * 256),
    ([], "45"),
    ([None], "c0020140"),
    ([True, UInt(5)], "c00402415205"),
    (["x" * 253], "d000000103" + "00000001" + "a1fd" + "78" * 253),
    ([None] * 256, "d000000104" + "00000100" + "40" * 256),
    ({}, "c10100"),
    ({"a": Long(1)}, "c10602a101615501"),
    ({Symbol("k"): None, UInt(1): []}, "c10804a3016b40520145"),
    (Array([], 0x40), "e0020040"),
    (Array([Symbol("A"), Symbol("BC")], 0xA3), "e00702a3014102" + "4243"),
    (Array([UInt(1), UInt(2)], 0x70), "e00a02700000000100000002"),
    (Array([UInt(1), UInt(2)], 0x52), "e00402520102"),
    (Array([True, False], 0x56), "e00402560100"),
    (Array([True, True], 0x41), "e0020241"),
    (Array([GUID], 0x98), "e0120198" + GUID.hex),
    (Array([[], [None]], 0xC0), "e00702c00100020140"),
    (Array([{"a": None}], 0xC1), "e00801c10502a1016140"),
    (Array([Array([UInt(7)], 0x52)], 0xE0), "e00601e003015207"),
    (Array([Array([], 0x40)], 0xF0), "e00b01f0" + "00000005" + "00000000" + "40"),
    (Array([ULong(9)], 0x53, (Symbol("d"),)), "e0070100a301645309"),
    (Described(ULong(0x24), []), "00532445"),
    (Described(Symbol("x"), Described(ULong(1), "v")), "00a30178" + "005301" + "a10176"),
]

# Other encodings of the same values, which a peer may choose: they are read, but not written.
ALSO_READ: list[tuple[Any, str]] = [
    (True, "5601"),
    (False, "5600"),
    (UInt(0), "5200"),
    (UInt(0), "7000000000"),
    (ULong(0), "5300"),
    (ULong(5), "800000000000000005"),
    (Int(5), "7100000005"),
    (Long(5), "810000000000000005"),
    (b"x", "b00000000178"),
    ("x", "b10000000178"),
    (Symbol("x"), "b30000000178"),
    ([], "c00100"),
    ([], "d00000000400000000"),
    ([None], "d0000000050000000140"),
    ({}, "d10000000400000000"),
    ({"a": None}, "d10000000800000002" + "a1016140"),
    (Array([UInt(1)], 0x70), "f000000009" + "00000001" + "7000000001"),
    (Array([], 0x40), "e00100"),
]

# Plain Python values that have a type of their own on the wire.
PLAIN: list[tuple[Any, str]] = [
    (5, "5505"),
    (-129, "81ffffffffffffff7f"),
    ((None, True), "c003024041"),
    (bytearray(b"x"), "a00178"),
    (memoryview(b"x"), "a00178"),
    (Raw(b"\x41"), "41"),
    (Array([1, 2]), "e0120281" + "0000000000000001" + "0000000000000002"),
    (Array(["a"]), "e00401a10161"),
    (Array([b"x" * 256]), "f000000109" + "00000001" + "b0" + "00000100" + "78" * 256),
    (Array([[1]]), "e00c01d0" + "0000000600000001" + "5501"),
]

MALFORMED: list[tuple[str, str]] = [
    ("", "nothing"),
    ("01", "unknown constructor"),
    ("46", "unknown constructor in a known group"),
    ("57", "unknown constructor of one byte"),
    ("a2", "unknown variable type"),
    ("ff", "unknown array type"),
    ("50", "truncated ubyte"),
    ("7000", "truncated uint"),
    ("98" + "00" * 15, "truncated uuid"),
    ("5602", "a boolean of 2"),
    ("7300110000", "a char beyond Unicode"),
    ("730000d800", "a char that is half of a pair"),
    ("a1", "a string without its size"),
    ("a10261", "a string shorter than its size"),
    ("a101ff", "a string that is not UTF-8"),
    ("a301ff", "a symbol that is not text"),
    ("b0ffffffff", "a binary longer than the data"),
    ("b1000000", "half of a size"),
    ("c0", "a list without its size"),
    ("c000", "a list whose size has no room for its count"),
    ("c001", "a list without its count"),
    ("c00102", "two items counted, none there"),
    ("c0030240", "two items counted, one there"),
    ("c003014040", "one item counted, two there"),
    ("c00201a1", "an item that ends outside"),
    ("d0ffffffffffffffff", "a list longer than the data"),
    ("d000000004ffffffff", "a list with more items than bytes"),
    ("d00000000300000000", "a wide list whose size has no room for its count"),
    ("c1020140", "a map with a key and no value"),
    ("c103024540", "a map whose key is a list"),
    ("c10302c10100" + "40", "a map whose key is a map"),
    ("c1050441404140", "a map with the same key twice"),
    ("e0", "an array without its size"),
    ("e00101", "an array without its constructor"),
    ("e0020157", "an array with an unknown constructor"),
    ("e0020057", "an empty array with an unknown constructor"),
    ("e003025201", "an array with fewer elements than counted"),
    ("e00401520102", "an array with more elements than counted"),
    ("f000000005ffffffff40", "an array of four thousand million nulls"),
    ("f000000005000001" + "0140", "an array of more nulls than are allowed"),
    ("f000000005ffffffff70", "an array with more elements than bytes"),
    ("e0020100", "an array that ends behind the mark of a descriptor"),
    ("e003010040", "an array that ends behind a descriptor"),
    ("00", "a descriptor missing"),
    ("0053", "half of a descriptor"),
    ("005324", "a descriptor without a value"),
    ("00" * 40, "descriptors of descriptors"),
]


def same(value: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(value) is not type(other):
        return False
    if isinstance(value, Array) and (value.constructor, value.descriptors) != (other.constructor, other.descriptors):
        return False
    if isinstance(value, list):
        return len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, dict):
        return same(list(value.items()), list(other.items()))
    if isinstance(value, tuple):
        return all(map(same, value, other))
    if isinstance(value, Described):
        return same(value.descriptor, other.descriptor) and same(value.value, other.value)
    if isinstance(value, float) and math.isnan(value):
        return math.isnan(other)
    return bool(value == other)


@pytest.mark.parametrize(("value", "raw"), SMALLEST + PLAIN)
def test_a_value_is_written_in_its_smallest_form(value: Any, raw: str) -> None:
    assert encode(value).hex() == raw


@pytest.mark.parametrize(("value", "raw"), SMALLEST + ALSO_READ)
def test_a_value_is_read_with_its_type_and_what_follows_it_is_left_alone(value: Any, raw: str) -> None:
    data = bytes.fromhex(raw)
    for before, behind in ((b"", b""), (b"", b"\x00\xff\x40"), (b"\x12\x34", b"\x41")):
        decoded, after = decode(before + data + behind, len(before))
        assert same(decoded, value)
        assert after == len(before) + len(data)
        assert skip(before + data + behind, len(before)) == after
    assert same(decode(bytearray(data))[0], value)
    assert same(decode(memoryview(data))[0], value)


@pytest.mark.parametrize(("value", "raw"), SMALLEST + ALSO_READ)
def test_a_value_that_is_cut_short_is_malformed_wherever_the_cut_is(value: Any, raw: str) -> None:
    data = bytes.fromhex(raw)
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:length])
        with pytest.raises(DecodeError):
            decode(data, 0, length)
        with pytest.raises(DecodeError):
            skip(data, 0, length)


@pytest.mark.parametrize(("raw", "why"), MALFORMED, ids=[why for _, why in MALFORMED])
def test_malformed_data_is_refused(raw: str, why: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        decode(bytes.fromhex(raw))
    assert refusal.value.condition == "amqp:decode-error"


def test_nesting_is_allowed_up_to_a_depth_and_no_further() -> None:
    def nested(depth: int) -> bytes:
        value: Any = []
        for _ in range(depth - 1):
            value = [value]
        return encode(value)

    assert decode(nested(MAX_DEPTH))[1] == len(nested(MAX_DEPTH))
    with pytest.raises(DecodeError, match="nest deeper"):
        decode(nested(MAX_DEPTH + 2))
    with pytest.raises(DecodeError, match="nest deeper"):
        decode(b"\x00\x53\x01" * 100 + b"\x40")
    with pytest.raises(DecodeError, match="nest deeper"):
        skip(b"\x00\x53\x01" * 100 + b"\x40")
    inner = b"\x40"
    for _ in range(MAX_DEPTH + 2):
        inner = b"\xf0" + (len(inner) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + inner
    with pytest.raises(DecodeError):
        decode(inner)


def test_a_list_is_read_as_its_items_and_anything_else_is_refused() -> None:
    assert decode_items(encode([True, None]), 0) == ([True, None], 5)
    with pytest.raises(DecodeError):
        decode_items(encode({}), 0)


@pytest.mark.parametrize(
    "value",
    [
        UByte(256),
        UInt(-1),
        UInt(2**32),
        ULong(2**64),
        2**63,
        Char("ab"),
        Char(""),
        Decimal32(b"123"),
        Float32(1e300),
        "\ud800",
        object(),
        Array([1, "a"]),
        Array([object()]),
        Array([1], 0xA1),
        Array([1], 0x57),
        Array([None, True], 0x40),
        Array(["x" * 256], 0xA1),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", repr(value)),
)
def test_a_value_without_an_encoding_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode(value)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2**8 - 1).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.floats(),
    st.floats(width=32).map(Float32),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    st.uuids(),
    st.binary(max_size=300),
    st.text(max_size=300),
    st.text(max_size=300).map(Symbol),
)
keys = st.one_of(
    st.text(max_size=20), st.text(max_size=20).map(Symbol), st.integers(0, 2**32 - 1).map(UInt), st.uuids()
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(keys, inner, max_size=6),
        st.builds(Described, st.one_of(st.integers(0, 2**64 - 1).map(ULong), st.text(max_size=20).map(Symbol)), inner),
        st.lists(st.text(max_size=20).map(Symbol), max_size=6).map(lambda items: Array(items, 0xB3)),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(lambda items: Array(items, 0xD0)),
    ),
    max_leaves=30,
)


@given(values)
def test_every_value_survives_the_way_there_and_back(value: Any) -> None:
    data = encode(value)
    decoded, after = decode(data + b"\x40")
    assert after == len(data) == skip(data)
    assert same(decoded, value)
    assert encode(decoded) == data


@given(st.binary(max_size=200))
def test_any_bytes_are_either_a_value_or_malformed(data: bytes) -> None:
    try:
        value, after = decode(data)
    except DecodeError:
        return
    assert 0 < after <= len(data)
    assert skip(data) == after
    again, _ = decode(encode(value))
    assert same(again, value)
