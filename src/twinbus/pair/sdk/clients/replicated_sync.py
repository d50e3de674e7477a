"""The replicated client for synchronous applications: the one for asyncio, on a loop in a thread, waited for.

There is one implementation (`pair/replication`); here are the methods that wait for it. Only a passive send to the
namespace that is active is the SDK's own, blocking one. Each object has the settings and the names of the SDK's own for
the first namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSession,
)

from twinbus.pair.description import PairDescription, second_string
from twinbus.pair.ledger.ledger import LedgerCore
from twinbus.pair.loop_thread import LoopThread
from twinbus.pair.replication.receiver import ReplicatedReceiving
from twinbus.pair.replication.sender import ReplicatedSending
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk import received as receiving_sdk
from twinbus.pair.sdk.attempts import BoundedSender, become
from twinbus.pair.sdk.clients import replicated_aio


class ReplicatedClient(ServiceBusClient):
    """`azure.servicebus.ServiceBusClient` over two namespaces that hold the same messages."""

    def __init__(
        self,
        clients: tuple[ServiceBusClient, ServiceBusClient],
        make: Callable[[], replicated_aio.ReplicatedClient],
    ) -> None:
        """Made by `from_connection_strings` or `from_clients`; `make` is called on the loop that all of it runs on."""
        vars(self).update(vars(sdk.copy_of(clients[0])))
        self._direct = tuple(sdk.copy_of(client) for client in clients)
        self._loop_thread = LoopThread()

        async def made() -> replicated_aio.ReplicatedClient:
            return make()

        try:
            self._client = self._loop_thread.run(made())
        except BaseException:
            self._loop_thread.stop(_nothing)
            raise

    @classmethod
    def from_connection_strings(cls, primary: str, secondary: str, **kwargs: Any) -> ReplicatedClient:
        """A client from two connection strings; the arguments are those of the one for asyncio."""
        attempts = kwargs.get("attempts", replicated_aio.ATTEMPTS)
        timeout_s = kwargs.get("attempt_timeout", replicated_aio.ATTEMPT_TIMEOUT_S)
        settings = sdk.bounded(attempts, timeout_s) | dict(kwargs.get("client_settings") or {})
        return cls(
            (
                sdk.new_client(ServiceBusClient, primary, settings),
                sdk.new_client(ServiceBusClient, secondary, settings),
            ),
            lambda: replicated_aio.ReplicatedClient.from_connection_strings(primary, secondary, **kwargs),
        )

    @classmethod
    def from_description(
        cls, description: PairDescription | Path | str | None = None, **kwargs: Any
    ) -> ReplicatedClient:
        """A client of two namespaces as a TOML file describes them, or without one the environment."""
        pair = PairDescription.read(description)
        settings = sdk.bounded(pair.options.attempts, pair.options.seconds("attempt_timeout"))
        settings |= dict(kwargs.get("client_settings") or {})
        first, second = (
            sdk.new_client(ServiceBusClient, namespace.connection_string, settings, namespace.ca)
            for namespace in (pair.primary, pair.secondary)
        )
        return cls(
            (first, second),
            lambda: replicated_aio.ReplicatedClient.from_description(pair, **kwargs),
        )

    @classmethod
    def from_clients(cls, primary: ServiceBusClient, secondary: ServiceBusClient, **kwargs: Any) -> ReplicatedClient:
        """A client with the settings and credentials of two clients of the SDK, which it does not use otherwise."""
        return cls(
            (primary, secondary),
            lambda: replicated_aio.ReplicatedClient(
                receiving_sdk.asynchronous(primary), receiving_sdk.asynchronous(secondary), **kwargs
            ),
        )

    @classmethod
    def from_connection_string(cls, conn_str: str, *, secondary: str | None = None, **kwargs: Any) -> ReplicatedClient:
        """A client from one connection string; without `secondary` the other is in TWINBUS_SECONDARY."""
        return cls.from_connection_strings(conn_str, second_string(secondary, cls.__name__), **kwargs)

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
        return ReplicatedSender._for(
            self,
            first,
            self._client.get_queue_sender(queue_name, **kwargs),
            lambda namespace, name: self._direct[namespace].get_queue_sender(name, **kwargs),
        )

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> ReplicatedSender:
        """A sender to a topic that is in both namespaces."""
        first = super().get_topic_sender(topic_name, **kwargs)
        return ReplicatedSender._for(
            self,
            first,
            self._client.get_topic_sender(topic_name, **kwargs),
            lambda namespace, name: self._direct[namespace].get_topic_sender(name, **kwargs),
        )

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a queue that is in both namespaces, each message once."""
        return ReplicatedReceiver._for(
            self._loop_thread,
            super().get_queue_receiver(queue_name, **_of_the_sdk(kwargs)),
            kwargs,
            lambda rest: self._client.get_queue_receiver(queue_name, **rest),
        )

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a subscription that is in both namespaces, each message once."""
        return ReplicatedReceiver._for(
            self._loop_thread,
            super().get_subscription_receiver(topic_name, subscription_name, **_of_the_sdk(kwargs)),
            kwargs,
            lambda rest: self._client.get_subscription_receiver(topic_name, subscription_name, **rest),
        )

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


class ReplicatedSender(ServiceBusSender):
    """`azure.servicebus.ServiceBusSender` for an entity that is in two namespaces. Made by a replicated client."""

    _loop_thread: LoopThread
    _sending: ReplicatedSending
    _make: Callable[[int], Any]
    _senders: dict[int, Any]

    @classmethod
    def _for(
        cls,
        client: ReplicatedClient,
        first: ServiceBusSender,
        sender: replicated_aio.ReplicatedSender,
        make: Callable[[int, str], ServiceBusSender],
    ) -> ReplicatedSender:
        made = become(first, cls, client)
        made._loop_thread, made._sending = client._loop_thread, sender._sending
        entity, clients = client._client.entity, client._direct
        made._make = lambda at: become(make(at, entity(first.entity_name, at)), BoundedSender, clients[at])
        made._senders = {}
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

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch of the size that the active namespace takes."""
        return self._loop_thread.run(self._sending.create_message_batch(max_size_in_bytes))

    def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> NoReturn:
        """Refused: there would be two numbers for each message."""
        self._sending.refuse_schedule()

    def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> NoReturn:
        """Refused, as scheduling is."""
        self._sending.refuse_cancel()

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
        self,
        sequence_numbers: int | list[int],
        *,
        namespace: str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that were put aside under these numbers, in one namespace or in any: a number may be in both."""
        work = self._receiving.receive_deferred_messages(
            sequence_numbers, namespace=namespace, timeout=timeout, **kwargs
        )
        return self._watched(self._loop_thread.run(work))

    def namespace_of(self, message: ServiceBusReceivedMessage) -> str:
        """The namespace that a message came from; its number is a number there."""
        return self._receiving.namespace_of(message)

    def peek_messages(self, max_message_count: int = 1, **kwargs: Any) -> list[ServiceBusReceivedMessage]:
        """A look at both namespaces; copies of one message are shown once."""
        return self._loop_thread.run(self._receiving.peek_messages(max_message_count, **kwargs))

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """The work is done: marked in the ledger first, then settled at the broker."""
        self._loop_thread.run(self._receiving.complete_message(message))

    def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Give it back; the same copy is handed out again."""
        self._loop_thread.run(self._receiving.abandon_message(message))

    def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """Put it aside under its number; its other copies are not needed any more."""
        self._loop_thread.run(self._receiving.defer_message(message))

    def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Nobody is to work on it: the ledger counts it as done, the copy goes to its dead-letter queue."""
        self._loop_thread.run(self._receiving.dead_letter_message(message, reason, error_description))

    def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None, **kwargs: Any
    ) -> datetime:
        """Lock it for longer, and let its claim hold for longer."""
        until: datetime = self._loop_thread.run(self._receiving.renew_message_lock(message, timeout=timeout, **kwargs))
        return until

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


class _Session(ServiceBusSession):
    """A session for a synchronous application and its lock renewer."""

    def __init__(self, loop_thread: LoopThread, session: Any) -> None:
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

    def renew_lock(self, *, timeout: float | None = None, **kwargs: Any) -> Any:
        """Renew both locks."""
        return self._loop_thread.run(self._both.renew_lock(timeout=timeout, **kwargs))

    def get_state(self, *, timeout: float | None = None, **kwargs: Any) -> Any:
        """The state, from the first namespace that has one."""
        return self._loop_thread.run(self._both.get_state(timeout=timeout, **kwargs))

    def set_state(self, state: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Write the state in both."""
        self._loop_thread.run(self._both.set_state(state, timeout=timeout, **kwargs))


def through_ledger(
    loop_thread: LoopThread,
    ledger: LedgerCore,
    client: Any,
    name: str,
    subscription: str | None,
    kwargs: dict[str, Any],
) -> ReplicatedReceiver:
    """A receiver of one namespace through a ledger, for paired clients; it has a connection of its own."""

    def make(rest: dict[str, Any]) -> replicated_aio.ReplicatedReceiver:
        of_client = receiving_sdk.asynchronous(client)
        return replicated_aio.through_ledger(ledger, of_client, name, subscription, rest)

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
