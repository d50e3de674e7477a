"""What the official client's sample programs do about administration and topics, done in their order.

They are not part of the package, and not copied; these are programs of our own that make the same calls.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import (
    ApiVersion,
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from support.broker import SOON_S

pytest_plugins = ["compat.conftest_admin"]
pytestmark = pytest.mark.feature("sample programs")

COLOURS = ("red", "blue", "green")
RANKS = (None, "high", "low")


@pytest.fixture
def administration(admin_endpoint: Any) -> Iterator[ServiceBusAdministrationClient]:
    text, ca_file = admin_endpoint.connection_string(), str(admin_endpoint.ca_file)
    with ServiceBusAdministrationClient.from_connection_string(text, connection_verify=ca_file) as client:
        yield client


@pytest.fixture
def client(admin_endpoint: Any) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(admin_endpoint.broker.connection_string()) as client:
        yield client


def test_the_life_of_a_queue_by_the_oldest_version_of_the_interface(admin_endpoint: Any) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        admin_endpoint.connection_string(),
        api_version=ApiVersion.V2017_04,
        connection_verify=str(admin_endpoint.ca_file),
    ) as client:
        client.create_queue("sample", max_delivery_count=10, dead_lettering_on_message_expiration=True)
        assert "sample" in [queue.name for queue in client.list_queues()]
        queue = client.get_queue("sample")
        assert queue.dead_lettering_on_message_expiration
        queue.max_delivery_count = 5
        client.update_queue(queue)
        assert client.get_queue("sample").max_delivery_count == 5
        client.update_queue(client.get_queue("sample"), max_delivery_count=3)
        assert client.get_queue("sample").max_delivery_count == 3
        told = client.get_queue_runtime_properties("sample")
        assert (told.total_message_count, told.size_in_bytes, told.scheduled_message_count) == (0, 0, 0)
        client.delete_queue("sample")
        with pytest.raises(ResourceNotFoundError):
            client.get_queue("sample")


def test_the_lives_of_a_topic_a_subscription_and_a_rule(administration: ServiceBusAdministrationClient) -> None:
    administration.create_topic("life")
    topic = administration.get_topic("life")
    topic.default_message_time_to_live = datetime.timedelta(minutes=10)
    administration.update_topic(topic)
    administration.update_topic(topic, default_message_time_to_live=datetime.timedelta(minutes=15))
    assert administration.get_topic("life").default_message_time_to_live == datetime.timedelta(minutes=15)
    administration.create_subscription("life", "sub")
    subscription = administration.get_subscription("life", "sub")
    subscription.max_delivery_count = 5
    administration.update_subscription("life", subscription)
    administration.update_subscription("life", subscription, max_delivery_count=3)
    assert [found.max_delivery_count for found in administration.list_subscriptions("life")] == [3]
    assert administration.get_subscription_runtime_properties("life", "sub").total_message_count == 0
    assert administration.get_topic_runtime_properties("life").subscription_count == 1
    administration.create_rule("life", "sub", "plain")
    condition = SqlRuleFilter("colour = @one AND size = @two", parameters={"@one": "red", "@two": 1})
    administration.create_rule("life", "sub", "typed", filter=condition)
    rule = administration.get_rule("life", "sub", "plain")
    rule.filter = SqlRuleFilter("size < @two AND colour = @one", parameters={"@one": "blue", "@two": 2})
    administration.update_rule("life", "sub", rule)
    assert administration.get_rule("life", "sub", "plain").filter.parameters == {"@one": "blue", "@two": 2}
    # The client sends a new filter that is given by name with the parameters of the old one.
    administration.update_rule("life", "sub", administration.get_rule("life", "sub", "plain"), filter=condition)
    assert administration.get_rule("life", "sub", "plain").filter.sql_expression == condition.sql_expression
    assert {found.name for found in administration.list_rules("life", "sub")} == {"$Default", "plain", "typed"}
    for name in ("plain", "typed"):
        administration.delete_rule("life", "sub", name)
    administration.delete_subscription("life", "sub")
    administration.delete_topic("life")
    assert "life" not in [found.name for found in administration.list_topics()]


def test_filters_sort_what_is_published(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    wanted: dict[str, tuple[str, Any, Any]] = {
        "all": ("$Default", TrueRuleFilter(), None),
        "red": ("Red", SqlRuleFilter("colour = 'red'"), None),
        "blue": ("Blue", SqlRuleFilter("colour = 'blue'"), SqlRuleAction("SET colour = 'navy'")),
        "red-and-high": ("RedAndHigh", CorrelationRuleFilter(correlation_id="high", label="red"), None),
    }
    administration.create_topic("sorted")
    for subscription, (name, condition, action) in wanted.items():
        administration.create_subscription("sorted", subscription)
        with pytest.raises(ResourceExistsError):
            administration.create_subscription("sorted", subscription)
        administration.delete_rule("sorted", subscription, "$Default")
        administration.create_rule("sorted", subscription, name, filter=condition, action=action)
    messages = [
        ServiceBusMessage("x", application_properties={"colour": colour}, subject=colour, correlation_id=rank)
        for rank in RANKS
        for colour in COLOURS
    ]
    with client.get_topic_sender("sorted") as sender:
        sender.send_messages(messages)
    found: dict[str, list[str]] = {}
    for subscription in wanted:
        with client.get_subscription_receiver("sorted", subscription) as receiver:
            got = receiver.receive_messages(max_message_count=10, max_wait_time=SOON_S)
            found[subscription] = [message.application_properties[b"colour"].decode() for message in got]
            for message in got:
                receiver.complete_message(message)
    assert found == {
        "all": [*COLOURS, *COLOURS, *COLOURS],
        "red": ["red"] * 3,
        "blue": ["navy"] * 3,
        "red-and-high": ["red"],
    }


def test_messages_to_a_topic_are_sent_in_every_way_scheduled_and_cancelled(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    administration.create_topic("ways")
    administration.create_subscription("ways", "sub")
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    with client.get_topic_sender("ways") as sender:
        sender.send_messages(ServiceBusMessage("one"))
        sender.send_messages([ServiceBusMessage("listed") for _ in range(3)])
        batch = sender.create_message_batch()
        for _ in range(3):
            batch.add_message(ServiceBusMessage("batched"))
        sender.send_messages(batch)
        (single,) = sender.schedule_messages(ServiceBusMessage("later"), later)
        several = sender.schedule_messages([ServiceBusMessage("later") for _ in range(3)], later)
        assert administration.get_topic_runtime_properties("ways").scheduled_message_count == 4
        sender.cancel_scheduled_messages(single)
        sender.cancel_scheduled_messages(several)
    assert administration.get_topic_runtime_properties("ways").scheduled_message_count == 0
    with client.get_subscription_receiver("ways", "sub") as receiver:
        got = receiver.receive_messages(max_message_count=10, max_wait_time=SOON_S)
        for message in got:
            receiver.complete_message(message)
    assert [str(message) for message in got] == ["one", *["listed"] * 3, *["batched"] * 3]
