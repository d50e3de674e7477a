"""A link on which a client looks at messages without taking them: its source says `distribution-mode=copy`.

It gets the active messages from the head on, each once, as its credit and its session's window allow, then those that
arrive. Nothing is locked, counted or removed, whatever the client says of a copy. Where it has got to, the cursor
knows; messages that are received are `egress`' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.amqp.events import Settlement
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import Rejected
from twinbus.entities.browsing import Cursor
from twinbus.entities.entity import AnyEntity
from twinbus.gateway.node import Node
from twinbus.model import limits
from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError
from twinbus.model.message import Delivered, Origin
from twinbus.model.security import Rights
from twinbus.wire import message as wire_message
from twinbus.wire import outcomes

if TYPE_CHECKING:
    from twinbus.gateway.connection import ClientConnection

SND_UNSETTLED = 0


class Browsing(Node):
    """The broker's end of a browser's link."""

    right = Rights.LISTEN

    def __init__(
        self,
        connection: ClientConnection,
        link: Link,
        entity: AnyEntity,
        sub_queue: int,
        path: str,
        session: str | None,
    ) -> None:
        self.connection = connection
        self.link = link
        self.entity = entity
        self.path = path
        self.sub_queue = sub_queue
        self.mailbox = entity.mailbox(sub_queue)
        self.origin = Origin(connection.label, link.name)
        self.is_open = True
        self._cursor = Cursor(self.mailbox, session)
        self._settled = link.snd_settle_mode != SND_UNSETTLED
        self._outlet = connection.outlet
        self._under_way = 0
        self._is_looking = False
        self._has_news = False  # Since the last look: more credit, or more messages.
        self._polled = False  # The client asked since the last look: to find nothing is an operation too.
        self._draining = False
        entity.links += 1
        self.mailbox.feed.watch(self.resume)

    def check_may_stay(self) -> None:
        """Refuse the link while the entity is disabled. One that forwards can be looked at."""
        self.entity.check_may_receive()

    @property
    def frames_under_way(self) -> int:
        return self._under_way

    # What the client says

    def flow(self) -> None:
        """Credit or drain changed."""
        self._draining = self.link.drain
        self._polled = self.link.credit > 0
        self.resume()

    def resume(self) -> None:
        """There may be more to see, or more room for it."""
        self._has_news = True
        if self.is_open and not self._is_looking:
            self._is_looking = True
            self.connection.start(self._look_on())

    def decided(self, items: Sequence[Settlement]) -> None:
        """The client told what it did with copies: an answer is all that comes of it."""
        for delivery_id, _, state, settled in items:
            if settled:
                continue
            try:
                decision = outcomes.read(state)
            except BusError as error:
                answer = Rejected(self.connection.context.refusal(error, self.path, "settle"))
                self.link.session.settle([delivery_id], answer, self.link.role)
                continue
            if decision is not None:
                self.link.session.settle([delivery_id], outcomes.echo(decision.outcome), self.link.role)
        self.resume()

    # Looking

    def _demand(self) -> int:
        sendable = min(self.link.sendable, limits.PEEK_COUNT_MAX) if self.is_open else 0
        return min(sendable, self._outlet.frames(self, self.link.session)) if sendable > 0 else 0

    async def _look_on(self) -> None:
        """Show what there is, as far as there is room for it."""
        try:
            while self._has_news and (wanted := self._demand()) > 0:
                self._has_news = False
                self._under_way = wanted
                found = await self._cursor.look(wanted, self.origin)
                self._under_way = 0
                if self.is_open:
                    self._show(found)
                    self._has_news |= bool(found)
        except BusError as error:
            self._fail(error)
        finally:
            self._is_looking = False
            self._under_way = 0
        self._outlet.fetched(self, self.link.session)
        self._end_drain()
        self.connection.mark_dirty()

    def _show(self, found: list[Delivered]) -> None:
        context = self.connection.context
        self.entity.accessed_at_ms = context.clock.now_ms()
        if found or self._polled:
            context.namespace.note(self.mailbox, "peek", "ok" if found else "empty", self.origin)
        self._polled = False
        found = found[: self.link.sendable]  # The client may have taken credit back.
        self._cursor.passed(found)
        if self.sub_queue == SubQueue.MAIN:
            found = wire_message.within_ttl(found, self.entity.told_ttl_ceiling_ms)
        for message in found:
            tag = context.next_number().to_bytes(8, "big")
            self.link.transfer(tag, wire_message.stamp(message, locked=False), self._settled)

    def _end_drain(self) -> None:
        """A drain is over at the end of the queue, or of the credit; not while there is no room to send."""
        if not self._draining or not self.is_open or self._is_looking:
            return
        if self.link.credit <= 0 or self._demand() > 0:
            self._draining = False
            self.link.drained()

    def _fail(self, error: BusError) -> None:
        if self.is_open:
            self.link.detach(self.connection.context.refusal(error, self.path, "browse"))
            self.closed()

    def closed(self) -> None:
        """The link is gone."""
        if self.is_open:
            self.is_open = False
            self.mailbox.feed.unwatch(self.resume)
            self.entity.links -= 1
            self._outlet.fetched(self, self.link.session)
