"""Load for measurements: sends, receives and both at once, at a given window, with the times that matter.

Where the load goes, and how figures are shown, is left to the caller.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

from twinbus.client.connection import Connection
from twinbus.client.receiver import ReceivedMessage, Receiver
from twinbus.client.sender import Sender
from twinbus.model.message import Outcome
from twinbus.wire import outgoing

# Messages that share one outcome in the books: small enough not to blur latencies, large enough to cost nothing.
LOT = 10
# A receiver that gets nothing for so long will get nothing more.
SILENCE_S = 10.0
# Times of single sends are taken for so long, or so often.
ALONE_S = 3.0
ALONE_COUNT = 1000

_DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
_BLANK_ID = "0" * 32

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Load:
    """What to send and how."""

    messages: int = 60_000
    size: int = 1024
    window: int = 500
    connections: int = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where to send it: how to connect, the entity, and whether the broker settles without confirming."""

    connect: Callable[[], AbstractAsyncContextManager[Connection]]
    path: str
    settle_first: bool = False


@dataclass(slots=True)
class Figures:
    """What one run took. Latencies are from handing a message in to its outcome."""

    messages: int = 0
    seconds: float = 0.0
    client_cpu_s: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def client_share(self) -> float:
        """The part of the time that this client computed; close to 1 it is the limit, not the broker."""
        return self.client_cpu_s / self.seconds if self.seconds else 0.0

    def percentile_ms(self, percent: float) -> float:
        """The latency that so many percent stay below."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


class NotEmptyError(Exception):
    """The queue holds messages that are not ours to consume."""


class _Watch:
    """Takes the time of a run."""

    def __init__(self, messages: int) -> None:
        self.figures = Figures(messages)
        self._started = time.perf_counter()
        self._cpu = time.process_time()

    def stop(self) -> Figures:
        """The run is over."""
        self.figures.seconds = time.perf_counter() - self._started
        self.figures.client_cpu_s = time.process_time() - self._cpu
        return self.figures


async def check_empty(place: Place) -> None:
    """Makes sure that nobody else's messages get measured away."""
    async with place.connect() as connection:
        receiver = await connection.receiver(place.path, credit=0, settle_first=place.settle_first)
        found = await receiver.receive(1, timeout_s=0.5)
        if found:
            await receiver.settle(found, Outcome.RELEASE)
            raise NotEmptyError(f"'{place.path}' is not empty; give the benchmark a queue of its own")


async def send(place: Place, load: Load, progress: Progress) -> Figures:
    """Sends everything; over when the last message is accepted."""
    async with AsyncExitStack() as stack:
        senders = [await _sender(stack, place, load) for _ in range(load.connections)]
        watch = _Watch(load.messages)
        await asyncio.gather(*_sending(senders, load, watch.figures, progress))
        return watch.stop()


async def receive(place: Place, load: Load, progress: Progress) -> Figures:
    """Receives and completes everything; over when the last completion is confirmed."""
    async with AsyncExitStack() as stack:
        receivers = [await _receiver(stack, place, load) for _ in range(load.connections)]
        watch = _Watch(load.messages)
        await _consume(receivers, load, progress)
        return watch.stop()


async def both(place: Place, load: Load, progress: Progress) -> Figures:
    """Sends and receives at the same time; over when the last completion is confirmed."""
    async with AsyncExitStack() as stack:
        senders = [await _sender(stack, place, load) for _ in range(load.connections)]
        receivers = [await _receiver(stack, place, load) for _ in range(load.connections)]
        watch = _Watch(load.messages)
        sending = _sending(senders, load, watch.figures, lambda count: None)
        await asyncio.gather(_consume(receivers, load, progress), *sending)
        return watch.stop()


async def send_one_by_one(place: Place, load: Load, progress: Progress) -> Figures:
    """Sends single messages, each when the one before is accepted. They stay in the queue."""
    async with AsyncExitStack() as stack:
        sender = await _sender(stack, place, load)
        make = template(load.size)
        watch = _Watch(0)
        figures, until = watch.figures, time.perf_counter() + ALONE_S
        while figures.messages < min(ALONE_COUNT, load.messages) and time.perf_counter() < until:
            before = time.perf_counter()
            await sender.send([make(figures.messages)])
            figures.latencies_ms.append((time.perf_counter() - before) * 1000)
            figures.messages += 1
            progress(1)
        return watch.stop()


def template(size: int) -> Callable[[int], bytes]:
    """Makes durable messages with a body of `size` bytes, each with an id of its own, at the cost of a copy."""
    whole = _DURABLE + outgoing.build(b"x" * size, message_id=_BLANK_ID)
    before, after = whole.split(_BLANK_ID.encode(), 1)
    run = time.time_ns()

    def make(number: int) -> bytes:
        return b"%b%016x%016x%b" % (before, run, number, after)

    return make


async def _sender(stack: AsyncExitStack, place: Place, load: Load) -> Sender:
    connection = await stack.enter_async_context(place.connect())
    return await connection.sender(place.path, window=load.window)


async def _receiver(stack: AsyncExitStack, place: Place, load: Load) -> Receiver:
    connection = await stack.enter_async_context(place.connect())
    return await connection.receiver(place.path, credit=load.window, settle_first=place.settle_first)


def _sending(senders: list[Sender], load: Load, figures: Figures, progress: Progress) -> list[asyncio.Task[None]]:
    make = template(load.size)
    shares = [range(first, load.messages, len(senders)) for first in range(len(senders))]
    return [
        asyncio.create_task(_feed(sender, make, share, load.window, figures, progress))
        for sender, share in zip(senders, shares, strict=True)
    ]


async def _feed(
    sender: Sender,
    make: Callable[[int], bytes],
    numbers: range,
    window: int,
    figures: Figures,
    progress: Progress,
) -> None:
    """Keeps the window full: a new lot for each that is accepted."""
    lot = min(LOT, window)
    waiting: deque[asyncio.Future[None]] = deque()
    for start in range(0, len(numbers), lot):
        if len(waiting) * lot >= window:
            await waiting.popleft()
            progress(lot)
        payloads = [make(number) for number in numbers[start : start + lot]]
        accepted = sender.send_nowait(payloads)
        accepted.add_done_callback(partial(_note, figures.latencies_ms, time.perf_counter()))
        waiting.append(accepted)
    for accepted in waiting:
        await accepted
        progress(lot)


def _note(latencies_ms: list[float], since: float, accepted: asyncio.Future[None]) -> None:
    latencies_ms.append((time.perf_counter() - since) * 1000)


async def _consume(receivers: list[Receiver], load: Load, progress: Progress) -> None:
    left = [load.messages]
    await asyncio.gather(*(_drink(receiver, left, load.window, progress) for receiver in receivers))


async def _drink(receiver: Receiver, left: list[int], window: int, progress: Progress) -> None:
    """Takes messages until all receivers together have had all, with at most two windows unconfirmed."""
    confirming: deque[tuple[int, asyncio.Future[None]]] = deque()
    unconfirmed = 0
    silent_since = time.perf_counter()
    while left[0] > 0:
        messages: list[ReceivedMessage] = await receiver.receive(min(window, left[0]), timeout_s=0.2)
        if messages:
            left[0] -= len(messages)
            unconfirmed += len(messages)
            confirming.append((len(messages), receiver.settle_nowait(messages)))
            silent_since = time.perf_counter()
        elif time.perf_counter() - silent_since > SILENCE_S:
            raise TimeoutError(f"{left[0]} messages did not come within {SILENCE_S:g} s")
        while confirming and (unconfirmed > 2 * window or confirming[0][1].done()):
            count, confirmed = confirming.popleft()
            await confirmed
            unconfirmed -= count
            progress(count)
    for count, confirmed in confirming:
        await confirmed
        progress(count)
