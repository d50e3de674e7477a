"""An independent implementation reads what we write, and we read what it writes: values, and whole messages."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from proton import (
    Data,
    Message,
    byte,
    char,
    decimal32,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from proton import Described as ProtonDescribed

from twinbus.amqp.codec import decode, encode, skip
from twinbus.amqp.types import (
    Array,
    Byte,
    Char,
    Described,
    Float32,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

# Our value and proton's.
VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (False, False),
    (UByte(200), ubyte(200)),
    (UShort(60000), ushort(60000)),
    (UInt(0), uint(0)),
    (UInt(200), uint(200)),
    (UInt(4_000_000_000), uint(4_000_000_000)),
    (ULong(0), ulong(0)),
    (ULong(200), ulong(200)),
    (ULong(2**63), ulong(2**63)),
    (Byte(-5), byte(-5)),
    (Short(-500), short(-500)),
    (Int(-5), int32(-5)),
    (Int(-500_000), int32(-500_000)),
    (Long(5), 5),
    (Long(-(2**62)), -(2**62)),
    (Float32(1.5), float32(1.5)),
    (2.25, 2.25),
    (Char("é"), char("é")),
    (Timestamp(1_700_000_000_123), timestamp(1_700_000_000_123)),
    (GUID, GUID),
    (b"\x00\x01", b"\x00\x01"),
    (b"x" * 300, b"x" * 300),
    ("grüße", "grüße"),
    ("x" * 300, "x" * 300),
    (Symbol("amqp:accepted:list"), symbol("amqp:accepted:list")),
    ([], []),
    ([None, "a", [UInt(1)]], [None, "a", [uint(1)]]),
    (["x" * 300], ["x" * 300]),
    ({}, {}),
    ({"k": Long(1), Symbol("s"): {"in": [True]}}, {"k": 1, symbol("s"): {"in": [True]}}),
    (Described(ULong(0x24), []), ProtonDescribed(ulong(0x24), [])),
    (Described(Symbol("x"), "v"), ProtonDescribed(symbol("x"), "v")),
]


def by_proton(data: bytes) -> Any:
    reader = Data()
    while data:
        data = data[reader.decode(data) :]
    reader.rewind()
    assert reader.next() is not None
    value = reader.get_object()
    # A binary is a view into the reader's own memory.
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize(("ours", "theirs"), VALUES)
def test_proton_reads_what_we_write(ours: Any, theirs: Any) -> None:
    read = by_proton(encode(ours))
    assert read == theirs
    assert type(read) is type(theirs)


@pytest.mark.parametrize(("ours", "theirs"), VALUES)
def test_we_read_what_proton_writes(ours: Any, theirs: Any) -> None:
    writer = Data()
    writer.put_object(theirs)
    data = writer.encode()
    value, after = decode(data)
    assert after == len(data) == skip(data)
    assert value == ours
    assert type(value) is type(ours)


def test_arrays_and_decimals_agree() -> None:
    array = by_proton(encode(Array([Symbol("A"), Symbol("BC")])))
    assert (array.type, list(array.elements)) == (Data.SYMBOL, ["A", "BC"])
    writer = Data()
    writer.put_array(False, Data.UUID)
    writer.enter()
    writer.put_uuid(GUID)
    writer.exit()
    assert decode(writer.encode())[0] == [GUID]
    writer = Data()
    writer.put_object(decimal32(7))
    assert decode(writer.encode())[0] == (7).to_bytes(4, "big")


def test_the_sections_of_a_message_that_proton_wrote_are_found() -> None:
    message = Message(
        body="hello",
        id="id-1",
        subject="s",
        durable=True,
        ttl=5.0,
        properties={"a": 1, "b": "x", "c": True, "d": None, "e": 1.5},
        annotations={symbol("x-opt-key"): "v"},
        instructions={symbol("x-opt-lock"): GUID},
    )
    data = message.encode()
    sections, position = [], 0
    while position < len(data):
        section, after = decode(data, position)
        assert skip(data, position) == after
        sections.append((int(section.descriptor), section.value))
        position = after
    assert [code for code, _ in sections] == [0x70, 0x71, 0x72, 0x73, 0x74, 0x77]
    assert sections[4][1] == {"a": 1, "b": "x", "c": True, "d": None, "e": 1.5}
    assert sections[5][1] == "hello"


def test_proton_reads_a_message_that_we_wrote() -> None:
    data = b"".join(
        encode(Described(ULong(code), value))
        for code, value in [
            (0x70, [True, None, UInt(5000), None, UInt(2)]),
            (0x72, {Symbol("x-opt-sequence-number"): Long(7), Symbol("x-opt-enqueued-time"): Timestamp(1_000)}),
            (0x73, ["id-1", None, None, "subject"]),
            (0x74, {"a": Int(1), "b": None}),
            (0x75, b"payload"),
        ]
    )
    message = Message()
    message.decode(data)
    assert (message.id, message.subject, message.durable, message.delivery_count) == ("id-1", "subject", True, 2)
    assert message.annotations == {symbol("x-opt-sequence-number"): 7, symbol("x-opt-enqueued-time"): timestamp(1000)}
    assert message.properties == {"a": 1, "b": None}
    assert bytes(message.body) == b"payload"
