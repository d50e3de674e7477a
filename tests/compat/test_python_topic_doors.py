"""Topics and subscriptions with the official client: who may send and receive, what ends links, what a restart keeps.

What happens to messages is in `test_python_topics`.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from azure.servicebus.management import AccessRights, AuthorizationRule

from support.broker import SOON_S, BrokerProcess
from support.sdk import Bus, both, receive_one, receiving, together, told
from support.topics import Topics, bodies, receiver, refusals, send, sender, taken

pytest_plugins = ["compat.conftest_admin", "compat.conftest_topics"]
pytestmark = pytest.mark.feature("topics")

DEAD = ServiceBusSubQueue.DEAD_LETTER


@pytest.fixture(scope="module")
def broker(admin_endpoint: Any) -> BrokerProcess:
    found: BrokerProcess = admin_endpoint.broker
    return found


@both
async def test_nobody_receives_from_a_topic_or_sends_to_a_subscription(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    problems = await refusals(
        bus.receiver(topic),
        bus.receiver(topic, sub_queue=DEAD),
        bus.sender(f"{topic}/Subscriptions/s"),
        bus.sender(f"{topic}/Subscriptions/s/$DeadLetterQueue"),
    )
    assert [type(problem) for problem in problems] == [ServiceBusError] * 4
    assert "receive from one of its subscriptions" in str(problems[0])
    assert "not to its subscription" in str(problems[2])
    assert topics.counts(topic, "s").total_message_count == 0


@both
async def test_what_does_not_exist_cannot_be_opened(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    client = bus.client(retry_total=0)
    problems = await refusals(
        sender(bus, "no-such-topic", client),
        receiver(bus, topic, "no-such-subscription", client),
        receiver(bus, "no-such-topic", "s", client),
    )
    for problem in problems:
        assert type(problem) is ServiceBusAuthenticationError
        assert "could not be found" in told(problem)


@both
async def test_a_deleted_topic_ends_the_links_of_its_senders_and_receivers(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", "b")
    client = bus.client(retry_total=0)
    async with together(
        sender(bus, topic, client), receiver(bus, topic, "a", client), receiver(bus, topic, "b", client)
    ) as (out, a, b):
        await out.send_messages(ServiceBusMessage("m"))
        await receive_one(a)
        await receive_one(b)
        waiting = [asyncio.create_task(one.receive_messages(max_wait_time=SOON_S)) for one in (a, b)]
        await asyncio.gather(receiving(a), receiving(b))
        topics.admin.delete_topic(topic)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, ServiceBusError)
            assert "was deleted" in str(outcome)
        with pytest.raises(ServiceBusError):
            await out.send_messages(ServiceBusMessage("m"))
    with pytest.raises(ResourceNotFoundError):
        topics.admin.get_subscription(topic, "a")


@both
async def test_a_deleted_subscription_ends_the_links_of_its_receivers_only(bus: Bus, topics: Topics) -> None:
    topic = topics.new("gone", "stays")
    client = bus.client(retry_total=0)
    async with together(
        sender(bus, topic, client), receiver(bus, topic, "gone", client), receiver(bus, topic, "stays", client)
    ) as (out, gone, stays):
        waiting = asyncio.create_task(gone.receive_messages(max_wait_time=SOON_S))
        await receiving(gone)
        topics.admin.delete_subscription(topic, "gone")
        with pytest.raises(ServiceBusError):
            await waiting
        await out.send_messages(ServiceBusMessage("m"))
        await stays.complete_message(await receive_one(stays))


@both
async def test_a_topic_that_is_made_again_has_nothing_of_the_old_one(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    await bus.put(topic, "old")
    topics.admin.delete_topic(topic)
    topics.admin.create_topic(topic)
    topics.subscribe(topic, "s")
    await send(bus, topic, ServiceBusMessage("new"))
    (message,) = await taken(bus, topic, "s", 1)
    assert (str(message), message.sequence_number) == ("new", 1)


@both
async def test_disabled_topics_take_nothing_and_disabled_subscriptions_give_nothing(bus: Bus, topics: Topics) -> None:
    topic = topics.new("off", "on")
    client = bus.client(retry_total=0)
    subscription = topics.admin.get_subscription(topic, "off")
    subscription.status = "ReceiveDisabled"
    topics.admin.update_subscription(topic, subscription)
    await send(bus, topic, ServiceBusMessage("m"))
    (problem,) = await refusals(receiver(bus, topic, "off", client))
    assert type(problem) is MessagingEntityDisabledError
    assert bodies(await taken(bus, topic, "on", 1)) == ["m"]
    assert topics.counts(topic, "off").active_message_count == 1

    description = topics.admin.get_topic(topic)
    description.status = "SendDisabled"
    topics.admin.update_topic(description)
    (problem,) = await refusals(sender(bus, topic, client))
    assert type(problem) is MessagingEntityDisabledError
    subscription.status = "Active"
    topics.admin.update_subscription(topic, subscription)
    assert bodies(await taken(bus, topic, "off", 1)) == ["m"]


@pytest.mark.feature("shared-access-signatures")
@both
async def test_a_token_for_one_subscription_opens_that_one_alone(
    bus: Bus, topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("mine", "other")
    await bus.put(topic, "m")
    signature = broker.token(f"{topic}/Subscriptions/mine")
    client = bus.client(broker.connection_string(signature=signature), retry_total=0)
    async with receiver(bus, topic, "mine", client) as one:
        message = await receive_one(one)
        assert bodies(await one.peek_messages(sequence_number=1)) == ["m"]
        await one.complete_message(message)
    problems = await refusals(receiver(bus, topic, "other", client), sender(bus, topic, client))
    assert [type(problem) for problem in problems] == [ServiceBusAuthenticationError] * 2


@pytest.mark.feature("shared-access-signatures")
@both
async def test_a_policy_of_the_topic_grants_its_subscriptions(bus: Bus, topics: Topics, broker: BrokerProcess) -> None:
    key = "a-key-of-a-policy-of-a-topic"
    rights = {"listener": [AccessRights.LISTEN], "sender": [AccessRights.SEND]}
    policies = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            key_name=name,
            rights=given,
            primary_key=key,
            secondary_key="another-key-of-a-policy-of-a-topic",
        )
        for name, given in rights.items()
    ]
    topic = topics.new("s", authorization_rules=policies)
    elsewhere = topics.new("s")
    listening, sending = (
        bus.client(broker.connection_string(name, key), retry_total=0) for name in ("listener", "sender")
    )
    async with sender(bus, topic, sending) as out:
        await out.send_messages(ServiceBusMessage("m"))
    async with receiver(bus, topic, "s", listening) as one:
        await one.complete_message(await receive_one(one))
    problems = await refusals(
        receiver(bus, topic, "s", sending),
        sender(bus, topic, listening),
        receiver(bus, elsewhere, "s", listening),
    )
    assert [type(problem) for problem in problems] == [
        ServiceBusAuthorizationError,
        ServiceBusAuthorizationError,
        ServiceBusAuthenticationError,
    ]


@both
async def test_a_restart_keeps_topics_subscriptions_rules_and_messages(
    bus: Bus, topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("all", requires_duplicate_detection=True)
    topics.subscribe_to(topic, "red", ("only-red", "colour = 'red'", "SET seen = TRUE"))
    topics.subscribe(topic, "sessions", requires_session=True)
    red = ServiceBusMessage("red", message_id="red", application_properties={"colour": "red"}, session_id="s")
    await send(bus, topic, red, ServiceBusMessage("blue", application_properties={"colour": "blue"}))
    due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
    async with sender(bus, topic) as out:
        await out.schedule_messages(ServiceBusMessage("later", session_id="s"), due)

    await bus.once(broker.restart)

    assert [sorted(topics.rules(topic, name)) for name in ("all", "red")] == [["$Default"], ["only-red"]]
    assert topics.admin.get_subscription(topic, "sessions").requires_session
    await send(bus, topic, red, ServiceBusMessage("after", application_properties={"colour": "red"}, session_id="s"))
    everything, red_copies, in_session, (dead,) = await asyncio.gather(
        taken(bus, topic, "all", 4),
        taken(bus, topic, "red", 2),
        taken(bus, topic, "sessions", 3, session_id="s"),
        taken(bus, topic, "sessions", 1, sub_queue=DEAD),
    )
    assert bodies(everything)[:2] == ["red", "blue"]
    assert sorted(bodies(everything)[2:]) == ["after", "later"]
    assert bodies(red_copies) == ["red", "after"]
    for copy in red_copies:
        assert copy.application_properties == {b"colour": b"red", b"seen": True, b"RuleName": b"only-red"}
    assert sorted(bodies(in_session)) == ["after", "later", "red"]
    assert str(dead) == "blue"
