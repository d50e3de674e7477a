"""Queue descriptions as XML, both ways, in the service's own order of elements (wire contract 9.3 and 9.5).

Reads types strictly and ignores what clients only echo back; whether the values make a queue is
`model.entity`'s business.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from twinbus.admin.atom import INSTANCE, SERVICE_BUS, timestamp
from twinbus.admin.markup import Element, tag
from twinbus.model.duration import format_duration, parse_duration_ms
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts
from twinbus.model.security import AuthorizationRule, Rights

KEY_BYTES = 32
RULE_TYPE = "SharedAccessAuthorizationRule"
CLAIM_TYPE = "SharedAccessKey"

_COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_INTEGER = re.compile(r"-?[0-9]{1,18}\Z")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
# In the order in which the official clients' own tests expect them back.
_RIGHTS = {"Manage": Rights.MANAGE, "Send": Rights.SEND, "Listen": Rights.LISTEN}

RandomBytes = Callable[[int], bytes]


def _read_integer(text: str) -> int:
    if not _INTEGER.match(text):
        raise BusError(Fault.ARGUMENT, f"'{text[:40]}' is not an integer.")
    return int(text)


def _read_boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise BusError(Fault.ARGUMENT, f"'{text[:40]}' is neither true nor false.")
    return value


def _read_status(text: str) -> EntityStatus:
    try:
        return EntityStatus(text)
    except ValueError:
        raise BusError(Fault.ARGUMENT, f"'{text[:40]}' is not a status that can be set.") from None


class _Kind(NamedTuple):
    """How values of one type are read and written."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


_DURATION = _Kind(parse_duration_ms, format_duration)
_NUMBER = _Kind(_read_integer, str)
_SWITCH = _Kind(_read_boolean, lambda value: "true" if value else "false")
_TEXT = _Kind(str, str)
_STATUS = _Kind(_read_status, lambda value: str(value.value))

# What can be set: element -> (attribute of the description, type).
_SETTINGS: dict[str, tuple[str, _Kind]] = {
    "LockDuration": ("lock_duration_ms", _DURATION),
    "MaxSizeInMegabytes": ("max_size_mb", _NUMBER),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", _SWITCH),
    "RequiresSession": ("requires_session", _SWITCH),
    "DefaultMessageTimeToLive": ("default_ttl_ms", _DURATION),
    "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", _SWITCH),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", _DURATION),
    "MaxDeliveryCount": ("max_delivery_count", _NUMBER),
    "EnableBatchedOperations": ("batched_operations", _SWITCH),
    "Status": ("status", _STATUS),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", _DURATION),
    "EnablePartitioning": ("partitioned", _SWITCH),
    "EnableExpress": ("express", _SWITCH),
    "ForwardTo": ("forward_to", _TEXT),
    "UserMetadata": ("user_metadata", _TEXT),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", _TEXT),
    "MaxMessageSizeInKilobytes": ("max_message_size_kb", _NUMBER),
}

# Fixed when the queue is made, so that an update which is silent about them changes nothing.
_FIXED = ("requires_duplicate_detection", "requires_session", "partitioned", "express")

_ORDER = (
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "SizeInBytes",
    "MessageCount",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableExpress",
    "ForwardTo",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
)


# Writing


def write(queue: QueueDescription, counts: Counts, accessed_at_ms: int) -> str:
    """The QueueDescription element with everything that is known about a queue."""
    # Deferred messages count as active, as in the service; so the details add up to the total.
    active = counts.active + counts.deferred
    total = active + counts.scheduled + counts.dead_letter + counts.transfer_dead_letter
    elements = {
        element: tag(element, kind.write(value))
        for element, (attribute, kind) in _SETTINGS.items()
        if (value := getattr(queue, attribute)) is not None
    }
    facts = {
        "SizeInBytes": str(counts.size_bytes),
        "MessageCount": str(total),
        "IsAnonymousAccessible": "false",
        "CreatedAt": timestamp(queue.created_at_ms),
        "UpdatedAt": timestamp(queue.updated_at_ms),
        "AccessedAt": timestamp(accessed_at_ms),
        "SupportOrdering": "false" if queue.partitioned else "true",
        "EntityAvailabilityStatus": "Available",
    }
    elements |= {element: tag(element, text) for element, text in facts.items()}
    elements["AuthorizationRules"] = _write_rules(queue)
    elements["CountDetails"] = _write_counts(counts, active)
    inside = "".join(elements[element] for element in _ORDER if element in elements)
    return f'<QueueDescription xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{inside}</QueueDescription>'


def _write_counts(counts: Counts, active: int) -> str:
    # The JavaScript client finds the prefix of the children in the one attribute that this element must have.
    by_state = {
        "ActiveMessageCount": active,
        "DeadLetterMessageCount": counts.dead_letter,
        "ScheduledMessageCount": counts.scheduled,
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": counts.transfer_dead_letter,
    }
    inside = "".join(tag(f"d2p1:{name}", str(count)) for name, count in by_state.items())
    return f'<CountDetails xmlns:d2p1="{_COUNTS}">{inside}</CountDetails>'


def _write_rules(queue: QueueDescription) -> str:
    # Rules have no dates of their own here; they are told those of the queue.
    created, modified = timestamp(queue.created_at_ms), timestamp(queue.updated_at_ms)
    rules = "".join(
        f'<AuthorizationRule i:type="{RULE_TYPE}">{tag("ClaimType", CLAIM_TYPE)}{tag("ClaimValue", "None")}'
        f"<Rights>{_write_rights(rule.rights)}</Rights>"
        f"{tag('CreatedTime', created)}{tag('ModifiedTime', modified)}{tag('KeyName', rule.name)}"
        f"{tag('PrimaryKey', rule.primary_key)}{tag('SecondaryKey', rule.secondary_key)}</AuthorizationRule>"
        for rule in queue.authorization_rules
    )
    return f"<AuthorizationRules>{rules}</AuthorizationRules>"


def _write_rights(rights: Rights) -> str:
    return "".join(tag("AccessRights", name) for name, right in _RIGHTS.items() if right in rights)


# Reading


def read(element: Element, name: str, existing: QueueDescription | None, random_bytes: RandomBytes) -> QueueDescription:
    """The description that a client asks for: of a new queue, or to replace that of an existing one."""
    kind = _local_name(element)
    if kind in ("TopicDescription", "SubscriptionDescription", "RuleDescription"):
        raise BusError(Fault.NOT_IMPLEMENTED, "Topics are not offered by this version of Twinbus.")
    if kind != "QueueDescription":
        raise BusError(Fault.ARGUMENT, "The content of the entry is not a QueueDescription.")
    values: dict[str, Any] = {}
    if existing is not None:
        values = {attribute: getattr(existing, attribute) for attribute in _FIXED}
    seen: set[str] = set()
    for child in element.children:
        element_name = _local_name(child)
        if child.attributes.get(f"{{{INSTANCE}}}nil") == "true":
            continue
        if element_name in seen:
            raise BusError(Fault.ARGUMENT, f"{element_name} occurs twice.")
        seen.add(element_name)
        if element_name in _SETTINGS:
            attribute, setting = _SETTINGS[element_name]
            values[attribute] = _read_setting(element_name, child.text.strip(), setting)
        elif element_name == "AuthorizationRules":
            known = existing.authorization_rules if existing is not None else ()
            values["authorization_rules"] = _read_rules(child, known, random_bytes)
        elif element_name == "IsAnonymousAccessible" and _BOOLEANS.get(child.text.strip().lower()):
            raise BusError(Fault.NOT_IMPLEMENTED, "Anonymous access is not offered.")
    return QueueDescription(name=name, **values)


def _local_name(element: Element) -> str:
    """The name of an element of the service's own namespace; others have none that we know."""
    namespace, _, name = element.name.rpartition("}")
    return name if namespace == "{" + SERVICE_BUS else ""


def _read_setting(element: str, text: str, kind: _Kind) -> Any:
    if kind is _TEXT:
        return text or None
    try:
        return kind.read(text)
    except BusError as problem:
        raise BusError(problem.fault, f"{element}: {problem.text}") from None


def _read_rules(
    element: Element, known: tuple[AuthorizationRule, ...], random_bytes: RandomBytes
) -> tuple[AuthorizationRule, ...]:
    keys = {rule.name: rule.keys for rule in known}
    return tuple(_read_rule(child, keys, random_bytes) for child in element.children)


def _read_rule(
    element: Element, known_keys: dict[str, tuple[str, str]], random_bytes: RandomBytes
) -> AuthorizationRule:
    """One rule. A key that the client leaves out stays what it was, or is made for a new rule."""
    kind = element.attributes.get(f"{{{INSTANCE}}}type", RULE_TYPE).rpartition(":")[2]
    fields = {_local_name(child): child for child in element.children}
    texts = {name: child.text.strip() for name, child in fields.items()}
    claim = texts.get("ClaimType", CLAIM_TYPE)
    if _local_name(element) != "AuthorizationRule" or kind != RULE_TYPE or claim != CLAIM_TYPE:
        raise BusError(Fault.ARGUMENT, f"An authorization rule must be a {RULE_TYPE}.")
    rights = Rights(0)
    for right in fields["Rights"].children if "Rights" in fields else []:
        if right.text.strip() not in _RIGHTS:
            raise BusError(Fault.ARGUMENT, f"A right must be one of {', '.join(_RIGHTS)}.")
        rights |= _RIGHTS[right.text.strip()]
    name = texts.get("KeyName", "")
    primary, secondary = known_keys.get(name, ("", ""))
    return AuthorizationRule(
        name=name,
        primary_key=texts.get("PrimaryKey") or primary or new_key(random_bytes),
        secondary_key=texts.get("SecondaryKey") or secondary or new_key(random_bytes),
        rights=rights,
    )


def new_key(random_bytes: RandomBytes) -> str:
    """A key of 256 bits, as text."""
    return base64.b64encode(random_bytes(KEY_BYTES)).decode()
