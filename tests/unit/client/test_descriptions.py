"""Queue descriptions between client and broker: each reads what the other writes."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.admin import atom as broker_atom
from twinbus.admin import markup, queues
from twinbus.client import descriptions
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.message import Counts
from twinbus.model.security import AuthorizationRule, Rights

NOW_MS = 1_700_000_000_123
RULES = (
    AuthorizationRule("reader", "primary&<1>", "secondary", Rights.LISTEN),
    AuthorizationRule("owner", "p", "s", Rights.ALL),
)
FULL = QueueDescription(
    name="a/b",
    lock_duration_ms=45_500,
    max_size_mb=2048,
    requires_duplicate_detection=True,
    requires_session=True,
    default_ttl_ms=86_400_000,
    dead_letter_on_expiration=True,
    duplicate_window_ms=20_000,
    max_delivery_count=3,
    batched_operations=False,
    authorization_rules=RULES,
    status=EntityStatus.SEND_DISABLED,
    auto_delete_on_idle_ms=300_000,
    forward_to="sb://bus/c",
    forward_dead_letters_to="sb://bus/d",
    user_metadata="<&>",
    created_at_ms=NOW_MS,
    updated_at_ms=NOW_MS + 1,
)
PLAIN = QueueDescription(name="plain")
COUNTS = Counts(active=1, scheduled=2, dead_letter=3, transfer_dead_letter=4, size_bytes=5)


def as_written_by_broker(queue: QueueDescription) -> bytes:
    content = queues.write(queue, COUNTS, NOW_MS + 2)
    entry = broker_atom.Entry(f"http://bus/{queue.name}", queue.name, queue.created_at_ms, 0, content)
    return broker_atom.entry(entry, "bus").encode()


def entry_with(content: str, title: str = "q") -> bytes:
    return (
        f'<entry xmlns="{descriptions.ATOM}"><title>{title}</title><content type="application/xml">'
        f'<QueueDescription xmlns="{descriptions.SERVICE_BUS}" xmlns:i="{descriptions.INSTANCE}">{content}'
        "</QueueDescription></content></entry>"
    ).encode()


@pytest.mark.parametrize("queue", [FULL, PLAIN], ids=["full", "plain"])
def test_the_client_reads_what_the_broker_writes(queue: QueueDescription) -> None:
    entry = descriptions.read_queue(descriptions.parse(as_written_by_broker(queue)))
    assert entry == descriptions.QueueEntry(queue, COUNTS, NOW_MS + 2)


@pytest.mark.parametrize("queue", [FULL, PLAIN], ids=["full", "plain"])
def test_the_broker_reads_what_the_client_writes(queue: QueueDescription) -> None:
    asked = broker_atom.description_in(markup.parse(descriptions.write_queue(queue).encode()))
    read = queues.read(asked, queue.name, None, lambda size: b"k" * size)
    assert descriptions.write_queue(read) == descriptions.write_queue(queue)
    assert read.authorization_rules == queue.authorization_rules


def test_seven_digits_of_a_second_and_the_year_one_are_read() -> None:
    document = entry_with(
        "<CreatedAt>2023-11-14T22:13:20.1234567Z</CreatedAt><AccessedAt>0001-01-01T00:00:00Z</AccessedAt>"
        "<UpdatedAt>2023-11-14T22:13:20Z</UpdatedAt>"
    )
    entry = descriptions.read_queue(descriptions.parse(document))
    assert entry is not None
    assert entry.description.created_at_ms == NOW_MS
    assert entry.description.updated_at_ms == NOW_MS - 123
    assert entry.accessed_at_ms == 0


def test_elements_of_a_later_service_and_nil_ones_are_passed_over() -> None:
    document = entry_with(
        '<Novelty>1</Novelty><ForwardTo i:nil="true"/><UserMetadata/><MaxDeliveryCount>4</MaxDeliveryCount>'
    )
    entry = descriptions.read_queue(descriptions.parse(document))
    assert entry is not None
    assert entry.description == QueueDescription(name="q", max_delivery_count=4)


@pytest.mark.parametrize(
    "content",
    [
        "<MaxDeliveryCount>many</MaxDeliveryCount>",
        "<LockDuration>soon</LockDuration>",
        "<Status>Asleep</Status>",
        "<AuthorizationRules><AuthorizationRule/></AuthorizationRules>",
    ],
)
def test_a_value_that_cannot_be_is_refused(content: str) -> None:
    with pytest.raises(descriptions.MalformedError):
        descriptions.read_queue(descriptions.parse(entry_with(content)))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "document type"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "document type"),
        (b"<a><b></a>", "no XML"),
        (b"", "no XML"),
        (b"<html><br></html>", "no XML"),
    ],
)
def test_what_is_no_plain_document_is_refused(document: bytes, why: str) -> None:
    with pytest.raises(descriptions.MalformedError, match=why):
        descriptions.parse(document)


def test_an_entry_without_a_queue_is_none() -> None:
    empty = descriptions.parse(f'<feed xmlns="{descriptions.ATOM}"><title>x</title></feed>'.encode())
    assert descriptions.read_queue(empty) is None
    assert descriptions.kind_of(empty) is None


def test_a_page_tells_where_the_next_begins() -> None:
    def page(*links: str) -> Any:
        inside = "".join(f'<link rel="{rel}" href="{href}"/>' for rel, href in (link.split(" ") for link in links))
        return descriptions.read_page(descriptions.parse(f'<feed xmlns="{descriptions.ATOM}">{inside}</feed>'.encode()))

    assert page("self https://bus/x").next_skip is None
    assert page("self https://bus/x", "next https://bus/x?$skip=100&amp;$top=100").next_skip == 100
    assert page("next https://bus/x?%24skip=200").next_skip == 200
    assert page("next https://bus/x").next_skip is None


def test_rights_are_named_as_the_service_does() -> None:
    assert descriptions.rights_named(Rights.ALL) == ["Manage", "Send", "Listen"]
    assert descriptions.rights_named(Rights.SEND) == ["Send"]
