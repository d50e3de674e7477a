"""A link on which a client sends: deliveries become messages, go to the queue, and are settled once they are durable.

Back-pressure is credit, the session's window and `server-busy`; the gateway never ceases to read, because a client
whose writes stall gives its connection up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from twinbus.amqp.link import Link
from twinbus.amqp.performatives import ACCEPTED, Rejected
from twinbus.entities.entity import AnyEntity, SendResult
from twinbus.gateway.node import Node
from twinbus.model import limits
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, Origin
from twinbus.model.security import Rights
from twinbus.wire import message as wire_message

if TYPE_CHECKING:
    from twinbus.gateway.connection import ClientConnection

CREDIT = 2000
# Bytes that wait for one store's commit: above the first the session's window stays shut, above the second sends are
# refused.
HOLD_BYTES = 32 * 1024 * 1024
BUSY_BYTES = 64 * 1024 * 1024

Delivery = tuple[int, bytes, int, bool, bytes]


class Ingress(Node):
    """The broker's end of a sending client's link."""

    right = Rights.SEND

    def __init__(self, connection: ClientConnection, link: Link, entity: AnyEntity, path: str) -> None:
        self.connection = connection
        self.link = link
        self.entity = entity
        self.path = path
        self.origin = Origin(connection.label, link.name)
        self._context = connection.context
        self._suffering = connection.context.namespace.suffering
        self._bytes_max = entity.message_bytes_max
        self._under_way = 0  # Deliveries that a store has and that have no outcome yet.
        entity.links += 1

    @property
    def owes_answers(self) -> bool:
        """Whether deliveries are on their way to disk."""
        return self._under_way > 0

    def received(self, items: list[Delivery]) -> None:
        """Take the complete deliveries of one read."""
        if self.connection.gateway.is_closing:
            return  # They get no outcome, and certainly are not stored.
        entity = self.entity
        entity.accessed_at_ms = now_ms = self._context.clock.now_ms()
        refused = self._standing_refusal(now_ms)
        if refused is not None:
            for delivery_id, _, _, settled, _ in items:
                self.refuse(delivery_id, settled, refused)
            return
        ceiling = entity.ttl_ceiling_ms
        new_id = self._context.new_id
        check = entity.check_messages if entity.requires_session else None
        units: list[list[Incoming]] = []
        ids: list[int | None] = []
        for delivery_id, _, message_format, settled, payload in items:
            try:
                if len(payload) > (limits.BATCH_BYTES_MAX if message_format else self._bytes_max):
                    raise _too_large(len(payload), self._bytes_max)
                unit = wire_message.read(payload, message_format, ttl_ceiling_ms=ceiling, new_id=new_id)
                if check is not None:
                    check(unit)
                if self._suffering.visible_after_ms:
                    unit = [message.delayed_until(now_ms + self._suffering.visible_after_ms) for message in unit]
            except BusError as error:
                self.refuse(delivery_id, settled, error)
                continue
            if unit[0].is_ping or (len(unit) > 1 and any(message.is_ping for message in unit)):
                pings = [message for message in unit if message.is_ping]
                unit = [message for message in unit if not message.is_ping]
                if not unit:
                    self._under_way += 1
                    entity.ping(pings, self.origin, partial(self._stored, [None if settled else delivery_id]))
                    continue
                entity.ping(pings, self.origin, _unheard)  # The messages that they came with get the answer.
            units.append(unit)
            ids.append(None if settled else delivery_id)
        if units:
            self._under_way += len(ids)
            entity.send(units, self.origin, partial(self._stored, ids))

    def _standing_refusal(self, now_ms: int) -> BusError | None:
        """Why nothing can be accepted at the moment, if so."""
        try:
            self._suffering.check_not_throttled()
            self.entity.check_may_send()
        except BusError as error:
            return error
        pending = self.entity.pending_bytes
        if pending > HOLD_BYTES:
            self.link.session.hold = True
        if pending > BUSY_BYTES:
            return BusError(
                Fault.SERVER_BUSY, "The messaging store has more to write than it can take; retry in ten seconds."
            )
        return None

    def oversized(self, delivery_id: int, settled: bool, size: int) -> None:
        """A delivery grew beyond what is kept; the link goes on."""
        self.refuse(delivery_id, settled, _too_large(size, self._bytes_max))

    def refuse(self, delivery_id: int, settled: bool, error: BusError) -> None:
        """Reject a delivery; a pre-settled one gets no outcome but is counted and journaled with its tracking id."""
        self._context.counters["messages_rejected"] += 1
        if settled:
            tracking_id = self._context.new_id()
            self._context.record_refusal(error, self.path, "pre-settled send", tracking_id)
            self._context.counters["messages_presettled_dropped"] += 1
            mailbox = self.entity.mailbox()
            self._context.namespace.note(mailbox, "send", error.fault.value, self.origin, tracking_id=tracking_id)
            return
        state = Rejected(self._context.refusal(error, self.path, "send"))
        self.link.session.settle([delivery_id], state, self.link.role)
        self._replenish()

    def _stored(self, ids: list[int | None], results: list[SendResult], which: Sequence[int] | None = None, /) -> None:
        """The commit is on disk, or failed: tell the sender. Commits of other stores may follow."""
        self._under_way -= len(results)
        if self._suffering.loses_answers:
            self.connection.abort()
            return
        if which is not None:
            ids = [ids[position] for position in which]
        accepted: list[int] = []
        messages = 0
        for delivery_id, result in zip(ids, results, strict=True):
            if isinstance(result, BusError):
                self.refuse(delivery_id or 0, delivery_id is None, result)
                continue
            messages += len(result)
            if delivery_id is not None:
                accepted.append(delivery_id)
        self._context.counters["messages_accepted"] += messages
        if accepted:
            self.link.session.settle(accepted, ACCEPTED, self.link.role)
        if self.link.session.hold and self.entity.pending_bytes < HOLD_BYTES // 2:
            self.link.session.hold = False
        self._replenish()
        self.connection.mark_dirty()

    def _replenish(self) -> None:
        if self.link.credit_left < CREDIT // 2 and not self.link.session.hold:
            self.link.grant(CREDIT)

    def closed(self) -> None:
        """The link is gone; what was submitted is committed all the same."""
        self.entity.links -= 1


def _unheard(results: list[SendResult], which: Sequence[int] | None = None, /) -> None:
    """Nobody waits for this answer."""


def _too_large(size: int, most: int) -> BusError:
    return BusError(Fault.MESSAGE_TOO_LARGE, f"The message has {size} bytes; at most {most} are allowed.")
