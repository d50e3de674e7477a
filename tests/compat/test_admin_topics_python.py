"""Topics, subscriptions and rules by the official Python administration client, unmodified, in both flavours."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from compat.admin_python import UNLIMITED, Admin, Connect
from twinbus.wire.sas import make_token

pytest_plugins = ["compat.conftest_admin"]
pytestmark = pytest.mark.feature("administration")

VALUES = {
    "text": " <&\"'> ünïcode ",
    "small": -7,
    "large": 2**40,
    "real": 2.5,
    "whole": 2.0,
    "yes": True,
    "no": False,
    "instant": datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC),
    "span": datetime.timedelta(days=1, seconds=2.5),
}
PARAMETERS = {f"@{name}": value for name, value in VALUES.items()}


async def rule_names(admin: Admin, topic: str = "t", subscription: str = "s", **options: Any) -> list[str]:
    return [rule.name for rule in await admin.list_rules(topic, subscription, **options)]


@pytest.fixture
async def subscribed(admin: Admin) -> Admin:
    """A client of a broker that has the topic t with the subscription s."""
    await admin.create_topic("t")
    await admin.create_subscription("t", "s")
    return admin


class TestTopics:
    async def test_a_new_topic_has_the_defaults_of_the_service(self, admin: Admin) -> None:
        created = await admin.create_topic("orders")
        topic = await admin.get_topic("orders")
        assert dict(created) == dict(topic)
        assert dict(topic) == {
            "name": "orders",
            "default_message_time_to_live": UNLIMITED,
            "max_size_in_megabytes": 1024,
            "requires_duplicate_detection": False,
            "duplicate_detection_history_time_window": datetime.timedelta(minutes=10),
            "enable_batched_operations": True,
            "size_in_bytes": 0,
            "filtering_messages_before_publishing": False,
            "authorization_rules": None,
            "status": "Active",
            "support_ordering": True,
            "auto_delete_on_idle": UNLIMITED,
            "enable_partitioning": False,
            "availability_status": "Available",
            "enable_express": False,
            "user_metadata": None,
            "max_message_size_in_kilobytes": None,
        }

    async def test_every_setting_comes_back_and_an_update_replaces_them(self, admin: Admin) -> None:
        settings = {
            "auto_delete_on_idle": datetime.timedelta(minutes=10),
            "default_message_time_to_live": datetime.timedelta(minutes=11, milliseconds=250),
            "duplicate_detection_history_time_window": datetime.timedelta(minutes=12),
            "enable_batched_operations": False,
            "enable_express": True,
            "max_size_in_megabytes": 3072,
            "requires_duplicate_detection": True,
            "support_ordering": False,
            "user_metadata": "notes <&\"'> ünïcode",
        }
        await admin.create_topic("full", **settings)
        topic = await admin.get_topic("full")
        assert {name: dict(topic)[name] for name in settings} == settings
        topic.status = "SendDisabled"
        topic.user_metadata = None
        rights = [AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN]
        topic.authorization_rules = [AuthorizationRule(key_name="r", rights=rights, primary_key="k")]
        await admin.update_topic(topic)
        again = await admin.get_topic("full")
        assert (again.status, again.user_metadata) == ("SendDisabled", None)
        assert [(rule.key_name, rule.rights, rule.primary_key) for rule in again.authorization_rules] == [
            ("r", rights, "k")
        ]

    async def test_names_may_have_slashes_and_ignore_case_and_are_shared_with_queues(self, admin: Admin) -> None:
        await admin.create_topic("Team/.-_1")
        await admin.create_queue("queue")
        assert [topic.name for topic in await admin.list_topics()] == ["Team/.-_1"]
        assert [queue.name for queue in await admin.list_queues()] == ["queue"]
        assert (await admin.get_topic("team/.-_1")).status == "Active"
        for create, name in ((admin.create_topic, "QUEUE"), (admin.create_queue, "TEAM/.-_1")):
            with pytest.raises(ResourceExistsError):
                await create(name)

    async def test_what_is_not_a_topic_has_no_subscriptions(self, admin: Admin) -> None:
        queue = await admin.create_queue("queue")
        topic = await admin.create_topic("topic")
        for name in ("queue", "nobody"):
            with pytest.raises(ResourceNotFoundError):
                await admin.list_subscriptions(name)
            with pytest.raises(ResourceNotFoundError):
                await admin.create_subscription(name, "s")
        queue.name, topic.name = "topic", "queue"
        for update, entity in ((admin.update_queue, queue), (admin.update_topic, topic)):
            with pytest.raises(ResourceNotFoundError):
                await update(entity)

    async def test_bad_values_are_refused_by_name(self, admin: Admin) -> None:
        await admin.create_topic("strict")
        for setting, value, element in (
            ("duplicate_detection_history_time_window", datetime.timedelta(days=8), "DuplicateDetectionHistory"),
            ("requires_duplicate_detection", True, "RequiresDuplicateDetection"),
            ("max_size_in_megabytes", 1, "MaxSizeInMegabytes"),
            ("max_message_size_in_kilobytes", 1024, "MaxMessageSizeInKilobytes"),
            ("status", "Creating", "Status"),
        ):
            topic = await admin.get_topic("strict")
            with pytest.raises(HttpResponseError, match=element) as refused:
                await admin.update_topic(topic, **{setting: value})
            assert refused.value.status_code == 400, setting
        for name in ("with space", "(x)", "", "a" * 261):
            with pytest.raises(HttpResponseError) as refused:
                await admin.create_topic(name)
            assert refused.value.status_code == 400

    async def test_lists_are_paged(self, admin: Admin) -> None:
        names = [f"topic{number}" for number in range(5)]
        for name in names:
            await admin.create_topic(name)
        assert [topic.name for topic in await admin.list_topics(max_page_size=2)] == names
        assert [info.name for info in await admin.list_topics_runtime_properties(max_page_size=2)] == names

    async def test_a_deleted_topic_takes_its_subscriptions_with_it(self, subscribed: Admin) -> None:
        await subscribed.delete_topic("T")
        for missing in (subscribed.get_topic("t"), subscribed.get_subscription("t", "s"), subscribed.delete_topic("t")):
            with pytest.raises(ResourceNotFoundError):
                await missing
        await subscribed.create_topic("t")
        assert await subscribed.list_subscriptions("t") == []

    async def test_runtime_properties_count_subscriptions_filters_and_scheduled_messages(
        self, subscribed: Admin, admin_endpoint: Any, connect: Connect
    ) -> None:
        await subscribed.create_subscription("t", "other")
        await subscribed.create_rule("t", "other", "sql", filter=SqlRuleFilter("a = 1"))
        await subscribed.create_rule("t", "other", "correlation", filter=CorrelationRuleFilter(label="x"))
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        async with (
            ServiceBusClient.from_connection_string(admin_endpoint.broker.connection_string()) as bus,
            bus.get_topic_sender("t") as sender,
        ):
            await sender.schedule_messages(ServiceBusMessage("later"), later)
        info = await subscribed.get_topic_runtime_properties("t")
        assert (info.subscription_count, info.sql_filter_count, info.correlation_filter_count) == (2, 3, 1)
        assert (info.scheduled_message_count, info.size_in_bytes > 0) == (1, True)
        assert info.accessed_at_utc >= info.created_at_utc
        older = connect(admin_endpoint.connection_string(), api_version=ApiVersion.V2021_05)
        assert (await older.get_topic_runtime_properties("t")).sql_filter_count is None


class TestSubscriptions:
    async def test_a_new_subscription_has_the_defaults_of_the_service_and_one_rule(self, subscribed: Admin) -> None:
        subscription = await subscribed.get_subscription("T", "S")
        assert dict(subscription) == {
            "name": "S",
            "lock_duration": datetime.timedelta(seconds=30),
            "requires_session": False,
            "default_message_time_to_live": UNLIMITED,
            "dead_lettering_on_message_expiration": False,
            "dead_lettering_on_filter_evaluation_exceptions": True,
            "max_delivery_count": 10,
            "enable_batched_operations": True,
            "status": "Active",
            "forward_to": None,
            "user_metadata": None,
            "forward_dead_lettered_messages_to": None,
            "auto_delete_on_idle": UNLIMITED,
            "availability_status": "Available",
        }
        assert [listed.name for listed in await subscribed.list_subscriptions("t")] == ["s"]
        (rule,) = await subscribed.list_rules("t", "s")
        assert (rule.name, vars(rule.filter), rule.action) == (
            "$Default",
            vars(TrueRuleFilter()) | {"parameters": {}},
            None,
        )
        assert isinstance(rule.filter, TrueRuleFilter)

    async def test_every_setting_comes_back_and_an_update_replaces_them(self, subscribed: Admin) -> None:
        settings = {
            "auto_delete_on_idle": datetime.timedelta(minutes=10),
            "dead_lettering_on_message_expiration": True,
            "dead_lettering_on_filter_evaluation_exceptions": False,
            "default_message_time_to_live": datetime.timedelta(minutes=11),
            "enable_batched_operations": False,
            "lock_duration": datetime.timedelta(seconds=13),
            "max_delivery_count": 14,
            "requires_session": True,
            "user_metadata": "notes <&\"'>",
        }
        await subscribed.create_subscription("t", "full", **settings)
        subscription = await subscribed.get_subscription("t", "full")
        assert {name: dict(subscription)[name] for name in settings} == settings
        subscription.lock_duration = datetime.timedelta(minutes=1)
        subscription.user_metadata = None
        await subscribed.update_subscription("t", subscription)
        assert dict(await subscribed.get_subscription("t", "full")) == dict(subscription)
        await subscribed.create_rule("t", "full", "kept")
        await subscribed.update_subscription("t", dict(subscription), status="ReceiveDisabled")
        assert (await subscribed.get_subscription("t", "full")).status == "ReceiveDisabled"
        assert await rule_names(subscribed, subscription="full") == ["$Default", "kept"]

    async def test_missing_existing_and_impossible_ones_are_told_apart(self, subscribed: Admin) -> None:
        with pytest.raises(ResourceExistsError):
            await subscribed.create_subscription("t", "S")
        subscription = await subscribed.get_subscription("t", "s")
        subscription.name = "absent"
        for missing in (
            subscribed.get_subscription("t", "absent"),
            subscribed.get_subscription_runtime_properties("t", "absent"),
            subscribed.delete_subscription("t", "absent"),
            subscribed.update_subscription("t", subscription),
            subscribed.list_rules("t", "absent"),
            subscribed.create_rule("t", "absent", "r"),
        ):
            with pytest.raises(ResourceNotFoundError):
                await missing
        for name in ("with space", "a/b", "a" * 51):
            with pytest.raises(HttpResponseError) as refused:
                await subscribed.create_subscription("t", name)
            assert refused.value.status_code == 400
        subscription = await subscribed.get_subscription("t", "s")
        for setting, value in (("requires_session", True), ("lock_duration", datetime.timedelta(minutes=6))):
            with pytest.raises(HttpResponseError) as refused:
                await subscribed.update_subscription("t", dict(subscription), **{setting: value})
            assert refused.value.status_code == 400

    async def test_runtime_properties_count_the_copies(self, subscribed: Admin, admin_endpoint: Any) -> None:
        await subscribed.create_subscription("t", "idle")
        await subscribed.delete_rule("t", "idle", "$Default")
        async with (
            ServiceBusClient.from_connection_string(admin_endpoint.broker.connection_string()) as bus,
            bus.get_topic_sender("t") as sender,
            bus.get_subscription_receiver("t", "s") as receiver,
        ):
            await sender.send_messages([ServiceBusMessage(f"message {number}") for number in range(4)])
            (dead,) = await receiver.receive_messages(max_message_count=1)
            await receiver.dead_letter_message(dead)
        one = await subscribed.get_subscription_runtime_properties("t", "s")
        assert (one.active_message_count, one.dead_letter_message_count, one.total_message_count) == (3, 1, 4)
        assert (one.transfer_message_count, one.transfer_dead_letter_message_count) == (0, 0)
        listed = await subscribed.list_subscriptions_runtime_properties("t", max_page_size=1)
        assert [(info.name, info.total_message_count) for info in listed] == [("idle", 0), ("s", 4)]

    async def test_topics_own_policies_reach_what_is_below_it(
        self, subscribed: Admin, connect: Connect, admin_endpoint: Any
    ) -> None:
        topic = await subscribed.get_topic("t")
        rights = [AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN]
        topic.authorization_rules = [AuthorizationRule(key_name="own", rights=rights, primary_key="own-key")]
        await subscribed.update_topic(topic)
        await subscribed.create_topic("foreign")
        token = make_token(f"https://{admin_endpoint.host}/t", "own", "own-key", int(time.time()) + 300)
        manager = connect(admin_endpoint.signed_connection_string(token))
        await manager.create_subscription("t", "new")
        await manager.create_rule("t", "new", "r", filter=FalseRuleFilter())
        assert await rule_names(manager, subscription="new") == ["$Default", "r"]
        for denied in (manager.list_topics(), manager.get_topic("foreign"), manager.list_subscriptions("foreign")):
            with pytest.raises(ClientAuthenticationError):
                await denied


class TestRules:
    @pytest.mark.parametrize(
        "given",
        [
            TrueRuleFilter(),
            FalseRuleFilter(),
            SqlRuleFilter("user.a = @text AND sys.Label LIKE '%<&>%'", PARAMETERS),
            SqlRuleFilter("a = 'x  y'"),
            CorrelationRuleFilter(
                correlation_id="1",
                message_id="2",
                to="3",
                reply_to="4",
                label="5",
                session_id="6",
                reply_to_session_id="7",
                content_type="8",
                properties=VALUES,
            ),
            CorrelationRuleFilter(label="only"),
        ],
        ids=lambda given: type(given).__name__,
    )
    async def test_filters_come_back_as_they_were_given(self, subscribed: Admin, given: Any) -> None:
        created = await subscribed.create_rule("t", "s", "r", filter=given)
        got = await subscribed.get_rule("t", "s", "R")
        (listed,) = [rule for rule in await subscribed.list_rules("t", "s") if rule.name == "r"]
        wanted = {
            name: {} if value is None and name in ("parameters", "properties") else value
            for name, value in vars(given).items()
        }
        if isinstance(given, FalseRuleFilter):
            wanted["sql_expression"] = "1=0"  # As the service has it; the client sends 1>1, which says the same.
        for rule in (created, got, listed):
            assert type(rule.filter) is type(given)
            assert vars(rule.filter) == wanted
            assert rule.action is None
        assert abs(datetime.datetime.now(datetime.UTC) - got.created_at_utc) < datetime.timedelta(minutes=1)

    async def test_actions_come_back_with_their_parameters(self, subscribed: Admin) -> None:
        action = SqlRuleAction("SET a = @text; REMOVE b", PARAMETERS)
        await subscribed.create_rule("t", "s", "r", filter=SqlRuleFilter("a = 1"), action=action)
        rule = await subscribed.get_rule("t", "s", "r")
        assert vars(rule.action) == vars(action)
        assert {name: type(value) for name, value in rule.action.parameters.items()} == {
            name: type(value) for name, value in PARAMETERS.items()
        }

    async def test_an_update_replaces_filter_and_action(self, subscribed: Admin) -> None:
        await subscribed.create_rule("t", "s", "r", filter=SqlRuleFilter("a = 1"), action=SqlRuleAction("SET b = 1"))
        rule = await subscribed.get_rule("t", "s", "r")
        rule.filter, rule.action = CorrelationRuleFilter(label="x"), None
        await subscribed.update_rule("t", "s", rule)
        again = await subscribed.get_rule("t", "s", "r")
        assert (again.filter.label, again.action, again.created_at_utc) == ("x", None, rule.created_at_utc)
        assert await rule_names(subscribed) == ["$Default", "r"]
        rule.name = "absent"
        with pytest.raises(ResourceNotFoundError):
            await subscribed.update_rule("t", "s", rule)

    async def test_are_listed_by_pages_and_deleted_one_by_one(self, subscribed: Admin) -> None:
        for number in range(4):
            await subscribed.create_rule("t", "s", f"r{number}")
        assert await rule_names(subscribed, max_page_size=2) == ["$Default", "r0", "r1", "r2", "r3"]
        for name in ("$Default", "R1", "r0", "r2", "r3"):
            await subscribed.delete_rule("t", "s", name)
        assert await rule_names(subscribed) == []
        for missing in (subscribed.delete_rule("t", "s", "r0"), subscribed.get_rule("t", "s", "r0")):
            with pytest.raises(ResourceNotFoundError):
                await missing

    async def test_that_cannot_be_are_refused(self, subscribed: Admin) -> None:
        with pytest.raises(ResourceExistsError):
            await subscribed.create_rule("t", "s", "$DEFAULT")
        for name, options in (
            ("r", {"filter": SqlRuleFilter("a = = 1")}),
            ("r", {"filter": SqlRuleFilter("a" * 1025)}),
            ("r", {"action": SqlRuleAction("DROP a")}),
            ("with space", {}),
            ("a" * 51, {}),
        ):
            with pytest.raises(HttpResponseError) as refused:
                await subscribed.create_rule("t", "s", name, **options)
            assert refused.value.status_code == 400
        assert await rule_names(subscribed) == ["$Default"]


async def test_topics_subscriptions_and_rules_outlive_the_broker_process(
    subscribed: Admin, admin_endpoint: Any
) -> None:
    given = SqlRuleFilter("a = @text", PARAMETERS)
    await subscribed.create_rule("t", "s", "r", filter=given, action=SqlRuleAction("SET b = 1"))
    before = await subscribed.get_rule("t", "s", "r")
    admin_endpoint.broker.restart()
    assert [topic.name for topic in await subscribed.list_topics()] == ["t"]
    assert [subscription.name for subscription in await subscribed.list_subscriptions("t")] == ["s"]
    after = await subscribed.get_rule("t", "s", "r")
    assert (vars(after.filter), after.created_at_utc) == (vars(given), before.created_at_utc)
    assert await rule_names(subscribed) == ["$Default", "r"]
