"""Messages for people: what an encoded message says in plain values, and the same message made fit to be sent again.

Building messages is `wire.outgoing`'s work, offered here to those who may not know the wire; showing them is the
caller's.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from twinbus.amqp import codec
from twinbus.amqp.types import DecodeError, Described, EncodeError, Symbol, Timestamp
from twinbus.client.errors import ClientError
from twinbus.model.errors import BusError
from twinbus.model.message import MessageState
from twinbus.wire import message as wire_message
from twinbus.wire.conditions import condition_of
from twinbus.wire.message import BATCH_FORMAT, SINGLE_FORMAT
from twinbus.wire.outgoing import batch, build
from twinbus.wire.properties import DESCRIPTION_KEY, REASON_KEY
from twinbus.wire.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    canonical,
    list_section,
)

__all__ = [
    "BATCH_FORMAT",
    "SINGLE_FORMAT",
    "Message",
    "Stamp",
    "again",
    "batch",
    "build",
    "check",
    "instant",
    "read",
    "stamped",
]

_NUMBER, _LOCKED = b"\xa3\x15x-opt-sequence-number\x81", b"\xa3\x12x-opt-locked-until\x83"
_SMALL_CODE = b"\x00\x53"  # How a section's code is written, usually.
_SHAPES: dict[int, type] = {
    HEADER: list,
    DELIVERY_ANNOTATIONS: dict,
    MESSAGE_ANNOTATIONS: dict,
    PROPERTIES: list,
    APPLICATION_PROPERTIES: dict,
    DATA: bytes,
    SEQUENCE: list,
}
_i64 = struct.Struct(">q").unpack_from
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_000  # The years 1 and 9999.
_MALFORMED = (DecodeError, EncodeError, IndexError, struct.error, TypeError, ValueError)
_TTL, _DELIVERY_COUNT = 2, 4
_HEADER_KEPT = 3  # durable, priority and time to live; the rest tells of deliveries.
_FIELDS = {
    "message_id": 0, "to": 2, "subject": 3, "reply_to": 4, "correlation_id": 5, "content_type": 6,
    "session_id": 10, "reply_to_session_id": 12,
}  # fmt: skip
_ANNOTATIONS_KEPT = ("x-opt-partition-key", "x-opt-via-partition-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a message says. A body is bytes, or the plain value that an AMQP-value or AMQP-sequence body holds."""

    body: Any = b""
    message_id: str | None = None
    session_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    partition_key: str | None = None
    ttl_ms: int | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    # What the broker says
    sequence_number: int = 0
    enqueued_at_ms: int | None = None
    scheduled_at_ms: int | None = None
    locked_until_ms: int | None = None
    delivery_count: int = 0
    state: MessageState = MessageState.ACTIVE
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_letter_source: str | None = None


def read(payload: bytes) -> Message:
    """What an encoded message says; a ClientError when it is none."""
    try:
        found: dict[int, Any] = {}
        data: list[bytes] = []
        for code, value in _values(payload):
            if code == DATA:
                data.append(value)
            elif code == SEQUENCE:
                found.setdefault(code, []).extend(value)
            else:
                found[code] = value
        return _message(found, b"".join(data))
    except _MALFORMED as problem:
        raise ClientError("amqp:decode-error", f"a message cannot be read: {problem}") from problem


def check(payload: bytes) -> str | None:
    """The session id of an encoded message; a ClientError, in the words of a broker, if no broker of ours takes it."""
    try:
        return wire_message.read(payload, SINGLE_FORMAT, ttl_ceiling_ms=None, new_id=str)[0].session_id
    except BusError as error:
        raise ClientError(condition_of(error.fault), error.text) from error


class Stamp(NamedTuple):
    """What a broker wrote on a message that it handed out."""

    sequence_number: int
    locked_until_ms: int | None


def stamped(payload: bytes) -> Stamp:
    """A message's number and the end of its lock, found without reading the rest where they are written as usual."""
    number, until = payload.find(_NUMBER), payload.find(_LOCKED)
    if number < 0 or until < 0:
        message = read(payload)
        return Stamp(message.sequence_number, message.locked_until_ms)
    # What a broker writes stands before anything that a sender wrote, so the first place is the right one.
    return Stamp(_i64(payload, number + len(_NUMBER))[0], _i64(payload, until + len(_LOCKED))[0])


def again(payload: bytes, message_id: str | None = None, without: Collection[str] = ()) -> bytes:
    """A received message as its sender would send it again: without what the broker said, and why it was dead.

    Properties and body keep their bytes; with `message_id` it gets another id. `without` names application
    properties that go, too.
    """
    try:
        return b"".join(_kept(code, section, message_id, without) for code, section in _sections(payload))
    except _MALFORMED as problem:
        raise ClientError("amqp:decode-error", f"a message cannot be read: {problem}") from problem


def with_properties(payload: bytes, added: Mapping[str, str]) -> bytes:
    """The message with these properties of the application beside its own; those keep their types."""
    try:
        sections = list(_sections(payload))
        own: dict[Any, Any] = {}
        for code, section in sections:
            if code == APPLICATION_PROPERTIES:
                own = codec.decode(section, 3)[0]
        others = [(code, section) for code, section in sections if code != APPLICATION_PROPERTIES]
        others.append((APPLICATION_PROPERTIES, _map(APPLICATION_PROPERTIES, {**own, **added})))
        return b"".join(section for _, section in sorted(others, key=lambda each: each[0]))
    except _MALFORMED as problem:
        raise ClientError("amqp:decode-error", f"a message cannot be read: {problem}") from problem


def instant(at_ms: int) -> datetime:
    """Milliseconds since the Unix epoch as a date and time; senders may name instants that no calendar has."""
    return _EPOCH + timedelta(milliseconds=min(max(at_ms, _FIRST_MS), _LAST_MS))


def _values(payload: bytes) -> Iterator[tuple[int, Any]]:
    """Code and value of each section, in the order in which they are there."""
    position = 0
    while position < len(payload):
        if payload[position : position + 2] != _SMALL_CODE:
            payload, position = canonical(payload[position:]), 0
        code = payload[position + 2]
        value, position = codec.decode(payload, position + 3)
        if not isinstance(value, _SHAPES.get(code, object)):
            raise DecodeError(f"section {code:#x} is a {type(value).__name__}")
        yield code, value


def _sections(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """Code and bytes of each section, in the order of the specification."""
    payload = canonical(payload)
    position = 0
    while position < len(payload):
        end = codec.skip(payload, position + 3)
        yield payload[position + 2], payload[position:end]
        position = end


def _message(found: dict[int, Any], data: bytes) -> Message:
    header = _padded(found.get(HEADER), _DELIVERY_COUNT)
    fields = _padded(found.get(PROPERTIES), max(_FIELDS.values()))
    told = {str(key): value for key, value in (found.get(MESSAGE_ANNOTATIONS) or {}).items()}
    application = {str(key): _plain(value) for key, value in (found.get(APPLICATION_PROPERTIES) or {}).items()}
    body: Any = data
    for code in (VALUE, SEQUENCE):
        if code in found:
            body = _plain(found[code])
    return Message(
        body=body,
        **{name: _text(fields[position]) for name, position in _FIELDS.items()},
        partition_key=_text(told.get("x-opt-partition-key")),
        ttl_ms=_number(header[_TTL]),
        properties=application,
        sequence_number=_number(told.get("x-opt-sequence-number")) or 0,
        enqueued_at_ms=_number(told.get("x-opt-enqueued-time")),
        scheduled_at_ms=_number(told.get("x-opt-scheduled-enqueue-time")),
        locked_until_ms=_number(told.get("x-opt-locked-until")),
        delivery_count=_number(header[_DELIVERY_COUNT]) or 0,
        state=MessageState(told.get("x-opt-message-state") or 0),
        dead_letter_reason=_text(application.get(REASON_KEY)),
        dead_letter_description=_text(application.get(DESCRIPTION_KEY)),
        dead_letter_source=_text(told.get("x-opt-deadletter-source")),
    )


def _kept(code: int, section: bytes, message_id: str | None, without: Collection[str]) -> bytes:
    """What remains of a section when the message is sent again."""
    if code == HEADER:
        fields = _padded(codec.decode(section, 3)[0], _HEADER_KEPT)[:_HEADER_KEPT]
        return list_section(HEADER, len(fields), b"".join(map(codec.encode, fields)))
    if code == DELIVERY_ANNOTATIONS:
        return b""
    if code == MESSAGE_ANNOTATIONS:
        told = codec.decode(section, 3)[0]
        return _map(code, {k: v for k, v in told.items() if not str(k).startswith("x-opt-") or k in _ANNOTATIONS_KEPT})
    if code == APPLICATION_PROPERTIES:
        application = codec.decode(section, 3)[0]
        dropped = {REASON_KEY, DESCRIPTION_KEY, *without}
        if not dropped.isdisjoint(application):
            return _map(code, {k: v for k, v in application.items() if k not in dropped})
    if code == PROPERTIES and message_id is not None:
        fields = [message_id, *codec.decode(section, 3)[0][1:]]
        return list_section(PROPERTIES, len(fields), b"".join(map(codec.encode, fields)))
    return section


def _map(code: int, entries: dict[Any, Any]) -> bytes:
    return bytes((0x00, 0x53, code)) + codec.encode(entries) if entries else b""


def _padded(fields: list[Any] | None, last: int) -> list[Any]:
    fields = list(fields or ())
    return fields + [None] * (last + 1 - len(fields))


def _text(value: object) -> str | None:
    """A text, or an id of one of its other types in the spelling that the broker uses."""
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


def _plain(value: Any) -> Any:
    """A value without its AMQP type, as far as Python has one like it."""
    match value:
        case None | bool() | UUID():
            return value
        case Timestamp():
            return instant(value)
        case Symbol() | str():
            return str(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes():
            return bytes(value)
        case Described():
            return _plain(value.value)
        case dict():
            return {str(_plain(key)): _plain(entry) for key, entry in value.items()}
        case _:
            return [_plain(entry) for entry in value]
