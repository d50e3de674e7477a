"""The replicated client for asyncio: the SDK's own methods on two namespaces that hold the same messages.

What it does is in `pair/replication`; here are the SDK's classes, and the parts are joined. Each object has the
settings and the names of the SDK's own for the first namespace, which is never opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakSet

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender, ServiceBusSession
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.client.connection_string import ConnectionString
from twinbus.pair.description import PairDescription, second_string
from twinbus.pair.ledger.ledger import AsyncLedger, LedgerCore
from twinbus.pair.ledger.tags import Tag
from twinbus.pair.namespace.port import refuse_same
from twinbus.pair.replication.policy import Mode, Names, Roles, scope_of
from twinbus.pair.replication.receiver import ReplicatedReceiving
from twinbus.pair.replication.sender import Copied, ReplicatedSending, Sent
from twinbus.pair.route.presets import DEFAULT, PRESETS
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.attempts import AsyncBoundedSender, attempt_of, become, remember_attempt

ATTEMPTS = 2
ATTEMPT_TIMEOUT_S = 20.0
SESSION_WAIT_S = 10.0


class ReplicatedClient(ServiceBusClient):
    """`azure.servicebus.aio.ServiceBusClient` over two namespaces that hold the same messages."""

    def __init__(
        self,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        *,
        mode: str | Mode,
        ledger: LedgerCore | Path | str | None = None,
        entities: Mapping[str, str] | None = None,
        names: tuple[str, str] | None = None,
        tag: str | Tag | None = None,
        preset: str = DEFAULT,
        goes_on: bool = True,
        on_sent: Callable[[Sent], None] | None = None,
        on_swap: Callable[[str, str], None] | None = None,
    ) -> None:
        """`entities` maps names that differ in the second namespace. Receivers need a `ledger`.

        With `goes_on` a lost lock is no error to a receiver. `names` are those of the namespaces, for the ledger.
        """
        if preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
        vars(self).update(vars(sdk.copy_of(primary)))
        self.primary = primary
        self.secondary = secondary
        self.clients = (primary, secondary)
        self.mode = Mode.parse(mode)
        self.names = names or (primary.fully_qualified_namespace, secondary.fully_qualified_namespace)
        self.roles = Roles()
        self.goes_on = goes_on
        self._own_ledger = isinstance(ledger, Path | str)
        self.ledger: LedgerCore | None = (
            AsyncLedger(ledger, tag=tag or "message_id") if isinstance(ledger, Path | str) else ledger
        )
        self.tag = Tag.parse(tag) if tag is not None else self.ledger.tag if self.ledger is not None else Tag()
        if self.ledger is not None and self.ledger.tag != self.tag:
            raise ValueError(f"The ledger tells copies by {self.ledger.tag}, and the client by {self.tag}.")
        self._entities = Names(entities)
        self._copied = Copied(self.mode, self.names, self.roles, self.tag, PRESETS[preset].counting, on_sent, on_swap)
        self._open: WeakSet[ReplicatedSender | ReplicatedReceiver] = WeakSet()

    @classmethod
    def from_connection_strings(
        cls,
        primary: str,
        secondary: str,
        *,
        mode: str | Mode,
        attempts: int = ATTEMPTS,
        attempt_timeout: float = ATTEMPT_TIMEOUT_S,
        client_settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> ReplicatedClient:
        """A client from two connection strings; `client_settings` are the SDK clients' own."""
        refuse_same(ConnectionString.parse(primary), ConnectionString.parse(secondary))
        settings = sdk.bounded(attempts, attempt_timeout) | dict(client_settings or {})
        return cls(
            sdk.new_client(ServiceBusClient, primary, settings),
            sdk.new_client(ServiceBusClient, secondary, settings),
            mode=mode,
            **kwargs,
        )

    @classmethod
    def from_description(
        cls,
        description: PairDescription | Path | str | None = None,
        *,
        mode: str | Mode,
        client_settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> ReplicatedClient:
        """A client of two namespaces as a TOML file describes them, or without one the environment.

        Of the options it takes `attempts`, `attempt_timeout` and `preset`; see docs/pairing.md.
        """
        pair = PairDescription.read(description)
        namespaces = (pair.primary, pair.secondary)
        refuse_same(*(ConnectionString.parse(namespace.connection_string) for namespace in namespaces))
        settings = sdk.bounded(pair.options.attempts, pair.options.seconds("attempt_timeout"))
        settings |= dict(client_settings or {})
        first, second = (
            sdk.new_client(ServiceBusClient, namespace.connection_string, settings, namespace.ca)
            for namespace in namespaces
        )
        given: dict[str, Any] = {"entities": pair.entities, "preset": pair.options.preset}
        given |= {} if pair.tag == Tag() else {"tag": pair.tag}
        if pair.primary.name and pair.secondary.name:
            given["names"] = (pair.primary.name, pair.secondary.name)
        return cls(first, second, mode=mode, **{**given, **kwargs})

    @classmethod
    def from_connection_string(cls, conn_str: str, *, secondary: str | None = None, **kwargs: Any) -> ReplicatedClient:
        """A client from one connection string; without `secondary` the other is in TWINBUS_SECONDARY."""
        return cls.from_connection_strings(conn_str, second_string(secondary, cls.__name__), **kwargs)

    def active(self, path: str) -> str:
        """The namespace that a message for an entity is sent to first (passive replication)."""
        return self.names[self.roles.active(path)]

    def entity(self, name: str, namespace: int) -> str:
        """What an entity of the first namespace is called in one of the two."""
        return self._entities.entity(name, namespace)

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> ReplicatedSender:
        """A sender to a queue that is in both namespaces."""
        return self._sender(queue_name, "get_queue_sender", kwargs)

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> ReplicatedSender:
        """A sender to a topic that is in both namespaces."""
        return self._sender(topic_name, "get_topic_sender", kwargs)

    def _sender(self, name: str, method: str, kwargs: dict[str, Any]) -> ReplicatedSender:
        def make(namespace: int) -> ServiceBusSender:
            client = self.clients[namespace]
            made: ServiceBusSender = getattr(client, method)(self._entities.entity(name, namespace), **kwargs)
            return become(made, AsyncBoundedSender, client)

        sender = become(make(0), ReplicatedSender, self)
        sender._sending = ReplicatedSending(self._copied, name, [lambda: make(0), lambda: make(1)])
        self._open.add(sender)
        return sender

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a queue that is in both namespaces, each message once."""

        def make(namespace: int, settings: dict[str, Any]) -> Any:
            client = self.clients[namespace]
            return _bounded(client.get_queue_receiver(self._entities.entity(queue_name, namespace), **settings), client)

        return self._receiver(scope_of(queue_name, None, _sub_queue(kwargs)), make, kwargs)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a subscription that is in both namespaces, each message once."""

        def make(namespace: int, settings: dict[str, Any]) -> Any:
            names, client = (
                self._entities.subscription(topic_name, subscription_name, namespace),
                self.clients[namespace],
            )
            return _bounded(client.get_subscription_receiver(*names, **settings), client)

        return self._receiver(scope_of(topic_name, subscription_name, _sub_queue(kwargs)), make, kwargs)

    def _receiver(
        self, scope: str, make: Callable[[int, dict[str, Any]], Any], kwargs: dict[str, Any]
    ) -> ReplicatedReceiver:
        if self.ledger is None:
            raise ValueError("A receiver of two namespaces needs a ledger: ReplicatedClient(…, ledger='ledger.db').")
        receiver = reading(self.ledger, scope, self.names, make, kwargs, self.goes_on)
        self._open.add(receiver)
        return receiver

    async def close(self) -> None:
        """Close everything that was handed out, and both clients; a ledger that was opened here, too."""
        opened = list(self._open)
        await asyncio.gather(*(each.close() for each in opened), return_exceptions=True)
        await asyncio.gather(super().close(), self.primary.close(), self.secondary.close())
        if self._own_ledger and isinstance(self.ledger, AsyncLedger):
            await self.ledger.close()

    async def __aenter__(self) -> ReplicatedClient:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()


class ReplicatedSender(ServiceBusSender):
    """`azure.servicebus.aio.ServiceBusSender` for an entity that is in two namespaces. Made by a replicated client."""

    _sending: ReplicatedSending

    async def send_messages(self, message: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Send, and return when one namespace (passive) or all that answer (active) have the messages."""
        await self._sending.send_messages(message, timeout=timeout, **kwargs)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch of the size that the active namespace takes, or the other one if it does not answer."""
        return await self._sending.create_message_batch(max_size_in_bytes)

    async def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> NoReturn:
        """Refused: there would be two numbers for each message."""
        self._sending.refuse_schedule()

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> NoReturn:
        """Refused, as scheduling is."""
        self._sending.refuse_cancel()

    async def close(self) -> None:
        """Close both."""
        await self._sending.close()
        await super().close()

    async def __aenter__(self) -> ReplicatedSender:
        self._sending.check_open()
        return self


class ReplicatedReceiver(ServiceBusReceiver):
    """`azure.servicebus.aio.ServiceBusReceiver` over one or two namespaces, and a ledger. Made by a client."""

    _receiving: ReplicatedReceiving

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that nobody has worked on, at most so many, from whichever namespace has them."""
        return await self._receiving.receive_messages(max_message_count, max_wait_time)

    async def receive_deferred_messages(
        self,
        sequence_numbers: int | list[int],
        *,
        namespace: str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that were put aside under these numbers, in one namespace or in any: a number may be in both."""
        return await self._receiving.receive_deferred_messages(
            sequence_numbers, namespace=namespace, timeout=timeout, **kwargs
        )

    def namespace_of(self, message: ServiceBusReceivedMessage) -> str:
        """The namespace that a message came from; its number is a number there."""
        return self._receiving.namespace_of(message)

    async def peek_messages(self, max_message_count: int = 1, **kwargs: Any) -> list[ServiceBusReceivedMessage]:
        """A look at both namespaces; copies of one message are shown once."""
        return await self._receiving.peek_messages(max_message_count, **kwargs)

    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """The work is done: marked in the ledger first, then at the broker."""
        await self._receiving.complete_message(message)

    async def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Give it back; the same copy is handed out again."""
        await self._receiving.abandon_message(message)

    async def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """Put it aside under its number; its other copies are not needed any more."""
        await self._receiving.defer_message(message)

    async def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Nobody is to work on it: the ledger counts it as done, the copy goes to its dead-letter queue."""
        await self._receiving.dead_letter_message(message, reason, error_description)

    async def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None, **kwargs: Any
    ) -> datetime:
        """Lock it for longer, and let its claim hold for longer."""
        until: datetime = await self._receiving.renew_message_lock(message, timeout=timeout, **kwargs)
        return until

    @property
    def session(self) -> ServiceBusSession:
        """The session of both namespaces, locked and renewed together; None without sessions."""
        session: ServiceBusSession = self._receiving.session
        return session

    def __aiter__(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        return self

    async def __anext__(self) -> ServiceBusReceivedMessage:
        """The next message; the end comes when none arrives within the receiver's max_wait_time."""
        message = await self._receiving.following()
        if message is None:
            raise StopAsyncIteration
        return message

    async def close(self) -> None:
        """Let go of everything; what was held goes back to its queue."""
        await self._receiving.close()
        await super().close()

    async def __aenter__(self) -> ReplicatedReceiver:
        await self._receiving.open()
        return self


def _bounded(receiver: ServiceBusReceiver, client: ServiceBusClient) -> ServiceBusReceiver:
    remember_attempt(receiver, attempt_of(client))
    return receiver


def reading(
    ledger: LedgerCore,
    scope: str,
    names: tuple[str, ...],
    make: Callable[[int, dict[str, Any]], Any],
    kwargs: dict[str, Any],
    goes_on: bool = True,
) -> ReplicatedReceiver:
    """A receiver through a ledger; `kwargs` are those of the SDK's receiver, and `goes_on` for this one alone."""
    settings = dict(kwargs)
    goes_on = settings.pop("goes_on", goes_on)
    renewer = settings.pop("auto_lock_renewer", None)
    session_id = settings.get("session_id")
    deletes = ServiceBusReceiveMode(settings.get("receive_mode", ServiceBusReceiveMode.PEEK_LOCK)) is (
        ServiceBusReceiveMode.RECEIVE_AND_DELETE
    )

    def handed_out(message: Any) -> None:
        if renewer is not None and session_id is None:
            renewer.register(receiver, message)

    async def join(receiving: ReplicatedReceiving) -> None:
        if session_id is NEXT_AVAILABLE_SESSION:
            await _join_next_session(receiving, make, settings)
        else:
            await _join_session(receiving)
        if renewer is not None:
            renewer.register(receiver, receiver.session)

    first: ServiceBusReceiver = make(0, settings)
    receiver = become(first, ReplicatedReceiver, first)
    receiver._receiving = ReplicatedReceiving(
        ledger,
        scope,
        [(name, lambda number=number: make(number, settings)) for number, name in enumerate(names)],  # type: ignore[misc]
        deletes=deletes,
        max_wait_time=settings.get("max_wait_time"),
        goes_on=goes_on,
        sessions=session_id is not None,
        handed_out=handed_out,
        before_first=join if session_id is not None else None,
    )
    return receiver


def through_ledger(
    ledger: LedgerCore,
    client: ServiceBusClient,
    name: str,
    subscription: str | None,
    kwargs: dict[str, Any],
    goes_on: bool = True,
) -> ReplicatedReceiver:
    """A receiver of one namespace through a ledger, for paired clients: what comes twice is handed out once."""

    def make(_: int, settings: dict[str, Any]) -> Any:
        if subscription is None:
            return _bounded(client.get_queue_receiver(name, **settings), client)
        return _bounded(client.get_subscription_receiver(name, subscription, **settings), client)

    scope = scope_of(name, subscription, _sub_queue(kwargs))
    return reading(ledger, scope, (client.fully_qualified_namespace,), make, kwargs, goes_on)


async def _join_session(receiver: ReplicatedReceiving) -> None:
    """Lock a session by its name wherever that is possible now; the other namespace is tried again while receiving."""
    answers = await asyncio.gather(*(source.call(_nothing) for source in receiver.sources), return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    if len(failed) == len(answers):
        raise failed[0]


async def _nothing(_: Any) -> None:
    return


async def _join_next_session(
    receiver: ReplicatedReceiving, make: Callable[[int, dict[str, Any]], Any], settings: dict[str, Any]
) -> None:
    """Take the next session that either namespace has; the other one's part of it is opened by its name."""
    wait_s = max((settings.get("max_wait_time") or SESSION_WAIT_S) / len(receiver.sources), 0.5)
    problem: Exception = OperationTimeoutError()
    for number, source in enumerate(receiver.sources):
        opened = make(number, {**settings, "max_wait_time": wait_s})
        try:
            await opened.__aenter__()
        except Exception as error:
            problem = error
            await opened.close()
            continue
        source.adopt(opened)
        settings["session_id"] = opened.session.session_id
        return
    raise problem


def _sub_queue(kwargs: Mapping[str, Any]) -> str | None:
    sub_queue = kwargs.get("sub_queue")
    return None if sub_queue is None else str(getattr(sub_queue, "value", sub_queue))
