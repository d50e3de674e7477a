"""The paired client for synchronous applications: the SDK's own methods on two namespaces at once.

What the methods do is told in `sending`; here it is waited for. The companion has a loop and a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessageBatch, ServiceBusReceiver, ServiceBusSender

from twinbus.pair import sdk, tracing
from twinbus.pair.core import PairStatus
from twinbus.pair.errors import PairingError
from twinbus.pair.ledger_keeping import LedgerCore
from twinbus.pair.loop_thread import LoopThread
from twinbus.pair.outbox_rows import Queued
from twinbus.pair.overlapped import MAX_IN_FLIGHT, Outcome, Window, Windows
from twinbus.pair.paired import PairedClient
from twinbus.pair.replication_sync import ReplicatedReceiver, through_ledger
from twinbus.pair.sending import AtPrimary, Steps


class PairedServiceBusClient(PairedClient):
    """`azure.servicebus.ServiceBusClient` over a pair of namespaces. Use it with `with`."""

    sdk_client = ServiceBusClient
    primary: ServiceBusClient
    secondary: ServiceBusClient

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._beside = LoopThread()
        self._starting = threading.Lock()
        self._pairs_later = False

    def pair(self) -> PairStatus:
        """Make the pair: nothing can be sent before. Done by `with`, and by the first send."""
        with self._starting:
            if not self.is_paired:
                self._beside.run(self._core.open())
        return self.status()

    def _pair_or_wait(self) -> None:
        """Whoever has an outbox need not wait for the pair: it is made when that is possible."""
        if self._pairs_later:
            return
        try:
            self.pair()
        except PairingError:
            if self._core.outbox is None:
                raise
            self._pairs_later = True
            self._beside.begin(self._core.pair_later())

    def get_queue_sender(
        self, queue_name: str, *, always: bool | None = None, ordered: bool | None = None, **kwargs: Any
    ) -> PairedSender:
        """A sender to a queue of the primary that goes on sending when the primary is down.

        `always` (first into the outbox) and `ordered` are as the client has them, unless they are given.
        """
        return PairedSender(self, self.primary.get_queue_sender(queue_name, **kwargs), queue_name, always, ordered)

    def get_topic_sender(
        self, topic_name: str, *, always: bool | None = None, ordered: bool | None = None, **kwargs: Any
    ) -> PairedSender:
        """A sender to a topic of the primary that goes on sending when the primary is down.

        `always` (first into the outbox) and `ordered` are as the client has them, unless they are given.
        """
        return PairedSender(self, self.primary.get_topic_sender(topic_name, **kwargs), topic_name, always, ordered)

    def get_queue_receiver(
        self, queue_name: str, *, ledger: LedgerCore | None = None, **kwargs: Any
    ) -> ServiceBusReceiver | ReplicatedReceiver:
        """A receiver from the primary; what was diverted reaches it through the syphon.

        With a ledger, what comes twice is handed out once (docs/replication.md), and a lost lock is no error, unless
        `goes_on=False` says so.
        """
        if ledger is not None:
            return through_ledger(self._beside, ledger, self.primary, queue_name, None, kwargs)
        return self.primary.get_queue_receiver(queue_name, **kwargs)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, *, ledger: LedgerCore | None = None, **kwargs: Any
    ) -> ServiceBusReceiver | ReplicatedReceiver:
        """A receiver from a subscription of the primary; with a ledger, as for a queue."""
        if ledger is not None:
            return through_ledger(self._beside, ledger, self.primary, topic_name, subscription_name, kwargs)
        return self.primary.get_subscription_receiver(topic_name, subscription_name, **kwargs)

    def close(self) -> None:
        """End pings and pumps, and close both halves."""
        self._beside.stop(self._core.close)
        self.primary.close()
        self.secondary.close()

    def __enter__(self) -> PairedServiceBusClient:
        try:
            self._pair_or_wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def _carry_out(self, steps: Steps) -> Any:
        """Do what the steps say, one after the other."""
        if not self.is_paired:
            self._pair_or_wait()
        try:
            step = next(steps)
            while True:
                try:
                    answer = step.call() if type(step) is AtPrimary else self._beside.run(step.work())  # type: ignore[union-attr]
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value


class PairedSender:
    """The SDK's sender; what it does not do differently it leaves to the one for the primary."""

    def __init__(
        self,
        client: PairedServiceBusClient,
        sender: ServiceBusSender,
        path: str,
        always: bool | None = None,
        ordered: bool | None = None,
    ) -> None:
        self._client = client
        self._sender = sender
        self._path = path
        self._windows = Windows()
        self._sending = client._core.sending(sender, path, always, ordered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sender, name)

    def send_messages(self, message: Any, *, timeout: float | None = None, **kwargs: Any) -> Queued | None:
        """Send, and return when the primary or a backlog queue has the messages.

        What only the outbox has, if the client has one, is queued locally, and that is what is returned.
        """
        if not tracing.is_on():
            return self._send(message, timeout, kwargs)
        with self._sending.traced(message) as span:
            span.say(diverted=False)
            return self._send(message, timeout, kwargs)

    def _send(self, message: Any, timeout: float | None, kwargs: dict[str, Any]) -> Queued | None:
        sending = self._sending
        failed = None
        if sending.goes_straight(message) and self._client.is_paired:
            try:
                self._sender.send_messages(message, timeout=timeout, **kwargs)
            except Exception as error:
                failed = error
            else:
                sending.went_straight(message)
                return None
        queued: Queued | None = self._client._carry_out(sending.send_messages(message, timeout, kwargs, failed))
        return queued

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch; while the primary cannot be asked, of the size that it last told."""
        batch: ServiceBusMessageBatch = self._client._carry_out(self._sending.create_message_batch(max_size_in_bytes))
        return batch

    def schedule_messages(self, messages: Any, schedule_time_utc: Any, **kwargs: Any) -> list[int]:
        """Schedule at the primary; refused while sends are diverted, since there is no number to tell."""
        steps = self._sending.only_at_primary(
            "schedule_messages", lambda: self._sender.schedule_messages(messages, schedule_time_utc, **kwargs)
        )
        numbers: list[int] = self._client._carry_out(steps)
        return numbers

    def cancel_scheduled_messages(self, sequence_numbers: int | list[int], **kwargs: Any) -> None:
        """Cancel at the primary; refused while sends are diverted."""
        self._client._carry_out(
            self._sending.only_at_primary(
                "cancel_scheduled_messages",
                lambda: self._sender.cancel_scheduled_messages(sequence_numbers, **kwargs),
            )
        )

    def send_many(
        self, messages: Iterable[sdk.Sendable], max_in_flight: int = MAX_IN_FLIGHT
    ) -> list[Outcome[sdk.Sendable]]:
        """Send messages overlapped, and return the outcome of each, in order.

        Messages are taken from the iterable, here, only when there is room for them.
        """
        self._client.pair()
        beside = self._client._beside
        sends = beside.run(self._window(max_in_flight))
        outcomes = [beside.run(sends.submit(message)) for message in messages]
        beside.run(sends.finish())
        return outcomes

    async def _window(self, max_in_flight: int) -> Window[sdk.Sendable]:
        return self._windows.open(
            self._client._core.pairing, self._path, max_in_flight, self._sending.refusal, self._sending.beside
        )

    def close(self) -> None:
        """Close the sender; the pair stays. Raises failures of overlapped sends that nobody looked at."""
        self._sender.close()
        self._windows.check()

    def __enter__(self) -> PairedSender:
        self._client._pair_or_wait()
        return self

    def __exit__(self, *args: object) -> None:
        self.close()
