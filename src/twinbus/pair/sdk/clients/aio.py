"""The paired client for asyncio: the SDK's own methods on two namespaces at once.

What the methods share is in `sending`; here it is awaited. The carrier runs on the application's loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.client.overlapped import MAX_IN_FLIGHT, Outcome, Window, Windows
from twinbus.pair import tracing
from twinbus.pair.core import PairStatus
from twinbus.pair.namespace.open_links import heard
from twinbus.pair.outbox.rows import Queued
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.attempts import NOT_OPEN, AsyncBoundedSender, Ends, drop_link, open_link
from twinbus.pair.sdk.clients.paired import PairedClient
from twinbus.pair.sdk.clients.replicated_aio import through_ledger
from twinbus.pair.sdk.clients.sending import PairedSending, left

T = TypeVar("T")

GRACE_S = 0.25  # For the SDK to end its attempts by itself.


class PairedSender(AsyncBoundedSender):
    """The SDK's sender for the primary, which goes on sending when the primary is down. Made by a paired client.

    It shares its state with the sender that the SDK's client made (`_own`), which does what is the SDK's own.
    """

    __slots__ = ("_own",)
    _own: AsyncBoundedSender
    _pair: PairedServiceBusClient
    _sending: PairedSending
    _windows: Windows
    _opening: asyncio.Task[None] | None = None

    async def send_messages(  # type: ignore[override] # What only the outbox has is more than the SDK can say.
        self, message: Any, *, timeout: float | None = None, **kwargs: Any
    ) -> Queued | None:
        """Send, and return when the primary or a backlog queue has the messages.

        What only the outbox has, if the client has one, is queued locally, and that is what is returned.
        """
        if not tracing.is_on():
            return await self._route(message, timeout, kwargs)
        with self._sending.traced(message) as span:
            span.say(diverted=False)
            return await self._route(message, timeout, kwargs)

    async def _route(self, message: Any, timeout: float | None, kwargs: dict[str, Any]) -> Queued | None:
        sending, client = self._sending, self._pair
        if not client.is_paired:
            began = time.monotonic()
            await client._core.open_once(sending.to_begin(timeout))
            timeout = left(timeout, began)
        message = sdk.repeatable(message)
        failed: Exception | None = None
        outbox = sending.outbox
        waits = outbox is not None and outbox.may_hold and await sending.waits_behind(message)
        if not waits and sending.goes_direct(message):
            began = time.monotonic()
            try:
                primary_s = sending.at_primary(timeout)
                if self._own._running and not sending.may_be_dead:
                    work = self._own.send_messages(message, timeout=primary_s, **kwargs)
                else:
                    work = self._open_and_send(message, primary_s, kwargs)
                await client._ends.ended(work, primary_s + GRACE_S)
            except Exception as error:
                failed = error
                timeout = left(timeout, began)
            else:
                sending.went_direct(message)
                return None
        return sending.outcome(await sending.carry(message, timeout, failed))

    async def _open_and_send(self, message: Any, timeout: float | None, kwargs: dict[str, Any]) -> None:
        await self._own.send_messages(message, timeout=await self._opened(timeout), **kwargs)

    async def _opened(self, timeout: float | None) -> float | None:
        """Have the link open; what is left of the time."""
        if self._sending.must_reopen():
            await drop_link(self._own)
        return timeout if self._own._running else await self._open_once(timeout)

    async def _open_once(self, timeout: float | None = None) -> float | None:
        """Have the SDK open its link, once for all who send at once; what is left of the time.

        Of itself it would open one for each of them, and keep the last.
        """
        self._sending.check(timeout)
        began = time.monotonic()
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(open_link(self._own))
            self._opening.add_done_callback(heard)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._opening)
        except TimeoutError as error:
            raise OperationTimeoutError(message=NOT_OPEN) from error
        return left(timeout, began)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch; while the primary cannot be asked, of the size that it last said."""
        await self._pair.pair()
        sending = self._sending
        if sending.asks_primary():
            try:
                if not sdk.limits_of(self._own).message_bytes:
                    await self._opened(sending.at_primary(None))
                batch = await self._own.create_message_batch(max_size_in_bytes)
            except Exception as error:
                if not sending.unanswered(error):
                    raise
            else:
                sending.learn_limits()
                return batch
        return sending.batch(max_size_in_bytes)

    async def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> list[int]:
        """Schedule at the primary; refused while sends are diverted, since there is no number to return."""
        self._sending.refuse_while_diverted("schedule_messages", timeout, messages)
        return await self._only_at_primary(
            timeout,
            lambda left_s: self._own.schedule_messages(messages, schedule_time_utc, timeout=left_s, **kwargs),
        )

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel at the primary; refused while sends are diverted."""
        self._sending.refuse_while_diverted("cancel_scheduled_messages", timeout)
        await self._only_at_primary(
            timeout, lambda left_s: self._own.cancel_scheduled_messages(sequence_numbers, timeout=left_s, **kwargs)
        )

    async def _only_at_primary(self, timeout: float | None, call: Callable[[float | None], Awaitable[T]]) -> T:
        await self._pair.pair()
        try:
            limit_s = self._sending.alone_at_primary(timeout)
            result = await call(await self._opened(limit_s))
        except Exception as error:
            self._sending.unanswered(error)
            raise
        self._sending.answered()
        return result

    def overlapped(self, max_in_flight: int = MAX_IN_FLIGHT) -> Window[Any]:
        """Sends that overlap, at most so many at a time; use it with `async with` and `submit`."""
        return self._windows.open(max_in_flight)

    async def send_many(self, messages: Any, max_in_flight: int = MAX_IN_FLIGHT) -> list[Outcome[Any]]:
        """Send messages overlapped, and return the outcome of each, in order."""
        await self._pair.pair()
        return await self.overlapped(max_in_flight).send_many(messages)

    async def close(self) -> None:
        """Close the sender; the pair stays. Raises failures of overlapped sends that nobody looked at."""
        if self._opening is not None:
            self._opening.cancel()
        await self._own.close()
        self._windows.check()

    async def __aenter__(self) -> PairedSender:
        """Opens the link, as the SDK's sender does; a primary that is down is no reason to refuse."""
        await self._pair.pair()
        if await self._sending.can_open():
            failed = None
            try:
                await self._opened(self._sending.at_primary(None))
            except Exception as error:
                failed = error
            self._sending.opened(failed)
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()


class PairedServiceBusClient(PairedClient[PairedSender, ServiceBusReceiver], ServiceBusClient):
    """`azure.servicebus.aio.ServiceBusClient` over a pair of namespaces. Use it with `async with`."""

    sdk_client = ServiceBusClient
    bounded_sender, paired_sender = AsyncBoundedSender, PairedSender
    through_ledger = staticmethod(through_ledger)
    primary: ServiceBusClient
    secondary: ServiceBusClient

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ends = Ends()

    async def pair(self) -> PairStatus:
        """Make the pair, as far as that is possible now. Done by `async with`, and by the first send."""
        await self._core.open_once()
        return self.status()

    async def close(self) -> None:
        """End pings and pumps, and close both namespaces' clients."""
        await self._core.close()
        await asyncio.gather(self.primary.close(), self.secondary.close())

    async def __aenter__(self) -> PairedServiceBusClient:
        try:
            await self.pair()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()
