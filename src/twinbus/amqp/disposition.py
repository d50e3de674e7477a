"""Dispositions read by hand, with an index and an if-chain, for the encoding that nearly all of them have.

Whatever looks different goes through the general decoder of `composite`, which also finds what is malformed.
"""

from __future__ import annotations

import struct
from typing import Any

from twinbus.amqp.composite import decode_composite
from twinbus.amqp.performatives import ACCEPTED, RELEASED, Accepted, Disposition, Released
from twinbus.amqp.types import DecodeError

# role, first, last, settled, state
DispositionFields = tuple[bool, int, int, bool, Any]

_u32 = struct.Struct(">I").unpack_from

# The state `accepted` as it ends a disposition, by the number of fields: with or without batchable behind it.
_EMPTY_ACCEPTED = (
    b"\x00\x53\x24\x45",
    b"\x00\x53\x24\xc0\x01\x00",
    b"\x00\x53\x24\xd0\x00\x00\x00\x04\x00\x00\x00\x00",
)
_ACCEPTED = {
    5: frozenset(_EMPTY_ACCEPTED),
    6: frozenset(state + bytes((flag,)) for state in _EMPTY_ACCEPTED for flag in b"\x40\x41\x42"),
}


def parse_disposition(data: bytes, pos: int, end: int) -> DispositionFields:
    """The disposition whose field list is at `pos` (behind its descriptor) in a frame that ends at `end`."""
    try:
        fields = _accepting_disposition(data, pos, end)
    except (IndexError, struct.error):
        fields = None
    if fields is not None:
        return fields
    disposition, after = decode_composite(data, pos - 3, end)
    assert isinstance(disposition, Disposition)
    if after != end:
        raise DecodeError("bytes follow a disposition")
    return disposition_fields(disposition)


def disposition_fields(disposition: Disposition) -> DispositionFields:
    """The fields of a disposition that the general decoder read; outcomes without fields are shared."""
    state = disposition.state
    if type(state) is Accepted:
        state = ACCEPTED
    elif type(state) is Released:
        state = RELEASED
    first = disposition.first
    last = first if disposition.last is None else disposition.last
    return disposition.role, first, last, disposition.settled, state


def _accepting_disposition(data: bytes, pos: int, end: int) -> DispositionFields | None:
    if data[pos] != 0xC0:
        return None
    stop = pos + 2 + data[pos + 1]
    count = data[pos + 2]
    role = data[pos + 3]
    if stop != end or not 5 <= count <= 6 or not 0x41 <= role <= 0x42:
        return None
    pos += 4
    code = data[pos]
    if code == 0x70:
        first, pos = _u32(data, pos + 1)[0], pos + 5
    elif code == 0x52:
        first, pos = data[pos + 1], pos + 2
    elif code == 0x43:
        first, pos = 0, pos + 1
    else:
        return None
    code = data[pos]
    if code == 0x70:
        last, pos = _u32(data, pos + 1)[0], pos + 5
    elif code == 0x52:
        last, pos = data[pos + 1], pos + 2
    elif code == 0x40 or code == 0x43:
        last, pos = (first if code == 0x40 else 0), pos + 1
    else:
        return None
    settled = data[pos]
    if not 0x40 <= settled <= 0x42 or data[pos + 1 : stop] not in _ACCEPTED[count]:
        return None
    return role == 0x41, first, last, settled == 0x41, ACCEPTED
