"""Topic and subscription descriptions as XML: order, facts, what is replaced and what is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinbus.admin import subscriptions, topics
from twinbus.admin.topics import FilterCounts
from twinbus.model.entity import EntityStatus
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.rules.description import CorrelationFilter, RuleDescription, SqlAction, TrueFilter
from twinbus.wire.markup import INSTANCE, SERVICE_BUS, Element, parse

NOTHING = Counts()
TOPIC = TopicDescription(
    name="a/b",
    default_ttl_ms=14 * 86_400_000,
    max_size_mb=2048,
    requires_duplicate_detection=True,
    duplicate_window_ms=1_200_000,
    batched_operations=False,
    authorization_rules=(AuthorizationRule("z", "p1", "s1", Rights.ALL),),
    status=EntityStatus.SEND_DISABLED,
    support_ordering=False,
    auto_delete_on_idle_ms=600_000,
    express=True,
    user_metadata='<&"é>',
)
SUBSCRIPTION = SubscriptionDescription(
    topic="a/b",
    name="s",
    lock_duration_ms=45_500,
    requires_session=True,
    default_ttl_ms=86_400_000,
    dead_letter_on_expiration=True,
    dead_letter_on_filter_errors=False,
    max_delivery_count=3,
    batched_operations=False,
    status=EntityStatus.RECEIVE_DISABLED,
    auto_delete_on_idle_ms=600_000,
    user_metadata='<&"é>',
)


def no_randomness(size: int) -> bytes:
    raise AssertionError("no key is to be made")


def element(kind: str, inside: str) -> Element:
    return parse(f'<{kind} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{inside}</{kind}>'.encode())


def named(root: Element) -> dict[str, str]:
    return {child.name.rpartition("}")[2]: child.text for child in root.children}


def written_topic(
    topic: TopicDescription = TOPIC,
    counts: Counts = NOTHING,
    filters: FilterCounts | None = None,
) -> Element:
    return parse(topics.write(topic, counts, 0, 7, filters).encode())


def written_subscription(subscription: SubscriptionDescription, counts: Counts = NOTHING) -> Element:
    return parse(subscriptions.write(subscription, counts, 0).encode())


class TestTopics:
    def test_everything_that_can_be_set_survives_being_written_and_read(self) -> None:
        assert topics.read(written_topic(), "a/b", None, no_randomness) == TOPIC
        plain = TopicDescription(name="t")
        assert topics.read(written_topic(plain), "t", None, no_randomness) == plain
        assert topics.read(element("TopicDescription", ""), "t", None, no_randomness) == plain

    def test_elements_stand_in_the_order_of_the_contract(self) -> None:
        full = replace(TOPIC, max_message_size_kb=1)
        assert list(named(written_topic(full, filters=FilterCounts(1, 2)))) == [
            *("DefaultMessageTimeToLive", "MaxSizeInMegabytes", "RequiresDuplicateDetection"),
            *("DuplicateDetectionHistoryTimeWindow", "EnableBatchedOperations", "SizeInBytes"),
            *(
                "FilteringMessagesBeforePublishing",
                "IsAnonymousAccessible",
                "AuthorizationRules",
                "Status",
                "CreatedAt",
            ),
            *("UpdatedAt", "AccessedAt", "SupportOrdering", "CountDetails", "SubscriptionCount", "SqlFilterCount"),
            *("CorrelationFilterCount", "AutoDeleteOnIdle", "EnablePartitioning", "EntityAvailabilityStatus"),
            *("EnableSubscriptionPartitioning", "EnableExpress", "UserMetadata", "MaxMessageSizeInKilobytes"),
        ]

    def test_counts_are_written_and_those_of_filters_only_if_asked_for(self) -> None:
        texts = named(written_topic(counts=Counts(scheduled=2, size_bytes=99), filters=FilterCounts(3, 4)))
        assert [texts[name] for name in ("SizeInBytes", "SubscriptionCount", "SqlFilterCount")] == ["99", "7", "3"]
        assert texts["CorrelationFilterCount"] == "4"
        assert "SqlFilterCount" not in named(written_topic())
        text = topics.write(TOPIC, Counts(scheduled=2), 0, 0, None)
        assert "<d2p1:ScheduledMessageCount>2</d2p1:ScheduledMessageCount>" in text

    def test_an_update_replaces_everything_but_what_was_fixed_at_creation(self) -> None:
        updated = topics.read(element("TopicDescription", ""), "a/b", TOPIC, no_randomness)
        assert updated == TopicDescription(name="a/b", requires_duplicate_detection=True, express=True)

    def test_anonymous_access_is_refused(self) -> None:
        asked = element("TopicDescription", "<IsAnonymousAccessible>true</IsAnonymousAccessible>")
        with pytest.raises(BusError) as refused:
            topics.read(asked, "t", None, no_randomness)
        assert refused.value.fault is Fault.NOT_IMPLEMENTED


class TestSubscriptions:
    def test_everything_that_can_be_set_survives_being_written_and_read(self) -> None:
        assert subscriptions.read(written_subscription(SUBSCRIPTION), "a/b", "s", None) == SUBSCRIPTION
        plain = SubscriptionDescription(topic="t", name="s")
        assert subscriptions.read(written_subscription(plain), "t", "s", None) == plain
        assert subscriptions.read(element("SubscriptionDescription", ""), "t", "s", None) == plain

    def test_elements_stand_in_the_order_of_the_contract(self) -> None:
        full = replace(SUBSCRIPTION, forward_to="x", forward_dead_letters_to="y")
        assert list(named(written_subscription(full))) == [
            *("LockDuration", "RequiresSession", "DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration"),
            *("DeadLetteringOnFilterEvaluationExceptions", "MessageCount", "MaxDeliveryCount"),
            *("EnableBatchedOperations", "Status", "ForwardTo", "CreatedAt", "UpdatedAt", "AccessedAt", "CountDetails"),
            *("UserMetadata", "ForwardDeadLetteredMessagesTo", "AutoDeleteOnIdle", "EntityAvailabilityStatus"),
        ]

    def test_the_total_is_the_sum_of_all_states(self) -> None:
        counts = Counts(active=5, deferred=2, dead_letter=4, transfer_dead_letter=1)
        assert named(written_subscription(SUBSCRIPTION, counts))["MessageCount"] == "12"

    def test_an_update_replaces_everything_but_sessions(self) -> None:
        updated = subscriptions.read(element("SubscriptionDescription", ""), "a/b", "s", SUBSCRIPTION)
        assert updated == SubscriptionDescription(topic="a/b", name="s", requires_session=True)

    def test_the_first_rule_is_read_under_its_name_or_the_default_one(self) -> None:
        rule = (
            '<DefaultRuleDescription><Filter i:type="CorrelationFilter"><Label>x</Label></Filter>'
            '<Action i:type="SqlRuleAction"><SqlExpression>SET a = 1</SqlExpression></Action>'
            "<Name>first</Name></DefaultRuleDescription>"
        )
        read = subscriptions.first_rule(element("SubscriptionDescription", rule))
        assert read == RuleDescription("first", CorrelationFilter(subject="x"), SqlAction("SET a = 1"))
        nameless = '<DefaultRuleDescription><Filter i:type="TrueFilter"/></DefaultRuleDescription>'
        read = subscriptions.first_rule(element("SubscriptionDescription", nameless))
        assert read == RuleDescription("$Default", TrueFilter())

    @pytest.mark.parametrize("inside", ["", '<DefaultRuleDescription i:nil="true"/>'])
    def test_no_first_rule_leaves_the_choice_to_the_namespace(self, inside: str) -> None:
        assert subscriptions.first_rule(element("SubscriptionDescription", inside)) is None
