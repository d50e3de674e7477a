"""The sections of an encoded message (AMQP 1.0, 3.2): where each begins and ends, no body decoded.

What the sections mean to Service Bus is left to `message`; general AMQP values to `amqp.codec`.
"""

from __future__ import annotations

import struct

from twinbus.amqp import codec
from twinbus.amqp.types import DecodeError

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78

_SYMBOLIC = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}

_LIST = (0x45, 0xC0, 0xD0)
_MAP = (0xC1, 0xD1)
_BINARY = (0xA0, 0xB0)

# Bytes behind a constructor, by constructor (AMQP 1.0, 1.6).
_WIDTHS = {
    **dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44, 0x45), 0),
    **dict.fromkeys((0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56), 1),
    **dict.fromkeys((0x60, 0x61), 2),
    **dict.fromkeys((0x70, 0x71, 0x72, 0x73, 0x74), 4),
    **dict.fromkeys((0x80, 0x81, 0x82, 0x83, 0x84), 8),
    **dict.fromkeys((0x94, 0x98), 16),
}
_SIZED_8 = (0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0)
_SIZED_32 = (0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0)

# How far to the next value, by constructor; what needs a closer look is left to the general decoder.
_TEXT_8, _BINARY_8, _OTHER = 0, -1, -2
_STEPS = [1 + _WIDTHS[constructor] if constructor in _WIDTHS else _OTHER for constructor in range(256)]
_STEPS[0x56] = _STEPS[0x73] = _OTHER  # Not every byte is a boolean, nor every four a character.
_STEPS[0xA0] = _BINARY_8
_STEPS[0xA1] = _STEPS[0xA3] = _TEXT_8

_u32 = struct.Struct(">I").unpack_from


def _forms() -> dict[bytes, tuple[int, int, int]]:
    shapes = {constructor: (4 + width, 0) for constructor, width in _WIDTHS.items()}
    shapes |= dict.fromkeys(_SIZED_8, (5, 1))
    shapes |= dict.fromkeys(_SIZED_32, (8, 4))
    allowed: dict[int, tuple[int, ...]] = {
        HEADER: _LIST,
        DELIVERY_ANNOTATIONS: _MAP,
        MESSAGE_ANNOTATIONS: _MAP,
        PROPERTIES: _LIST,
        APPLICATION_PROPERTIES: _MAP,
        DATA: _BINARY,
        SEQUENCE: _LIST,
        VALUE: tuple(shapes),
        FOOTER: _MAP,
    }
    return {
        bytes((0x00, 0x53, code, constructor)): (code, *shapes[constructor])
        for code, constructors in allowed.items()
        for constructor in constructors
    }


# The first four bytes of a section as nearly everyone writes it, to (section code, bytes without those that
# are counted, width of the count): one look-up tells whether a section is well begun and how to find its end.
FORMS: dict[bytes, tuple[int, int, int]] = _forms()

# A body whose value is described needs a walk to find its end.
DESCRIBED_VALUE = bytes((0x00, 0x53, VALUE, 0x00))


def canonical(payload: bytes) -> bytes:
    """The same sections in the order of the specification, each with the short descriptor.

    Senders may write descriptors at length or by name, and the official Python client puts delivery
    annotations last; its receivers, on the other hand, skip two bytes of descriptor without looking.
    """
    found: list[tuple[int, bytes]] = []
    pos = 0
    while pos < len(payload):
        code, start = _descriptor(payload, pos)
        pos = codec.skip(payload, start)
        section = bytes((0x00, 0x53, code)) + payload[start:pos]
        if section[:4] not in FORMS and section[:4] != DESCRIBED_VALUE:
            raise DecodeError(f"section {code:#x} has the wrong type")
        found.append((code, section))
    codes = [code for code, _ in found]
    for code in {*codes} - {DATA, SEQUENCE}:
        if codes.count(code) > 1:
            raise DecodeError(f"section {code:#x} occurs twice")
    found.sort(key=lambda item: item[0])
    return b"".join(section for _, section in found)


def _descriptor(payload: bytes, pos: int) -> tuple[int, int]:
    """The code of the section at `pos` and where its value begins."""
    if payload[pos] != 0:
        raise DecodeError("a section does not begin with a descriptor")
    descriptor, start = codec.decode(payload, pos + 1)
    if isinstance(descriptor, str):
        descriptor = _SYMBOLIC.get(descriptor)
    if not isinstance(descriptor, int) or isinstance(descriptor, bool) or not HEADER <= descriptor <= FOOTER:
        raise DecodeError("a section has an unknown descriptor")
    return descriptor, start


def items(data: bytes, start: int, end: int) -> list[int]:
    """Where each item of the list or map at `start` begins, and where the last one ends.

    The items are checked as far as a receiver would choke on them: sizes must fit, strings must be UTF-8, and
    what is nested must decode. The constructor at `start` is one of those that FORMS allows for a list or a
    map.
    """
    constructor = data[start]
    if constructor == 0x45:
        return [end]
    if constructor < 0xD0:
        count, pos = data[start + 2], start + 3
    else:
        count, pos = _u32(data, start + 5)[0], start + 9
    if count > end - pos:
        raise DecodeError("more items are counted than there are bytes")
    bounds = [pos]
    append = bounds.append
    steps = _STEPS
    for _ in range(count):
        step = steps[data[pos]]
        if step > 0:
            pos += step
        elif step == _TEXT_8:
            first = pos + 2
            pos = first + data[pos + 1]
            data[first:pos].decode()
        elif step == _BINARY_8:
            pos += 2 + data[pos + 1]
        else:
            pos = codec.decode(data, pos, end)[1]
        append(pos)
    if pos != end:
        raise DecodeError("the size of a list or map does not fit its items")
    return bounds


def text(data: bytes, start: int, end: int) -> str | None:
    """The string or symbol between two bounds; None if it is of another type."""
    constructor = data[start]
    if constructor in (0xA1, 0xA3):
        return data[start + 2 : end].decode()
    if constructor in (0xB1, 0xB3):
        return data[start + 5 : end].decode()
    return None


def find(bare: bytes, wanted: int) -> tuple[int, int]:
    """Bounds of a section in canonical bytes, descriptor included; where it would stand if it is missing."""
    pos = 0
    while pos < len(bare):
        code = bare[pos + 2]
        if code > wanted:
            break
        end = codec.skip(bare, pos + 3)
        if code == wanted:
            return pos, end
        pos = end
    return pos, pos


def map_section(code: int, count: int, content: bytes) -> bytes:
    """A section that holds a map, from its encoded keys and values and their number."""
    size = len(content)
    if size < 255 and count < 256:
        return bytes((0x00, 0x53, code, 0xC1, size + 1, count)) + content
    return bytes((0x00, 0x53, code, 0xD1)) + struct.pack(">II", size + 4, count) + content


def list_section(code: int, count: int, content: bytes) -> bytes:
    """A section that holds a list, from its encoded fields and their number."""
    size = len(content)
    if size < 255 and count < 256:
        return bytes((0x00, 0x53, code, 0xC0, size + 1, count)) + content
    return bytes((0x00, 0x53, code, 0xD0)) + struct.pack(">II", size + 4, count) + content
