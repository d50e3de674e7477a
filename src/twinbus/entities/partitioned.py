"""Queues and topics whose messages lie in fragments on several stores; subscriptions differ only in having fragments.

Where a message goes is `spreading`'s decision, how receivers get at all of them `partitioned_mailbox`'. A topic's
fragment shares its store with the same fragment of every subscription, so that publishing stays one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from twinbus.entities.entity import Sent
from twinbus.entities.fragments import Fragment
from twinbus.entities.partitions import NUMBER_MASK, fragment_of_token, inner_token
from twinbus.entities.ports import RecordReader
from twinbus.entities.queue import Queue
from twinbus.entities.spreading import Spreader, Units
from twinbus.entities.topic import Topic
from twinbus.model.address import SubQueue
from twinbus.model.clock import Clock
from twinbus.model.entity import QueueDescription
from twinbus.model.message import Delivered, Incoming, Origin
from twinbus.model.topic import TopicDescription
from twinbus.store.commands import Publication, Publish, Send


class PartitionedQueue(Queue):
    """A queue in fragments."""

    def __init__(self, entity: int, description: QueueDescription, fragments: tuple[Fragment, ...]) -> None:
        super().__init__(entity, description, fragments[0].store_index, fragments[0].store, fragments)
        self._spreader = Spreader(fragments, lambda: self.description.requires_duplicate_detection, _send)

    @property
    def pending_bytes(self) -> int:
        return self._spreader.pending_bytes

    def send(self, units: Units, origin: Origin, done: Sent) -> None:
        self._spreader.send(units, origin, done)

    def fragment_for(self, message: Incoming, near: int, number: int) -> Fragment:
        return self._spreader.fragment_for(message, near, number)

    async def send_unit(self, messages: list[Incoming], origin: Origin) -> list[int]:
        return await self._spreader.send_unit(messages, origin)

    async def schedule(self, messages: list[Incoming], origin: Origin) -> list[int]:
        return await self._spreader.schedule(
            messages, origin, lambda numbers: self.mailbox().cancel_scheduled(numbers, origin)
        )


def _send(fragment: Fragment, units: Units, origin: Origin) -> Send:
    return Send(queue=fragment.number(SubQueue.MAIN), origin=origin, units=units)


class PartitionedTopic(Topic):
    """A topic in fragments; all its subscriptions are too, and rules are the same for all fragments."""

    def __init__(
        self,
        entity: int,
        description: TopicDescription,
        fragments: tuple[Fragment, ...],
        reader: RecordReader,
        clock: Clock,
        new_id: Callable[[], UUID],
    ) -> None:
        super().__init__(entity, description, fragments[0].store_index, fragments[0].store, reader, clock, new_id)
        self.fragments = fragments
        self._spreader = Spreader(fragments, lambda: self.description.requires_duplicate_detection, self._publish)

    @property
    def pending_bytes(self) -> int:
        return self._spreader.pending_bytes

    def send(self, units: Units, origin: Origin, done: Sent) -> None:
        self._spreader.send(units, origin, done)

    def fragment_for(self, message: Incoming, near: int, number: int) -> Fragment:
        return self._spreader.fragment_for(message, near, number)

    async def send_unit(self, messages: list[Incoming], origin: Origin) -> list[int]:
        return await self._spreader.send_unit(messages, origin)

    async def schedule(self, messages: list[Incoming], origin: Origin) -> list[int]:
        return await self._spreader.schedule(
            messages, origin, lambda numbers: self.mailbox().cancel_scheduled(numbers, origin)
        )

    def _publish(self, fragment: Fragment, units: Units, origin: Origin) -> Publish:
        publications = [[self._publication_in(fragment, message) for message in unit] for unit in units]
        return Publish(queue=fragment.number(SubQueue.MAIN), origin=origin, units=publications)

    def _publication_in(self, fragment: Fragment, message: Incoming) -> Publication:
        """The same fragment of each subscription has a number as far behind its first."""
        publication = self._publication(message)
        shift = fragment.index * 4
        return publication._replace(copies=[copy._replace(queue=copy.queue + shift) for copy in publication.copies])

    def deliver(self, messages: list[Delivered]) -> None:
        """Publish what waited, in the fragment in which it waited."""
        by_fragment: dict[int, list[Delivered]] = {}
        for message in messages:
            index = fragment_of_token(message.token)
            assert index is not None
            by_fragment.setdefault(index, []).append(
                message._replace(
                    sequence_number=message.sequence_number & NUMBER_MASK, token=inner_token(message.token)
                )
            )
        for index, waited in by_fragment.items():
            self._publish_due(waited, self.fragments[index])
