"""A link on which a client receives: demand comes from its credit, messages go out stamped, decisions come back.

Which message is next, and who holds which lock, the store knows; this link knows delivery ids and how to answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from twinbus.amqp.link import Link
from twinbus.amqp.performatives import ACCEPTED, Accepted, Rejected
from twinbus.entities.entity import AnyEntity
from twinbus.entities.feed import UNBOUNDED, Bounds
from twinbus.entities.mailbox import Answers, lock_error
from twinbus.gateway.node import Node
from twinbus.gateway.unsettled import Unsettled
from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError
from twinbus.model.message import Delivered, Origin, Outcome, ReceiveMode, Settlement
from twinbus.model.security import Rights
from twinbus.wire import delay, outcomes
from twinbus.wire import message as wire_message

if TYPE_CHECKING:
    from twinbus.gateway.connection import ClientConnection

INSPECTED_AT_ONCE = 100
TRANSFER_BYTES = 64  # What a frame has in front of a piece of a message, with the longest tag.
Decision = tuple[int, bytes, Any, bool]  # delivery id, tag, state, settled
Decided = tuple[int | None, Settlement, dict[str, Any] | None]  # whom to answer, what, changed properties
# Settled without an outcome, and without a default in the source: the client gives the message up untouched.
UNDECIDED = outcomes.Decision(Outcome.RELEASE)


class Egress(Node):
    """The broker's end of a receiving client's link; a `Receiver` of its queue's feed."""

    right = Rights.LISTEN

    def __init__(
        self,
        connection: ClientConnection,
        link: Link,
        entity: AnyEntity,
        sub_queue: int,
        path: str,
        mode: ReceiveMode,
        undecided: outcomes.Decision | None = None,
    ) -> None:
        self.connection = connection
        self.link = link
        self.entity = entity
        self.path = path
        self.mode = mode
        self.owner = connection.number
        self.holder = connection.context.next_number()
        self.session: str | None = None
        self.origin = Origin(connection.label, link.name)
        self.sub_queue = sub_queue
        self.mailbox = entity.mailbox(sub_queue)
        self.feed = self.mailbox.feed
        self.is_open = True
        self._context = connection.context
        self._draining = False
        self._polled = False  # The client asked since the last answer: an empty one is an operation too.
        self._asked_to = 0  # How many deliveries, since the link is open, its requests add up to.
        self._undecided = undecided or UNDECIDED
        self._unsettled = Unsettled(link.session)
        self._waits_for_room = False
        # In sessions and sub-queues the order counts for more than a delay.
        self._may_delay = sub_queue == SubQueue.MAIN and not entity.requires_session
        self._outlet = connection.outlet
        self._deletes = mode is ReceiveMode.RECEIVE_AND_DELETE
        self._frame_bytes = max(link.session.max_frame_size - TRANSFER_BYTES, 1)
        self._outlet.deleting_links += self._deletes
        entity.links += 1

    def check_may_stay(self) -> None:
        """Refuse the link where nobody may receive any more."""
        self.entity.check_may_take(self.sub_queue)

    # What the feed asks

    def demand(self) -> int:
        """The credit that can be served now."""
        if not self.is_open:
            return 0
        sendable = self.link.sendable
        if sendable <= 0:
            return 0
        now_ms = self._context.clock.now_ms()
        room = self._unsettled.room(now_ms)
        if room <= 0:
            self._wait_for_room(now_ms)
        return min(sendable, room, self._outlet.frames(self, self.link.session))

    @property
    def bounds(self) -> Bounds:
        """What is deleted must fit the session's window and the output buffer; what is locked may wait for them."""
        return Bounds(self._outlet.bytes_for_each(), self._frame_bytes) if self._deletes else UNBOUNDED

    @property
    def frames_under_way(self) -> int:
        """What the feed was asked for."""
        return self.feed.asked_for(self) if self.is_open else 0

    def _wait_for_room(self, now_ms: int) -> None:
        """Too much is unsettled: look again when the oldest lock has ended, if nothing is settled before."""
        end_ms = self._unsettled.next_end_ms
        if end_ms is not None and not self._waits_for_room:
            self._waits_for_room = True
            self.connection.later(max(end_ms - now_ms, 0) / 1000 + 0.05, self._has_room)

    def _has_room(self) -> None:
        self._waits_for_room = False
        self.feed.pull(self)

    def deliver(self, messages: list[Delivered]) -> None:
        """Put messages on the wire."""
        link = self.link
        settled = self._deletes
        self.entity.accessed_at_ms = self._context.clock.now_ms()
        if not settled and link.credit < len(messages):
            self.feed.give_back(messages[link.credit :], self.origin)
            messages = messages[: link.credit]
        if self.sub_queue == SubQueue.MAIN:  # Dead letters live for ever, and tell what the sender said.
            messages = wire_message.within_ttl(messages, self.entity.told_ttl_ceiling_ms)
        stamp = wire_message.stamp
        transfer = link.transfer
        if settled:
            for message in messages:
                transfer(message.token, stamp(message, locked=False), True)
        else:
            out = self._unsettled.add
            for message in messages:
                out(transfer(message.token, stamp(message, locked=True), False), message.locked_until_ms)
        if not messages and self._polled:
            self._context.namespace.note(self.mailbox, "receive", "empty", self.origin)
        self._polled = False
        if settled:
            self.connection.flush()  # So that the next look at the output buffer sees it.
        self._outlet.fetched(self, link.session)
        if self._draining and messages:
            self.feed.pull(self)  # One acquire brings only so many.
        self._end_drain()
        self.connection.mark_dirty()

    def failed(self, error: BusError) -> None:
        """The queue cannot serve this link any more."""
        if self.is_open:
            self.link.detach(self._context.refusal(error, self.path, "receive"))
            self.closed()
            self.connection.mark_dirty()

    # What the client says

    def flow(self) -> None:
        """Credit or drain changed."""
        self._draining = self.link.drain
        if self._draining and self.link.credit <= 0 and not self.feed.is_busy(self):
            self._draining = False
            self.link.drained()
            return
        asked_to = self.link.delivery_count + self.link.credit
        # Taking back what is left of a request is no request of its own, and not billed twice.
        self._polled = self.link.credit > 0 and asked_to != self._asked_to
        self._asked_to = asked_to
        self.feed.pull(self)
        self._end_drain()

    def _end_drain(self) -> None:
        """A drain is over when nothing more is there: not while the store is asked, or nothing can be sent."""
        if not self._draining or self.feed.is_busy(self):
            return
        if self.link.credit <= 0 or self._outlet.frames(self, self.link.session) > 0:
            self._draining = False
            self.link.drained()

    def resume(self) -> None:
        """The connection can be written to again, or there is room in the session's window."""
        self.feed.pull(self)
        if self._draining:
            self._end_drain()
            self.connection.mark_dirty()

    def decided(self, items: Sequence[Decision]) -> None:
        """The client settled deliveries: hand its decisions to the store; answers follow the commit."""
        completed: list[bytes] = []
        ids: list[int | None] = []
        others: list[Decided] = []
        for delivery_id, tag, state, settled in items:
            if type(state) is Accepted:
                completed.append(tag)
                ids.append(None if settled else delivery_id)
                continue
            answer = None if settled else delivery_id
            try:
                decision = outcomes.read(state)
                delay_ms = _delay_ms(decision)
            except BusError as error:
                self._answer(answer, error, Outcome.RELEASE)
                continue
            if decision is None:
                if not settled:
                    continue  # Undecided as yet.
                decision = self._undecided
            settlement = Settlement(tag, decision.outcome, None, decision.reason, decision.description, delay_ms)
            looked_at = decision.outcome is Outcome.ABANDON and not delay_ms and self._may_delay
            others.append((answer, settlement, (decision.changes or {}) if decision.changes or looked_at else None))
        if completed:
            self.mailbox.complete(completed, self.origin, partial(self._completed, ids))
        plain = [item for item in others if item[2] is None]
        if plain:
            self._settle(plain)
        looked_at_first = [item for item in others if item[2] is not None]
        for start in range(0, len(looked_at_first), INSPECTED_AT_ONCE):
            self._context.start(self._settle_changed(looked_at_first[start : start + INSPECTED_AT_ONCE]))

    def _settle(self, items: list[Decided]) -> None:
        answers = [(answer, settlement.outcome) for answer, settlement, _ in items]
        self.mailbox.settle([item[1] for item in items], self.origin, partial(self._settled, answers))

    async def _settle_changed(self, items: list[Decided]) -> None:
        """Changed properties need the message's own, and so does its own delay: read it, merge, then settle."""
        try:
            messages = await self.mailbox.inspect([settlement.token for _, settlement, _ in items], self.origin)
        except BusError as error:
            self._settled([(answer, settlement.outcome) for answer, settlement, _ in items], [error] * len(items))
            return
        ready: list[Decided] = []
        for (answer, settlement, changes), message in zip(items, messages, strict=True):
            if message is not None and changes:
                try:
                    overlay = wire_message.merge_properties(message.record, message.overlay, changes)
                except BusError as error:
                    self._answer(answer, error, settlement.outcome)
                    continue
                settlement = settlement._replace(overlay=overlay)
                message = message._replace(overlay=overlay)
            if message is not None and settlement.outcome is Outcome.ABANDON and not settlement.delay_ms:
                settlement = settlement._replace(delay_ms=delay.own_ms(message))
            ready.append((answer, settlement, None))
        self._settle(ready)
        self.connection.mark_dirty()

    def _completed(self, ids: list[int | None], answers: Answers, which: Sequence[int] | None = None, /) -> None:
        if which is not None:
            ids = [ids[position] for position in which]
        self._unsettled.settled(len(ids))
        done: list[int] = []
        for delivery_id, error in zip(ids, answers, strict=True):
            if error is not None:
                self._answer(delivery_id, error, Outcome.COMPLETE)
            elif delivery_id is not None:
                done.append(delivery_id)
        if done:
            self.link.session.settle(done, ACCEPTED, self.link.role)
        self._go_on()

    def _settled(
        self, waiting: list[tuple[int | None, Outcome]], answers: Answers, which: Sequence[int] | None = None, /
    ) -> None:
        if which is not None:
            waiting = [waiting[position] for position in which]
        self._unsettled.settled(len(waiting))
        for (delivery_id, outcome), error in zip(waiting, answers, strict=True):
            self._answer(delivery_id, error, outcome)
        self._go_on()

    def _answer(self, delivery_id: int | None, error: BusError | None, outcome: Outcome) -> None:
        """Echo the outcome's kind for success; an error inside `rejected` is failure to every client."""
        if error is not None:
            error = lock_error(error, self.session is not None)
        if delivery_id is None:
            if error is not None:
                self._context.record_refusal(error, self.path, "settle", self._context.new_id())
            return
        answer = (
            outcomes.echo(outcome) if error is None else Rejected(self._context.refusal(error, self.path, "settle"))
        )
        self.link.session.settle([delivery_id], answer, self.link.role)
        self.connection.mark_dirty()

    def _go_on(self) -> None:
        self.connection.mark_dirty()
        if self.is_open and self.link.credit > 0:
            self.feed.pull(self)

    def closed(self) -> None:
        """The link is gone. Its locks stay until they expire; a session goes back at once."""
        self._leave(gives_session_back=True)

    def stopped(self) -> None:
        """A restart drops the session's lock like every other: the next start counts its deliveries."""
        self._leave(gives_session_back=False)

    def _leave(self, gives_session_back: bool) -> None:
        if self.is_open:
            self.is_open = False
            self.feed.leave(self, gives_session_back)
            self.entity.links -= 1
            self._outlet.deleting_links -= self._deletes
            self._outlet.fetched(self, self.link.session)


def _delay_ms(decision: outcomes.Decision | None) -> int:
    """How long an abandon says that the message is to wait."""
    if decision is None or decision.outcome is not Outcome.ABANDON or not decision.changes:
        return 0
    return delay.take_ms(decision.changes)
