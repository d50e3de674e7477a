"""A message made fit for a backlog queue, and made again what it was: only what the backlog would act on is moved.

Session, time to live and scheduled time become application properties beside the destination's path; every other byte
stays. Which messages are diverted, and what becomes of one that cannot be restored, is left to `pair`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from twinbus.amqp import codec
from twinbus.amqp.types import DecodeError, Described, EncodeError, Long, Symbol, Timestamp, UInt
from twinbus.client.errors import ClientError
from twinbus.wire.sections import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    canonical,
    items,
    list_section,
    map_section,
    text,
)

PATH = "x-ms-path"
SESSION_ID = "x-ms-sessionid"
TIME_TO_LIVE = "x-ms-timetolive"
SCHEDULED = "x-ms-scheduledenqueuetimeutc"
# Ours, and only in backlog queues that keep order: there a session stands for what must stay in order, and a key that
# differs from the session would be refused.
PARTITION_KEY = "x-ms-partitionkey"

# Ours: the namespace that a message is meant for, because two primaries of one name may share a secondary.
MEANT_FOR = "x-twinbus-meant-for"

# Ours: the message came without an id and has no room for one at home, so that its id ends with the diversion.
NO_ID = "x-twinbus-no-id"

# Before the name of a property of the application's own that is called as one of ours.
_OWN = "x-twinbus-own-"

# What the four properties can add to a message at most, with the longest path and session id there may be.
ROOM_BYTES = 4096

_SCHEDULED_ANNOTATION = "x-opt-scheduled-enqueue-time"
_PARTITION_KEY_ANNOTATION = "x-opt-partition-key"
_BROKERS_OWN = "x-opt-"
_SENDERS_OWN = ("x-opt-partition-key", "x-opt-via-partition-key", _SCHEDULED_ANNOTATION)
_TTL, _DELIVERY_COUNT = 2, 4
_GROUP_ID, _EXPIRY, _CREATION = 10, 8, 9
_TIMESPAN = Symbol("com.microsoft:timespan")
_TICKS_PER_MS = 10_000
_NULL = b"\x40"
_MAX_UINT = 0xFFFFFFFF
_LAST_MS = 253_402_243_199_000  # The last expiry that the SDK says, in the year 9999.
_ID_BYTES = 64  # What an id that we make adds at most: itself, and a section to hold it.
_MALFORMED = (DecodeError, EncodeError, IndexError, struct.error, UnicodeDecodeError)

Section = dict[int, list[bytes]]


class RestoreError(Exception):
    """A message in a backlog queue that cannot go to where it was meant to; `reason` and text are for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class MeantFor(NamedTuple):
    """The namespace that a diverted message is meant for."""

    id: str  # Empty where its sender could not know it.
    reached_at: str  # The address by which its sender reaches it.

    def __str__(self) -> str:
        return f"{self.id} {self.reached_at}"

    @classmethod
    def parse(cls, text: str) -> MeantFor:
        """As it stands in a message."""
        namespace_id, _, reached_at = text.partition(" ")
        return cls(namespace_id, reached_at)


class Restored(NamedTuple):
    """Where a message was meant to go, and the message as its sender sent it."""

    path: str
    payload: bytes
    message_id: Any
    meant_for: MeantFor | None = None  # None if its sender did not say.


def with_id(payload: bytes, message_id: str) -> bytes:
    """The message under that id; everything else keeps its bytes."""
    try:
        sections = _split(payload)
        fields = _fields(sections.get(PROPERTIES))
        fields[:1] = [codec.encode(message_id)]
        sections[PROPERTIES] = [list_section(PROPERTIES, len(fields), b"".join(fields))]
        return _joined(sections)
    except _MALFORMED as problem:
        raise ClientError("amqp:decode-error", f"a message cannot be read: {problem}") from problem


def divert(
    payload: bytes,
    path: str,
    new_id: Callable[[], str] | None = None,
    backlog_session: str | None = None,
    meant_for: MeantFor | None = None,
    bytes_max: int | None = None,
) -> bytes:
    """The message for a backlog queue: it has no session, lives for ever, is due at once, and knows its destination.

    One without an id gets one from `new_id`, so that it is the same message however often it is sent; if its
    destination, which takes `bytes_max`, has no room for that, it comes home without. For a backlog queue that keeps
    order it is in the session that is named, and its partition key is kept as a property.
    """
    try:
        sections = _split(payload)
        kept: dict[str, Any] = {PATH: path}
        if meant_for is not None:
            kept[MEANT_FOR] = str(meant_for)
        fields = _fields(sections.get(PROPERTIES))
        if new_id is not None and (not fields or fields[0] == _NULL):
            fields[:1] = [codec.encode(new_id())]
            if bytes_max is not None and len(payload) + _ID_BYTES > bytes_max:
                kept[NO_ID] = True
        if len(fields) > _GROUP_ID and fields[_GROUP_ID] != _NULL:
            kept[SESSION_ID] = codec.decode(fields[_GROUP_ID])[0]
            fields[_GROUP_ID] = _NULL
        if backlog_session is not None:
            fields += [_NULL] * (_GROUP_ID + 1 - len(fields))
            fields[_GROUP_ID] = codec.encode(backlog_session)
        ttl_ms = _take_ttl(sections, fields)
        if ttl_ms is not None:
            kept[TIME_TO_LIVE] = Described(_TIMESPAN, Long(ttl_ms * _TICKS_PER_MS))
        if fields:
            sections[PROPERTIES] = [list_section(PROPERTIES, len(fields), b"".join(fields))]
        annotations = _entries(sections.get(MESSAGE_ANNOTATIONS))
        scheduled = annotations.pop(_SCHEDULED_ANNOTATION, None)
        if scheduled is not None:
            kept[SCHEDULED] = Timestamp(_value(scheduled))
        if backlog_session is not None and _PARTITION_KEY_ANNOTATION in annotations:
            kept[PARTITION_KEY] = str(_value(annotations.pop(_PARTITION_KEY_ANNOTATION)))
        if SCHEDULED in kept or PARTITION_KEY in kept:
            _put_map(sections, MESSAGE_ANNOTATIONS, annotations)
        application = _renamed(_entries(sections.get(APPLICATION_PROPERTIES)), _escaped)
        for name, value in kept.items():
            application[name] = codec.encode(name) + codec.encode(value)
        _put_map(sections, APPLICATION_PROPERTIES, application)
        return _joined(sections)
    except (*_MALFORMED, TypeError, ValueError) as problem:
        raise ClientError("amqp:decode-error", f"a message cannot be diverted: {problem}") from problem


def restore(payload: bytes, now_ms: int | None = None) -> Restored:
    """What was diverted, as it was; a RestoreError if the properties that say so are missing or of another type.

    A time to live begins anew: at `now_ms`, or without it at the time at which the message was made. It is never
    larger than it was, as its destination may take no more.
    """
    try:
        sections = _split(payload)
        application = _entries(sections.get(APPLICATION_PROPERTIES))
        fields = _fields(sections.get(PROPERTIES))
        message_id = codec.decode(fields[0])[0] if fields else None
        told = {name: _value(application.pop(name)) for name in _TYPES if name in application}
    except _MALFORMED as problem:
        raise RestoreError("PropertyExtractionFailed", f"The message cannot be read: {problem}.") from problem
    _check(told, message_id)
    _put_map(sections, APPLICATION_PROPERTIES, _renamed(application, lambda name: name.removeprefix(_OWN)))
    ttl_ms = _milliseconds(told.get(TIME_TO_LIVE))
    if NO_ID in told and fields:
        fields[0] = _NULL
    if SESSION_ID in told:
        fields += [_NULL] * (_GROUP_ID + 1 - len(fields))
        fields[_GROUP_ID] = codec.encode(told[SESSION_ID])
    elif len(fields) > _GROUP_ID:
        fields[_GROUP_ID] = _NULL  # A session that is the backlog queue's own.
    _put_expiry(fields, ttl_ms, now_ms)
    _put_list(sections, PROPERTIES, fields)
    _put_header(sections, ttl_ms)
    annotations = {
        name: entry
        for name, entry in _entries(sections.get(MESSAGE_ANNOTATIONS)).items()
        if not name.startswith(_BROKERS_OWN) or name in _SENDERS_OWN
    }
    if SCHEDULED in told:
        annotations[_SCHEDULED_ANNOTATION] = codec.encode(Symbol(_SCHEDULED_ANNOTATION)) + codec.encode(told[SCHEDULED])
    if PARTITION_KEY in told:
        name = _PARTITION_KEY_ANNOTATION
        annotations[name] = codec.encode(Symbol(name)) + codec.encode(told[PARTITION_KEY])
    _put_map(sections, MESSAGE_ANNOTATIONS, annotations)
    sections.pop(DELIVERY_ANNOTATIONS, None)
    meant_for = MeantFor.parse(told[MEANT_FOR]) if MEANT_FOR in told else None
    return Restored(told[PATH], _joined(sections), message_id, meant_for)


def _escaped(name: str) -> str:
    return _OWN + name if name in _TYPES or name.startswith(_OWN) else name


def _renamed(entries: dict[str, bytes], rename: Callable[[str], str]) -> dict[str, bytes]:
    """The entries of a map under other names; those that stay as they are called keep their bytes."""
    return {
        new: entry if new == name else codec.encode(new) + entry[codec.skip(entry, 0) :]
        for name, entry in entries.items()
        for new in (rename(name),)
    }


def _is_timespan(value: Any) -> bool:
    return isinstance(value, Described) and value.descriptor == _TIMESPAN and isinstance(value.value, int)


# What each property must be, and how that is called.
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    PATH: (lambda value: type(value) is str, "string"),
    SESSION_ID: (lambda value: type(value) is str, "string"),
    PARTITION_KEY: (lambda value: type(value) is str, "string"),
    MEANT_FOR: (lambda value: type(value) is str, "string"),
    NO_ID: (lambda value: value is True, "boolean"),
    TIME_TO_LIVE: (_is_timespan, "duration"),
    SCHEDULED: (lambda value: isinstance(value, Timestamp), "timestamp"),
}


def _check(told: dict[str, Any], message_id: Any) -> None:
    if not isinstance(told.get(PATH), str) or not told[PATH]:
        raise RestoreError("NoQueuePath", f"Message '{message_id}' does not say in {PATH} where it is to go.")
    for name, value in told.items():
        fits, called = _TYPES[name]
        if not fits(value):
            text = f"{name} of message '{message_id}' should be a {called} and is a {type(value).__name__}."
            raise RestoreError("PropertyExtractionFailed", text)


def _milliseconds(value: Any) -> int | None:
    return None if value is None else max(int(value.value) // _TICKS_PER_MS, 0)


def _take_ttl(sections: Section, fields: list[bytes]) -> int | None:
    """The time to live is taken out of the header; one that the header cannot say is told by two instants."""
    header = _fields(sections.get(HEADER))
    if len(header) <= _TTL or header[_TTL] == _NULL:
        return None
    ttl_ms = int(codec.decode(header[_TTL])[0])
    header[_TTL] = _NULL
    sections[HEADER] = [list_section(HEADER, len(header), b"".join(header))]
    if ttl_ms == _MAX_UINT and len(fields) > _CREATION and _NULL not in (fields[_EXPIRY], fields[_CREATION]):
        ttl_ms = max(ttl_ms, int(codec.decode(fields[_EXPIRY])[0]) - int(codec.decode(fields[_CREATION])[0]))
    if len(fields) > _EXPIRY:
        fields[_EXPIRY] = _NULL  # It follows from the time to live, which begins anew at the destination.
    return ttl_ms


def _put_expiry(fields: list[bytes], ttl_ms: int | None, now_ms: int | None) -> None:
    """Both instants that belong to a time to live, as the SDK sends them; a message that had none gets none."""
    if ttl_ms is None or len(fields) <= _CREATION or fields[_CREATION] == _NULL:
        return
    created_ms = int(codec.decode(fields[_CREATION])[0]) if now_ms is None else now_ms
    fields[_CREATION] = codec.encode(Timestamp(created_ms))
    fields[_EXPIRY] = codec.encode(Timestamp(min(created_ms + ttl_ms, _LAST_MS)))


def _put_header(sections: Section, ttl_ms: int | None) -> None:
    """The sender's header with its time to live; what tells of deliveries is gone, and a header that says nothing."""
    header = _fields(sections.get(HEADER))[:_DELIVERY_COUNT]
    header += [_NULL] * (_TTL + 1 - len(header))
    header[_TTL] = _NULL if ttl_ms is None else codec.encode(UInt(min(ttl_ms, _MAX_UINT)))
    _put_list(sections, HEADER, header)


# Sections, by code; a body may have several of one.


def _split(payload: bytes) -> Section:
    payload = canonical(payload)
    sections: Section = {}
    position = 0
    while position < len(payload):
        end = codec.skip(payload, position + 3)
        sections.setdefault(payload[position + 2], []).append(payload[position:end])
        position = end
    return sections


def _joined(sections: Section) -> bytes:
    return b"".join(part for code in sorted(sections) for part in sections[code])


def _fields(section: list[bytes] | None) -> list[bytes]:
    if not section:
        return []
    data = section[0]
    return [data[start:end] for start, end in pairwise(items(data, 3, len(data)))]


def _entries(section: list[bytes] | None) -> dict[str, bytes]:
    """Each entry's encoded key and value, by key."""
    if not section:
        return {}
    data = section[0]
    bounds = items(data, 3, len(data))
    return {
        f"#{i}" if name is None else name: data[bounds[i] : bounds[i + 2]]
        for i in range(0, len(bounds) - 1, 2)
        for name in (text(data, bounds[i], bounds[i + 1]),)
    }


def _value(entry: bytes) -> Any:
    return codec.decode(entry, codec.skip(entry))[0]


def _put_list(sections: Section, code: int, fields: list[bytes]) -> None:
    """The section without the nulls at its end, which say nothing and take room."""
    count = max((at for at, each in enumerate(fields, 1) if each != _NULL), default=0)
    if count:
        sections[code] = [list_section(code, count, b"".join(fields[:count]))]
    else:
        sections.pop(code, None)


def _put_map(sections: Section, code: int, entries: dict[str, bytes]) -> None:
    if entries:
        sections[code] = [map_section(code, 2 * len(entries), b"".join(entries.values()))]
    else:
        sections.pop(code, None)
