"""Messages between wire and store: a sender's payload becomes a record, a record a receiver's payload.

The body is never decoded, and a record is opaque to everyone else. Who may send is decided elsewhere.

Record: layout number (with the hops of a forwarded message times sixteen), length of the head (these eight bytes
included), number of annotation items, length of the annotations (`>BBHI`); then the header section up to its
delivery-count; then the sender's message annotations without the broker's own; then properties,
application-properties, body and footer as sent. So a delivery is three pieces in a row: the head, the stamp, and the
rest of the record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twinbus.amqp.types import DecodeError
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Incoming
from twinbus.wire.fields import (
    LAYOUT,
    LEAD,
    MAX_UINT,
    is_content_type,
    long_ttl,
    read_annotations,
    read_header,
    read_identity,
    with_id,
)
from twinbus.wire.properties import check, merge, with_dead_letter
from twinbus.wire.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DESCRIBED_VALUE,
    FOOTER,
    FORMS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    canonical,
    find,
)

SINGLE_FORMAT = 0
BATCH_FORMAT = 0x80013700
PING = b"application/vnd.ms-servicebus-ping"  # The content type of messages that nobody receives.
MAX_HEADER_BYTES = 64 * 1024  # Properties, annotations and application properties together.

_u32 = struct.Struct(">I").unpack_from
_new = tuple.__new__  # Half the time of a named tuple's own constructor, which only names the arguments.

_EMPTY_MAP = b"\xc1\x01\x00"

_MALFORMED = (IndexError, struct.error, UnicodeDecodeError, DecodeError)


def read(
    payload: bytes, message_format: int, *, ttl_ceiling_ms: int | None, new_id: Callable[[], str]
) -> list[Incoming]:
    """The messages of one transfer: one, or one for each data section of a batch.

    `ttl_ceiling_ms` is the entity's default time to live, which is also its maximum; `new_id` names messages
    that come without an id. Raises a BusError of kind DECODE for malformed bytes and ARGUMENT beyond the
    limits.
    """
    try:
        if message_format == SINGLE_FORMAT:
            return [_read_one(payload, ttl_ceiling_ms, new_id)]
        if message_format == BATCH_FORMAT:
            inner = [_read_one(part, ttl_ceiling_ms, new_id) for part in _batch_parts(payload)]
            if inner:
                return inner
            raise DecodeError("a batch holds no message")
    except _MALFORMED as error:
        why = str(error) if isinstance(error, DecodeError) else "it is cut off or not encoded as it says"
        raise BusError(Fault.DECODE, f"The message is malformed: {why}.") from error
    raise BusError(Fault.DECODE, f"The message format {message_format:#x} is unknown.")


def _batch_parts(payload: bytes) -> Iterator[bytes]:
    """The content of each data section; the envelope's other sections are only hints."""
    payload = canonical(payload)
    pos = find(payload, DATA)[0]
    while pos < len(payload) and payload[pos + 2] == DATA:
        _, length, counted = FORMS[payload[pos : pos + 4]]
        start = pos + length
        pos = start + (payload[pos + 4] if counted == 1 else _u32(payload, pos + 4)[0])
        yield payload[start:pos]
    if pos < len(payload) and payload[pos + 2] != FOOTER:
        raise DecodeError("the body of a batch is not made of data sections")


def _read_one(payload: bytes, ceiling: int | None, new_id: Callable[[], str]) -> Incoming:
    size = len(payload)
    pos = last = 0
    header = b"\x45"
    annotations = annotations_end = properties = properties_end = application = application_end = 0
    bare = body = size
    while pos < size:
        form = FORMS.get(payload[pos : pos + 4])
        if form is not None:
            code, end, counted = form
            end += pos
            if counted == 4:
                end += _u32(payload, pos + 4)[0]
            elif counted:
                end += payload[pos + 4]
            if end > size:
                raise DecodeError("a section is cut off")
        elif payload[pos : pos + 4] == DESCRIBED_VALUE:
            code, end = VALUE, find(payload[pos:], VALUE)[1] + pos
        else:
            code = end = 0  # Something unusual: put in order below.
        if code <= last and (code != last or code not in (DATA, SEQUENCE)):
            return _read_one(canonical(payload), ceiling, new_id)
        if code >= PROPERTIES:
            if bare == size:
                bare = pos
            if code == PROPERTIES:
                properties, properties_end = pos + 3, end
            elif code == APPLICATION_PROPERTIES:
                application, application_end = pos + 3, end
            elif body == size:
                body = pos
            elif DATA <= last < code < FOOTER:
                raise DecodeError("a body mixes kinds of sections")
        elif code == HEADER:
            header = payload[pos + 3 : end]
        elif code == MESSAGE_ANNOTATIONS:
            annotations, annotations_end = pos + 3, end
        last = code
        pos = end
    if body - bare + annotations_end - annotations > MAX_HEADER_BYTES:
        raise BusError(Fault.ARGUMENT, f"The header of the message is larger than {MAX_HEADER_BYTES} bytes.")
    lead, ttl_ms = read_header(header, ceiling)
    due_at_ms = partition_key = message_id = session_id = None
    if annotations and payload[annotations:annotations_end] != _EMPTY_MAP:
        entries, count, due_at_ms, partition_key = read_annotations(payload, annotations, annotations_end)
        lead = LEAD.pack(LAYOUT, len(lead), count, len(entries)) + lead[8:] + entries
    is_ping = PING in payload[properties:properties_end] and is_content_type(payload, properties, PING)
    if properties:
        message_id, session_id = read_identity(payload, properties, properties_end)
        if ttl_ms == MAX_UINT:
            ttl_ms = long_ttl(payload, properties, properties_end, ceiling)
    if application:
        check(payload, application, application_end)
    if message_id:
        rest = payload[bare:]
    else:
        message_id = new_id()
        rest = with_id(payload, properties, properties_end, message_id) + payload[properties_end or bare :]
    return _new(Incoming, (lead + rest, message_id, session_id, ttl_ms, due_at_ms, partition_key, is_ping))


_TOKEN = b"\x00\x53\x71\xc1\x24\x02\xa3\x10x-opt-lock-token\x98"
_NO_TOKEN = b"\x00\x53\x71\xc1\x01\x00"
_ANNOTATIONS = b"\x00\x53\x72\xd1"
_ENQUEUED = b"\xa3\x13x-opt-enqueued-time\x83"
_SEQUENCE = b"\xa3\x15x-opt-sequence-number\x81"
_LOCKED = b"\xa3\x12x-opt-locked-until\x83"
_STATE = b"\xa3\x13x-opt-message-state\x54"

_token_parts = struct.Struct("<IHH8s").unpack
_LOCKED_STAMP = struct.Struct(f">I{len(_TOKEN)}sIHH8s4sII{len(_ENQUEUED)}sq{len(_SEQUENCE)}sq{len(_LOCKED)}sq")
_PLAIN_STAMP = struct.Struct(f">I{len(_NO_TOKEN)}s4sII{len(_ENQUEUED)}sq{len(_SEQUENCE)}sq")
_PLAIN_SIZE = 4 + len(_ENQUEUED) + 8 + len(_SEQUENCE) + 8
_LOCKED_SIZE = _PLAIN_SIZE + len(_LOCKED) + 8
_STATE_SIZE = len(_STATE) + 1


def stamp(message: Delivered, *, locked: bool, peeked: bool = False) -> bytes:
    """The payload of a delivery: header with delivery count, what the broker says, and the rest as sent.

    `locked` adds the lock token and the end of the lock. The state is told only of peeked and of deferred
    messages.
    """
    number, record, _, deliveries, enqueued_ms, state, token, until_ms, _, overlay, reason, why = message
    _, head, count, length = LEAD.unpack_from(record)
    if locked:
        a, b, c, d = _token_parts(token)
        told, size = 6, _LOCKED_SIZE
    else:
        told, size = 4, _PLAIN_SIZE
    tail = b""
    if peeked or state:
        tail = _STATE + bytes((state,))
        told += 2
        size += _STATE_SIZE
    size += length
    told += count
    if locked:
        # fmt: off
        stamped = _LOCKED_STAMP.pack(
            deliveries, _TOKEN, a, b, c, d, _ANNOTATIONS, size, told,
            _ENQUEUED, enqueued_ms, _SEQUENCE, number, _LOCKED, until_ms,
        )
        # fmt: on
    else:
        stamped = _PLAIN_STAMP.pack(
            deliveries, _NO_TOKEN, _ANNOTATIONS, size, told, _ENQUEUED, enqueued_ms, _SEQUENCE, number
        )
    if overlay is None and reason is None and why is None:
        return b"".join((record[8:head], stamped, tail, record[head:]))
    entries_end = head + length
    bare = with_dead_letter(record[entries_end:], overlay, reason, why)
    return b"".join((record[8:head], stamped, tail, record[head:entries_end], bare))


def within_ttl(messages: list[Delivered], ceiling_ms: int | None) -> list[Delivered]:
    """Messages that tell a time to live of at most so much: what is kept once for several owners says the longest."""
    if ceiling_ms is None:
        return messages
    return [message._replace(record=_record_within_ttl(message.record, ceiling_ms)) for message in messages]


def _record_within_ttl(record: bytes, ceiling_ms: int) -> bytes:
    layout, head, count, length = LEAD.unpack_from(record)
    # The header in a record ends before the value of its delivery count.
    front = read_header(record[LEAD.size + 3 : head] + bytes(4), ceiling_ms)[0]
    return LEAD.pack(layout, len(front), count, length) + front[LEAD.size :] + record[head:]


def bare_message(record: bytes) -> bytes:
    """The sender's properties, application properties, body and footer as they are kept in a record."""
    _, head, _, length = LEAD.unpack_from(record)
    return record[head + length :]


def merge_properties(record: bytes, overlay: bytes | None, changes: Mapping[Any, Any]) -> bytes:
    """The overlay that a message at rest gets when some of its application properties are changed."""
    return merge(bare_message(record), overlay, changes)
