"""The replicated client for synchronous applications: the one for asyncio, on a loop in a thread, waited for.

There is one implementation (`replication_sending`, `receiving`); here are only the methods that wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessageBatch, ServiceBusReceivedMessage, ServiceBusSession

from twinbus.pair import receiving_sdk, replication_aio
from twinbus.pair.description import PairDescription
from twinbus.pair.ledger_keeping import LedgerCore
from twinbus.pair.loop_thread import LoopThread
from twinbus.pair.receiving import ReplicatedReceiver as AsyncReceiver
from twinbus.pair.replication_sending import ReplicatedSender as AsyncSender


class ReplicatedClient:
    """`azure.servicebus.ServiceBusClient` over two namespaces that hold the same messages."""

    def __init__(self, make: Callable[[], replication_aio.ReplicatedClient]) -> None:
        """Made by `from_connection_strings` or `from_clients`; `make` is called on the loop that all of it runs on."""
        self._beside = LoopThread()

        async def made() -> replication_aio.ReplicatedClient:
            return make()

        try:
            self._client = self._beside.run(made())
        except BaseException:
            self._beside.stop(_nothing)
            raise

    @classmethod
    def from_connection_strings(cls, primary: str, secondary: str, **kwargs: Any) -> ReplicatedClient:
        """A client from two connection strings; the arguments are those of the one for asyncio."""
        return cls(lambda: replication_aio.ReplicatedClient.from_connection_strings(primary, secondary, **kwargs))

    @classmethod
    def from_description(
        cls, description: PairDescription | Path | str | None = None, **kwargs: Any
    ) -> ReplicatedClient:
        """A client of two namespaces as a TOML file describes them, or without one the environment."""
        return cls(lambda: replication_aio.ReplicatedClient.from_description(description, **kwargs))

    @classmethod
    def from_clients(cls, primary: ServiceBusClient, secondary: ServiceBusClient, **kwargs: Any) -> ReplicatedClient:
        """A client with the settings and credentials of two clients of the SDK, which it does not use otherwise."""
        return cls(
            lambda: replication_aio.ReplicatedClient(
                receiving_sdk.asynchronous(primary), receiving_sdk.asynchronous(secondary), **kwargs
            )
        )

    @property
    def ledger(self) -> LedgerCore | None:
        """The ledger of its receivers."""
        return self._client.ledger

    def active(self, path: str) -> str:
        """The namespace that a message for an entity is sent to first (passive replication)."""
        return self._client.active(path)

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> ReplicatedSender:
        """A sender to a queue that is in both namespaces."""
        return ReplicatedSender(self._beside, self._client.get_queue_sender(queue_name, **kwargs))

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> ReplicatedSender:
        """A sender to a topic that is in both namespaces."""
        return ReplicatedSender(self._beside, self._client.get_topic_sender(topic_name, **kwargs))

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a queue that is in both namespaces, each message once."""
        return receiver(self._beside, kwargs, lambda rest: self._client.get_queue_receiver(queue_name, **rest))

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a subscription that is in both namespaces, each message once."""
        return receiver(
            self._beside,
            kwargs,
            lambda rest: self._client.get_subscription_receiver(topic_name, subscription_name, **rest),
        )

    def close(self) -> None:
        """Close everything that was handed out, and both clients."""
        self._beside.stop(self._client.close)

    def __enter__(self) -> ReplicatedClient:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class ReplicatedSender:
    """`azure.servicebus.ServiceBusSender` for an entity that is in two namespaces."""

    def __init__(self, beside: LoopThread, sender: AsyncSender) -> None:
        self._beside = beside
        self._sender = sender

    def send_messages(self, message: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Send, and return when one namespace (passive) or all that answer (active) have the messages."""
        self._beside.run(self._sender.send_messages(message, timeout=timeout, **kwargs))

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch of the size that the active namespace takes."""
        return self._beside.run(self._sender.create_message_batch(max_size_in_bytes))

    def schedule_messages(self, messages: Any, schedule_time_utc: Any, **kwargs: Any) -> list[int]:
        """Refused: there would be two numbers for each message."""
        return self._beside.run(self._sender.schedule_messages(messages, schedule_time_utc, **kwargs))

    def cancel_scheduled_messages(self, sequence_numbers: Any, **kwargs: Any) -> None:
        """Refused, as scheduling is."""
        self._beside.run(self._sender.cancel_scheduled_messages(sequence_numbers, **kwargs))

    def close(self) -> None:
        """Close both."""
        self._beside.run(self._sender.close())

    def __enter__(self) -> ReplicatedSender:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class ReplicatedReceiver:
    """`azure.servicebus.ServiceBusReceiver` over one or two namespaces, and a ledger."""

    def __init__(self, beside: LoopThread, make: Callable[[], AsyncReceiver], renewer: Any) -> None:
        self._beside = beside
        self._renewer = renewer

        async def made() -> AsyncReceiver:
            return make()

        self._receiver = beside.run(made())

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that nobody has worked on, at most so many, from whichever namespace has them."""
        return self._watched(self._beside.run(self._receiver.receive_messages(max_message_count, max_wait_time)))

    def receive_deferred_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that were put aside, from whichever namespace has them under these numbers."""
        work = self._receiver.receive_deferred_messages(sequence_numbers, timeout=timeout, **kwargs)
        return self._watched(self._beside.run(work))

    def peek_messages(self, max_message_count: int = 1, **kwargs: Any) -> list[ServiceBusReceivedMessage]:
        """A look at both namespaces; copies of one message are shown once."""
        return self._beside.run(self._receiver.peek_messages(max_message_count, **kwargs))

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """The work is done: marked in the ledger first, then told to the broker."""
        self._beside.run(self._receiver.complete_message(message))

    def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Give it back; the same copy is handed out again."""
        self._beside.run(self._receiver.abandon_message(message))

    def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """Put it aside under its number; its other copies are not needed any more."""
        self._beside.run(self._receiver.defer_message(message))

    def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Nobody is to work on it: the ledger counts it as done, the copy goes to its dead-letter queue."""
        self._beside.run(self._receiver.dead_letter_message(message, reason, error_description))

    def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """Lock it for longer, and let its claim hold for longer."""
        return self._beside.run(self._receiver.renew_message_lock(message, timeout=timeout, **kwargs))

    @property
    def session(self) -> Any:
        """The session of both namespaces; None without sessions."""
        return _Session(self._beside, self._receiver.session) if self._receiver.is_session else None

    def _watched(self, messages: list[ServiceBusReceivedMessage]) -> list[ServiceBusReceivedMessage]:
        """A lock renewer has threads of its own and calls this receiver, not the one on the loop."""
        if self._renewer is not None and not self._receiver.is_session:
            for message in messages:
                self._renewer.register(self, message)
        return messages

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        """The next message; the end comes when none arrives within the receiver's max_wait_time."""

        async def following() -> ServiceBusReceivedMessage | None:
            return await anext(self._receiver, None)

        message = self._beside.run(following())
        if message is None:
            raise StopIteration
        return self._watched([message])[0]

    def close(self) -> None:
        """Let go of everything; what was held goes back to its queue."""
        self._beside.run(self._receiver.close())

    def __enter__(self) -> ReplicatedReceiver:
        self._beside.run(self._receiver.__aenter__())
        if self._renewer is not None and self._receiver.is_session:
            self._renewer.register(self, self.session)
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class _Session(ServiceBusSession):
    """A session for a synchronous application and its lock renewer."""

    def __init__(self, beside: LoopThread, session: Any) -> None:
        super().__init__(session.session_id, session._receiver)
        self._beside = beside
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
        return self._beside.run(self._both.renew_lock(timeout=timeout, **kwargs))

    def get_state(self, *, timeout: float | None = None, **kwargs: Any) -> Any:
        """The state, from the first namespace that has one."""
        return self._beside.run(self._both.get_state(timeout=timeout, **kwargs))

    def set_state(self, state: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Write the state in both."""
        self._beside.run(self._both.set_state(state, timeout=timeout, **kwargs))


def receiver(
    beside: LoopThread, kwargs: dict[str, Any], make: Callable[[dict[str, Any]], AsyncReceiver]
) -> ReplicatedReceiver:
    """A receiver that is waited for; the lock renewer, if any, stays on this side."""
    rest = {name: value for name, value in kwargs.items() if name != "auto_lock_renewer"}
    return ReplicatedReceiver(beside, lambda: make(rest), kwargs.get("auto_lock_renewer"))


def through_ledger(
    beside: LoopThread, ledger: LedgerCore, client: Any, name: str, subscription: str | None, kwargs: dict[str, Any]
) -> ReplicatedReceiver:
    """A receiver of one namespace through a ledger, for paired clients; it has a connection of its own."""

    def make(rest: dict[str, Any]) -> AsyncReceiver:
        beside_client = receiving_sdk.asynchronous(client)
        return replication_aio.through_ledger(ledger, beside_client, name, subscription, rest)

    return receiver(beside, kwargs, make)


async def _nothing() -> None:
    return
