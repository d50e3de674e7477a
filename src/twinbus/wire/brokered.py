"""Messages as the REST interface has them: named broker properties, application properties and a body of bytes.

Headers, JSON and dates in text are the HTTP door's business; which message is meant, the entities'.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from twinbus.amqp import codec
from twinbus.amqp.types import DecodeError, Described, EncodeError, Symbol, Timestamp
from twinbus.model import limits
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered
from twinbus.wire.decimals import number
from twinbus.wire.fields import MAX_UINT
from twinbus.wire.message import bare_message
from twinbus.wire.outgoing import data_section
from twinbus.wire.properties import DESCRIPTION_KEY, REASON_KEY, decoded
from twinbus.wire.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    find,
    list_section,
    map_section,
)
from twinbus.wire.view import system_properties, way_here

Instant = Timestamp  # Milliseconds since 1970, as the value of a property.

# Where each stands in the properties section (AMQP 1.0, 3.2.4), in order; None: what senders cannot say here.
_FIELDS = (
    "MessageId",
    None,
    "To",
    "Label",
    "ReplyTo",
    "CorrelationId",
    "ContentType",
    None,
    "ExpiresAt",
    "CreatedAt",
    "SessionId",
    None,
    "ReplyToSessionId",
)
_ANNOTATIONS = {
    "ScheduledEnqueueTimeUtc": Symbol("x-opt-scheduled-enqueue-time"),
    "PartitionKey": Symbol("x-opt-partition-key"),
    "ViaPartitionKey": Symbol("x-opt-via-partition-key"),
}
_TIME_TO_LIVE = "TimeToLive"
_SECONDS_A_TICK = 1e-7
_TIME_SPAN = "com.microsoft:timespan"
_NOT_TOLD = Symbol("left out")


class Received(NamedTuple):
    """What a receiver is told of a message: times in milliseconds, and an unlimited time to live as None."""

    system: dict[str, Any]
    user: dict[str, str | bool | int | float | Timestamp]
    body: bytes
    ttl_ms: int | None


def encode(body: bytes, system: Mapping[str, Any], user: Mapping[str, Any], now_ms: int) -> bytes:
    """A message as a sender's payload. Times in `system` are in milliseconds; ARGUMENT for what AMQP cannot say."""
    try:
        return b"".join(
            (
                *_header(system),
                *_annotations(system),
                *_properties(system, now_ms),
                *_application_properties(user),
                data_section(body),
            )
        )
    except (EncodeError, UnicodeEncodeError) as error:
        raise BusError(Fault.ARGUMENT, f"A property cannot be encoded: {error}.") from error


def _header(system: Mapping[str, Any]) -> list[bytes]:
    ttl_ms = system.get(_TIME_TO_LIVE)
    if ttl_ms is None or ttl_ms >= limits.UNLIMITED_MS:
        return []
    return [list_section(HEADER, 3, b"\x40\x40" + codec.encode_uint(min(ttl_ms, MAX_UINT)))]


def _annotations(system: Mapping[str, Any]) -> list[bytes]:
    content = []
    for name, key in _ANNOTATIONS.items():
        value = system.get(name)
        if value is not None:
            content.append(codec.encode(key) + codec.encode(Timestamp(value) if isinstance(value, int) else value))
    return [map_section(MESSAGE_ANNOTATIONS, 2 * len(content), b"".join(content))] if content else []


def _properties(system: Mapping[str, Any], now_ms: int) -> list[bytes]:
    values = [system.get(name) if name is not None else None for name in _FIELDS]
    content_type, ttl_ms = system.get("ContentType"), system.get(_TIME_TO_LIVE)
    if content_type is not None:
        if not content_type.isascii():
            raise EncodeError("the content type is not ASCII")
        values[6] = Symbol(content_type)
    if ttl_ms is not None and MAX_UINT < ttl_ms < limits.UNLIMITED_MS:
        # Longer than the header can say: the official clients tell it by two instants.
        values[8], values[9] = Timestamp(now_ms + ttl_ms), Timestamp(now_ms)
    while values and values[-1] is None:
        values.pop()
    return [list_section(PROPERTIES, len(values), b"".join(map(codec.encode, values)))] if values else []


def _application_properties(user: Mapping[str, Any]) -> list[bytes]:
    content = [codec.encode(name) + codec.encode(value) for name, value in user.items()]
    return [map_section(APPLICATION_PROPERTIES, 2 * len(content), b"".join(content))] if content else []


def read(message: Delivered) -> Received:
    """A message that leaves the store, read as far as REST can tell it."""
    bare = bare_message(message.record)
    system = system_properties(message.record) | way_here(message.record)
    system.pop("Size")
    ttl_ms = system.pop(_TIME_TO_LIVE, None)
    if ttl_ms == MAX_UINT:
        ttl_ms = _long_ttl(bare)
    system = {name: value if isinstance(value, int) else _as_text(value) for name, value in system.items()}
    system["MessageId"] = message.message_id
    user = decoded(bare, message.overlay)
    for name, value in ((REASON_KEY, message.reason), (DESCRIPTION_KEY, message.description)):
        if value is not None:
            user[name] = value
    told = {name: _plain(value) for name, value in user.items()}
    shown = {name: value for name, value in told.items() if value is not _NOT_TOLD}
    return Received(system, shown, body_of(bare), ttl_ms)


def _as_text(value: Any) -> str:
    """Text, whatever type a sender gave it; the Python client turns some strings into binary."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _long_ttl(bare: bytes) -> int:
    start, end = find(bare, PROPERTIES)
    values = codec.decode(bare, start + 3)[0] if start < end else []
    if len(values) > 9 and isinstance(values[8], Timestamp) and isinstance(values[9], Timestamp):
        return max(MAX_UINT, values[8] - values[9])
    return MAX_UINT


def _plain(value: Any) -> Any:
    """A property's value as REST tells it: a GUID as text, a time span as its seconds; others it cannot tell."""
    value = number(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Described) and value.descriptor == _TIME_SPAN and isinstance(value.value, int):
        return value.value * _SECONDS_A_TICK
    if isinstance(value, str | bool | int | float):
        return value
    if value is None or isinstance(value, Described | bytes | list | dict):
        return _NOT_TOLD
    return float(value)  # A decimal.


def body_of(bare: bytes) -> bytes:
    """The body as bytes: data as it is, text as UTF-8, any other value and every sequence as JSON.

    Nobody looked at it when it was sent: one that cannot be decoded is told as it is encoded.
    """
    start = find(bare, DATA)[0]
    try:
        return _decoded_body(bare, start)
    except (DecodeError, IndexError, UnicodeDecodeError, struct.error):
        return bare[start:]


def _decoded_body(bare: bytes, pos: int) -> bytes:
    parts: list[Any] = []
    code = DATA
    while pos < len(bare) and bare[pos + 2] != FOOTER:
        code = bare[pos + 2]
        value, pos = codec.decode(bare, pos + 3)
        parts.append(value)
    if code == SEQUENCE:
        return _json([item for part in parts for item in part])
    if code == VALUE:
        (value,) = parts
        if isinstance(value, str):
            return value.encode()
        return value if isinstance(value, bytes) else b"" if value is None else _json(value)
    return b"".join(parts)


def _json(value: Any) -> bytes:
    return json.dumps(_jsonable(value), ensure_ascii=False, separators=(",", ":")).encode()


def _jsonable(value: Any) -> Any:
    """AMQP values as JSON has them; binary in base64, and what JSON lacks as text."""
    value = number(value)
    if isinstance(value, dict):
        return {str(_jsonable(key)): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, Described):
        return _jsonable(value.value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and value - value != 0:
        return str(value)  # JSON has neither infinities nor what is no number.
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
