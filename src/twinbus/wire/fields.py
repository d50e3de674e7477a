"""The fields of a sender's message that the broker reads, and the one that it may write: the message id.

Finding the sections, and what a record looks like as a whole, is left to `message`.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import pairwise
from uuid import UUID

from twinbus.amqp import codec
from twinbus.amqp.types import DecodeError
from twinbus.model.errors import BusError, Fault
from twinbus.wire.sections import HEADER, PROPERTIES, items, list_section, text

MAX_ID_CHARS = 128
MAX_UINT = 0xFFFFFFFF

# How a record begins: layout, length of its head (this included), number of annotation items, their length.
LEAD = struct.Struct(">BBHI")
LAYOUT = 1
HOP = 16  # The upper half of the layout's byte counts how often the message was forwarded.

_i64 = struct.Struct(">q").unpack_from
_CONTENT_TYPE = 6

# What the broker alone says about a message; a sender that passes a received message on sends them along.
_BROKERS_OWN = frozenset(
    {
        b"x-opt-deadletter-source",
        b"x-opt-enqueue-sequence-number",
        b"x-opt-enqueued-time",
        b"x-opt-lock-token",
        b"x-opt-locked-until",
        b"x-opt-message-state",
        b"x-opt-offset",
        b"x-opt-partition-id",
        b"x-opt-sequence-number",
    }
)


@lru_cache(maxsize=1024)
def read_header(header: bytes, ceiling: int | None) -> tuple[bytes, int | None]:
    """The beginning of a record without annotations, and the time to live that holds.

    Senders use few different headers, so that each is worked out once.
    """
    if len(header) > 64:
        raise DecodeError("the header is larger than its fields")
    bounds = items(header, 0, len(header))
    fields = [header[start:end] for start, end in pairwise(bounds)][:4]
    fields += [b"\x40"] * (4 - len(fields))
    durable, priority, ttl, first_acquirer = fields
    for field, constructors in (
        (durable, b"\x40\x41\x42\x56"),
        (priority, b"\x40\x50"),
        (ttl, b"\x40\x43\x52\x70"),
        (first_acquirer, b"\x40\x41\x42\x56"),
    ):
        if field[0] not in constructors:
            raise DecodeError("a field of the header has the wrong type")
    sent = None if ttl == b"\x40" else int.from_bytes(ttl[1:], "big")
    ttl_ms = sent if ceiling is None or (sent is not None and sent <= ceiling) else ceiling
    if ttl_ms is not None and ttl_ms != sent:
        ttl = b"\x70" + struct.pack(">I", min(ttl_ms, MAX_UINT))
    kept = durable + priority + ttl + first_acquirer
    head = bytes((0x00, 0x53, HEADER, 0xC0, 1 + len(kept) + 5, 5)) + kept + b"\x70"
    return LEAD.pack(LAYOUT, LEAD.size + len(head), 0, 0) + head, ttl_ms


def long_ttl(payload: bytes, start: int, end: int, ceiling: int | None) -> int:
    """A time to live beyond what the header can say: the clients tell it by two instants."""
    bounds = items(payload, start, end)
    if len(bounds) < 11 or payload[bounds[8]] != 0x83 or payload[bounds[9]] != 0x83:
        return MAX_UINT
    lifetime = int(_i64(payload, bounds[8] + 1)[0] - _i64(payload, bounds[9] + 1)[0])
    return max(MAX_UINT, lifetime if ceiling is None else min(lifetime, ceiling))


def read_annotations(payload: bytes, start: int, end: int) -> tuple[bytes, int, int | None, str | None]:
    """The sender's own entries and the number of their items, the scheduled time and the partition key."""
    bounds = items(payload, start, end)
    if len(bounds) % 2 == 0:
        raise DecodeError("a map has a key without a value")
    kept: list[bytes] = []
    due_at_ms = partition_key = None
    for i in range(0, len(bounds) - 1, 2):
        first, value, after = bounds[i : i + 3]
        key = payload[first + (5 if payload[first] >= 0xB0 else 2) : value]
        if key in _BROKERS_OWN:
            continue
        if key == b"x-opt-scheduled-enqueue-time":
            due_at_ms = _instant(payload, value)
        elif key == b"x-opt-partition-key":
            partition_key = _short_text(payload, value, after, "partition key")
        kept.append(payload[first:after])
    return b"".join(kept), 2 * len(kept), due_at_ms, partition_key


def _instant(payload: bytes, pos: int) -> int | None:
    if payload[pos] in (0x83, 0x81):
        return int(_i64(payload, pos + 1)[0])
    if payload[pos] == 0x40:
        return None
    raise BusError(Fault.ARGUMENT, "The scheduled enqueue time is not a timestamp.")


def _short_text(payload: bytes, start: int, end: int, what: str) -> str | None:
    if payload[start] == 0x40:
        return None
    value = text(payload, start, end)
    if value is None and payload[start] in (0xA0, 0xB0):
        # The Python client turns a string into binary when it sends a received message on.
        value = payload[start + (2 if payload[start] == 0xA0 else 5) : end].decode()
    if value is None:
        raise BusError(Fault.ARGUMENT, f"The {what} is not a string.")
    return storable(value, what)


def storable(value: str, what: str) -> str:
    """Only what every store can keep as text: neither PostgreSQL nor JSON in older SQLite holds a NUL."""
    if len(value) > MAX_ID_CHARS:
        raise BusError(Fault.ARGUMENT, f"The {what} is longer than {MAX_ID_CHARS} characters.")
    if "\0" in value:
        raise BusError(Fault.ARGUMENT, f"The {what} contains a NUL character.")
    return value


def read_identity(payload: bytes, start: int, end: int) -> tuple[str | None, str | None]:
    """The message id as text and the session id; the other fields are only checked for their bounds."""
    if payload[start] == 0xC0 and payload[start + 3] == 0xA1:
        # The common case: an id, then nothing but nulls, or nothing at all.
        first = start + 5
        after = first + payload[start + 4]
        if payload.count(b"@", after, end) == end - after == payload[start + 2] - 1:
            value = payload[first:after].decode()
            if len(value) > MAX_ID_CHARS or "\0" in value:
                storable(value, "message id")
            return value, None
    bounds = items(payload, start, end)
    if len(bounds) < 2:
        return None, None
    message_id = _id_text(payload, bounds[0], bounds[1])
    session_id = _short_text(payload, bounds[10], bounds[11], "session id") if len(bounds) > 11 else None
    return message_id, session_id


def is_content_type(payload: bytes, start: int, wanted: bytes) -> bool:
    """Whether the properties at `start` give this content type."""
    fields = codec.decode_items(payload, start)[0]
    return len(fields) > _CONTENT_TYPE and fields[_CONTENT_TYPE] == wanted.decode()


def _id_text(payload: bytes, start: int, end: int) -> str | None:
    """A message id of any of its four types in one spelling (AMQP 1.0, 3.2.4)."""
    constructor = payload[start]
    if constructor == 0x40:
        return None
    if constructor in (0xA1, 0xB1):
        return storable(text(payload, start, end) or "", "message id")
    if constructor == 0x98:
        return str(UUID(bytes=payload[start + 1 : end]))
    if constructor in (0x44, 0x53, 0x80):
        return str(int.from_bytes(payload[start + 1 : end], "big"))
    if constructor in (0xA0, 0xB0):
        return storable(payload[start + (2 if constructor == 0xA0 else 5) : end].hex(), "message id")
    raise DecodeError("the message id has the wrong type")


def with_id(payload: bytes, start: int, end: int, message_id: str) -> bytes:
    """The properties section with an id put in; its other fields stay as they are."""
    bounds = items(payload, start, end) if start else [0]
    others = payload[bounds[1] : bounds[-1]] if len(bounds) > 1 else b""
    raw = message_id.encode()
    content = bytes((0xA1, len(raw))) + raw + others
    return list_section(PROPERTIES, max(len(bounds) - 1, 1), content)
