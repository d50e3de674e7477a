"""Messages as our own client sends them: built from a body and the few fields that movers need.

Reading messages and keeping them is `message`'s business.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from twinbus.amqp import codec
from twinbus.amqp.types import Symbol
from twinbus.wire.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    list_section,
    map_section,
)

_SCHEDULED = codec.encode(Symbol("x-opt-scheduled-enqueue-time")) + b"\x83"
_PARTITION_KEY = codec.encode(Symbol("x-opt-partition-key"))
_pack_i64 = struct.Struct(">q").pack


def build(
    body: bytes,
    *,
    message_id: str | None = None,
    session_id: str | None = None,
    subject: str | None = None,
    correlation_id: str | None = None,
    content_type: str | None = None,
    to: str | None = None,
    reply_to: str | None = None,
    reply_to_session_id: str | None = None,
    ttl_ms: int | None = None,
    due_at_ms: int | None = None,
    partition_key: str | None = None,
    properties: Mapping[str, Any] | None = None,
) -> bytes:
    """An encoded message with a data body."""
    parts = []
    if ttl_ms is not None:
        parts.append(list_section(HEADER, 3, b"\x40\x40" + codec.encode_uint(ttl_ms)))
    annotations = b""
    if due_at_ms is not None:
        annotations = _SCHEDULED + _pack_i64(due_at_ms)
    if partition_key is not None:
        annotations += _PARTITION_KEY + codec.encode_string(partition_key)
    if annotations:
        count = 2 * ((due_at_ms is not None) + (partition_key is not None))
        parts.append(map_section(MESSAGE_ANNOTATIONS, count, annotations))
    fields: list[Any] = [message_id, None, to, subject, reply_to, correlation_id]
    fields += [Symbol(content_type) if content_type is not None else None, None, None, None, session_id]
    fields += [None, reply_to_session_id]
    while fields and fields[-1] is None:
        fields.pop()
    if fields:
        parts.append(list_section(PROPERTIES, len(fields), b"".join(map(codec.encode, fields))))
    if properties:
        parts.append(b"\x00\x53" + bytes((APPLICATION_PROPERTIES,)) + codec.encode(dict(properties)))
    parts.append(data_section(body))
    return b"".join(parts)


def batch(messages: Iterable[bytes]) -> bytes:
    """Encoded messages as the payload of one transfer of the batch format."""
    return b"".join(map(data_section, messages))


def data_section(content: bytes) -> bytes:
    """A data section."""
    return bytes((0x00, 0x53, DATA)) + codec.encode_binary(content)
