"""The replicated client for asyncio: the SDK's own methods on two namespaces that hold the same messages.

What it does is in `pair/replication`; here are the SDK's classes, and the parts are joined. Each object has the
settings and the names of the SDK's own for the first namespace, which is never opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender, ServiceBusSession
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.pair.ledger.ledger import AsyncLedger, LedgerCore
from twinbus.pair.ledger.tags import Tag
from twinbus.pair.replication.policy import Mode, Names, Roles, scope_of
from twinbus.pair.replication.receiver import ReplicatedReceiving
from twinbus.pair.replication.sender import Copied, ReplicatedSending, Sent
from twinbus.pair.route.presets import DEFAULT, PRESETS
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.attempts import AsyncBoundedSender, attempt_of, become, remember_attempt
from twinbus.pair.sdk.clients.replicated import FromTwo, done_by

SESSION_WAIT_S = 10.0


class ReplicatedClient(FromTwo, ServiceBusClient):
    """`azure.servicebus.aio.ServiceBusClient` over two namespaces that hold the same messages."""

    sdk_client = ServiceBusClient

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
            made: ServiceBusSender = getattr(client, method)(self.entity(name, namespace), **kwargs)
            return become(made, AsyncBoundedSender, client)

        sender = become(make(0), ReplicatedSender, self)
        sender._sending = ReplicatedSending(self._copied, name, [lambda: make(0), lambda: make(1)])
        self._open.add(sender)
        return sender

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a queue that is in both namespaces, each message once."""
        return self._receiver(queue_name, None, kwargs)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a subscription that is in both namespaces, each message once."""
        return self._receiver(topic_name, subscription_name, kwargs)

    def _receiver(self, name: str, subscription: str | None, kwargs: dict[str, Any]) -> ReplicatedReceiver:
        if self.ledger is None:
            raise ValueError("A receiver of two namespaces needs a ledger: ReplicatedClient(…, ledger='ledger.db').")
        places = [(client, *self._entities.place(name, subscription, at)) for at, client in enumerate(self.clients)]
        receiver = reading(self.ledger, self.names, places, kwargs, self.goes_on)
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


@done_by(
    ReplicatedSending,
    "_sending",
    ("send_messages", "create_message_batch", "schedule_messages", "cancel_scheduled_messages"),
)
class ReplicatedSender(ServiceBusSender):
    """`azure.servicebus.aio.ServiceBusSender` for an entity that is in two namespaces. Made by a replicated client."""

    _sending: ReplicatedSending

    async def close(self) -> None:
        """Close both."""
        await self._sending.close()
        await super().close()

    async def __aenter__(self) -> ReplicatedSender:
        self._sending.check_open()
        return self


@done_by(
    ReplicatedReceiving,
    "_receiving",
    (
        "receive_messages",
        "receive_deferred_messages",
        "peek_messages",
        "complete_message",
        "abandon_message",
        "defer_message",
        "dead_letter_message",
        "renew_message_lock",
    ),
)
class ReplicatedReceiver(ServiceBusReceiver):
    """`azure.servicebus.aio.ServiceBusReceiver` over one or two namespaces, and a ledger. Made by a client."""

    _receiving: ReplicatedReceiving

    def namespace_of(self, message: ServiceBusReceivedMessage) -> str:
        """The namespace that a message came from; its number is a number there."""
        return self._receiving.namespace_of(message)

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


# A client of the SDK, and the queue, or the topic and subscription, that is read through it.
Place = tuple[ServiceBusClient, str, str | None]


def _receiver_at(place: Place, settings: dict[str, Any]) -> ServiceBusReceiver:
    client, name, subscription = place
    receiver = (
        client.get_queue_receiver(name, **settings)
        if subscription is None
        else client.get_subscription_receiver(name, subscription, **settings)
    )
    remember_attempt(receiver, attempt_of(client))
    return receiver


def reading(
    ledger: LedgerCore, names: tuple[str, ...], places: list[Place], kwargs: dict[str, Any], goes_on: bool = True
) -> ReplicatedReceiver:
    """A receiver through a ledger; `kwargs` are those of the SDK's receiver, and `goes_on` for this one alone."""
    settings = dict(kwargs)
    goes_on = settings.pop("goes_on", goes_on)
    renewer = settings.pop("auto_lock_renewer", None)
    session_id, sub_queue = settings.get("session_id"), settings.get("sub_queue")
    _, name, subscription = places[0]
    deletes = ServiceBusReceiveMode(settings.get("receive_mode", ServiceBusReceiveMode.PEEK_LOCK)) is (
        ServiceBusReceiveMode.RECEIVE_AND_DELETE
    )

    def handed_out(message: Any) -> None:
        if renewer is not None and session_id is None:
            renewer.register(receiver, message)

    async def join(receiving: ReplicatedReceiving) -> None:
        if session_id is NEXT_AVAILABLE_SESSION:
            await _join_next_session(receiving, places, settings)
        else:
            await _join_session(receiving)
        if renewer is not None:
            renewer.register(receiver, receiver.session)

    first = _receiver_at(places[0], settings)
    receiver = become(first, ReplicatedReceiver, first)
    receiver._receiving = ReplicatedReceiving(
        ledger,
        scope_of(name, subscription, getattr(sub_queue, "value", sub_queue)),
        [(name, partial(_receiver_at, place, settings)) for name, place in zip(names, places, strict=True)],
        deletes=deletes,
        max_wait_time=settings.get("max_wait_time"),
        goes_on=goes_on,
        sessions=session_id is not None,
        handed_out=handed_out,
        before_first=join if session_id is not None else None,
    )
    return receiver


def through_ledger(
    ledger: LedgerCore, client: ServiceBusClient, name: str, subscription: str | None, kwargs: dict[str, Any]
) -> ReplicatedReceiver:
    """A receiver of one namespace through a ledger, for paired clients: what comes twice is handed out once."""
    return reading(ledger, (client.fully_qualified_namespace,), [(client, name, subscription)], kwargs)


async def _join_session(receiver: ReplicatedReceiving) -> None:
    """Lock a session by its name wherever that is possible now; the other namespace is tried again while receiving."""
    answers = await asyncio.gather(*(source.call(_nothing) for source in receiver.sources), return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    if len(failed) == len(answers):
        raise failed[0]


async def _nothing(_: Any) -> None:
    return


async def _join_next_session(receiver: ReplicatedReceiving, places: list[Place], settings: dict[str, Any]) -> None:
    """Take the next session that either namespace has; the other one's part of it is opened by its name."""
    wait_s = max((settings.get("max_wait_time") or SESSION_WAIT_S) / len(receiver.sources), 0.5)
    problem: Exception = OperationTimeoutError()
    for place, source in zip(places, receiver.sources, strict=True):
        opened = _receiver_at(place, {**settings, "max_wait_time": wait_s})
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
