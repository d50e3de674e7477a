"""Application properties as bytes: checking a sender's, changing some, adding why a message is dead.

Values that nobody changes keep their encoding. When changes are made is left to the gateway and the entities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twinbus.amqp import codec
from twinbus.amqp.types import DecodeError, EncodeError
from twinbus.model.errors import BusError, Fault
from twinbus.wire.sections import APPLICATION_PROPERTIES, find, items, map_section, text

MAX_PROPERTY_BYTES = 32 * 1024
MAX_PROPERTIES_BYTES = 64 * 1024
REASON_KEY = "DeadLetterReason"
DESCRIPTION_KEY = "DeadLetterErrorDescription"


def check(payload: bytes, start: int, end: int) -> None:
    """Refuse application properties that receivers could not read, and a property beyond the limit."""
    bounds = items(payload, start, end)
    if len(bounds) % 2 == 0:
        raise DecodeError("a map has a key without a value")
    for key in bounds[:-1:2]:
        if payload[key] not in (0xA1, 0xB1):
            raise DecodeError("the name of an application property is not a string")
    if end - start > MAX_PROPERTY_BYTES:
        for i in range(0, len(bounds) - 1, 2):
            if bounds[i + 2] - bounds[i] > MAX_PROPERTY_BYTES:
                raise BusError(Fault.ARGUMENT, f"An application property is larger than {MAX_PROPERTY_BYTES} bytes.")


def merge(bare: bytes, overlay: bytes | None, changes: Mapping[Any, Any]) -> bytes:
    """The application-properties section after the changes; before them it is `overlay` or in `bare`."""
    entries = _entries(_section(bare, overlay))
    try:
        for key, value in changes.items():
            name = str(key)
            entries[name] = codec.encode(name) + codec.encode(value)
    except EncodeError as error:
        raise BusError(Fault.ARGUMENT, f"A changed property cannot be encoded: {error}.") from error
    section = _encoded(entries)
    if len(section) > MAX_PROPERTIES_BYTES:
        raise BusError(Fault.ARGUMENT, f"The application properties would be larger than {MAX_PROPERTIES_BYTES} bytes.")
    return section


def changed_section(bare: bytes, changes: Mapping[str, Any], removed: Iterable[str]) -> bytes | None:
    """The application-properties section after changes and removals; None where nothing changes."""
    gone = set(removed)
    if not changes and not gone:
        return None
    section = merge(bare, None, changes)
    if not gone:
        return section
    return _encoded({name: entry for name, entry in _entries(section).items() if name not in gone})


def replaced_section(bare: bytes, overlay: bytes | None, removed: Iterable[str] = ()) -> bytes:
    """The bare message with `overlay` as its application properties, and some of these taken away."""
    start, end = find(bare, APPLICATION_PROPERTIES)
    section = bare[start:end] if overlay is None else overlay
    entries = _entries(section)
    gone = entries.keys() & set(removed)
    if gone:
        section = _encoded({name: entry for name, entry in entries.items() if name not in gone})
    return bare[:start] + section + bare[end:]


def with_dead_letter(bare: bytes, overlay: bytes | None, reason: str | None, description: str | None) -> bytes:
    """The bare message with `overlay` as its application properties, and in them why it was dead-lettered."""
    start, end = find(bare, APPLICATION_PROPERTIES)
    section = bare[start:end] if overlay is None else overlay
    added: dict[str, bytes] = {}
    for name, value in ((REASON_KEY, reason), (DESCRIPTION_KEY, description)):
        if value is not None:
            added[name] = codec.encode(name) + codec.encode(str(value))
    if added:
        entries = _entries(section)
        entries.update(added)
        section = _encoded(entries)
    return bare[:start] + section + bare[end:]


def decoded(bare: bytes, overlay: bytes | None = None) -> dict[str, Any]:
    """The application properties as values, for filters and for people."""
    return {
        name: codec.decode(entry, codec.skip(entry))[0] for name, entry in _entries(_section(bare, overlay)).items()
    }


def _section(bare: bytes, overlay: bytes | None) -> bytes:
    if overlay is not None:
        return overlay
    start, end = find(bare, APPLICATION_PROPERTIES)
    return bare[start:end]


def _entries(section: bytes) -> dict[str, bytes]:
    """Each property's encoded key and value, by name and in order."""
    if not section:
        return {}
    bounds = items(section, 3, len(section))
    return {
        text(section, bounds[i], bounds[i + 1]) or "": section[bounds[i] : bounds[i + 2]]
        for i in range(0, len(bounds) - 1, 2)
    }


def _encoded(entries: Mapping[str, bytes]) -> bytes:
    return map_section(APPLICATION_PROPERTIES, 2 * len(entries), b"".join(entries.values()))
