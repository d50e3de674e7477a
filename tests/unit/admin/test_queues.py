"""Queue descriptions as XML: order, types, what is replaced and what is kept."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from twinbus.admin import queues
from twinbus.model import limits
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.wire.markup import INSTANCE, SERVICE_BUS, Element, parse

NOW_MS = 1_700_000_000_123

EVERYTHING = QueueDescription(
    name="a/b",
    lock_duration_ms=45_500,
    max_size_mb=2048,
    requires_duplicate_detection=True,
    requires_session=True,
    default_ttl_ms=14 * 86_400_000,
    dead_letter_on_expiration=True,
    duplicate_window_ms=1_200_000,
    max_delivery_count=3,
    batched_operations=False,
    authorization_rules=(
        AuthorizationRule("z", "p1", "s1", Rights.ALL),
        AuthorizationRule("a", "p2", "s2", Rights.LISTEN | Rights.SEND),
    ),
    status=EntityStatus.SEND_DISABLED,
    auto_delete_on_idle_ms=600_000,
    express=True,
    user_metadata='<&"é>',
)


def no_randomness(size: int) -> bytes:
    raise AssertionError("no key is to be made")


def element(inside: str, kind: str = "QueueDescription") -> Element:
    return parse(f'<{kind} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{inside}</{kind}>'.encode())


def read(inside: str, existing: QueueDescription | None = None) -> QueueDescription:
    return queues.read(element(inside), "q", existing, lambda size: b"\x07" * size)


def written(queue: QueueDescription, counts: Counts = Counts(), accessed_at_ms: int = 0) -> Element:  # noqa: B008
    return parse(queues.write(queue, counts, accessed_at_ms).encode())


def text_of(root: Element, name: str) -> str:
    child = root.child(f"{{{SERVICE_BUS}}}{name}")
    assert child is not None, name
    return child.text


def test_everything_that_can_be_set_survives_being_written_and_read() -> None:
    assert queues.read(written(EVERYTHING), "a/b", None, no_randomness) == EVERYTHING


def test_the_defaults_survive_too_and_unlimited_has_its_one_spelling() -> None:
    queue = QueueDescription(name="q")
    assert text_of(written(queue), "DefaultMessageTimeToLive") == "P10675199DT2H48M5.4775807S"
    assert queues.read(written(queue), "q", None, no_randomness) == queue


def test_elements_stand_in_the_order_of_the_contract() -> None:
    full = replace(EVERYTHING, forward_to="x", forward_dead_letters_to="y", max_message_size_kb=1)
    names = [child.name.rpartition("}")[2] for child in written(full).children]
    assert names == [
        *("LockDuration", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "RequiresSession"),
        *("DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration", "DuplicateDetectionHistoryTimeWindow"),
        *("MaxDeliveryCount", "EnableBatchedOperations", "SizeInBytes", "MessageCount", "IsAnonymousAccessible"),
        *("AuthorizationRules", "Status", "CreatedAt", "UpdatedAt", "AccessedAt", "SupportOrdering", "CountDetails"),
        *("AutoDeleteOnIdle", "EnablePartitioning", "EntityAvailabilityStatus", "EnableExpress", "ForwardTo"),
        *("UserMetadata", "ForwardDeadLetteredMessagesTo", "MaxMessageSizeInKilobytes"),
    ]


def test_counts_are_written_and_deferred_messages_count_as_active() -> None:
    counts = Counts(active=5, deferred=2, scheduled=3, dead_letter=4, transfer_dead_letter=1, size_bytes=999)
    root = written(QueueDescription(name="q"), counts)
    details = root.child(f"{{{SERVICE_BUS}}}CountDetails")
    assert details is not None
    assert {child.name.rpartition("}")[2]: int(child.text) for child in details.children} == {
        "ActiveMessageCount": 7,
        "DeadLetterMessageCount": 4,
        "ScheduledMessageCount": 3,
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": 1,
    }
    assert text_of(root, "MessageCount") == "15"
    assert text_of(root, "SizeInBytes") == "999"


def test_count_details_have_the_one_attribute_that_the_javascript_client_needs() -> None:
    text = queues.write(QueueDescription(name="q"), Counts(), 0)
    assert re.findall(r"<CountDetails([^>]*)>", text) == [
        ' xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus"'
    ]
    assert "<d2p1:ActiveMessageCount>" in text


def test_an_unused_queue_was_accessed_at_the_zero_instant() -> None:
    queue = QueueDescription(name="q", created_at_ms=NOW_MS, updated_at_ms=NOW_MS + 1)
    root = written(queue)
    assert text_of(root, "AccessedAt") == "0001-01-01T00:00:00Z"
    assert text_of(root, "CreatedAt") == "2023-11-14T22:13:20.123Z"
    assert text_of(root, "UpdatedAt") == "2023-11-14T22:13:20.124Z"
    assert text_of(written(queue, accessed_at_ms=NOW_MS), "AccessedAt") == "2023-11-14T22:13:20.123Z"


def test_a_queue_without_rules_has_an_empty_element_without_attributes() -> None:
    assert "<AuthorizationRules></AuthorizationRules>" in queues.write(QueueDescription(name="q"), Counts(), 0)


def test_an_empty_description_gives_the_defaults() -> None:
    assert read("") == QueueDescription(name="q")


def test_what_clients_echo_back_is_ignored() -> None:
    echoed = (
        "<SizeInBytes>x</SizeInBytes><MessageCount>7</MessageCount><CreatedAt>yesterday</CreatedAt>"
        "<IsAnonymousAccessible>false</IsAnonymousAccessible><SupportOrdering>true</SupportOrdering>"
        "<CountDetails><ActiveMessageCount>1</ActiveMessageCount></CountDetails><SomethingNew>1</SomethingNew>"
        "<EntityAvailabilityStatus>Available</EntityAvailabilityStatus>"
        '<LockDuration xmlns="urn:other">PT9S</LockDuration>'
    )
    assert read(echoed) == QueueDescription(name="q")


def test_the_unlimited_duration_as_the_python_client_returns_it_is_unlimited() -> None:
    # Its datetime.timedelta rounds the last digits away.
    assert read("<AutoDeleteOnIdle>P10675199DT2H48M5.477539S</AutoDeleteOnIdle>").auto_delete_on_idle_ms == (
        limits.UNLIMITED_MS
    )


@pytest.mark.parametrize(
    "inside",
    [
        "<LockDuration>30</LockDuration>",
        "<LockDuration></LockDuration>",
        "<LockDuration>-PT5S</LockDuration>",
        "<MaxDeliveryCount>many</MaxDeliveryCount>",
        "<MaxDeliveryCount>1.5</MaxDeliveryCount>",
        "<MaxDeliveryCount>٣</MaxDeliveryCount>",
        f"<MaxSizeInMegabytes>{'9' * 5000}</MaxSizeInMegabytes>",
        "<RequiresSession>yes</RequiresSession>",
        "<RequiresSession/>",
        "<Status>Creating</Status>",
        "<Status>active</Status>",
        "<MaxDeliveryCount>1</MaxDeliveryCount><MaxDeliveryCount>2</MaxDeliveryCount>",
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_the_name_of_its_element(inside: str) -> None:
    with pytest.raises(BusError) as refused:
        read(inside)
    assert refused.value.fault is Fault.ARGUMENT
    name = re.match(r"<(\w+)", inside)
    assert name is not None
    assert refused.value.text.startswith(name[1])
    assert len(refused.value.text) < 200


def test_anonymous_access_is_refused() -> None:
    with pytest.raises(BusError) as refused:
        read("<IsAnonymousAccessible>true</IsAnonymousAccessible>")
    assert refused.value.fault is Fault.NOT_IMPLEMENTED


def test_an_update_replaces_everything_but_what_was_fixed_at_creation() -> None:
    fixed = QueueDescription(name="q", requires_session=True, requires_duplicate_detection=True, express=True)
    assert read("", existing=replace(EVERYTHING, name="q")) == fixed


def test_an_update_that_speaks_of_what_is_fixed_is_read_as_it_speaks() -> None:
    assert not read("<RequiresSession>false</RequiresSession>", existing=EVERYTHING).requires_session


def test_empty_and_nil_texts_mean_none() -> None:
    assert read("<UserMetadata/><ForwardTo></ForwardTo>") == QueueDescription(name="q")
    assert read('<UserMetadata i:nil="true">x</UserMetadata>').user_metadata is None


def rule(inside: str, attributes: str = "") -> str:
    return f"<AuthorizationRules><AuthorizationRule{attributes}>{inside}</AuthorizationRule></AuthorizationRules>"


LISTEN = "<Rights><AccessRights>Listen</AccessRights></Rights><KeyName>r</KeyName>"


def test_keys_that_are_missing_are_made() -> None:
    made = read(rule(LISTEN)).authorization_rules
    key = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="
    assert made == (AuthorizationRule("r", key, key, Rights.LISTEN),)


def test_keys_that_an_update_leaves_out_stay_what_they_were() -> None:
    known = AuthorizationRule("r", "old-1", "old-2", Rights.SEND)
    existing = QueueDescription(name="q", authorization_rules=(known,))
    updated = read(rule(LISTEN + "<SecondaryKey>new</SecondaryKey>"), existing).authorization_rules
    assert updated == (AuthorizationRule("r", "old-1", "new", Rights.LISTEN),)


def test_an_update_without_rules_removes_them() -> None:
    assert read("", existing=EVERYTHING).authorization_rules == ()
    assert read("<AuthorizationRules/>", existing=EVERYTHING).authorization_rules == ()


@pytest.mark.parametrize(
    "rules",
    [
        rule(LISTEN, ' i:type="AllowRule"'),
        rule(LISTEN + "<ClaimType>nameidentifier</ClaimType>"),
        rule("<Rights><AccessRights>Everything</AccessRights></Rights><KeyName>r</KeyName>"),
        rule("<Rights><AccessRights>Manage</AccessRights></Rights><KeyName>r</KeyName>"),
        rule("<Rights/><KeyName>r</KeyName>"),
        rule("<KeyName>r</KeyName>"),
        rule("<Rights><AccessRights>Listen</AccessRights></Rights>"),
        "<AuthorizationRules><Other/></AuthorizationRules>",
    ],
)
def test_a_rule_that_cannot_be_is_refused(rules: str) -> None:
    with pytest.raises(BusError) as refused:
        read(rules)
    assert refused.value.fault is Fault.ARGUMENT
