"""What a paired sender does in both flavours alike: the SDK's messages on their way to the carrier.

Over a healthy link a send is the SDK's own and nothing else (`goes_direct`); everything else, and what follows a
failure, is the carrier's work, on the pair's loop. The flavours (`sync`, `aio`) add how to wait.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from azure.servicebus import ServiceBusMessageBatch

from twinbus.client.errors import ClientError
from twinbus.client.messages import read
from twinbus.pair import tracing
from twinbus.pair.ending import check_open
from twinbus.pair.errors import BacklogError, NotWhileDivertedError
from twinbus.pair.outbox.rows import Queued, identified
from twinbus.pair.route.carrier import Carried, Carrier, Failed, Sending, order_key_of
from twinbus.pair.route.failures import Failure, kind_of
from twinbus.pair.sdk import messages as sdk

if TYPE_CHECKING:
    from twinbus.pair.namespace.port import RemoteNamespace


# A primary that fails so may be there in a moment; a sender is not refused for it.
_PASSING = (Failure.TIMEOUT, Failure.TRANSIENT, Failure.BUSY)
LEAST_S = 0.001


class PairedSending:
    """How one sender of the SDK is used for a pair."""

    def __init__(
        self, carrier: Carrier, primary: RemoteNamespace, secondary: RemoteNamespace, sending: Sending, sender: Any
    ) -> None:
        """`sender` is the SDK's own."""
        self._carrier = carrier
        self._primary = primary
        self._secondary = secondary
        self._sending = sending
        self._path = sending.path
        self._sender = sender
        self._facts = carrier.entities.of(sending.path)
        self.at_primary = carrier.patience.at_primary
        self.outbox = sending.outbox
        self._limits = sdk.LinkLimits(0, 0)  # As the sender's link last said.
        self._all_failovers, self._entity = carrier.failovers, sending.path.lower()
        self._failovers = 0  # Of the entity, when the link was last known to be good.

    def traced(self, message: sdk.Sendable) -> AbstractContextManager[tracing.Span]:
        """A span around a send, wherever the messages will go."""
        several = isinstance(message, list | tuple | ServiceBusMessageBatch)
        return tracing.span(
            "send",
            self._path,
            count=len(message) if isinstance(message, list | tuple | ServiceBusMessageBatch) else None,
            message_id=None if several else sdk.id_of(message),
            at=self._primary.address,
        )

    # Sends that are the SDK's own

    def goes_direct(self, message: sdk.Sendable) -> bool:
        """Whether the SDK's sender is used: the entity is healthy, and neither order nor an outbox has a say."""
        carrier, sending = self._carrier, self._sending
        if sending.ordered or sending.outbox_first:
            return False
        return carrier.is_clear or carrier.goes_to_primary(self._path, self._key(message))

    def to_begin(self, timeout: float | None) -> float | None:
        """How long a send may wait for the pair to be made: the primary and the backlog need time, too."""
        self.check(timeout)
        return None if timeout is None else self.at_primary(timeout)

    def alone_at_primary(self, timeout: float | None) -> float:
        """How long it may take for what only the primary can do."""
        return self._carrier.patience.primary_s if timeout is None else timeout

    @property
    def may_be_dead(self) -> bool:
        """Whether the entity failed over since the link was used: that may be dead, although the primary is back."""
        return self._failovers != self._all_failovers.get(self._entity, 0)

    def must_reopen(self) -> bool:
        """The same, said once, to the first who asks: who comes later finds the new link."""
        before, self._failovers = self._failovers, self._all_failovers.get(self._entity, 0)
        return before != self._failovers

    async def waits_behind(self, message: sdk.Sendable) -> bool:
        """Whether a message must queue behind an earlier one of its session or key in the outbox."""
        try:
            return self.outbox is not None and await self.outbox.must_wait(sdk.encoded(message), self._path)
        except ClientError as error:
            raise sdk.as_sdk_error(error) from error

    def went_direct(self, message: sdk.Sendable) -> None:
        """A direct send succeeded; it heals its entity if that fell ill meanwhile."""
        if not self._limits.message_bytes:
            self.learn_limits()
            self._primary.took_token(self._path)
        if self._facts.requires_session and sdk.key_of(message) is None:
            self._facts.requires_session = False  # It was made anew since.
        if not self._carrier.is_clear:
            self._carrier.sent(self._path, self._key(message))

    def learn_limits(self) -> None:
        """The sender's link may be open; what it said then holds while the primary cannot be asked."""
        self._limits = limits = sdk.limits_of(self._sender)
        if limits.message_bytes:
            self._facts.message_bytes_max, self._facts.batch_bytes_max = limits

    def _key(self, message: sdk.Sendable) -> str | None:
        if not self._carrier.is_partitioned(self._path):
            return None
        return self._carrier.fragment_key(self._path, sdk.key_of(message), sdk.id_of(message))

    # All others

    async def carry(
        self, message: sdk.Sendable, timeout: float | None, failed: Exception | None = None
    ) -> Carried | None:
        """Have the carrier send; None if there is nothing to send. Raises what an application of the SDK knows."""
        try:
            return await self._carry(message, timeout, failed)
        except BacklogError:
            check_open(self._secondary)
            raise
        except ClientError as error:
            raise sdk.as_sdk_error(error) from error

    async def _carry(self, message: sdk.Sendable, timeout: float | None, failed: Exception | None) -> Carried | None:
        self.learn_limits()
        met: Failed | None = None
        if failed is not None:
            met = Failed(sdk.failure_to_send(failed, message), f"{type(failed).__name__}: {failed}")
            if met.kind is Failure.MISTAKE:
                self._refused(message, failed)
                raise failed
        self.check(timeout)
        if sdk.is_empty(message):
            return None
        payloads = sdk.encoded(message, self._facts.batch_bytes_max or self._facts.message_bytes_max)
        key = self._key(message)
        if self.outbox is not None or self._sending.ordered:
            payloads = identified(payloads, lambda: uuid4().hex)
        if self._sending.ordered and not self.asks_primary():
            self._refuse_mistakes(payloads)
        if self._sending.ordered and (keyed := [each for each in payloads if order_key_of(each) is not None]):
            others = [each for each in payloads if order_key_of(each) is None]
            first = await self._carry_others(others, timeout)
            return _joined(first, await self._carry_in_order(keyed, timeout))
        carried = await self._carrier.carry(
            self._sending, payloads, key=key, together=True, timeout_s=timeout, failed=met
        )
        _raise(carried, failed)
        return carried

    def check(self, timeout: float | None) -> None:
        """What is refused before anything is sent: a pair that has ended; with the SDK, a closed sender and no time."""
        check_open(self._primary)
        self._sender._check_live()
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")

    def _refuse_mistakes(self, payloads: list[bytes]) -> None:
        """What goes one by one is refused as a whole, before the first is diverted."""
        for payload in payloads:
            if problem := self._facts.refusal(payload, self._path):
                raise problem

    def _refused(self, message: sdk.Sendable, error: Exception) -> None:
        """The primary refuses a message; what that says of the entity is remembered."""
        condition = sdk.condition_of(error)
        if condition:
            with suppress(Exception):  # It may be one that cannot be read, or encoded.
                self._facts.refused(condition, str(error), sdk.encoded(message))

    async def _carry_others(self, payloads: list[bytes], timeout: float | None) -> Carried:
        """What has no key in an ordered send goes as in any other."""
        if not payloads:
            return Carried()
        key = self._carrier.fragment_key(self._path, None, read(payloads[0]).message_id)
        carried = await self._carrier.carry(self._sending, payloads, key=key, together=True, timeout_s=timeout)
        _raise(carried, None)
        return carried

    async def _carry_in_order(self, payloads: list[bytes], timeout: float | None) -> Carried:
        """One after the other; when the outbox has one of them, it gets the rest too."""
        carried = Carried()
        for position, payload in enumerate(payloads):
            key = order_key_of(payload)
            carried = await self._carrier.carry(
                self._sending,
                [payload],
                key=key if self._carrier.is_partitioned(self._path) else None,
                order_key=key,
                timeout_s=timeout,
            )
            _raise(carried, None)
            rest = payloads[position + 1 :]
            if carried.queued is not None and rest:
                assert self.outbox is not None
                later = Carried(queued=await self.outbox.put(rest, self._path))
                carried = _joined(carried, later)
                break
        return carried

    def outcome(self, carried: Carried | None) -> Queued | None:
        """What the application gets: what only the outbox has; the span around the send learns where messages went."""
        if carried is None:
            return None
        if carried.queued is not None:
            tracing.current().say(outbox=True)
        elif carried.backlog_queue is not None:
            tracing.current().say(diverted=True, backlog_queue=carried.backlog_queue)
        return carried.queued

    # Calls that only the primary can answer

    def asks_primary(self) -> bool:
        """Whether the primary is asked."""
        return self._carrier.goes_to_primary(self._path)

    def answered(self) -> None:
        """The primary answered."""
        self._carrier.sent(self._path)

    def unanswered(self, error: Exception) -> bool:
        """It did not; whether sends are diverted now."""
        self._carrier.counts(self._path, None, Failed(sdk.failure_of(error), f"{type(error).__name__}: {error}"))
        return not self.asks_primary()

    def refuse_while_diverted(self, what: str, timeout: float | None, messages: sdk.Sendable = ()) -> None:
        """Scheduling by number, and cancelling it: only the primary knows the number. A mistake is named first."""
        if not self.asks_primary():
            self.check(timeout)
            sdk.encoded(sdk.repeatable(messages))
            raise NotWhileDivertedError(
                f"{what} needs the primary, and sends to '{self._path}' are diverted. A message that carries its"
                " scheduled_enqueue_time_utc can be sent with send_messages."
            )

    async def can_open(self) -> bool:
        """Whether the SDK may open its link: the primary answers us, who do not wait for ever.

        What it refuses for good is left to the SDK, which raises it in its own words.
        """
        self.check(None)
        if not self.asks_primary():
            return False
        try:
            self._facts.message_bytes_max = await self._primary.message_bytes_max(self._path)
        except ClientError as error:
            kind = kind_of(error)
            self._carrier.counts(self._path, None, Failed(kind, error.text))
            return kind not in _PASSING
        return True

    def opened(self, error: Exception | None) -> None:
        """The SDK has opened its link, or could not; a primary that went away meanwhile is met by the first send."""
        if error is None:
            self.learn_limits()
            return
        self.unanswered(error)
        if sdk.failure_of(error) not in _PASSING:
            raise error

    def batch(self, max_size_in_bytes: int | None) -> ServiceBusMessageBatch:
        """A batch made without the primary, of the size that it last said."""
        self.check(None)
        limit = self._facts.batch_bytes_max or sdk.BATCH_BYTES_DEFAULT
        if max_size_in_bytes and max_size_in_bytes > limit:
            raise ValueError(f"The batch may have {limit} bytes, not {max_size_in_bytes}.")
        return sdk.new_batch(max_size_in_bytes or limit)


def left(timeout: float | None, began: float) -> float | None:
    """What is left of a caller's time."""
    return None if timeout is None else max(timeout - (time.monotonic() - began), LEAST_S)


def _joined(first: Carried, second: Carried) -> Carried:
    """What became of one send in two parts."""
    queued = [each.queued for each in (first, second) if each.queued is not None]
    second.backlog_queue = second.backlog_queue or first.backlog_queue
    if queued:
        ids = [message_id for each in queued for message_id in each.message_ids]
        second.queued = Queued(queued[0].path, ids, [number for each in queued for number in each.numbers])
    return second


def _raise(carried: Carried, failed: Exception | None) -> None:
    """Raise why a send was given up, as the SDK would."""
    if carried.error is None:
        if failed is not None and not carried.is_done:
            raise failed
        return
    raise carried.error
