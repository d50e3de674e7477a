"""The replicated client for synchronous applications: the one for asyncio, on a loop in a thread, waited for.

There is one implementation (`pair/replication`); here are the methods that wait for it. Only a passive send to the
namespace that is active is the SDK's own, blocking one. Each object has the settings and the names of the SDK's own for
the first namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSession,
)

from twinbus.pair.ledger.ledger import LedgerCore
from twinbus.pair.loop_thread import LoopThread
from twinbus.pair.replication.receiver import ReplicatedReceiving
from twinbus.pair.replication.sender import ReplicatedSending
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.attempts import BoundedSender, become
from twinbus.pair.sdk.clients import replicated_aio
from twinbus.pair.sdk.clients.replicated import FromTwo, done_by
from twinbus.pair.sdk.namespace import asynchronous
from twinbus.pair.sdk.received import PairedSession


class ReplicatedClient(FromTwo, ServiceBusClient):
    """`azure.servicebus.ServiceBusClient` over two namespaces that hold the same messages."""

    sdk_client = ServiceBusClient

    def __init__(self, primary: ServiceBusClient, secondary: ServiceBusClient, **settings: Any) -> None:
        """It has the settings and credentials of two clients of the SDK; the rest is as in the one for asyncio."""
        vars(self).update(vars(sdk.copy_of(primary)))
        self._direct = (sdk.copy_of(primary), sdk.copy_of(secondary))
        self._loop_thread = LoopThread()

        async def made() -> replicated_aio.ReplicatedClient:
            return replicated_aio.ReplicatedClient(asynchronous(primary), asynchronous(secondary), **settings)

        try:
            self._client = self._loop_thread.run(made())
        except BaseException:
            self._loop_thread.stop(_nothing)
            raise

    @classmethod
    def from_clients(cls, primary: ServiceBusClient, secondary: ServiceBusClient, **kwargs: Any) -> ReplicatedClient:
        """A client with the settings and credentials of two clients of the SDK, which it does not use otherwise."""
        return cls(primary, secondary, **kwargs)

    @property
    def ledger(self) -> LedgerCore | None:
        """The ledger of its receivers."""
        return self._client.ledger

    def active(self, path: str) -> str:
        """The namespace that a message for an entity is sent to first (passive replication)."""
        return self._client.active(path)

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> ReplicatedSender:
        """A sender to a queue that is in both namespaces."""
        first = super().get_queue_sender(queue_name, **kwargs)
        return ReplicatedSender._for(self, first, "get_queue_sender", kwargs)

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> ReplicatedSender:
        """A sender to a topic that is in both namespaces."""
        first = super().get_topic_sender(topic_name, **kwargs)
        return ReplicatedSender._for(self, first, "get_topic_sender", kwargs)

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a queue that is in both namespaces, each message once."""
        first = super().get_queue_receiver(queue_name, **_of_the_sdk(kwargs))
        make = self._client.get_queue_receiver
        return ReplicatedReceiver._for(self._loop_thread, first, kwargs, lambda rest: make(queue_name, **rest))

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a subscription that is in both namespaces, each message once."""
        names = (topic_name, subscription_name)
        first = super().get_subscription_receiver(*names, **_of_the_sdk(kwargs))
        make = self._client.get_subscription_receiver
        return ReplicatedReceiver._for(self._loop_thread, first, kwargs, lambda rest: make(*names, **rest))

    def close(self) -> None:
        """Close everything that was handed out, and both clients."""
        super().close()
        for client in self._direct:
            client.close()
        self._loop_thread.stop(self._client.close)

    def __enter__(self) -> ReplicatedClient:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def _wait(self: Any, work: Any) -> Any:
    return self._loop_thread.run(work)


@done_by(
    ReplicatedSending,
    "_sending",
    ("create_message_batch", "schedule_messages", "cancel_scheduled_messages"),
    _wait,
)
class ReplicatedSender(ServiceBusSender):
    """`azure.servicebus.ServiceBusSender` for an entity that is in two namespaces. Made by a replicated client."""

    _loop_thread: LoopThread
    _sending: ReplicatedSending
    _make: Callable[[int], Any]
    _senders: dict[int, Any]

    @classmethod
    def _for(
        cls, client: ReplicatedClient, first: ServiceBusSender, method: str, kwargs: dict[str, Any]
    ) -> ReplicatedSender:
        made = become(first, cls, client)
        name, on_loop, direct = first.entity_name, client._client, client._direct
        made._loop_thread, made._sending = client._loop_thread, getattr(on_loop, method)(name, **kwargs)._sending

        def make(at: int) -> Any:
            return become(getattr(direct[at], method)(on_loop.entity(name, at), **kwargs), BoundedSender, direct[at])

        made._make, made._senders = make, {}
        return made

    def send_messages(self, message: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Send, and return when one namespace (passive) or all that answer (active) have the messages."""
        sending = self._sending
        if not sending.is_passive:
            self._loop_thread.run(sending.send_messages(message, timeout=timeout, **kwargs))
            return
        messages, tags = sending.prepared(message)
        if sdk.is_empty(messages):
            return
        active, settings = sending.active, {"timeout": timeout, **kwargs}
        try:
            self._sender(active).send_messages(messages, **settings)
        except Exception as error:
            active = self._loop_thread.run(sending.send_to_backup(messages, active, error, settings))
        sending.sent(tags, active)

    def _sender(self, namespace: int) -> Any:
        if namespace not in self._senders:
            self._senders[namespace] = self._make(namespace)
        return self._senders[namespace]

    def close(self) -> None:
        """Close both."""
        if not self._sending.is_closed:
            self._loop_thread.run(self._sending.close())
        for sender in self._senders.values():
            sender.close()
        super().close()

    def __enter__(self) -> ReplicatedSender:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


@done_by(
    ReplicatedReceiving,
    "_receiving",
    (
        "peek_messages",
        "complete_message",
        "abandon_message",
        "defer_message",
        "dead_letter_message",
        "renew_message_lock",
    ),
    _wait,
)
class ReplicatedReceiver(ServiceBusReceiver):
    """`azure.servicebus.ServiceBusReceiver` over one or two namespaces, and a ledger. Made by a client."""

    _loop_thread: LoopThread
    _receiving: ReplicatedReceiving
    _renewer: Any

    @classmethod
    def _for(
        cls,
        loop_thread: LoopThread,
        first: ServiceBusReceiver,
        kwargs: dict[str, Any],
        make: Callable[[dict[str, Any]], replicated_aio.ReplicatedReceiver],
    ) -> ReplicatedReceiver:
        """`make` is called on the loop; the lock renewer, if any, stays on this side."""
        rest = {name: value for name, value in kwargs.items() if name != "auto_lock_renewer"}

        async def receiving() -> ReplicatedReceiving:
            return make(rest)._receiving

        made = become(first, cls, first)
        made._loop_thread, made._renewer = loop_thread, kwargs.get("auto_lock_renewer")
        made._receiving = loop_thread.run(receiving())
        return made

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that nobody has worked on, at most so many, from whichever namespace has them."""
        return self._watched(self._loop_thread.run(self._receiving.receive_messages(max_message_count, max_wait_time)))

    def receive_deferred_messages(
        self, sequence_numbers: int | list[int], **kwargs: Any
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that were put aside under these numbers, in one `namespace` or in any: a number may be in both."""
        return self._watched(
            self._loop_thread.run(self._receiving.receive_deferred_messages(sequence_numbers, **kwargs))
        )

    def namespace_of(self, message: ServiceBusReceivedMessage) -> str:
        """The namespace that a message came from; its number is a number there."""
        return self._receiving.namespace_of(message)

    @property
    def session(self) -> ServiceBusSession:
        """The session of both namespaces; None without sessions, as the SDK has it."""
        made: Any = _Session(self._loop_thread, self._receiving.session) if self._receiving.is_session else None
        session: ServiceBusSession = made
        return session

    def _watched(self, messages: list[ServiceBusReceivedMessage]) -> list[ServiceBusReceivedMessage]:
        """A lock renewer has threads of its own and calls this receiver, not the one on the loop."""
        if self._renewer is not None and not self._receiving.is_session:
            for message in messages:
                self._renewer.register(self, message)
        return messages

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        """The next message; the end comes when none arrives within the receiver's max_wait_time."""
        message = self._loop_thread.run(self._receiving.following())
        if message is None:
            raise StopIteration
        return self._watched([message])[0]

    next = __next__

    def close(self) -> None:
        """Let go of everything; what was held goes back to its queue."""
        if not self._receiving.is_closed:
            self._loop_thread.run(self._receiving.close())
        super().close()

    def __enter__(self) -> ReplicatedReceiver:
        self._loop_thread.run(self._receiving.open())
        if self._renewer is not None and self._receiving.is_session:
            self._renewer.register(self, self.session)
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


@done_by(PairedSession, "_both", ("renew_lock", "get_state", "set_state"), _wait)
class _Session(ServiceBusSession):
    """A session for a synchronous application and its lock renewer."""

    def __init__(self, loop_thread: LoopThread, session: PairedSession) -> None:
        super().__init__(session.session_id, session._receiver)
        self._loop_thread = loop_thread
        self._both = session

    @property
    def locked_until_utc(self) -> Any:
        """The earliest end of a lock."""
        return self._both.locked_until_utc

    @property
    def _lock_expired(self) -> bool:
        return bool(self._both._lock_expired)


def through_ledger(
    loop_thread: LoopThread,
    ledger: LedgerCore,
    client: ServiceBusClient,
    name: str,
    subscription: str | None,
    kwargs: dict[str, Any],
) -> ReplicatedReceiver:
    """A receiver of one namespace through a ledger, for paired clients; it has a connection of its own."""

    def make(rest: dict[str, Any]) -> replicated_aio.ReplicatedReceiver:
        return replicated_aio.through_ledger(ledger, asynchronous(client), name, subscription, rest)

    settings = _of_the_sdk(kwargs)
    if subscription is None:
        first = client.get_queue_receiver(name, **settings)
    else:
        first = client.get_subscription_receiver(name, subscription, **settings)
    return ReplicatedReceiver._for(loop_thread, first, kwargs, make)


def _of_the_sdk(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a receiver that the SDK knows."""
    return {name: value for name, value in kwargs.items() if name != "goes_on"}


async def _nothing() -> None:
    return
