"""Queues, topics and subscriptions as the Atom API describes them: settings, their types, and the order of elements.

One table for each kind serves all who read and write descriptions: the broker's administration and its client. Whether
the values make an entity is `model`'s business, what else stands in an answer `admin`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from twinbus.model.duration import format_duration, parse_duration_ms
from twinbus.model.entity import EntityStatus
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts
from twinbus.wire.markup import INSTANCE, SERVICE_BUS, Element, tag

NEVER = "0001-01-01T00:00:00Z"

_COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER = re.compile(r"-?[0-9]{1,18}\Z")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


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


_DURATION = Kind(parse_duration_ms, format_duration)
_NUMBER = Kind(_read_integer, str)
_SWITCH = Kind(read_boolean, lambda value: "true" if value else "false")
_TEXT = Kind(lambda text: text or None, str)
_STATUS = Kind(_read_status, lambda value: str(value.value))


class Shape(NamedTuple):
    """The description of one kind of entity: its element, the order inside, and what of that can be set."""

    element: str
    # Every element in the service's own order; with the attribute and the type of its value if it can be set.
    order: Mapping[str, tuple[str, Kind] | None]
    # Attributes that are fixed when the entity is made, so that an update which is silent about them changes nothing.
    fixed: tuple[str, ...]

    @property
    def settings(self) -> dict[str, tuple[str, Kind]]:
        """What can be set: element -> (attribute of the description, type)."""
        return {element: setting for element, setting in self.order.items() if setting is not None}


QUEUE = Shape(
    "QueueDescription",
    {
        "LockDuration": ("lock_duration_ms", _DURATION),
        "MaxSizeInMegabytes": ("max_size_mb", _NUMBER),
        "RequiresDuplicateDetection": ("requires_duplicate_detection", _SWITCH),
        "RequiresSession": ("requires_session", _SWITCH),
        "DefaultMessageTimeToLive": ("default_ttl_ms", _DURATION),
        "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", _SWITCH),
        "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", _DURATION),
        "MaxDeliveryCount": ("max_delivery_count", _NUMBER),
        "EnableBatchedOperations": ("batched_operations", _SWITCH),
        "SizeInBytes": None,
        "MessageCount": None,
        "IsAnonymousAccessible": None,
        "AuthorizationRules": None,
        "Status": ("status", _STATUS),
        "CreatedAt": None,
        "UpdatedAt": None,
        "AccessedAt": None,
        "SupportOrdering": None,
        "CountDetails": None,
        "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", _DURATION),
        "EnablePartitioning": ("partitioned", _SWITCH),
        "EntityAvailabilityStatus": None,
        "EnableExpress": ("express", _SWITCH),
        "ForwardTo": ("forward_to", _TEXT),
        "UserMetadata": ("user_metadata", _TEXT),
        "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", _TEXT),
        "MaxMessageSizeInKilobytes": ("max_message_size_kb", _NUMBER),
    },
    ("requires_duplicate_detection", "requires_session", "partitioned", "express"),
)

TOPIC = Shape(
    "TopicDescription",
    {
        "DefaultMessageTimeToLive": ("default_ttl_ms", _DURATION),
        "MaxSizeInMegabytes": ("max_size_mb", _NUMBER),
        "RequiresDuplicateDetection": ("requires_duplicate_detection", _SWITCH),
        "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", _DURATION),
        "EnableBatchedOperations": ("batched_operations", _SWITCH),
        "SizeInBytes": None,
        "FilteringMessagesBeforePublishing": None,
        "IsAnonymousAccessible": None,
        "AuthorizationRules": None,
        "Status": ("status", _STATUS),
        "CreatedAt": None,
        "UpdatedAt": None,
        "AccessedAt": None,
        "SupportOrdering": ("support_ordering", _SWITCH),
        "CountDetails": None,
        "SubscriptionCount": None,
        "SqlFilterCount": None,
        "CorrelationFilterCount": None,
        "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", _DURATION),
        "EnablePartitioning": ("partitioned", _SWITCH),
        "EntityAvailabilityStatus": None,
        "EnableSubscriptionPartitioning": None,
        "EnableExpress": ("express", _SWITCH),
        "UserMetadata": ("user_metadata", _TEXT),
        "MaxMessageSizeInKilobytes": ("max_message_size_kb", _NUMBER),
    },
    ("requires_duplicate_detection", "partitioned", "express"),
)

SUBSCRIPTION = Shape(
    "SubscriptionDescription",
    {
        "LockDuration": ("lock_duration_ms", _DURATION),
        "RequiresSession": ("requires_session", _SWITCH),
        "DefaultMessageTimeToLive": ("default_ttl_ms", _DURATION),
        "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", _SWITCH),
        "DeadLetteringOnFilterEvaluationExceptions": ("dead_letter_on_filter_errors", _SWITCH),
        "DefaultRuleDescription": None,
        "MessageCount": None,
        "MaxDeliveryCount": ("max_delivery_count", _NUMBER),
        "EnableBatchedOperations": ("batched_operations", _SWITCH),
        "Status": ("status", _STATUS),
        "ForwardTo": ("forward_to", _TEXT),
        "CreatedAt": None,
        "UpdatedAt": None,
        "AccessedAt": None,
        "CountDetails": None,
        "UserMetadata": ("user_metadata", _TEXT),
        "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", _TEXT),
        "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", _DURATION),
        "EntityAvailabilityStatus": None,
    },
    ("requires_session",),
)


def timestamp(at_ms: int) -> str:
    """An instant as the service writes it; 0 stands for an instant that has not come yet."""
    if at_ms == 0:
        return NEVER
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Writing


def write(shape: Shape, description: object, others: Mapping[str, str]) -> str:
    """The description element: everything that is set, and other elements by name, in the service's own order."""
    elements = dict(others) | {
        element: tag(element, kind.write(value))
        for element, (attribute, kind) in shape.settings.items()
        if (value := getattr(description, attribute)) is not None
    }
    inside = "".join(elements[element] for element in shape.order if element in elements)
    return f'<{shape.element} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{inside}</{shape.element}>'


def write_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """The element of each text."""
    return {element: tag(element, text) for element, text in texts.items()}


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


def read_settings(fields: Mapping[str, Element], shape: Shape) -> dict[str, Any]:
    """The value of every setting that is there; what clients only echo back is ignored."""
    values: dict[str, Any] = {}
    for element, (attribute, kind) in shape.settings.items():
        if element in fields:
            try:
                values[attribute] = kind.read(fields[element].text.strip())
            except BusError as problem:
                raise BusError(problem.fault, f"{element}: {problem.text}") from None
    return values


def read_counts(fields: Mapping[str, Element]) -> Counts:
    """The counts that a description tells; nothing is told apart from active by the service."""
    details = fields.get("CountDetails")
    told = {child.name: child.text.strip() for child in details.children} if details is not None else {}

    def count(name: str) -> int:
        return _read_integer(told.get(f"{{{_COUNTS}}}{name}MessageCount") or "0")

    size = fields.get("SizeInBytes")
    return Counts(
        active=count("Active"),
        scheduled=count("Scheduled"),
        dead_letter=count("DeadLetter"),
        transfer_dead_letter=count("TransferDeadLetter"),
        size_bytes=0 if size is None else _read_integer(size.text.strip()),
    )


def read_instant_ms(element: Element | None) -> int:
    """An instant; 0 where there is none, or one before our time, which stands for "never"."""
    try:
        # The service writes seven digits of a second, and Python reads six.
        head, _, fraction = (element.text.strip() if element is not None else "").removesuffix("Z").partition(".")
        moment = datetime.fromisoformat(f"{head}.{fraction[:6]:0<6}+00:00")
    except ValueError:
        return 0
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))


def refuse_anonymous(fields: Mapping[str, Element]) -> None:
    """Nobody enters without a policy."""
    asked = fields.get("IsAnonymousAccessible")
    if asked is not None and _BOOLEANS.get(asked.text.strip().lower()):
        raise BusError(Fault.NOT_IMPLEMENTED, "Anonymous access is not offered.")
