"""The official client in both its flavours under one set of coroutines, so that one test judges both.

Nothing of the client is changed: the blocking flavour runs in threads, the asynchronous one as it is.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import azure.servicebus
import azure.servicebus._pyamqp.receiver
import azure.servicebus.aio
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSession
from azure.servicebus._pyamqp.aio._transport_async import AsyncTransport

from support.broker import SOON_S, BrokerProcess
from support.queues import put
from twinbus.client.messages import build

FLAVOURS = ("sync", "aio")

# What releases before 7.15 cannot do (`make test-clients`).
confirms_settlements = pytest.mark.skipif(
    not hasattr(azure.servicebus._pyamqp.receiver, "check_disposition_outcome"),
    reason=f"azure-servicebus {azure.servicebus.__version__} does not wait for the outcome of a settlement",
)
uses_tls_on_loopback = pytest.mark.skipif(
    "sock" in inspect.signature(AsyncTransport._get_tcp_socket_defaults).parameters,
    reason=f"azure-servicebus {azure.servicebus.__version__} sets a segment size that loopback refuses",
)
# The client waits this much, doubled each time, between its three retries; its own default makes eleven seconds.
QUICK_RETRIES = {"retry_backoff_factor": 0.05}


class InThread:
    """A blocking object of the client; its methods become coroutines that run in a thread."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if isinstance(value, ServiceBusSession):
            return InThread(value)
        if not inspect.ismethod(value):
            return value
        if name.startswith(("get_queue_", "list_queue_")):
            return lambda *args, **kwargs: InThread(value(*args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(value, *args, **kwargs)

        return call

    async def __aenter__(self) -> InThread:
        await asyncio.to_thread(self.inner.__enter__)
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await asyncio.to_thread(self.inner.__exit__, *problem)

    async def __aiter__(self) -> AsyncIterator[Any]:
        items = iter(self.inner)
        while (item := await asyncio.to_thread(next, items, None)) is not None:
            yield item


class Bus:
    """One flavour of the client, pointed at one broker."""

    def __init__(self, flavour: str, broker: BrokerProcess) -> None:
        self.flavour = flavour
        self.connection_string = broker.connection_string()
        self.broker = broker
        self._put = functools.partial(put, broker)
        self.barrier = asyncio.Barrier(1)
        self._closing: list[asyncio.Task[None]] = []

    def client(self, connection_string: str | None = None, **options: Any) -> Any:
        """A `ServiceBusClient` whose operations are coroutines."""
        text = connection_string or self.connection_string
        options = {**QUICK_RETRIES, **options}
        if self.flavour == "aio":
            return azure.servicebus.aio.ServiceBusClient.from_connection_string(text, **options)
        return InThread(azure.servicebus.ServiceBusClient.from_connection_string(text, **options))

    @asynccontextmanager
    async def sender(self, queue: str, **options: Any) -> AsyncIterator[Any]:
        """A sender with a client of its own, closed in the background."""
        sender = self.client().get_queue_sender(queue, **options)
        try:
            await sender.__aenter__()
            yield sender
        finally:
            self._close(sender)

    @asynccontextmanager
    async def receiver(self, queue: str, **options: Any) -> AsyncIterator[Any]:
        """A receiver with a client of its own, closed in the background."""
        receiver = self.client().get_queue_receiver(queue, **options)
        try:
            await receiver.__aenter__()
            yield receiver
        finally:
            self._close(receiver)

    def _close(self, handler: Any) -> None:
        # The client sleeps for about a second in it; what follows need not wait for that.
        self._closing.append(asyncio.create_task(handler.close()))

    async def once(self, action: Callable[[], object]) -> None:
        """Do something to the broker once for both flavours, when both have come so far."""
        await self.closed()
        if await self.barrier.wait() == 0:
            await asyncio.to_thread(action)
        await self.barrier.wait()

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for a broker whose clock can be moved, when both flavours have come so far."""
        await self.once(functools.partial(self.broker.pass_time, seconds))

    async def closed(self) -> None:
        """Wait for everything that is being closed."""
        while self._closing:
            await self._closing.pop()

    async def send(self, queue: str, *messages: ServiceBusMessage) -> None:
        """Send messages one by one, with the official client."""
        async with self.sender(queue) as sender:
            for message in messages:
                await sender.send_messages(message)

    async def put(self, queue: str, *bodies: str, session_id: str | None = None) -> None:
        """Put messages into a queue by a quicker way than the official client, where sending is not the point."""
        payloads = [build(body.encode(), session_id=session_id) for body in bodies]
        await asyncio.to_thread(self._put, queue, payloads)

    def renewer(self, **options: Any) -> Any:
        """An `AutoLockRenewer` of this flavour."""
        module = azure.servicebus.aio if self.flavour == "aio" else azure.servicebus
        return module.AutoLockRenewer(**options)


AsyncTest = Callable[..., Coroutine[Any, Any, None]]


def both(test: AsyncTest) -> AsyncTest:
    """Run a test with both flavours at the same time, since the client sleeps for most of it."""

    @functools.wraps(test)
    async def run(*, bus: list[Bus], **fixtures: Any) -> None:
        barrier = asyncio.Barrier(len(bus))
        runs = [_run(test, one, barrier, fixtures) for one in bus]
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        causes = [failure for failure in failures if not isinstance(failure, asyncio.BrokenBarrierError)]
        if len(causes) == 1:
            raise causes[0]
        if failures:
            raise BaseExceptionGroup("both flavours failed", causes or failures)

    return run


async def _run(test: AsyncTest, bus: Bus, barrier: asyncio.Barrier, fixtures: dict[str, Any]) -> None:
    bus.barrier = barrier
    try:
        await test(bus=bus, **fixtures)
    except BaseException as problem:
        problem.add_note(f"with the flavour {bus.flavour} of the client")
        await barrier.abort()
        raise


@asynccontextmanager
async def together(*contexts: AbstractAsyncContextManager[Any]) -> AsyncIterator[list[Any]]:
    """Enter several senders and receivers at the same time, and leave them so."""
    async with AsyncExitStack() as stack:
        entered = await asyncio.gather(*[context.__aenter__() for context in contexts], return_exceptions=True)
        leaving = [
            context
            for context, handler in zip(contexts, entered, strict=True)
            if not isinstance(handler, BaseException)
        ]
        stack.push_async_callback(_leave, leaving)
        for handler in entered:
            if isinstance(handler, BaseException):
                raise handler
        yield entered


async def _leave(contexts: list[AbstractAsyncContextManager[Any]]) -> None:
    await asyncio.gather(*[context.__aexit__(None, None, None) for context in contexts])


def bare(thing: Any) -> Any:
    """The client's own object behind a sender, receiver or session, for what coroutines cannot reach."""
    return thing.inner if isinstance(thing, InThread) else thing


async def receive(receiver: Any, count: int, timeout_s: float = SOON_S) -> list[ServiceBusReceivedMessage]:
    """Exactly so many messages, in as many calls as it takes; an AssertionError if they do not come in time."""
    found: list[ServiceBusReceivedMessage] = []
    deadline = asyncio.get_running_loop().time() + timeout_s
    while len(found) < count:
        left = deadline - asyncio.get_running_loop().time()
        assert left > 0, f"{len(found)} of {count} messages came: {[str(one) for one in found]}"
        found += await receiver.receive_messages(max_message_count=count - len(found), max_wait_time=left)
    return found


async def receive_one(receiver: Any, timeout_s: float = SOON_S) -> ServiceBusReceivedMessage:
    """The next message."""
    (message,) = await receive(receiver, 1, timeout_s)
    return message


async def receiving(receiver: Any) -> None:
    """Wait until a receiver that is open has begun to wait for messages."""
    await until(bare(receiver)._receive_context.is_set, "the receiver waits")


async def nothing_comes(receiver: Any, within_s: float = 0.7) -> bool:
    """Whether the receiver gets nothing in this time."""
    return not await receiver.receive_messages(max_message_count=1, max_wait_time=within_s)


def forget_expiry(message: ServiceBusReceivedMessage) -> None:
    """Make the client ask the broker, where it would look at its own clock and refuse a late settlement itself."""
    message._expiry = message.locked_until_utc.replace(year=9999)  # type: ignore[union-attr]


async def detach_link(receiver: Any) -> None:
    """Detach the receiver's link, and nothing else of its connection."""
    detached = bare(receiver)._handler._link.detach()
    if inspect.isawaitable(detached):
        await detached


def break_off(handler: Any) -> None:
    """Cut the TCP connection under a sender or receiver, without an AMQP close."""
    transport = bare(handler)._handler._connection._transport
    if isinstance(handler, InThread):
        transport.sock.shutdown(socket.SHUT_RDWR)
    else:
        transport.writer.transport.abort()


def told(problem: BaseException) -> str:
    """What an exception says; of a failed authentication the client tells the reason only in the inner one."""
    inner = getattr(problem, "inner_exception", None)
    return f"{problem} {inner}" if inner is not None else str(problem)


def tracking_id(problem: BaseException) -> str:
    """The tracking id in what an exception says."""
    found = re.search(r"TrackingId:([0-9a-f]{32})", told(problem))
    assert found, f"no tracking id in: {told(problem)}"
    return found[1]


async def until(condition: Callable[[], bool], what: str, timeout_s: float = SOON_S) -> None:
    """Ask until the answer is yes, leaving the loop to others meanwhile."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline, f"{what}: not within {timeout_s} s"
        await asyncio.sleep(0.05)
