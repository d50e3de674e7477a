"""One queue of the namespace: its description, the store it lives on, and its mailboxes.

Decides what the description decides (may one send, may one receive, is a session needed); the store enforces the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from twinbus.entities.mailbox import Mailbox
from twinbus.entities.ports import StorePort
from twinbus.model import limits
from twinbus.model.address import SubQueue
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts, Incoming, Origin
from twinbus.store.commands import Count, QueueSettings, Send

MEGABYTE = 1024 * 1024
SendResult = list[int] | BusError  # The sequence numbers of one unit, or why it was refused.


def settings_of(description: QueueDescription) -> QueueSettings:
    """What the store needs to know of a description."""
    return QueueSettings(
        lock_duration_ms=description.lock_duration_ms,
        max_delivery_count=description.max_delivery_count,
        dead_letter_on_expiry=description.dead_letter_on_expiration,
        duplicate_window_ms=description.duplicate_window_ms if description.requires_duplicate_detection else 0,
        requires_session=description.requires_session,
        max_size_bytes=description.max_size_mb * MEGABYTE,
    )


class Queue:
    """A queue that exists. Its number in the store is `number(SubQueue…)`."""

    def __init__(self, entity: int, description: QueueDescription, store_index: int, store: StorePort) -> None:
        self.id = entity
        self.description = description
        self.store_index = store_index
        self.store = store
        self.accessed_at_ms = 0
        self.links = 0  # Open links, while which the queue is not idle.
        self.mailboxes: dict[int, Mailbox] = {}

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def ttl_ceiling_ms(self) -> int | None:
        """The longest life of a message here; also the life of one whose sender gave none."""
        ceiling = self.description.default_ttl_ms
        return None if ceiling >= limits.UNLIMITED_MS else ceiling

    def number(self, sub_queue: int = SubQueue.MAIN) -> int:
        """The number under which the store knows the main queue or one of its sub-queues."""
        return self.id * 4 + sub_queue

    def mailbox(self, sub_queue: int = SubQueue.MAIN) -> Mailbox:
        """The main queue or a sub-queue, for receivers; made when first asked for."""
        found = self.mailboxes.get(sub_queue)
        if found is None:
            found = self.mailboxes[sub_queue] = Mailbox(self.number(sub_queue), self.store, self.store_index)
        return found

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for a commit of this queue's store."""
        return self.store.pending_bytes

    def send(self, units: list[list[Incoming]], origin: Origin, done: Callable[[list[SendResult]], None]) -> None:
        """Store units of messages, each whole or not at all; `done` gets one result per unit when they are durable."""

        def finished(command: Send) -> None:
            done(command.result if command.error is None else [command.error] * len(units))

        self.store.submit(Send(queue=self.number(), origin=origin, units=units, done=finished))

    async def send_unit(self, messages: list[Incoming], origin: Origin) -> list[int]:
        """Store one unit and wait; returns its sequence numbers."""
        command = await self.store.call(Send(queue=self.number(), origin=origin, units=[messages]))
        result = command.result[0]
        if isinstance(result, BusError):
            raise result
        return result

    def check_may_send(self) -> None:
        """Refuse senders while the queue is disabled for them."""
        if not self.description.status.may_send:
            raise BusError(Fault.ENTITY_DISABLED, f"Queue '{self.name}' is {self.description.status.value}.")

    def check_may_receive(self) -> None:
        """Refuse receivers while the queue is disabled for them."""
        if not self.description.status.may_receive:
            raise BusError(Fault.ENTITY_DISABLED, f"Queue '{self.name}' is {self.description.status.value}.")

    def check_messages(self, messages: list[Incoming]) -> None:
        """Refuse what this queue does not take: no session id where sessions are required."""
        if self.description.requires_session and any(m.session_id is None for m in messages):
            raise BusError(Fault.NOT_ALLOWED, f"Queue '{self.name}' requires sessions; the message has no session id.")

    async def counts(self) -> Counts:
        """How many messages the queue and its dead-letter queue hold."""
        command = await self.store.call(Count(queue=self.number()))
        assert command.result is not None
        return command.result
