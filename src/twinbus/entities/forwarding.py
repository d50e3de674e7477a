"""Forwarding: a receiver of the broker's own for each queue whose messages go on to another entity by themselves.

Send, then complete: on one store both are one transaction, between stores the destination remembers each message until
its source has completed it. Whether an entity may forward to another is `chains`' business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from twinbus.entities.entity import AnyEntity
from twinbus.entities.feed import ACQUIRE_MAX, UNBOUNDED
from twinbus.entities.fragments import Fragment
from twinbus.entities.mailbox import Answers, Mailbox
from twinbus.entities.partitions import NUMBER_MASK, fragment_of_token, inner_token
from twinbus.entities.ports import RecordReader
from twinbus.model.address import SubQueue
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.failpoints import failpoint
from twinbus.model.logged import EventLog
from twinbus.model.message import Delivered, Incoming, Origin, Outcome, ReceiveMode, Settlement
from twinbus.store.commands import Forget, Publish, Send, Transfer

_log = EventLog(__name__)

FORWARD = Origin("", "forward")
HOPS_MAX = 4
TOO_MANY_HOPS = "MaxTransferHopCountExceeded"
NO_SESSION = "Session id is null."
RETRY_MS = 500
RETRY_MS_MAX = 8_000

Find = Callable[[str], AnyEntity | None]

# Why a message ends in the transfer dead-letter queue, named as the service names its exceptions.
_REASONS = {
    Fault.ENTITY_DELETED: "MessagingEntityNotFoundException",
    Fault.ENTITY_DISABLED: "MessagingEntityDisabledException",
    Fault.ENTITY_NOT_FOUND: "MessagingEntityNotFoundException",
    Fault.MESSAGE_TOO_LARGE: "MessageSizeExceededException",
    Fault.QUOTA_EXCEEDED: "QuotaExceededException",
}
_OTHER_REASON = "InvalidOperationException"
# Of a whole command, these say that there is no destination; with any other fault it is tried again.
_NO_DESTINATION = (Fault.ENTITY_DELETED, Fault.ENTITY_NOT_FOUND)


class _Move(NamedTuple):
    """One message on its way to a fragment of the destination."""

    message: Delivered
    incoming: Incoming
    transfer: Transfer
    destination: Fragment


class Forwarder:
    """The receiver of one queue that forwards. It takes the next messages when the last ones have arrived."""

    mode = ReceiveMode.PEEK_LOCK
    owner = 0
    holder = 0
    session: str | None = None
    origin = FORWARD
    bounds = UNBOUNDED

    def __init__(
        self, source: AnyEntity, sub_queue: SubQueue, target: str, find: Find, reader: RecordReader, clock: Clock
    ) -> None:
        self.source = source
        self.sub_queue = sub_queue
        self.target = target
        self.mailbox: Mailbox = source.mailbox(sub_queue)
        self.retry_at_ms: int | None = None  # It waits, because something was not available.
        self._find = find
        self._reader = reader
        self._clock = clock
        self._is_open = True
        self._batches = 0  # On their way.
        self._failures = 0

    # What the feed asks

    def demand(self) -> int:
        """As many as there are, unless the last ones are still on their way."""
        waits = self._batches > 0 or self.retry_at_ms is not None or not self._is_open
        return 0 if waits or not self.source.status.may_receive else ACQUIRE_MAX

    def deliver(self, messages: list[Delivered]) -> None:
        """Send messages on."""
        if messages:
            self._batches += 1
            _Batch(self, messages).begin()

    def failed(self, error: BusError) -> None:
        """Messages cannot be had now; they are safe."""
        self._wait(error)

    # Coming, waiting and going

    def pull(self) -> None:
        """Take what there is, now or when there is something."""
        self.retry_at_ms = None
        self.mailbox.feed.pull(self)

    def end(self) -> None:
        """Forward nothing more; what is on its way arrives."""
        self._is_open = False
        self.mailbox.feed.leave(self)

    def _wait(self, error: BusError) -> None:
        if self._failures == 0:
            _log.warning(
                "forwarding.waiting",
                "forwarding from '{entity}' to '{target}' waits: {error}",
                entity=self.source.path,
                target=self.target,
                error=error.text,
            )
        delay_ms = min(RETRY_MS << min(self._failures, 10), RETRY_MS_MAX)
        self._failures += 1
        self.retry_at_ms = self._clock.now_ms() + delay_ms

    def finished(self, problem: BusError | None) -> None:
        """A batch is through, as far as it could go."""
        self._batches -= 1
        if not self._is_open:
            return
        if problem is not None:
            self._wait(problem)
        elif self.retry_at_ms is None:
            self._failures = 0
            if self._batches == 0:
                self.mailbox.feed.pull(self)

    # What becomes of one message

    def destination(self) -> AnyEntity:
        """Where messages go; raises why they cannot."""
        target = self._find(self.target)
        if target is None:
            raise BusError(Fault.ENTITY_NOT_FOUND, f"The destination '{self.target}' does not exist.")
        target.check_may_send()
        target.accessed_at_ms = self._clock.now_ms()
        return target

    def has_too_many_hops(self, message: Delivered) -> bool:
        """Whether a message has come too far. A dead letter begins anew."""
        return self.sub_queue is SubQueue.MAIN and self._reader.hops(message.record) >= HOPS_MAX

    def move(self, message: Delivered, target: AnyEntity) -> _Move | None:
        """How a message gets to the destination; None if its lock is over. Raises why the destination refuses it."""
        if self.sub_queue is SubQueue.MAIN:
            record = self._reader.forwarded(message)
        else:
            record = self._reader.forwarded_dead_letter(message, self.source.path)
        ttl_ms, ceiling_ms = self._reader.ttl_ms(record), target.ttl_ceiling_ms
        if ttl_ms is None or (ceiling_ms is not None and ceiling_ms < ttl_ms):
            ttl_ms = ceiling_ms
        key = self._reader.partition_key(record) if target.is_partitioned else None
        incoming = Incoming(record, message.message_id, message.session_id, ttl_ms, None, key)
        target.check_messages([incoming])
        place = self.source.fragments[fragment_of_token(message.token) or 0]
        number = message.sequence_number & NUMBER_MASK
        destination = target.fragment_for(incoming, place.store_index, number)
        token = inner_token(message.token)
        if destination.store_index != place.store_index:
            # Somebody else may hold it by now, and have the destination forget it before this arrives.
            if message.locked_until_ms <= self._clock.now_ms():
                return None
            token = b""
        transfer = Transfer(place.number(self.sub_queue), number, token)
        return _Move(message, incoming, transfer, destination)


class _Batch:
    """Messages of one acquire: all are sent; then what could not be sent is settled, what was is completed."""

    def __init__(self, forwarder: Forwarder, messages: list[Delivered]) -> None:
        self._forwarder = forwarder
        self._messages = messages
        self._steps = 0  # Answers that are still to come.
        self._settlements: list[Settlement] = []
        self._arrived: list[_Move] = []  # On another store: still to be completed here.
        self._problem: BusError | None = None  # Why it has to be tried again.

    def begin(self) -> None:
        """Send everything that can be sent."""
        try:
            target = self._forwarder.destination()
        except BusError as error:
            for message in self._messages:
                self._refuse(message, error)
            self._settle()
            return
        lots: dict[int, list[_Move]] = {}
        for message in self._messages:
            if self._forwarder.has_too_many_hops(message):
                text = f"The message was forwarded {HOPS_MAX} times, and may not be once more to '{target.path}'."
                self._settlements.append(
                    Settlement(message.token, Outcome.DEAD_LETTER, reason=TOO_MANY_HOPS, description=text)
                )
                continue
            try:
                move = self._forwarder.move(message, target)
            except BusError as error:
                self._refuse(message, error, no_session=target.requires_session and message.session_id is None)
                continue
            if move is not None:
                lots.setdefault(move.destination.index, []).append(move)
        self._steps = len(lots)
        for index, lot in lots.items():
            messages, transfers = [move.incoming for move in lot], [move.transfer for move in lot]
            fragment = target.fragments[index]
            command = target.arrival(fragment, messages, transfers, FORWARD)
            command.done = partial(self._sent, lot)
            fragment.store.submit(command)
        if not lots:
            self._settle()

    def _sent(self, lot: list[_Move], command: Send | Publish) -> None:
        error = command.error
        if error is not None and error.fault not in _NO_DESTINATION:
            self._problem = error
            self._settlements += [Settlement(move.message.token, Outcome.RELEASE) for move in lot]
        else:
            results: Sequence[list[int] | BusError] = command.result if error is None else [error] * len(lot)
            for move, result in zip(lot, results, strict=True):
                if not isinstance(result, BusError):
                    if not move.transfer.token:
                        self._arrived.append(move)
                elif result.fault is not Fault.LOCK_LOST:  # It is back in its queue, and comes again.
                    self._refuse(move.message, result)
        self._steps -= 1
        if self._steps == 0:
            self._settle()

    def _refuse(self, message: Delivered, error: BusError, no_session: bool = False) -> None:
        reason = NO_SESSION if no_session else _REASONS.get(error.fault, _OTHER_REASON)
        self._settlements.append(
            Settlement(message.token, Outcome.TRANSFER_DEAD_LETTER, reason=reason, description=error.text)
        )

    def _settle(self) -> None:
        mailbox = self._forwarder.mailbox
        self._steps = len(self._settlements) + len(self._arrived)
        if self._steps == 0:
            self._forwarder.finished(self._problem)
            return
        if self._settlements:
            mailbox.settle(self._settlements, FORWARD, self._settled)
        if self._arrived:
            failpoint("forwarding.before_complete")
            mailbox.complete([move.message.token for move in self._arrived], FORWARD, self._completed)

    def _settled(self, answers: Answers, which: Sequence[int] | None = None) -> None:
        self._step(len(answers))

    def _completed(self, answers: Answers, which: Sequence[int] | None = None) -> None:
        """What is gone from its source need not be remembered at its destination any more."""
        places = range(len(answers)) if which is None else which
        done = [self._arrived[place] for place, error in zip(places, answers, strict=True) if error is None]
        by_queue: dict[tuple[int, int], list[int]] = {}
        stores = {}
        for move in done:
            fragment = move.destination
            stores[fragment.store_index] = fragment.store
            by_queue.setdefault((fragment.store_index, move.transfer.queue), []).append(move.transfer.sequence_number)
        for (store_index, queue), numbers in by_queue.items():
            stores[store_index].submit(Forget(queue=queue, origin=FORWARD, sequence_numbers=numbers))
        self._step(len(answers))

    def _step(self, count: int) -> None:
        self._steps -= count
        if self._steps == 0:
            self._forwarder.finished(self._problem)


class Forwarding:
    """All forwarders of a namespace."""

    def __init__(self, find: Find, reader: RecordReader, clock: Clock) -> None:
        self._find = find
        self._reader = reader
        self._clock = clock
        self._forwarders: dict[tuple[int, SubQueue], Forwarder] = {}

    def refresh(self, entity: AnyEntity) -> None:
        """An entity was made, or its description changed.

        At a start its destination may not be known yet; it will be when a store gives the first messages.
        """
        for sub_queue in (SubQueue.MAIN, SubQueue.DEAD_LETTER):
            key, target = (entity.id, sub_queue), entity.forwards_to(sub_queue)
            known = self._forwarders.get(key)
            if known is not None and known.target != target:
                known.end()
                del self._forwarders[key]
                known = None
            if target is not None and known is None:
                known = Forwarder(entity, sub_queue, target, self._find, self._reader, self._clock)
                self._forwarders[key] = known
            if known is not None:
                known.pull()

    def end(self, entity: AnyEntity) -> None:
        """An entity is gone."""
        for sub_queue in (SubQueue.MAIN, SubQueue.DEAD_LETTER):
            known = self._forwarders.pop((entity.id, sub_queue), None)
            if known is not None:
                known.end()

    def retry(self) -> None:
        """Go on where the time for it has come; the broker calls this about twice a second."""
        now_ms = self._clock.now_ms()
        for forwarder in self._forwarders.values():
            if forwarder.retry_at_ms is not None and forwarder.retry_at_ms <= now_ms:
                forwarder.pull()

    def retry_all(self) -> None:
        """Go on everywhere, because something has become available."""
        for forwarder in self._forwarders.values():
            if forwarder.retry_at_ms is not None:
                forwarder.pull()
