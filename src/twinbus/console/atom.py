"""Descriptions of entities as the Atom interface has them: read from an entry, written anew, changed in some places.

Which values an entity can have the namespace decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

from twinbus.console.asking import SilentError
from twinbus.console.html import el, join

TYPE = "application/atom+xml;type=entry;charset=utf-8"
NEVER = "P10675199DT2H48M5.4775807S"  # .NET's longest time span, by which the service says "without end".
_ATOM = "http://www.w3.org/2005/Atom"
_SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"

ENDLESS = ("DefaultMessageTimeToLive", "AutoDeleteOnIdle")  # Durations that may be without end.
_COMMON = {"Status": "Status", "DefaultMessageTimeToLive": "Time to live", "AutoDeleteOnIdle": "Deleted when idle for"}
_RECEIVING = {
    "LockDuration": "Lock duration",
    "MaxDeliveryCount": "Deliveries before a message dies",
    "DeadLetteringOnMessageExpiration": "Expired messages die",
    "ForwardTo": "Forwards to",
    "ForwardDeadLetteredMessagesTo": "Forwards dead letters to",
}
CHANGEABLE = {
    "queue": {**_COMMON, **_RECEIVING, "MaxSizeInMegabytes": "Largest size", "UserMetadata": "Notes"},
    "topic": {**_COMMON, "MaxSizeInMegabytes": "Largest size", "UserMetadata": "Notes"},
    "subscription": {**_COMMON, **_RECEIVING, "UserMetadata": "Notes"},
}
FIXED = {
    "RequiresSession": "Sessions",
    "RequiresDuplicateDetection": "Duplicate detection",
    "EnablePartitioning": "Partitioned",
}
_UNKNOWN = {"topic": ("RequiresSession",), "subscription": ("RequiresDuplicateDetection", "EnablePartitioning")}
# The service's own order, for those that are written here.
_ORDER = (
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "MaxDeliveryCount",
    "Status",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "ForwardTo",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
)


def settable(kind: str) -> list[str]:
    """What can be said of a new entity."""
    fixed = [key for key in FIXED if key not in _UNKNOWN.get(kind, ())]
    return [*CHANGEABLE[kind], *fixed]


def new(kind: str, values: Mapping[str, str]) -> bytes:
    """The entry that asks for a new entity."""
    inside = join(*(el(key, values[key]) for key in _ORDER if key in values))
    description = el(f"{kind.capitalize()}Description", inside, xmlns=_SERVICE_BUS)
    return el("entry", el("content", description, type="application/xml"), xmlns=_ATOM).encode()


def _description(entry: bytes) -> ElementTree.Element:
    try:
        root = ElementTree.fromstring(entry)
    except ElementTree.ParseError:
        raise SilentError("it answers, but not with a description") from None
    for element in root.iter():
        if element.tag.endswith("Description") and element.tag.startswith(f"{{{_SERVICE_BUS}}}"):
            return element
    raise SilentError("it answers, but not with a description")


def kind_in(entry: bytes) -> str:
    """Which kind of entity an entry describes."""
    return _local(_description(entry).tag).removesuffix("Description").lower()


def settings_in(entry: bytes) -> dict[str, str]:
    """The settings of an entry, by name, as text."""
    return {_local(child.tag): child.text or "" for child in _description(entry) if len(child) == 0}


def changed(entry: bytes, values: Mapping[str, str]) -> bytes:
    """The entry with other values in some places; an empty one takes a setting away."""
    description = _description(entry)
    known = {_local(child.tag): child for child in description}
    for key, value in values.items():
        element = known.get(key)
        if value == "" and element is not None:
            description.remove(element)
        elif value != "" and element is None:
            element = ElementTree.SubElement(description, f"{{{_SERVICE_BUS}}}{key}")
        if value != "" and element is not None:
            element.text = value
    content = ElementTree.tostring(description, encoding="unicode")
    return f'<entry xmlns="{_ATOM}"><content type="application/xml">{content}</content></entry>'.encode()


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
