"""What the descriptions of all entities have in common as XML: typed settings, counts and the order of elements.

Reads types strictly; which settings an entity has is said by `queues`, `topics` and `subscriptions`, and whether the
values make one is `model`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from twinbus.admin.atom import INSTANCE, SERVICE_BUS
from twinbus.admin.markup import Element, tag
from twinbus.model.duration import format_duration, parse_duration_ms
from twinbus.model.entity import EntityStatus
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts

_COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_INTEGER = re.compile(r"-?[0-9]{1,18}\Z")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

RandomBytes = Callable[[int], bytes]


def _read_integer(text: str) -> int:
    if not _INTEGER.match(text):
        raise BusError(Fault.ARGUMENT, f"'{text[:40]}' is not an integer.")
    return int(text)


def read_boolean(text: str) -> bool:
    """A boolean of XML, in any case."""
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise BusError(Fault.ARGUMENT, f"'{text[:40]}' is neither true nor false.")
    return value


def _read_status(text: str) -> EntityStatus:
    try:
        return EntityStatus(text)
    except ValueError:
        raise BusError(Fault.ARGUMENT, f"'{text[:40]}' is not a status that can be set.") from None


class Kind(NamedTuple):
    """How values of one type are read and written."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


DURATION = Kind(parse_duration_ms, format_duration)
NUMBER = Kind(_read_integer, str)
SWITCH = Kind(read_boolean, lambda value: "true" if value else "false")
TEXT = Kind(lambda text: text or None, str)
STATUS = Kind(_read_status, lambda value: str(value.value))

# What can be set: element -> (attribute of the description, type).
Settings = Mapping[str, tuple[str, Kind]]


# Writing


def write_settings(description: object, settings: Settings) -> dict[str, str]:
    """The element of everything that is set."""
    return {
        element: tag(element, kind.write(value))
        for element, (attribute, kind) in settings.items()
        if (value := getattr(description, attribute)) is not None
    }


def write_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """The element of each text."""
    return {element: tag(element, text) for element, text in texts.items()}


def in_order(kind: str, order: Sequence[str], elements: Mapping[str, str]) -> str:
    """The description element with the others inside, in the service's own order."""
    inside = "".join(elements[element] for element in order if element in elements)
    return f'<{kind} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{inside}</{kind}>'


def total_of(counts: Counts) -> int:
    """All messages; the details add up to it."""
    return counts.active + counts.deferred + counts.scheduled + counts.dead_letter + counts.transfer_dead_letter


def write_counts(counts: Counts) -> str:
    """The details of the counts."""
    # Deferred messages count as active, as in the service.
    by_state = {
        "ActiveMessageCount": counts.active + counts.deferred,
        "DeadLetterMessageCount": counts.dead_letter,
        "ScheduledMessageCount": counts.scheduled,
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": counts.transfer_dead_letter,
    }
    inside = "".join(tag(f"d2p1:{name}", str(count)) for name, count in by_state.items())
    # The JavaScript client finds the prefix of the children in the one attribute that this element must have.
    return f'<CountDetails xmlns:d2p1="{_COUNTS}">{inside}</CountDetails>'


# Reading


def local_name(element: Element) -> str:
    """The name of an element of the service's own namespace; others have none that we know."""
    namespace, _, name = element.name.rpartition("}")
    return name if namespace == "{" + SERVICE_BUS else ""


def type_of(element: Element) -> str:
    """The type that an element declares, without its prefix; empty if it declares none."""
    return element.attributes.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2]


def is_nil(element: Element) -> bool:
    """Whether an element stands for no value at all."""
    return element.attributes.get(f"{{{INSTANCE}}}nil") == "true"


def fields_of(element: Element) -> dict[str, Element]:
    """The elements inside another that have a value, by name; each may occur once."""
    fields: dict[str, Element] = {}
    for child in element.children:
        name = local_name(child)
        if name in fields and name:
            raise BusError(Fault.ARGUMENT, f"{name} occurs twice.")
        if not is_nil(child):
            fields[name] = child
    return fields


def read_settings(fields: Mapping[str, Element], settings: Settings) -> dict[str, Any]:
    """The value of every setting that is there; what clients only echo back is ignored."""
    values: dict[str, Any] = {}
    for element, (attribute, kind) in settings.items():
        if element in fields:
            try:
                values[attribute] = kind.read(fields[element].text.strip())
            except BusError as problem:
                raise BusError(problem.fault, f"{element}: {problem.text}") from None
    return values


def refuse_anonymous(fields: Mapping[str, Element]) -> None:
    """Nobody enters without a policy."""
    asked = fields.get("IsAnonymousAccessible")
    if asked is not None and _BOOLEANS.get(asked.text.strip().lower()):
        raise BusError(Fault.NOT_IMPLEMENTED, "Anonymous access is not offered.")
