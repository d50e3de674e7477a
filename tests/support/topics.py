"""Topics in compatibility tests: made with the official administration client, used with both flavours of the other.

What must come of it is for the tests to say.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    SubscriptionRuntimeProperties,
)

from support.sdk import Bus, InThread, receive

DEFAULT_RULE = "$Default"
_numbers = itertools.count(1)


class Topics:
    """The topics of one test. Settings have the names that the administration client gives them."""

    def __init__(self, admin: ServiceBusAdministrationClient, prefix: str) -> None:
        self.admin = admin
        self._prefix = prefix

    def name(self) -> str:
        """A name that no other test has."""
        return f"{self._prefix}-{next(_numbers)}"

    def new(self, *subscriptions: str, **settings: Any) -> str:
        """A topic with a name that no other test has, and subscriptions that take everything."""
        name = self.name()
        self.admin.create_topic(name, **settings)
        for subscription in subscriptions:
            self.subscribe(name, subscription)
        return name

    def subscribe(self, topic: str, name: str, **settings: Any) -> str:
        """A subscription that takes everything."""
        self.admin.create_subscription(topic, name, **settings)
        return name

    def subscribe_to(self, topic: str, name: str, *rules: tuple[str, Any, str | None], **settings: Any) -> str:
        """A subscription with these rules only: name, filter (a text is SQL) and action, if any."""
        self.subscribe(topic, name, **settings)
        for rule, condition, action in rules:
            self.rule(topic, name, rule, condition, action)
        self.admin.delete_rule(topic, name, DEFAULT_RULE)
        return name

    def rule(self, topic: str, subscription: str, name: str, condition: Any, action: str | None = None) -> None:
        """One more rule."""
        self.admin.create_rule(
            topic,
            subscription,
            name,
            filter=SqlRuleFilter(condition) if isinstance(condition, str) else condition,
            action=None if action is None else SqlRuleAction(action),
        )

    def rules(self, topic: str, subscription: str) -> dict[str, RuleProperties]:
        """The rules of a subscription, by name."""
        return {str(rule.name): rule for rule in self.admin.list_rules(topic, subscription)}

    def counts(self, topic: str, subscription: str) -> SubscriptionRuntimeProperties:
        """How many messages a subscription holds."""
        return self.admin.get_subscription_runtime_properties(topic, subscription)


def _inside(client: Any, method: str, *args: Any, **options: Any) -> Any:
    """A sender or receiver of a client, of its flavour."""
    if isinstance(client, InThread):
        return InThread(getattr(client.inner, method)(*args, **options))
    return getattr(client, method)(*args, **options)


@asynccontextmanager
async def sender(bus: Bus, topic: str, client: Any = None, **options: Any) -> AsyncIterator[Any]:
    """A sender for a topic, with a client of its own unless one is given, closed in the background."""
    made = _inside(client or bus.client(), "get_topic_sender", topic, **options)
    try:
        await made.__aenter__()
        yield made
    finally:
        bus._close(made)


@asynccontextmanager
async def receiver(bus: Bus, topic: str, subscription: str, client: Any = None, **options: Any) -> AsyncIterator[Any]:
    """A receiver of a subscription, closed in the background unless it holds a session."""
    made = _inside(client or bus.client(), "get_subscription_receiver", topic, subscription, **options)
    try:
        await made.__aenter__()
        yield made
    finally:
        bus._close(made)
        if "session_id" in options:
            await bus.closed()


async def send(bus: Bus, topic: str, *messages: ServiceBusMessage) -> None:
    """Send messages to a topic one by one."""
    async with sender(bus, topic) as one:
        for message in messages:
            await one.send_messages(message)


async def taken(bus: Bus, topic: str, subscription: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
    """So many messages of a subscription, received and completed."""
    async with receiver(bus, topic, subscription, **options) as one:
        messages = await receive(one, count)
        for message in messages:
            await one.complete_message(message)
        return messages


async def taken_by(bus: Bus, topic: str, counts: dict[str, int]) -> list[list[ServiceBusReceivedMessage]]:
    """So many messages of each subscription, received and completed at the same time."""
    return await asyncio.gather(*[taken(bus, topic, name, count) for name, count in counts.items()])


async def refusals(*handlers: AbstractAsyncContextManager[Any]) -> list[BaseException]:
    """Why senders and receivers cannot be opened, each; an AssertionError if one can."""

    async def why(handler: AbstractAsyncContextManager[Any]) -> BaseException:
        try:
            async with handler:
                pass
        except ServiceBusError as problem:
            return problem
        raise AssertionError("it was opened")

    return await asyncio.gather(*map(why, handlers))


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    """What the messages say."""
    return [str(message) for message in messages]
