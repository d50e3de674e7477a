"""What queues, topics and subscriptions have in common: a number in a store, mailboxes, and the marks of being used.

What may be sent or received, and what happens to it, each kind decides itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from twinbus.entities.mailbox import Mailbox
from twinbus.entities.ports import StorePort
from twinbus.model import limits
from twinbus.model.address import SubQueue
from twinbus.model.entity import EntityStatus
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts, Incoming, Origin
from twinbus.store.commands import Count

MEGABYTE = 1024 * 1024
SendResult = list[int] | BusError  # The sequence numbers of one unit, or why it was refused.
Sent = Callable[[list[SendResult]], None]


class Described(Protocol):
    """What the descriptions of all kinds of entities tell."""

    @property
    def status(self) -> EntityStatus:
        """Whether the entity may be used."""
        ...

    @property
    def default_ttl_ms(self) -> int:
        """The longest life of a message in it."""
        ...


D = TypeVar("D", bound=Described)


class Entity(ABC, Generic[D]):
    """Something with an address. Its number in the store is `number(SubQueue…)`."""

    kind = "Entity"

    def __init__(self, entity: int, description: D, store_index: int, store: StorePort) -> None:
        self.id = entity
        self.description = description
        self.store_index = store_index
        self.store = store
        self.accessed_at_ms = 0
        self.links = 0  # Open links, while which the entity is not idle.
        self.mailboxes: dict[int, Mailbox] = {}

    @property
    @abstractmethod
    def path(self) -> str:
        """The address below the namespace."""

    @property
    def status(self) -> EntityStatus:
        """Whether it may be used."""
        return self.description.status

    @property
    def requires_session(self) -> bool:
        """Whether its messages are received by session."""
        return False

    @property
    def ttl_ceiling_ms(self) -> int | None:
        """The longest life of a message here; also the life of one whose sender gave none."""
        ceiling = self.description.default_ttl_ms
        return None if ceiling >= limits.UNLIMITED_MS else ceiling

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for a commit of this entity's store."""
        return self.store.pending_bytes

    def number(self, sub_queue: int = SubQueue.MAIN) -> int:
        """The number under which the store knows the main queue or one of its sub-queues."""
        return self.id * 4 + sub_queue

    def mailbox(self, sub_queue: int = SubQueue.MAIN) -> Mailbox:
        """The main queue or a sub-queue; made when first asked for."""
        found = self.mailboxes.get(sub_queue)
        if found is None:
            found = self.mailboxes[sub_queue] = Mailbox(self.number(sub_queue), self.store, self.store_index)
        return found

    def check_may_send(self) -> None:
        """Refuse senders while the entity is disabled for them."""
        if not self.status.may_send:
            raise BusError(Fault.ENTITY_DISABLED, f"{self.kind} '{self.path}' is {self.status.value}.")

    def check_may_receive(self) -> None:
        """Refuse receivers while the entity is disabled for them."""
        if not self.status.may_receive:
            raise BusError(Fault.ENTITY_DISABLED, f"{self.kind} '{self.path}' is {self.status.value}.")

    def check_messages(self, messages: list[Incoming]) -> None:
        """Refuse messages that this entity does not take."""

    def send(self, units: list[list[Incoming]], origin: Origin, done: Sent) -> None:
        """Store units of messages, each whole or not at all; `done` gets one result per unit when they are durable."""
        raise BusError(Fault.NOT_ALLOWED, f"Nobody can send to '{self.path}'.")

    async def send_unit(self, messages: list[Incoming], origin: Origin) -> list[int]:
        """Store one unit and wait; returns its sequence numbers."""
        raise BusError(Fault.NOT_ALLOWED, f"Nobody can send to '{self.path}'.")

    async def counts(self) -> Counts:
        """How many messages the entity holds, with its dead-letter queue."""
        command = await self.store.call(Count(queue=self.number()))
        assert command.result is not None
        return command.result


AnyEntity = Entity[Any]
