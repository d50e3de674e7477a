"""Descriptions between client and broker: each reads what the other writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from twinbus.admin import atom as broker_atom
from twinbus.admin import queues, subscriptions, topics
from twinbus.client import descriptions
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.message import Counts
from twinbus.model.rule import CorrelationFilter, FalseFilter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.wire import markup, policies, rule_markup

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
        f'<entry xmlns="{markup.ATOM}"><title>{title}</title><content type="application/xml">'
        f'<QueueDescription xmlns="{markup.SERVICE_BUS}" xmlns:i="{markup.INSTANCE}">{content}'
        "</QueueDescription></content></entry>"
    ).encode()


@pytest.mark.parametrize("queue", [FULL, PLAIN], ids=["full", "plain"])
def test_the_client_reads_what_the_broker_writes(queue: QueueDescription) -> None:
    entry = descriptions.read_entry(descriptions.parse(as_written_by_broker(queue)))
    assert entry == descriptions.Entry(queue, COUNTS, NOW_MS + 2)


@pytest.mark.parametrize("queue", [FULL, PLAIN], ids=["full", "plain"])
def test_the_broker_reads_what_the_client_writes(queue: QueueDescription) -> None:
    asked = broker_atom.description_in(markup.parse(descriptions.write(queue).encode()))
    read = queues.read(asked, queue.name, None, lambda size: b"k" * size)
    assert read == replace(queue, created_at_ms=0, updated_at_ms=0)
    assert read.authorization_rules == queue.authorization_rules


TOPIC = TopicDescription(
    name="a/t",
    default_ttl_ms=60_000,
    max_size_mb=3072,
    requires_duplicate_detection=True,
    duplicate_window_ms=30_000,
    authorization_rules=RULES,
    status=EntityStatus.DISABLED,
    support_ordering=False,
    express=True,
    user_metadata="x",
    created_at_ms=NOW_MS,
    updated_at_ms=NOW_MS,
)
SUBSCRIPTION = SubscriptionDescription(
    topic="a/t",
    name="s",
    lock_duration_ms=5_000,
    requires_session=True,
    default_ttl_ms=60_000,
    dead_letter_on_expiration=True,
    dead_letter_on_filter_errors=False,
    max_delivery_count=2,
    status=EntityStatus.RECEIVE_DISABLED,
    auto_delete_on_idle_ms=300_000,
    forward_to="sb://bus/c",
    user_metadata="y",
    created_at_ms=NOW_MS,
    updated_at_ms=NOW_MS,
)


def test_the_client_reads_topics_and_subscriptions_as_the_broker_writes_them() -> None:
    written = topics.write(TOPIC, COUNTS, NOW_MS, 7, None)
    entry = broker_atom.entry(broker_atom.Entry("http://bus/a/t", "a/t", NOW_MS, NOW_MS, written), "bus")
    assert descriptions.read_entry(descriptions.parse(entry.encode())) == descriptions.Entry(TOPIC, COUNTS, NOW_MS, 7)
    written = subscriptions.write(SUBSCRIPTION, COUNTS, NOW_MS)
    entry = broker_atom.entry(broker_atom.Entry("http://bus/s", "s", NOW_MS, NOW_MS, written), "bus")
    # Subscriptions have no size of their own in the service's words.
    counts = COUNTS._replace(size_bytes=0)
    found = descriptions.read_entry(descriptions.parse(entry.encode()), "a/t")
    assert found == descriptions.Entry(SUBSCRIPTION, counts, NOW_MS)


def test_the_broker_reads_topics_and_subscriptions_as_the_client_writes_them() -> None:
    asked = broker_atom.description_in(markup.parse(descriptions.write(TOPIC).encode()))
    assert topics.read(asked, "a/t", None, lambda size: b"k" * size) == replace(TOPIC, created_at_ms=0, updated_at_ms=0)
    rule = RuleDescription("mine", SqlFilter("a = 1"))
    asked = broker_atom.description_in(markup.parse(descriptions.write(SUBSCRIPTION, rule).encode()))
    assert subscriptions.read(asked, "a/t", "s", None) == replace(SUBSCRIPTION, created_at_ms=0, updated_at_ms=0)
    assert subscriptions.first_rule(asked) == rule


@pytest.mark.parametrize(
    "rule",
    [
        RuleDescription("all", TrueFilter(), None, NOW_MS),
        RuleDescription("none", FalseFilter(), None, NOW_MS),
        RuleDescription("sql", SqlFilter("a > @b", {"@b": 5}), SqlAction("SET a = 'x'"), NOW_MS),
        RuleDescription("like", CorrelationFilter(subject="<s>", properties={"n": 5, "t": "u"}), None, NOW_MS),
    ],
    ids=lambda rule: rule.name,
)
def test_rules_go_both_ways(rule: RuleDescription) -> None:
    item = broker_atom.Entry("http://bus/r", rule.name, 0, 0, rule_markup.write(rule))
    assert descriptions.read_rule(descriptions.parse(broker_atom.entry(item, "bus").encode())) == rule
    asked = broker_atom.description_in(markup.parse(descriptions.write_rule(rule).encode()))
    assert rule_markup.read_at(asked, rule.name) == replace(rule, created_at_ms=0)


def test_seven_digits_of_a_second_and_the_year_one_are_read() -> None:
    document = entry_with(
        "<CreatedAt>2023-11-14T22:13:20.1234567Z</CreatedAt><AccessedAt>0001-01-01T00:00:00Z</AccessedAt>"
        "<UpdatedAt>2023-11-14T22:13:20Z</UpdatedAt>"
    )
    entry = descriptions.read_entry(descriptions.parse(document))
    assert entry is not None
    assert entry.description.created_at_ms == NOW_MS
    assert entry.description.updated_at_ms == NOW_MS - 123
    assert entry.accessed_at_ms == 0


def test_elements_of_a_later_service_and_nil_ones_are_passed_over() -> None:
    document = entry_with(
        '<Novelty>1</Novelty><ForwardTo i:nil="true"/><UserMetadata/><MaxDeliveryCount>4</MaxDeliveryCount>'
    )
    entry = descriptions.read_entry(descriptions.parse(document))
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
        descriptions.read_entry(descriptions.parse(entry_with(content)))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "document type"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "document type"),
        (b"<a><b></a>", "mismatched tag"),
        (b"", "no element found"),
        (b"<html><br></html>", "mismatched tag"),
    ],
)
def test_what_is_no_plain_document_is_refused(document: bytes, why: str) -> None:
    with pytest.raises(descriptions.MalformedError, match=why):
        descriptions.parse(document)


def test_an_entry_without_a_queue_is_none() -> None:
    empty = descriptions.parse(f'<feed xmlns="{markup.ATOM}"><title>x</title></feed>'.encode())
    assert descriptions.read_entry(empty) is None
    assert descriptions.read_rule(empty) is None


def test_a_page_tells_where_the_next_begins() -> None:
    def page(*links: str) -> Any:
        inside = "".join(f'<link rel="{rel}" href="{href}"/>' for rel, href in (link.split(" ") for link in links))
        feed = descriptions.parse(f'<feed xmlns="{markup.ATOM}">{inside}</feed>'.encode())
        return descriptions.read_page(feed, descriptions.read_entry)

    assert page("self https://bus/x").next_skip is None
    assert page("self https://bus/x", "next https://bus/x?$skip=100&amp;$top=100").next_skip == 100
    assert page("next https://bus/x?%24skip=200").next_skip == 200
    assert page("next https://bus/x").next_skip is None


def test_rights_are_named_as_the_service_does() -> None:
    assert policies.rights_named(Rights.ALL) == ["Manage", "Send", "Listen"]
    assert policies.rights_named(Rights.SEND) == ["Send"]
