"""The paired client for asyncio: the SDK's own methods on two namespaces at once.

What the methods do is told in `sending`; here it is awaited. The companion runs on the application's loop.
"""

from __future__ import annotations

import asyncio
from typing import Any

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from twinbus.pair import tracing
from twinbus.pair.core import PairStatus
from twinbus.pair.errors import PairingError
from twinbus.pair.ledger_keeping import AsyncLedger as Ledger
from twinbus.pair.ledger_keeping import LedgerCore
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.outbox_aio import OutboxClient
from twinbus.pair.outbox_rows import Queued
from twinbus.pair.overlapped import MAX_IN_FLIGHT, Outcome, Window, Windows
from twinbus.pair.paired import PairedClient
from twinbus.pair.receiving import ReplicatedReceiver
from twinbus.pair.replication_aio import ReplicatedClient, through_ledger
from twinbus.pair.sending import AtPrimary, Steps

__all__ = [
    "Ledger",
    "OutboxClient",
    "PairedSender",
    "PairedServiceBusClient",
    "ReplicatedClient",
    "SendAvailabilityOptions",
]


class PairedServiceBusClient(PairedClient):
    """`azure.servicebus.aio.ServiceBusClient` over a pair of namespaces. Use it with `async with`."""

    sdk_client = ServiceBusClient
    primary: ServiceBusClient
    secondary: ServiceBusClient

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._starting: asyncio.Task[Any] | None = None
        self._pairing_later: asyncio.Task[None] | None = None

    async def pair(self) -> PairStatus:
        """Make the pair: nothing can be sent before. Done by `async with`, and by the first send."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._core.open())
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            if self._starting.done():
                self._starting = None  # The next one may try again.
            raise
        return self.status()

    async def _pair_or_wait(self) -> None:
        """Whoever has an outbox need not wait for the pair: it is made when that is possible."""
        if self._pairing_later is not None:
            return
        try:
            await self.pair()
        except PairingError:
            if self._core.outbox is None:
                raise
            self._pairing_later = asyncio.create_task(self._core.pair_later())

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
            return through_ledger(ledger, self.primary, queue_name, None, kwargs)
        return self.primary.get_queue_receiver(queue_name, **kwargs)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, *, ledger: LedgerCore | None = None, **kwargs: Any
    ) -> ServiceBusReceiver | ReplicatedReceiver:
        """A receiver from a subscription of the primary; with a ledger, as for a queue."""
        if ledger is not None:
            return through_ledger(ledger, self.primary, topic_name, subscription_name, kwargs)
        return self.primary.get_subscription_receiver(topic_name, subscription_name, **kwargs)

    async def close(self) -> None:
        """End pings and pumps, and close both halves."""
        if self._pairing_later is not None:
            self._pairing_later.cancel()
        await self._core.close()
        await asyncio.gather(self.primary.close(), self.secondary.close())

    async def __aenter__(self) -> PairedServiceBusClient:
        try:
            await self._pair_or_wait()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()

    async def _carry_out(self, steps: Steps) -> Any:
        """Do what the steps say, one after the other."""
        if not self.is_paired:
            await self._pair_or_wait()
        try:
            step = next(steps)
            while True:
                try:
                    answer = await (step.call() if type(step) is AtPrimary else step.work())  # type: ignore[union-attr]
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

    async def send_messages(self, message: Any, *, timeout: float | None = None, **kwargs: Any) -> Queued | None:
        """Send, and return when the primary or a backlog queue has the messages.

        What only the outbox has, if the client has one, is queued locally, and that is what is returned.
        """
        if not tracing.is_on():
            return await self._send(message, timeout, kwargs)
        with self._sending.traced(message) as span:
            span.say(diverted=False)
            return await self._send(message, timeout, kwargs)

    async def _send(self, message: Any, timeout: float | None, kwargs: dict[str, Any]) -> Queued | None:
        sending = self._sending
        failed = None
        if sending.goes_straight(message) and self._client.is_paired:
            try:
                await self._sender.send_messages(message, timeout=timeout, **kwargs)
            except Exception as error:
                failed = error
            else:
                sending.went_straight(message)
                return None
        queued: Queued | None = await self._client._carry_out(sending.send_messages(message, timeout, kwargs, failed))
        return queued

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch; while the primary cannot be asked, of the size that it last told."""
        batch: ServiceBusMessageBatch = await self._client._carry_out(
            self._sending.create_message_batch(max_size_in_bytes)
        )
        return batch

    async def schedule_messages(self, messages: Any, schedule_time_utc: Any, **kwargs: Any) -> list[int]:
        """Schedule at the primary; refused while sends are diverted, since there is no number to tell."""
        steps = self._sending.only_at_primary(
            "schedule_messages", lambda: self._sender.schedule_messages(messages, schedule_time_utc, **kwargs)
        )
        numbers: list[int] = await self._client._carry_out(steps)
        return numbers

    async def cancel_scheduled_messages(self, sequence_numbers: int | list[int], **kwargs: Any) -> None:
        """Cancel at the primary; refused while sends are diverted."""
        await self._client._carry_out(
            self._sending.only_at_primary(
                "cancel_scheduled_messages",
                lambda: self._sender.cancel_scheduled_messages(sequence_numbers, **kwargs),
            )
        )

    def overlapped(self, max_in_flight: int = MAX_IN_FLIGHT) -> Window[Any]:
        """Sends that overlap, at most so many at a time; use it with `async with` and `submit`."""
        return self._windows.open(
            self._client._core.pairing, self._path, max_in_flight, self._sending.refusal, self._sending.beside
        )

    async def send_many(self, messages: Any, max_in_flight: int = MAX_IN_FLIGHT) -> list[Outcome[Any]]:
        """Send messages overlapped, and return the outcome of each, in order."""
        await self._client.pair()
        return await self.overlapped(max_in_flight).send_many(messages)

    async def close(self) -> None:
        """Close the sender; the pair stays. Raises failures of overlapped sends that nobody looked at."""
        await self._sender.close()
        self._windows.check()

    async def __aenter__(self) -> PairedSender:
        await self._client._pair_or_wait()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()
