"""Queues and the namespace as the Atom API describes them (wire contract 9.3): entries and feeds read, entries written.

Pure values and text; requests are left to `atom`. A document type is refused, and with it whatever entities could do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape

from twinbus.model.duration import format_duration, parse_duration_ms
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.errors import BusError
from twinbus.model.message import Counts
from twinbus.model.security import AuthorizationRule, Rights

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"


class MalformedError(ValueError):
    """The document is not what the API promises."""


class _Kind(NamedTuple):
    """How values of one type are read and written."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


_DURATION = _Kind(parse_duration_ms, format_duration)
_NUMBER = _Kind(int, str)
_SWITCH = _Kind(lambda text: text.lower() in ("true", "1"), lambda value: "true" if value else "false")
_TEXT = _Kind(str, str)
_STATUS = _Kind(EntityStatus, lambda value: str(value.value))
_RULES = "AuthorizationRules"

# What can be set about a queue, in the service's own order: element -> (attribute of the description, type).
_QUEUE: dict[str, tuple[str, _Kind]] = {
    "LockDuration": ("lock_duration_ms", _DURATION),
    "MaxSizeInMegabytes": ("max_size_mb", _NUMBER),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", _SWITCH),
    "RequiresSession": ("requires_session", _SWITCH),
    "DefaultMessageTimeToLive": ("default_ttl_ms", _DURATION),
    "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", _SWITCH),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", _DURATION),
    "MaxDeliveryCount": ("max_delivery_count", _NUMBER),
    "EnableBatchedOperations": ("batched_operations", _SWITCH),
    _RULES: ("authorization_rules", _TEXT),
    "Status": ("status", _STATUS),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", _DURATION),
    "EnablePartitioning": ("partitioned", _SWITCH),
    "EnableExpress": ("express", _SWITCH),
    "ForwardTo": ("forward_to", _TEXT),
    "UserMetadata": ("user_metadata", _TEXT),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", _TEXT),
    "MaxMessageSizeInKilobytes": ("max_message_size_kb", _NUMBER),
}
_RIGHTS = {"Manage": Rights.MANAGE, "Send": Rights.SEND, "Listen": Rights.LISTEN}


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A queue as it is now."""

    description: QueueDescription
    counts: Counts
    accessed_at_ms: int


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """The namespace as it tells of itself."""

    name: str
    tier: str
    created_at_ms: int


class Page(NamedTuple):
    """A part of a list, and how many entries come before the next one, if there is a next one."""

    entries: list[QueueEntry]
    next_skip: int | None


# Reading


def parse(document: bytes) -> Element:
    """The root element of a document; a MalformedError when it is none, or has a document type."""
    builder = TreeBuilder()
    parser = expat.ParserCreate(None, "}")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = lambda name, attributes: builder.start(
        _qualified(name), {_qualified(key): value for key, value in attributes.items()}
    )
    parser.EndElementHandler = lambda name: builder.end(_qualified(name))
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(document, True)
    except expat.ExpatError as problem:
        raise MalformedError(f"no XML: {expat.ErrorString(problem.code)}") from None
    return builder.close()


def _refuse_doctype(*_: object) -> None:
    raise MalformedError("a document type is not accepted")


def _qualified(name: str) -> str:
    return "{" + name if "}" in name else name


def read_queue(entry: Element) -> QueueEntry | None:
    """The queue in an entry; None where there is none, which is how the service says that it does not exist."""
    description = entry.find(f"{{{ATOM}}}content/{{{SERVICE_BUS}}}QueueDescription")
    name = entry.findtext(f"{{{ATOM}}}title")
    if description is None or not name:
        return None
    values: dict[str, Any] = {}
    for element, (attribute, kind) in _QUEUE.items():
        found = description.find(f"{{{SERVICE_BUS}}}{element}")
        if found is None or found.get(f"{{{INSTANCE}}}nil") == "true":
            continue
        if element == _RULES:
            values[attribute] = tuple(_read_rule(rule) for rule in found)
        elif found.text or kind is not _TEXT:
            values[attribute] = _value(element, kind, (found.text or "").strip())
    values["created_at_ms"] = _instant_ms(_text(description, "CreatedAt"))
    values["updated_at_ms"] = _instant_ms(_text(description, "UpdatedAt"))
    accessed_at_ms = _instant_ms(_text(description, "AccessedAt"))
    return QueueEntry(QueueDescription(name=name, **values), _read_counts(description), accessed_at_ms)


def read_page(feed: Element) -> Page:
    """A page of a list."""
    found = [read_queue(entry) for entry in feed.iterfind(f"{{{ATOM}}}entry")]
    next_skip = None
    for link in feed.iterfind(f"{{{ATOM}}}link"):
        if link.get("rel") == "next":
            (skip,) = parse_qs(urlsplit(link.get("href", "")).query).get("$skip", [""])
            next_skip = int(skip) if skip.isdigit() else None
    return Page([entry for entry in found if entry is not None], next_skip)


def read_namespace(entry: Element) -> NamespaceInfo:
    """The namespace in an entry."""
    info = entry.find(f"{{{ATOM}}}content/{{{SERVICE_BUS}}}NamespaceInfo")
    if info is None:
        raise MalformedError("no NamespaceInfo")
    return NamespaceInfo(_text(info, "Name"), _text(info, "MessagingSKU"), _instant_ms(_text(info, "CreatedTime")))


def kind_of(entry: Element) -> str | None:
    """What an entry describes, by the name of its element without `Description`."""
    for content in entry.iterfind(f"{{{ATOM}}}content/*"):
        return content.tag.rpartition("}")[2].removesuffix("Description")
    return None


def _read_counts(description: Element) -> Counts:
    def count(name: str) -> int:
        return int(description.findtext(f".//{{{_COUNTS}}}{name}MessageCount") or 0)

    return Counts(
        active=count("Active"),
        scheduled=count("Scheduled"),
        dead_letter=count("DeadLetter"),
        transfer_dead_letter=count("TransferDeadLetter"),
        size_bytes=int(_text(description, "SizeInBytes") or 0),
    )


def _read_rule(rule: Element) -> AuthorizationRule:
    rights = Rights(0)
    for right in rule.iterfind(f"{{{SERVICE_BUS}}}Rights/{{{SERVICE_BUS}}}AccessRights"):
        rights |= _RIGHTS.get((right.text or "").strip(), Rights(0))
    name, primary, secondary = (_text(rule, element) for element in ("KeyName", "PrimaryKey", "SecondaryKey"))
    try:
        return AuthorizationRule(name, primary, secondary, rights)
    except BusError as problem:
        raise MalformedError(problem.text) from None


def _value(element: str, kind: _Kind, text: str) -> Any:
    try:
        return kind.read(text)
    except (BusError, ValueError):
        raise MalformedError(f"{element} is '{text[:40]}'") from None


def _text(parent: Element, name: str) -> str:
    return (parent.findtext(f"{{{SERVICE_BUS}}}{name}") or "").strip()


def _instant_ms(text: str) -> int:
    """An instant; 0 where there is none, or one before our time, which stands for "never"."""
    try:
        # The service writes seven digits of a second, and Python reads six.
        head, _, fraction = text.removesuffix("Z").partition(".")
        moment = datetime.fromisoformat(f"{head}.{fraction[:6]:0<6}+00:00")
    except ValueError:
        return 0
    return max(0, int(moment.timestamp() * 1000))


# Writing


def write_queue(queue: QueueDescription) -> str:
    """The entry that asks for a queue."""
    elements = []
    for element, (attribute, kind) in _QUEUE.items():
        value = getattr(queue, attribute)
        if element == _RULES:
            elements.append(f"<{_RULES}>{''.join(map(_write_rule, value))}</{_RULES}>")
        elif value is not None:
            elements.append(_tag(element, kind.write(value)))
    return (
        f'<entry xmlns="{ATOM}"><content type="application/xml">'
        f'<QueueDescription xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{"".join(elements)}</QueueDescription>'
        "</content></entry>"
    )


def _write_rule(rule: AuthorizationRule) -> str:
    rights = "".join(_tag("AccessRights", name) for name, right in _RIGHTS.items() if right in rule.rights)
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
        f"<Rights>{rights}</Rights>{_tag('KeyName', rule.name)}"
        f"{_tag('PrimaryKey', rule.primary_key)}{_tag('SecondaryKey', rule.secondary_key)}</AuthorizationRule>"
    )


def _tag(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>"


def rights_named(rights: Rights) -> list[str]:
    """The names of rights, as the service spells them."""
    return [name for name, right in _RIGHTS.items() if right in rights]
