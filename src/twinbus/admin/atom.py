"""Atom entries and feeds as both official clients read them (wire contract 9.3).

Pure text: the Python client takes an entity's name from the title and a next page from the second of exactly
two links, the JavaScript client takes the name from the id and the next page from the link of that relation.
What stands inside an entry is written by the module of its kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twinbus.model.errors import BusError, Fault
from twinbus.wire.descriptions import timestamp
from twinbus.wire.markup import ATOM, INSTANCE, SERVICE_BUS, Element, escaped, tag

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"


class Entry(NamedTuple):
    """One entity on its way out."""

    url: str
    title: str
    created_at_ms: int
    updated_at_ms: int
    content: str  # One description element, as markup.


class Page(NamedTuple):
    """Where a list begins and how long a page of it is."""

    skip: int
    top: int


def entry(item: Entry, namespace: str) -> str:
    """An entry as a document of its own."""
    return _entry(item, namespace, f' xmlns="{ATOM}"')


def _entry(item: Entry, namespace: str, declaration: str) -> str:
    return (
        f"<entry{declaration}>{tag('id', item.url)}"
        f'<title type="text">{escaped(item.title)}</title>'
        f"{tag('published', timestamp(item.created_at_ms))}{tag('updated', timestamp(item.updated_at_ms))}"
        f"<author>{tag('name', namespace)}</author>{_link('self', item.url)}"
        f'<content type="application/xml">{item.content}</content></entry>'
    )


def feed(title: str, url: str, next_url: str | None, items: Sequence[Entry], namespace: str, now_ms: int) -> str:
    """A page of a list, with a second link only when there is a next page."""
    entries = "".join(_entry(item, namespace, "") for item in items)
    links = _link("self", url) + (_link("next", next_url) if next_url is not None else "")
    return (
        f'<feed xmlns="{ATOM}"><title type="text">{escaped(title)}</title>{tag("id", url)}'
        f"{tag('updated', timestamp(now_ms))}{links}{entries}</feed>"
    )


def _link(relation: str, url: str) -> str:
    return f'<link rel="{relation}" href="{escaped(url)}"/>'


def description_in(document: Element) -> Element:
    """The one description element inside a request's entry."""
    content = document.child(f"{{{ATOM}}}content") if document.name == f"{{{ATOM}}}entry" else None
    if content is None or len(content.children) != 1:
        raise BusError(Fault.ARGUMENT, "The body must be an Atom entry whose content is one description.")
    return content.children[0]


def namespace_info(name: str, created_at_ms: int) -> str:
    """The namespace itself; it is of the Standard tier, whose limits `model.limits` holds."""
    return (
        f'<NamespaceInfo xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">'
        f"{tag('CreatedTime', timestamp(created_at_ms))}{tag('MessagingSKU', 'Standard')}"
        f"{tag('ModifiedTime', timestamp(created_at_ms))}{tag('Name', name)}"
        f"{tag('NamespaceType', 'Messaging')}</NamespaceInfo>"
    )
