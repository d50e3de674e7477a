"""Who may do what, as the official client meets it: keys, policies, tokens, their scope and their end.

SASL PLAIN, which the official client does not use, is in `test_proton_auth`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from support.atom import Rule
from support.broker import BrokerProcess, NewQueue
from support.sdk import Bus, both, receive_one, told, tracking_id, until

pytestmark = pytest.mark.feature("shared-access-signatures")

FIRST_KEY = "the-first-key-of-a-policy-of-a-queue"
SECOND_KEY = "the-second-key-of-a-policy-of-a-queue"
NEW_KEY = "the-key-that-comes-after-a-rotation"


async def send_with(bus: Bus, connection_string: str, queue: str, **options: Any) -> None:
    async with bus.client(connection_string, **options) as client:
        sender = client.get_queue_sender(queue)
        try:
            await sender.send_messages(ServiceBusMessage("m"))
        finally:
            await sender.close()


async def receive_with(bus: Bus, connection_string: str, queue: str) -> None:
    async with bus.client(connection_string, retry_total=0) as client:
        receiver = client.get_queue_receiver(queue)
        try:
            message = await receive_one(receiver)
            await receiver.complete_message(message)
        finally:
            await receiver.close()


@pytest.mark.parametrize("wrong", ["key", "policy", "queue"])
@both
async def test_a_wrong_key_policy_or_queue_fails_the_authentication(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess, wrong: str
) -> None:
    queue = new_queue()
    text = {
        "key": broker.connection_string(key="not-the-key-of-this-namespace"),
        "policy": broker.connection_string("NoSuchPolicy"),
        "queue": broker.connection_string(),
    }[wrong]
    name = "no-such-queue" if wrong == "queue" else queue
    problems = await asyncio.gather(
        send_with(bus, text, name, retry_total=0), receive_with(bus, text, name), return_exceptions=True
    )
    for problem in problems:
        assert type(problem) is ServiceBusAuthenticationError
        assert tracking_id(problem) in broker.log
        assert ("could not be found" in told(problem)) == (wrong == "queue")


@both
async def test_neither_keys_nor_signatures_get_into_the_log(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    wrong_key = "a-wrong-key-that-must-not-be-shown"
    with pytest.raises(ServiceBusAuthenticationError) as caught:
        await send_with(bus, broker.connection_string(key=wrong_key), new_queue(), retry_total=0)
    for text in (broker.log, told(caught.value)):
        assert wrong_key not in text
        assert broker.key not in text
        assert "sig=" not in text


@both
async def test_a_policy_of_the_queue_grants_its_rights_there_and_nowhere_else(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    rules = [
        Rule("sender", ("Send",), FIRST_KEY, SECOND_KEY),
        Rule("listener", ("Listen",), FIRST_KEY, SECOND_KEY),
        Rule("manager", ("Manage", "Send", "Listen"), FIRST_KEY, SECOND_KEY),
    ]
    queue, other = new_queue(AuthorizationRules=rules), new_queue()
    first = {rule.name: broker.connection_string(rule.name, FIRST_KEY) for rule in rules}
    second = {rule.name: broker.connection_string(rule.name, SECOND_KEY) for rule in rules}
    await asyncio.gather(
        send_with(bus, first["sender"], queue),
        send_with(bus, second["sender"], queue),
        send_with(bus, first["manager"], queue),
        receive_with(bus, first["listener"], queue),
        receive_with(bus, second["manager"], queue),
    )
    refused = await asyncio.gather(
        receive_with(bus, first["sender"], queue),
        send_with(bus, first["listener"], queue),
        send_with(bus, first["sender"], other, retry_total=0),
        return_exceptions=True,
    )
    assert [type(problem) for problem in refused] == [
        ServiceBusAuthorizationError,
        ServiceBusAuthorizationError,
        ServiceBusAuthenticationError,
    ]
    assert broker.count(queue) == 1


@both
async def test_a_sender_cannot_peek(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue(AuthorizationRules=[Rule("sender", ("Send",), FIRST_KEY)])
    async with bus.client(broker.connection_string("sender", FIRST_KEY), retry_total=0) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("m"))
        receiver = client.get_queue_receiver(queue)
        with pytest.raises(ServiceBusAuthorizationError):
            await receiver.peek_messages()
        await receiver.close()


@both
async def test_a_signature_in_the_connection_string_works_until_it_ends(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    signatures = {
        "for the queue": broker.token(queue),
        "for the namespace": broker.token(),
        "expired": broker.token(queue, lifetime_s=-10),
        "for another queue": broker.token(new_queue()),
    }
    attempts = [
        send_with(bus, broker.connection_string(signature=signature), queue, retry_total=0)
        for signature in signatures.values()
    ]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        type(None),
        ServiceBusAuthenticationError,
        ServiceBusAuthenticationError,
    ]
    assert broker.count(queue) == 2


@both
async def test_a_token_that_lapses_detaches_the_link(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    signature = broker.token(queue, lifetime_s=10)
    async with bus.client(broker.connection_string(signature=signature), retry_total=0) as client:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("in time"))
        await until(lambda: bool(broker.refusals(queue)), "the end of the link")
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("too late"))
        await sender.close()
    assert [refusal.fault for refusal in broker.refusals(queue)][:1] == ["unauthorized"]
    assert broker.count(queue) == 1


@both
async def test_a_rotated_key_is_revoked_at_once(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue(AuthorizationRules=[Rule("app", ("Send",), FIRST_KEY, SECOND_KEY)])
    async with (
        bus.client(broker.connection_string("app", FIRST_KEY), retry_total=0) as revoked_client,
        bus.client(broker.connection_string("app", SECOND_KEY), retry_total=0) as kept_client,
        kept_client.get_queue_sender(queue) as kept,
    ):
        revoked = revoked_client.get_queue_sender(queue)
        await revoked.send_messages(ServiceBusMessage("before"))
        await kept.send_messages(ServiceBusMessage("before"))
        broker.update_queue(queue, AuthorizationRules=[Rule("app", ("Send",), NEW_KEY, SECOND_KEY)])
        await until(lambda: bool(broker.refusals(queue)), "the end of the link")
        with pytest.raises(ServiceBusError):
            await revoked.send_messages(ServiceBusMessage("after"))
        await revoked.close()
        await kept.send_messages(ServiceBusMessage("after, with the other key"))
    with pytest.raises(ServiceBusAuthenticationError):
        await send_with(bus, broker.connection_string("app", FIRST_KEY), queue, retry_total=0)
    await send_with(bus, broker.connection_string("app", NEW_KEY), queue)
    assert broker.count(queue) == 4
