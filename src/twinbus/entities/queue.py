"""One queue of the namespace: its description, and how a message gets into it.

Decides what the description decides; the store enforces the rest.
"""

from __future__ import annotations

from twinbus.entities.entity import MEGABYTE, Entity, Sent
from twinbus.entities.fragments import Fragment
from twinbus.model import limits
from twinbus.model.address import SubQueue, is_backlog
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, Origin
from twinbus.model.topic import SubscriptionDescription
from twinbus.store.commands import QueueSettings, Send, Transfer


def deliveries_of(description: QueueDescription | SubscriptionDescription) -> int:
    """How often a message may be delivered; forwarding is tried until it succeeds."""
    return limits.DELIVERY_COUNT_MAX if description.forward_to is not None else description.max_delivery_count


def settings_of(description: QueueDescription) -> QueueSettings:
    """What the store needs to know of a description."""
    return QueueSettings(
        lock_duration_ms=description.lock_duration_ms,
        max_delivery_count=deliveries_of(description),
        dead_letter_on_expiry=description.dead_letter_on_expiration,
        duplicate_window_ms=description.duplicate_window_ms if description.requires_duplicate_detection else 0,
        requires_session=description.requires_session,
        max_size_bytes=description.max_size_mb * MEGABYTE,
        keyed_duplicates=description.partitioned,
    )


class Queue(Entity[QueueDescription]):
    """A queue that exists."""

    kind = "Queue"

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def path(self) -> str:
        return self.description.name

    @property
    def message_bytes_max(self) -> int:
        """A backlog queue of a paired namespace has room for what a diverted message carries in addition."""
        room = limits.BACKLOG_ROOM_BYTES if is_backlog(self.name) else 0
        return limits.MESSAGE_BYTES_MAX + room

    @property
    def requires_session(self) -> bool:
        return self.description.requires_session

    def check_messages(self, messages: list[Incoming]) -> None:
        """Refuse what this queue does not take: no session id where sessions are required."""
        if self.requires_session and any(m.session_id is None for m in messages):
            raise BusError(Fault.NOT_ALLOWED, f"Queue '{self.name}' requires sessions; the message has no session id.")

    def send(self, units: list[list[Incoming]], origin: Origin, done: Sent) -> None:
        """Store units of messages."""

        def finished(command: Send) -> None:
            done(command.result if command.error is None else [command.error] * len(units))

        self.store.submit(Send(queue=self.number(), origin=origin, units=units, done=finished))

    def arrival(self, fragment: Fragment, messages: list[Incoming], transfers: list[Transfer], origin: Origin) -> Send:
        """What stores messages that come from other queues."""
        units = [[message] for message in messages]
        return Send(queue=fragment.number(SubQueue.MAIN), origin=origin, units=units, transfers=transfers)

    async def send_unit(self, messages: list[Incoming], origin: Origin) -> list[int]:
        """Store one unit and wait."""
        command = await self.store.call(Send(queue=self.number(), origin=origin, units=[messages]))
        result = command.result[0]
        if isinstance(result, BusError):
            raise result
        return result
