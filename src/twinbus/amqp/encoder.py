"""Python values to AMQP 1.0 bytes, in the smallest encoding that each type has (Part 1: Types).

Which fields a performative has is left to `performatives`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from twinbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    EncodeError,
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

# What Python raises for a value that does not fit the type it is written as.
_UNFIT = (struct.error, OverflowError, ValueError, RecursionError, AttributeError, TypeError)

_pack_code_u32 = struct.Struct(">BI").pack
_pack_code_u64 = struct.Struct(">BQ").pack
_pack_code_i32 = struct.Struct(">Bi").pack
_pack_code_i64 = struct.Struct(">Bq").pack
_pack_large = struct.Struct(">BII").pack


def encode(value: Any) -> bytes:
    """The encoding of one value; `EncodeError` for a value or a range that AMQP does not have."""
    try:
        return _encode(value)
    except EncodeError:
        raise
    except _UNFIT as error:
        raise EncodeError(f"cannot encode {type(value).__name__}: {error}") from error


def encode_list(parts: list[bytes]) -> bytes:
    """A list of values that are encoded already."""
    return _compound(0xC0, 0xD0, len(parts), b"".join(parts)) if parts else b"\x45"


def encode_uint(value: int) -> bytes:
    """A uint in its smallest form."""
    if value == 0:
        return b"\x43"
    if value < 256:
        return bytes((0x52, value))
    return _pack_code_u32(0x70, value)


def encode_ulong(value: int) -> bytes:
    """A ulong in its smallest form."""
    if value == 0:
        return b"\x44"
    if value < 256:
        return bytes((0x53, value))
    return _pack_code_u64(0x80, value)


def encode_binary(value: bytes) -> bytes:
    """A binary in its smallest form."""
    size = len(value)
    if size < 256:
        return bytes((0xA0, size)) + value
    return _pack_code_u32(0xB0, size) + value


def encode_string(value: str) -> bytes:
    """A string in its smallest form."""
    raw = value.encode()
    size = len(raw)
    if size < 256:
        return bytes((0xA1, size)) + raw
    return _pack_code_u32(0xB1, size) + raw


def encode_symbol(value: str) -> bytes:
    """A symbol in its smallest form."""
    raw = value.encode()
    size = len(raw)
    if size < 256:
        return bytes((0xA3, size)) + raw
    return _pack_code_u32(0xB3, size) + raw


def _encode(value: Any) -> bytes:
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        encoder = _inherited(type(value))
    return encoder(value)


def _inherited(kind: type) -> Callable[[Any], bytes]:
    for ancestor in kind.__mro__:
        encoder = _ENCODERS.get(ancestor)
        if encoder is not None:
            return encoder
    raise EncodeError(f"AMQP has no type for {kind.__name__}")


def _boolean(value: bool) -> bytes:
    return b"\x41" if value else b"\x42"


def _int(value: int) -> bytes:
    if -128 <= value <= 127:
        return bytes((0x54, value & 0xFF))
    return _pack_code_i32(0x71, value)


def _long(value: int) -> bytes:
    if -128 <= value <= 127:
        return bytes((0x55, value & 0xFF))
    return _pack_code_i64(0x81, value)


def _fixed(form: str, code: int) -> Callable[[Any], bytes]:
    pack = struct.Struct(">B" + form).pack
    return lambda value: pack(code, value)


def _opaque(code: int, width: int) -> Callable[[bytes], bytes]:
    return lambda value: bytes((code,)) + _sized(value, width)


def _sized(value: bytes, width: int) -> bytes:
    if len(value) != width:
        raise EncodeError(f"{type(value).__name__} has {len(value)} bytes instead of {width}")
    return value


def _char(value: str) -> bytes:
    return b"\x73" + _sized(value.encode("utf-32-be"), 4)


def _compound(small: int, large: int, count: int, body: bytes) -> bytes:
    size = len(body)
    if size < 255 and count < 256:
        return bytes((small, size + 1, count)) + body
    return _pack_large(large, size + 4, count) + body


def _list(value: list[Any] | tuple[Any, ...]) -> bytes:
    return encode_list([_encode(item) for item in value])


def _map(value: dict[Any, Any]) -> bytes:
    parts = []
    for key, item in value.items():
        parts.append(_encode(key))
        parts.append(_encode(item))
    return _compound(0xC1, 0xD1, len(parts), b"".join(parts))


def _described(value: Described) -> bytes:
    return b"\x00" + _encode(value.descriptor) + _encode(value.value)


def _array(value: Array) -> bytes:
    code, constructor = _array_constructor(value)
    return _compound(0xE0, 0xF0, len(value), constructor + _array_elements(value, code))


def _array_constructor(value: Array) -> tuple[int, bytes]:
    code = _fitting_code(value) if value.constructor is None else value.constructor
    descriptors = b"".join(b"\x00" + _encode(descriptor) for descriptor in value.descriptors)
    return code, descriptors + bytes((code,))


def _fitting_code(value: Array) -> int:
    """The constructor for an array whose maker named none: it must fit every element."""
    kinds = {type(item) for item in value}
    if not kinds:
        return 0x40
    if len(kinds) > 1:
        raise EncodeError("the elements of an array must be of one type")
    kind = kinds.pop()
    code = _ARRAY_CODES.get(kind)
    if code is None:
        raise EncodeError(f"an array cannot hold {kind.__name__} without a constructor")
    if code in (0xA0, 0xA1, 0xA3):
        longest = max(len(item if code == 0xA0 else item.encode()) for item in value)
        return code if longest < 256 else code + 0x10
    return code


def _array_elements(value: Array, code: int) -> bytes:
    element = _ELEMENTS.get(code)
    if element is None:
        raise EncodeError(f"unknown constructor {code:#04x} of an array")
    return b"".join([element(item) for item in value])


def _empty_element(expected: Any) -> Callable[[Any], bytes]:
    def check(value: Any) -> bytes:
        if value != expected:
            raise EncodeError(f"the constructor of the array can only hold {expected!r}")
        return b""

    return check


def _variable_element(wide: bool, text: bool) -> Callable[[Any], bytes]:
    pack = struct.Struct(">I" if wide else ">B").pack

    def element(value: Any) -> bytes:
        raw = value.encode() if text else value
        return pack(len(raw)) + bytes(raw)

    return element


def _compound_element(wide: bool) -> Callable[[Any], bytes]:
    """A list, map or array inside an array: what follows its constructor, in the array's width."""

    def element(value: Any) -> bytes:
        if isinstance(value, Array):
            code, constructor = _array_constructor(value)
            body, count = constructor + _array_elements(value, code), len(value)
        elif isinstance(value, dict):
            flat = [part for pair in value.items() for part in pair]
            body, count = b"".join(map(_encode, flat)), len(flat)
        else:
            body, count = b"".join(map(_encode, value)), len(value)
        if wide:
            return struct.pack(">II", len(body) + 4, count) + body
        return struct.pack(">BB", len(body) + 1, count) + body

    return element


def _fixed_element(form: str) -> Callable[[Any], bytes]:
    return struct.Struct(">" + form).pack


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"\x40",
    bool: _boolean,
    str: encode_string,
    Symbol: encode_symbol,
    bytes: encode_binary,
    bytearray: encode_binary,
    memoryview: encode_binary,
    int: _long,
    UByte: _fixed("B", 0x50),
    UShort: _fixed("H", 0x60),
    UInt: encode_uint,
    ULong: encode_ulong,
    Byte: _fixed("b", 0x51),
    Short: _fixed("h", 0x61),
    Int: _int,
    Long: _long,
    Timestamp: _fixed("q", 0x83),
    float: _fixed("d", 0x82),
    Float32: _fixed("f", 0x72),
    Char: _char,
    Decimal32: _opaque(0x74, 4),
    Decimal64: _opaque(0x84, 8),
    Decimal128: _opaque(0x94, 16),
    UUID: lambda value: b"\x98" + value.bytes,
    Raw: bytes,
    Described: _described,
    list: _list,
    tuple: _list,
    dict: _map,
    Array: _array,
}

_ARRAY_CODES: dict[type, int] = {
    type(None): 0x40,
    bool: 0x56,
    str: 0xA1,
    Symbol: 0xA3,
    bytes: 0xA0,
    int: 0x81,
    UByte: 0x50,
    UShort: 0x60,
    UInt: 0x70,
    ULong: 0x80,
    Byte: 0x51,
    Short: 0x61,
    Int: 0x71,
    Long: 0x81,
    Timestamp: 0x83,
    float: 0x82,
    Float32: 0x72,
    Char: 0x73,
    Decimal32: 0x74,
    Decimal64: 0x84,
    Decimal128: 0x94,
    UUID: 0x98,
    list: 0xD0,
    dict: 0xD1,
    Array: 0xF0,
}

_ELEMENTS: dict[int, Callable[[Any], bytes]] = {
    0x40: _empty_element(None),
    0x41: _empty_element(True),
    0x42: _empty_element(False),
    0x43: _empty_element(0),
    0x44: _empty_element(0),
    0x45: _empty_element([]),
    0x50: _fixed_element("B"),
    0x51: _fixed_element("b"),
    0x52: _fixed_element("B"),
    0x53: _fixed_element("B"),
    0x54: _fixed_element("b"),
    0x55: _fixed_element("b"),
    0x56: _fixed_element("?"),
    0x60: _fixed_element("H"),
    0x61: _fixed_element("h"),
    0x70: _fixed_element("I"),
    0x71: _fixed_element("i"),
    0x72: _fixed_element("f"),
    0x73: lambda value: _sized(value.encode("utf-32-be"), 4),
    0x74: lambda value: _sized(value, 4),
    0x80: _fixed_element("Q"),
    0x81: _fixed_element("q"),
    0x82: _fixed_element("d"),
    0x83: _fixed_element("q"),
    0x84: lambda value: _sized(value, 8),
    0x94: lambda value: _sized(value, 16),
    0x98: lambda value: value.bytes,
    0xA0: _variable_element(wide=False, text=False),
    0xA1: _variable_element(wide=False, text=True),
    0xA3: _variable_element(wide=False, text=True),
    0xB0: _variable_element(wide=True, text=False),
    0xB1: _variable_element(wide=True, text=True),
    0xB3: _variable_element(wide=True, text=True),
    0xC0: _compound_element(wide=False),
    0xC1: _compound_element(wide=False),
    0xD0: _compound_element(wide=True),
    0xD1: _compound_element(wide=True),
    0xE0: _compound_element(wide=False),
    0xF0: _compound_element(wide=True),
}
