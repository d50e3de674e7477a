"""Records as entities see them: properties read out, changes of a rule's action written back, hops counted.

Which properties a rule may ask for or change is `rules`' business, when a message is forwarded the entities'; this
knows where each thing stands in a message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from twinbus.amqp import codec
from twinbus.amqp.types import EncodeError, Long, Symbol, Timestamp, UInt
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered
from twinbus.wire.decimals import encodable, number
from twinbus.wire.fields import HOP, LEAD, MAX_UINT, read_header
from twinbus.wire.message import bare_message
from twinbus.wire.properties import changed_section, decoded, replaced_section, with_dead_letter
from twinbus.wire.sections import PROPERTIES, find

# Positions in the properties section (AMQP 1.0, 3.2.4).
_PLACES = {
    "MessageId": 0,
    "To": 2,
    "Label": 3,
    "ReplyTo": 4,
    "CorrelationId": 5,
    "ContentType": 6,
    "SessionId": 10,
    "ReplyToSessionId": 12,
}

# Keys of message annotations.
_ANNOTATIONS = {
    "PartitionKey": Symbol("x-opt-partition-key"),
    "ViaPartitionKey": Symbol("x-opt-via-partition-key"),
    "ScheduledEnqueueTimeUtc": Symbol("x-opt-scheduled-enqueue-time"),
}
_TIME_TO_LIVE = "TimeToLive"
_FIRST_NUMBER = Symbol("x-opt-enqueue-sequence-number")
_DEAD_LETTER_SOURCE = Symbol("x-opt-deadletter-source")
_FIRST_NUMBER_ENTRY = struct.Struct(f">BB{len(_FIRST_NUMBER)}sBq")


class Changed(NamedTuple):
    """A record after an action: what replaces its application properties, and itself if more than these changed."""

    overlay: bytes | None
    record: bytes | None


def system_properties(record: bytes) -> dict[str, Any]:
    """The system properties that stand in the message itself, by the names that rules use."""
    values = _properties(bare_message(record))
    found: dict[str, Any] = {"Size": len(record)}
    for name, place in _PLACES.items():
        if place < len(values) and values[place] is not None:
            value = values[place]
            found[name] = str(value) if not isinstance(value, bytes) else value.hex()
    annotations = _annotations(record)
    found.update((name, annotations[key]) for name, key in _ANNOTATIONS.items() if annotations.get(key) is not None)
    ttl = ttl_ms(record)
    return found if ttl is None else found | {_TIME_TO_LIVE: ttl}


def ttl_ms(record: bytes) -> int | None:
    """The time to live that the sender gave: in the header or, beyond what that can say, by two instants."""
    ttl = _header(record)[2]
    if ttl is None:
        return None
    instants = _properties(bare_message(record))[8:10] if ttl == MAX_UINT else []
    if len(instants) < 2 or None in instants:
        return int(ttl)
    return max(MAX_UINT, int(instants[0]) - int(instants[1]))


def partition_key(record: bytes) -> str | None:
    """The partition key that the sender gave."""
    key = _annotations(record).get(_ANNOTATIONS["PartitionKey"])
    return None if key is None else str(key)


def user_properties(record: bytes) -> dict[str, Any]:
    """The application properties."""
    return {name: number(value) for name, value in decoded(bare_message(record)).items()}


def with_overlay(record: bytes, overlay: bytes | None, removed: Iterable[str] = ()) -> bytes:
    """The record with an overlay as its application properties, of which those in `removed` are left out."""
    bare = bare_message(record)
    return record[: len(record) - len(bare)] + replaced_section(bare, overlay, removed)


def change(record: bytes, user: Mapping[str, Any], removed: Iterable[str], system: Mapping[str, Any]) -> Changed:
    """Apply an action's changes; ARGUMENT when a value cannot be told in AMQP."""
    bare = bare_message(record)
    try:
        overlay = changed_section(bare, {name: encodable(value) for name, value in user.items()}, removed)
    except EncodeError as error:
        raise BusError(Fault.ARGUMENT, f"A changed property cannot be encoded: {error}.") from error
    if not system:
        return Changed(overlay, None)
    try:
        return Changed(overlay, _changed_front(record, system) + _changed_properties(bare, system))
    except EncodeError as error:
        raise BusError(Fault.ARGUMENT, f"A changed system property cannot be encoded: {error}.") from error


def way_here(record: bytes) -> dict[str, Any]:
    """Where a forwarded message was first: its number there, and the entity in which it was dead-lettered."""
    annotations = _annotations(record)
    told = {"EnqueuedSequenceNumber": _FIRST_NUMBER, "DeadLetterSource": _DEAD_LETTER_SOURCE}
    return {name: annotations[key] for name, key in told.items() if key in annotations}


def hops(record: bytes) -> int:
    """How often the message was forwarded."""
    return record[0] // HOP


def forwarded(message: Delivered) -> bytes:
    """The record with one hop more, the number that the message had at first, and its changed properties in it."""
    record = message.record
    layout, head, count, length = LEAD.unpack_from(record)
    entries_end = head + length
    entries = record[head:entries_end]
    if layout < HOP:
        name = _FIRST_NUMBER.encode()
        entries += _FIRST_NUMBER_ENTRY.pack(0xA3, len(name), name, 0x81, message.sequence_number)
        count += 2
    bare = record[entries_end:]
    if message.overlay is not None:
        bare = replaced_section(bare, message.overlay)
    return LEAD.pack(layout + HOP, head, count, len(entries)) + record[LEAD.size : head] + entries + bare


def forwarded_dead_letter(message: Delivered, source: str) -> bytes:
    """The record of a dead letter, which begins a way of its own: it says where and why it died.

    Its time to live is taken off, because it did not count among the dead letters and may be over long since.
    """
    record = message.record
    header, annotations = _header(record)[:4], _annotations(record)
    header[2] = None
    annotations.setdefault(_FIRST_NUMBER, Long(message.sequence_number))
    annotations[_DEAD_LETTER_SOURCE] = source
    bare = with_dead_letter(bare_message(record), message.overlay, message.reason, message.description)
    return _front(record[0] % HOP + HOP, header, annotations) + bare


def _changed_front(record: bytes, system: Mapping[str, Any]) -> bytes:
    """A record up to its bare message: the header with another time to live, annotations with other values."""
    header, annotations = _header(record)[:4], _annotations(record)
    if _TIME_TO_LIVE in system:
        ttl = system[_TIME_TO_LIVE]
        header[2] = None if ttl is None else UInt(min(ttl, MAX_UINT))
    for name, key in _ANNOTATIONS.items():
        if name in system:
            annotations[key] = Timestamp(system[name]) if isinstance(system[name], int) else system[name]
    return _front(record[0], header, annotations)


def _front(layout: int, header: list[Any], annotations: Mapping[Any, Any]) -> bytes:
    """A record up to its bare message."""
    kept = [codec.encode(key) + codec.encode(value) for key, value in annotations.items() if value is not None]
    entries = b"".join(kept)
    head = read_header(codec.encode(header), None)[0][LEAD.size :]
    return LEAD.pack(layout, LEAD.size + len(head), 2 * len(kept), len(entries)) + head + entries


def _changed_properties(bare: bytes, system: Mapping[str, Any]) -> bytes:
    """A bare message with other values in its properties section."""
    placed = {name: value for name, value in system.items() if name in _PLACES}
    if not placed:
        return bare
    start, end = find(bare, PROPERTIES)
    values = _properties(bare)
    values += [None] * (max(_PLACES[name] for name in placed) + 1 - len(values))
    for name, value in placed.items():
        values[_PLACES[name]] = Symbol(value) if name == "ContentType" and value is not None else value
    return bare[:start] + bytes((0x00, 0x53, PROPERTIES)) + codec.encode(values) + bare[end:]


def _header(record: bytes) -> list[Any]:
    """The fields of the header, which ends in a record before the value of its delivery count."""
    head = LEAD.unpack_from(record)[1]
    return list(codec.decode(record[LEAD.size : head] + bytes(4), 3)[0])


def _annotations(record: bytes) -> dict[Any, Any]:
    """The sender's message annotations."""
    _, pos, count, _ = LEAD.unpack_from(record)
    found = {}
    for _ in range(count // 2):
        key, pos = codec.decode(record, pos)
        found[key], pos = codec.decode(record, pos)
    return found


def _properties(bare: bytes) -> list[Any]:
    start, end = find(bare, PROPERTIES)
    if start == end:
        return []
    values = codec.decode(bare, start + 3)[0]
    return list(values)
