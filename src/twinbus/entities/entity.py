"""What queues, topics and subscriptions have in common: a number in a store, mailboxes, and the marks of being used.

What may be sent or received, and what happens to it, each kind decides itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from twinbus.entities.fragments import Fragment, call_all
from twinbus.entities.mailbox import Mailbox
from twinbus.entities.partitioned_mailbox import PartitionedMailbox
from twinbus.entities.ports import StorePort
from twinbus.model import limits
from twinbus.model.address import SubQueue
from twinbus.model.entity import EntityStatus
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import PING_NUMBER, Counts, Incoming, Origin
from twinbus.model.partition import fragment_of
from twinbus.store.commands import Count, Ping, Publish, Send, Transfer

MEGABYTE = 1024 * 1024
_FORWARDED = {SubQueue.MAIN.value: "forward_to", SubQueue.DEAD_LETTER.value: "forward_dead_letters_to"}
SendResult = list[int] | BusError  # The sequence numbers of one unit, or why it was refused.


class Sent(Protocol):
    """Who is told what came of units."""

    def __call__(self, results: list[SendResult], which: Sequence[int] | None = None, /) -> None:
        """One result for each; or, called more than once, for those at the positions `which`."""
        ...


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
    """Something with an address. Its number in the store is `number(SubQueue…)`.

    A partitioned one has many fragments, and what is said of its store and its number holds for the first of them.
    """

    kind = "Entity"
    sessions_stay = True  # Whether a session of a partitioned entity is whole in its own fragment.

    def __init__(
        self,
        entity: int,
        description: D,
        store_index: int,
        store: StorePort,
        fragments: tuple[Fragment, ...] | None = None,
    ) -> None:
        self.id = entity
        self.description = description
        self.store_index = store_index
        self.store = store
        self.fragments = fragments or (Fragment(0, entity, store_index, store),)
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
    def told_ttl_ceiling_ms(self) -> int | None:
        """What a message must be said to live at most when it leaves; None where it says so itself since it came."""
        return None

    @property
    def message_bytes_max(self) -> int:
        """How large a message may be."""
        return limits.MESSAGE_BYTES_MAX

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for a commit of this entity's store."""
        return self.store.pending_bytes

    @property
    def places(self) -> tuple[int, ...]:
        """The stores on which its fragments lie; one for a plain entity."""
        return tuple(fragment.store_index for fragment in self.fragments)

    @property
    def is_partitioned(self) -> bool:
        """Whether it has fragments on several stores."""
        return len(self.fragments) > 1

    @property
    def is_limited(self) -> bool:
        """Whether a part of it is out of reach because a store is down."""
        return not all(fragment.store.is_available for fragment in self.fragments)

    def number(self, sub_queue: int = SubQueue.MAIN) -> int:
        """The number under which the store knows the main queue or one of its sub-queues."""
        return self.id * 4 + sub_queue

    def mailbox(self, sub_queue: int = SubQueue.MAIN) -> Mailbox:
        """The main queue or a sub-queue; made when first asked for."""
        found = self.mailboxes.get(sub_queue)
        if found is None:
            if self.is_partitioned:
                found = PartitionedMailbox(self.fragments, sub_queue, self.sessions_stay)
            else:
                found = Mailbox(self.number(sub_queue), self.store, self.store_index)
            self.mailboxes[sub_queue] = found
        return found

    def lanes(self, sub_queue: int) -> list[tuple[StorePort, int, int]]:
        """Stores with the numbers that a sub-queue and the main queue have there, between which messages can move."""
        return [(each.store, each.number(sub_queue), each.number(SubQueue.MAIN)) for each in self.fragments]

    def check_may_send(self) -> None:
        """Refuse senders while the entity is disabled for them."""
        if not self.status.may_send:
            raise BusError(Fault.ENTITY_DISABLED, f"{self.kind} '{self.path}' is {self.status.value}.")

    def check_may_receive(self) -> None:
        """Refuse receivers while the entity is disabled for them."""
        if not self.status.may_receive:
            raise BusError(Fault.ENTITY_DISABLED, f"{self.kind} '{self.path}' is {self.status.value}.")

    def check_may_take(self, sub_queue: int) -> None:
        """Refuse those who want the next messages, also where messages go on by themselves."""
        self.check_may_receive()
        target = self.forwards_to(sub_queue)
        if target is not None:
            what = "its dead letters" if sub_queue else "its messages"
            raise BusError(
                Fault.NOT_ALLOWED, f"{self.kind} '{self.path}' forwards {what} to '{target}': receive from there."
            )

    def forwards_to(self, sub_queue: int) -> str | None:
        """The path to which the messages of the main queue or of the dead-letter queue go on by themselves."""
        attribute = _FORWARDED.get(sub_queue)
        return None if attribute is None else getattr(self.description, attribute, None)

    def check_messages(self, messages: list[Incoming]) -> None:
        """Refuse messages that this entity does not take."""

    def send(self, units: list[list[Incoming]], origin: Origin, done: Sent) -> None:
        """Store units of messages, each whole or not at all; `done` gets one result per unit when they are durable."""
        raise BusError(Fault.NOT_ALLOWED, f"Nobody can send to '{self.path}'.")

    async def send_unit(self, messages: list[Incoming], origin: Origin) -> list[int]:
        """Store one unit and wait; returns its sequence numbers."""
        raise BusError(Fault.NOT_ALLOWED, f"Nobody can send to '{self.path}'.")

    async def take(self, messages: list[Incoming], origin: Origin, *, later: bool = False) -> list[int]:
        """Store one unit, perhaps for `later`, and wait; returns its sequence numbers.

        Pings among them are answered and not stored; they have a number that no message has.
        """
        pings = [message for message in messages if message.is_ping]
        if not pings:
            return await (self.schedule if later else self.send_unit)(messages, origin)
        for answer in await call_all(self._asking(message, origin) for message in pings):
            if isinstance(answer, BusError):
                raise answer
        rest = [message for message in messages if not message.is_ping]
        stored = iter(await (self.schedule if later else self.send_unit)(rest, origin) if rest else ())
        return [PING_NUMBER if message.is_ping else next(stored) for message in messages]

    def ping(self, pings: list[Incoming], origin: Origin, done: Sent) -> None:
        """Show that messages could be stored, without storing any; `done` is told as of one unit that was sent."""
        left, failed = len(pings), list[BusError]()

        def finished(command: Ping) -> None:
            nonlocal left
            left -= 1
            if command.error is not None:
                failed.append(command.error)
            if not left:
                done([failed[0] if failed else [PING_NUMBER] * len(pings)])

        for message in pings:
            store, command = self._asking(message, origin)
            command.done = finished
            store.submit(command)

    def _asking(self, message: Incoming, origin: Origin) -> tuple[StorePort, Ping]:
        """With a partition key a ping asks the fragment that the key leads to, else any that can be reached."""
        fragment = next((each for each in self.fragments if each.store.is_available), self.fragments[0])
        if self.is_partitioned and message.partition_key is not None:
            fragment = self.fragments[fragment_of(message.partition_key)]
        number, size = fragment.number(SubQueue.MAIN), len(message.record)
        return fragment.store, Ping(queue=number, origin=origin, message_id=message.message_id, size=size)

    def fragment_for(self, message: Incoming, near: int, number: int) -> Fragment:
        """Where a message goes that comes from the store `near`; for the same message and number always the same."""
        return self.fragments[0]

    def arrival(
        self, fragment: Fragment, messages: list[Incoming], transfers: list[Transfer], origin: Origin
    ) -> Send | Publish:
        """What has messages arrive in a fragment from other queues."""
        raise BusError(Fault.NOT_ALLOWED, f"Nobody can send to '{self.path}'.")

    async def schedule(self, messages: list[Incoming], origin: Origin) -> list[int]:
        """Store messages for later and wait; returns their sequence numbers."""
        return await self.send_unit(messages, origin)

    async def counts(self) -> Counts:
        """How many messages the entity holds, with its dead-letter queue; of a partitioned one, those in reach."""
        if not self.is_partitioned:
            command = await self.store.call(Count(queue=self.number()))
            assert command.result is not None
            return command.result
        there = [fragment for fragment in self.fragments if fragment.store.is_available] or self.fragments[:1]
        answers = await call_all((each.store, Count(queue=each.number(SubQueue.MAIN))) for each in there)
        found = [answer.result for answer in answers if isinstance(answer, Count) and answer.result is not None]
        if not found:
            raise next(answer for answer in answers if isinstance(answer, BusError))
        return Counts(*map(sum, zip(*found, strict=True)))


AnyEntity = Entity[Any]
