"""The paired client for synchronous applications: the SDK's own methods on two namespaces at once.

What the methods share is in `sending`; here it is waited for. The carrier has a loop and a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from azure.servicebus import ServiceBusClient, ServiceBusMessageBatch, ServiceBusReceiver

from twinbus.client.overlapped import MAX_IN_FLIGHT, Outcome, Window, Windows
from twinbus.pair import tracing
from twinbus.pair.core import PairStatus
from twinbus.pair.loop_thread import LoopThread
from twinbus.pair.outbox.rows import Queued
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.attempts import BoundedSender
from twinbus.pair.sdk.clients.paired import PairedClient
from twinbus.pair.sdk.clients.replicated_sync import ReplicatedReceiver, through_ledger
from twinbus.pair.sdk.clients.sending import LEAST_S, PairedSending, left

T = TypeVar("T")


class PairedSender(BoundedSender):
    """The SDK's sender for the primary, which goes on sending when the primary is down. Made by a paired client.

    It shares its state with the sender that the SDK's client made (`_own`), which does what is the SDK's own.
    """

    __slots__ = ("_own",)
    _own: BoundedSender
    _pair: PairedServiceBusClient
    _sending: PairedSending
    _windows: Windows

    def send_messages(  # type: ignore[override] # What only the outbox has is more than the SDK can say.
        self, message: Any, *, timeout: float | None = None, **kwargs: Any
    ) -> Queued | None:
        """Send, and return when the primary or a backlog queue has the messages.

        What only the outbox has, if the client has one, is queued locally, and that is what is returned.
        """
        if not tracing.is_on():
            return self._route(message, timeout, kwargs)
        with self._sending.traced(message) as span:
            span.say(diverted=False)
            return self._route(message, timeout, kwargs)

    def _route(self, message: Any, timeout: float | None, kwargs: dict[str, Any]) -> Queued | None:
        sending, client = self._sending, self._pair
        if not client.is_paired:
            began = time.monotonic()
            client._loop_thread.run(client._core.open_once(sending.to_begin(timeout)))
            timeout = left(timeout, began)
        message = sdk.repeatable(message)
        failed = None
        outbox = sending.outbox
        waits = outbox is not None and outbox.may_hold and client._loop_thread.run(sending.waits_behind(message))
        if not waits and sending.goes_direct(message):
            began = time.monotonic()
            try:
                self._own.send_messages(message, timeout=self._opened(sending.at_primary(timeout)), **kwargs)
            except Exception as error:
                failed = error
                timeout = left(timeout, began)
            else:
                sending.went_direct(message)
                return None
        return sending.outcome(client._loop_thread.run(sending.carry(message, timeout, failed)))

    def _opened(self, timeout: float) -> float:
        """Have the link open; what the SDK may take of the time that is left.

        The SDK would open it by itself, and take longer where it needs to know a limit, for a list.
        """
        own, began = self._own, time.monotonic()
        if self._sending.must_reopen():
            own.drop_link()
        if not own._running:
            self._sending.check(timeout)
            own.open_link(timeout)
            timeout -= time.monotonic() - began
        return max(timeout - own.late_s, LEAST_S)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch; while the primary cannot be asked, of the size that it last said."""
        self._pair.pair()
        sending = self._sending
        if sending.asks_primary():
            try:
                if not sdk.limits_of(self._own).message_bytes:
                    self._opened(sending.at_primary(None))
                batch = self._own.create_message_batch(max_size_in_bytes)
            except Exception as error:
                if not sending.unanswered(error):
                    raise
            else:
                sending.learn_limits()
                return batch
        return sending.batch(max_size_in_bytes)

    def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> list[int]:
        """Schedule at the primary; refused while sends are diverted, since there is no number to return."""
        self._sending.refuse_while_diverted("schedule_messages", timeout, messages)
        return self._only_at_primary(
            timeout,
            lambda left_s: self._own.schedule_messages(messages, schedule_time_utc, timeout=left_s, **kwargs),
        )

    def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel at the primary; refused while sends are diverted."""
        self._sending.refuse_while_diverted("cancel_scheduled_messages", timeout)
        self._only_at_primary(
            timeout, lambda left_s: self._own.cancel_scheduled_messages(sequence_numbers, timeout=left_s, **kwargs)
        )

    def _only_at_primary(self, timeout: float | None, call: Callable[[float], T]) -> T:
        self._pair.pair()
        try:
            result = call(self._opened(self._sending.alone_at_primary(timeout)))
        except Exception as error:
            self._sending.unanswered(error)
            raise
        self._sending.answered()
        return result

    def send_many(
        self, messages: Iterable[sdk.Sendable], max_in_flight: int = MAX_IN_FLIGHT
    ) -> list[Outcome[sdk.Sendable]]:
        """Send messages overlapped, and return the outcome of each, in order.

        Messages are taken from the iterable, here, only when there is room for them.
        """
        self._pair.pair()
        loop_thread = self._pair._loop_thread
        sends = loop_thread.run(self._window(max_in_flight))
        outcomes = [loop_thread.run(sends.submit(message)) for message in messages]
        loop_thread.run(sends.finish())
        return outcomes

    async def _window(self, max_in_flight: int) -> Window[sdk.Sendable]:
        return self._windows.open(max_in_flight)

    def close(self) -> None:
        """Close the sender; the pair stays. Raises failures of overlapped sends that nobody looked at."""
        self._own.close()
        self._windows.check()

    def __enter__(self) -> PairedSender:
        """Opens the link, as the SDK's sender does; a primary that is down is no reason to refuse."""
        self._pair.pair()
        if self._pair._loop_thread.run(self._sending.can_open()):
            failed = None
            try:
                self._opened(self._sending.at_primary(None))
            except Exception as error:
                failed = error
            self._sending.opened(failed)
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class PairedServiceBusClient(PairedClient[PairedSender, ServiceBusReceiver], ServiceBusClient):
    """`azure.servicebus.ServiceBusClient` over a pair of namespaces. Use it with `with`."""

    sdk_client = ServiceBusClient
    bounded_sender, paired_sender = BoundedSender, PairedSender
    primary: ServiceBusClient
    secondary: ServiceBusClient

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop_thread = LoopThread()
        self.through_ledger = partial(through_ledger, self._loop_thread)

    def pair(self) -> PairStatus:
        """Make the pair, as far as that is possible now. Done by `with`, and by the first send."""
        if not self.is_paired:
            self._loop_thread.run(self._core.open_once())
        return self.status()

    def close(self) -> None:
        """End pings and pumps, and close both namespaces' clients."""
        for receiver in [each for each in self._handlers if isinstance(each, ReplicatedReceiver)]:
            receiver.close()  # While the loop that it needs is there.
        self._loop_thread.stop(self._core.close)
        self.primary.close()
        self.secondary.close()

    def __enter__(self) -> PairedServiceBusClient:
        try:
            self.pair()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *args: object) -> None:
        self.close()
