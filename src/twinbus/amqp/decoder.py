"""AMQP 1.0 bytes to Python values (Part 1: Types), and jumping over a value without building it.

Every length and count is checked against the bytes at hand before anything is made of it.
What a composite means is left to `performatives`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn
from uuid import UUID

from twinbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    DecodeError,
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

MAX_DEPTH = 32
# Elements such as null need no byte each, so the length of the data does not bound their count.
MAX_EMPTY_ELEMENTS = 256
MAX_REMEMBERED_SYMBOLS = 1024

Decoder = Callable[[bytes, int, int, int], tuple[Any, int]]

_SYMBOLS: dict[bytes, Symbol] = {}
_u32 = struct.Struct(">I").unpack_from
_two_u32 = struct.Struct(">II").unpack_from


def decode(data: bytes | bytearray | memoryview, offset: int = 0, limit: int | None = None) -> tuple[Any, int]:
    """The value at `offset` and the offset behind it; nothing at or behind `limit` is read."""
    raw = data if type(data) is bytes else bytes(data)
    end = len(raw) if limit is None or limit > len(raw) else limit
    if not 0 <= offset < end:
        raise DecodeError("no value: the data ends here")
    return _DECODERS[raw[offset]](raw, offset + 1, end, 0)


def decode_items(data: bytes, offset: int, limit: int | None = None) -> tuple[list[Any], int]:
    """The items of the list at `offset` and the offset behind it; any other type is an error."""
    end = len(data) if limit is None or limit > len(data) else limit
    value, after = decode(data, offset, end)
    if type(value) is not list:
        raise DecodeError("a list was expected")
    return value, after


def skip(data: bytes, offset: int = 0, limit: int | None = None) -> int:
    """The offset behind the value at `offset`; its inside is not looked at."""
    end = len(data) if limit is None or limit > len(data) else limit
    return _skip(data, offset, end, 0)


def _skip(data: bytes, pos: int, end: int, depth: int) -> int:
    if not 0 <= pos < end:
        raise DecodeError("no value: the data ends here")
    width = _WIDTHS[data[pos]]
    pos += 1
    if width >= 0:
        pos += width
    elif width == _SIZE_8:
        if pos >= end:
            raise _truncated()
        pos += 1 + data[pos]
    elif width == _SIZE_32:
        if pos + 4 > end:
            raise _truncated()
        pos += 4 + _u32(data, pos)[0]
    elif width == _DESCRIBED:
        if depth >= MAX_DEPTH:
            raise _too_deep()
        return _skip(data, _skip(data, pos, end, depth + 1), end, depth + 1)
    else:
        _unknown(data, pos, end, depth)
    if pos > end:
        raise _truncated()
    return pos


def _truncated() -> DecodeError:
    return DecodeError("the data ends inside a value")


def _too_deep() -> DecodeError:
    return DecodeError(f"values nest deeper than {MAX_DEPTH}")


def _unknown(data: bytes, pos: int, end: int, depth: int) -> NoReturn:
    raise DecodeError(f"unknown constructor {data[pos - 1]:#04x}")


def _constant(value: Any) -> Decoder:
    return lambda data, pos, end, depth: (value, pos)


def _list0(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    return [], pos


def _number(form: str, make: Callable[[Any], Any]) -> Decoder:
    layout = struct.Struct(">" + form)
    width, unpack = layout.size, layout.unpack_from

    def number(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        after = pos + width
        if after > end:
            raise _truncated()
        return make(unpack(data, pos)[0]), after

    return number


def _fixed(width: int, make: Callable[[bytes], Any]) -> Decoder:
    def fixed(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        after = pos + width
        if after > end:
            raise _truncated()
        return make(data[pos:after]), after

    return fixed


def _boolean(octet: int) -> bool:
    if octet > 1:
        raise DecodeError(f"a boolean is 0 or 1, not {octet}")
    return octet == 1


def _char(raw: bytes) -> Char:
    try:
        return Char(raw.decode("utf-32-be"))
    except UnicodeDecodeError as error:
        raise DecodeError("a char is not a Unicode character") from error


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("a string is not valid UTF-8") from error


def _symbol(raw: bytes) -> Symbol:
    """A symbol; the few that come again and again are remembered, because making one is slow."""
    known = _SYMBOLS.get(raw)
    if known is not None:
        return known
    try:
        symbol = Symbol(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("a symbol is not valid text") from error
    if len(raw) <= 64 and len(_SYMBOLS) < MAX_REMEMBERED_SYMBOLS:
        _SYMBOLS[raw] = symbol
    return symbol


def _same(raw: bytes) -> bytes:
    return raw


def _variable_8(make: Callable[[bytes], Any]) -> Decoder:
    def variable(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        if pos >= end:
            raise _truncated()
        start = pos + 1
        after = start + data[pos]
        if after > end:
            raise _truncated()
        return make(data[start:after]), after

    return variable


def _variable_32(make: Callable[[bytes], Any]) -> Decoder:
    def variable(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        start = pos + 4
        if start > end:
            raise _truncated()
        after = start + int(_u32(data, pos)[0])
        if after > end:
            raise _truncated()
        return make(data[start:after]), after

    return variable


def _bounds(data: bytes, pos: int, end: int, depth: int, wide: bool) -> tuple[int, int, int]:
    """Count, first byte and end of a compound value, all within `end`."""
    if depth >= MAX_DEPTH:
        raise _too_deep()
    if wide:
        if pos + 8 > end:
            raise _truncated()
        size, count = _two_u32(data, pos)
        after, start = pos + 4 + size, pos + 8
    else:
        if pos + 2 > end:
            raise _truncated()
        count = data[pos + 1]
        after, start = pos + 1 + data[pos], pos + 2
    if after > end:
        raise _truncated()
    if after < start:
        raise DecodeError("the size of a compound value does not even hold its count")
    return count, start, after


def _items(data: bytes, pos: int, end: int, count: int, depth: int) -> list[Any]:
    if count > end - pos:
        raise DecodeError("more items are counted than there are bytes")
    items: list[Any] = []
    append = items.append
    for _ in range(count):
        if pos >= end:
            raise _truncated()
        code = data[pos]
        if code == 0x40:
            append(None)
            pos += 1
        elif code == 0xA3 and pos + 1 < end and (after := pos + 2 + data[pos + 1]) <= end:
            append(_symbol(data[pos + 2 : after]))
            pos = after
        elif code == 0xA1 and pos + 1 < end and (after := pos + 2 + data[pos + 1]) <= end:
            append(_text(data[pos + 2 : after]))
            pos = after
        else:
            value, pos = _DECODERS[code](data, pos + 1, end, depth)
            append(value)
    if pos != end:
        raise DecodeError("the size of a compound value does not fit its items")
    return items


def _list(wide: bool) -> Decoder:
    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        count, start, after = _bounds(data, pos, end, depth, wide)
        return _items(data, start, after, count, depth + 1), after

    return read


def _map(wide: bool) -> Decoder:
    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        count, start, after = _bounds(data, pos, end, depth, wide)
        if count & 1:
            raise DecodeError("a map has a key without a value")
        items = _items(data, start, after, count, depth + 1)
        try:
            value = dict(zip(items[::2], items[1::2], strict=True))
        except TypeError as error:
            raise DecodeError("the key of a map is a compound value") from error
        if len(value) * 2 != count:
            raise DecodeError("two keys of a map are equal")
        return value, after

    return read


def _array(wide: bool) -> Decoder:
    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        count, pos, after = _bounds(data, pos, end, depth, wide)
        if count == 0 and pos == after:
            return Array([], 0x40), after
        descriptors: list[Any] = []
        while pos < after and data[pos] == 0:
            if len(descriptors) >= MAX_DEPTH:
                raise _too_deep()
            descriptor, pos = _nested(data, pos + 1, after, depth + 1)
            descriptors.append(descriptor)
        if pos >= after:
            raise _truncated()
        code = data[pos]
        elements = _elements(data, pos + 1, after, count, depth + 1)
        return Array(elements, code, tuple(descriptors)), after

    return read


def _elements(data: bytes, pos: int, end: int, count: int, depth: int) -> list[Any]:
    """The elements of an array, whose shared constructor is the byte before `pos`."""
    code = data[pos - 1]
    width = _WIDTHS[code]
    if width == 0:
        if count > MAX_EMPTY_ELEMENTS:
            raise DecodeError("an array counts more empty elements than are allowed")
    elif width == _UNKNOWN:
        _unknown(data, pos, end, depth)
    elif count > end - pos:
        raise DecodeError("more elements are counted than there are bytes")
    read = _DECODERS[code]
    elements = []
    for _ in range(count):
        value, pos = read(data, pos, end, depth)
        elements.append(value)
    if pos != end:
        raise DecodeError("the size of an array does not fit its elements")
    return elements


def _nested(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    if pos >= end:
        raise _truncated()
    return _DECODERS[data[pos]](data, pos + 1, end, depth)


def _described(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    if depth >= MAX_DEPTH:
        raise _too_deep()
    descriptor, pos = _nested(data, pos, end, depth + 1)
    value, pos = _nested(data, pos, end, depth + 1)
    return Described(descriptor, value), pos


_SIZE_8 = -1
_SIZE_32 = -2
_DESCRIBED = -3
_UNKNOWN = -4

# (constructor, bytes that follow it or how they are counted, decoder)
_TABLE: tuple[tuple[int, int, Decoder], ...] = (
    (0x00, _DESCRIBED, _described),
    (0x40, 0, _constant(None)),
    (0x41, 0, _constant(True)),
    (0x42, 0, _constant(False)),
    (0x43, 0, _constant(UInt(0))),
    (0x44, 0, _constant(ULong(0))),
    (0x45, 0, _list0),
    (0x50, 1, _number("B", UByte)),
    (0x51, 1, _number("b", Byte)),
    (0x52, 1, _number("B", UInt)),
    (0x53, 1, _number("B", ULong)),
    (0x54, 1, _number("b", Int)),
    (0x55, 1, _number("b", Long)),
    (0x56, 1, _number("B", _boolean)),
    (0x60, 2, _number("H", UShort)),
    (0x61, 2, _number("h", Short)),
    (0x70, 4, _number("I", UInt)),
    (0x71, 4, _number("i", Int)),
    (0x72, 4, _number("f", Float32)),
    (0x73, 4, _fixed(4, _char)),
    (0x74, 4, _fixed(4, Decimal32)),
    (0x80, 8, _number("Q", ULong)),
    (0x81, 8, _number("q", Long)),
    (0x82, 8, _number("d", float)),
    (0x83, 8, _number("q", Timestamp)),
    (0x84, 8, _fixed(8, Decimal64)),
    (0x94, 16, _fixed(16, Decimal128)),
    (0x98, 16, _fixed(16, lambda raw: UUID(bytes=raw))),
    (0xA0, _SIZE_8, _variable_8(_same)),
    (0xA1, _SIZE_8, _variable_8(_text)),
    (0xA3, _SIZE_8, _variable_8(_symbol)),
    (0xB0, _SIZE_32, _variable_32(_same)),
    (0xB1, _SIZE_32, _variable_32(_text)),
    (0xB3, _SIZE_32, _variable_32(_symbol)),
    (0xC0, _SIZE_8, _list(wide=False)),
    (0xC1, _SIZE_8, _map(wide=False)),
    (0xD0, _SIZE_32, _list(wide=True)),
    (0xD1, _SIZE_32, _map(wide=True)),
    (0xE0, _SIZE_8, _array(wide=False)),
    (0xF0, _SIZE_32, _array(wide=True)),
)

_DECODERS: list[Decoder] = [_unknown] * 256
_WIDTHS: list[int] = [_UNKNOWN] * 256
for _code, _width, _decoder in _TABLE:
    _DECODERS[_code] = _decoder
    _WIDTHS[_code] = _width
