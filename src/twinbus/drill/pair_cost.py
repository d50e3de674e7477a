"""What sending through a pair costs while all is well: CPU of a process with a paired client beside one with the bare SDK.

Each way has a process of its own, with all that runs there: threads, tasks in the background, what is collected. They
take turns in short rounds, there and back, so that whatever else runs on the machine meets all of them alike; each
round is one comparison, and the median of the comparisons counts. What is not the SDK's is measured alone, too.
`twinbus bench-pair` starts brokers and shows figures.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple
from unittest.mock import patch

from twinbus.model.extras import needing

with needing("azure.servicebus"):
    import azure.servicebus
    import azure.servicebus.aio
    from azure.servicebus import ServiceBusMessage

    import twinbus.pair
    import twinbus.pair.aio

BODY = b"x" * 100
NAME = "bench"
BARE, PAIRED, PASSIVE = "the bare SDK", "paired", "passive replication"
FLAVOURS = ("blocking", "asyncio")
OWN_FACTOR = 20  # What is not the SDK's takes so little that more of it makes a round.


class Place(NamedTuple):
    """Where is sent to."""

    primary: str
    secondary: str
    queue: str


class Cost(NamedTuple):
    """Microseconds of CPU for a send."""

    flavour: str
    way: str
    cpu_us: float  # In the median round.
    times_bare: float  # The median of the comparisons, each of one round.
    low: float  # A quarter of the comparisons are below.
    high: float  # And a quarter above.
    own_us: float  # What is left of it when the SDK's own sender does nothing.
    own_percent: float  # Of a send with the bare SDK.


# In the process of one way


def _client(flavour: str, way: str, place: Place) -> Any:
    """The client that a process has; the paired ones as they are without options."""
    sdk, pair = (azure.servicebus, twinbus.pair) if flavour == "blocking" else (azure.servicebus.aio, twinbus.pair.aio)
    if way == BARE:
        return sdk.ServiceBusClient.from_connection_string(place.primary)
    both = place.primary, place.secondary
    if way == PAIRED:
        return pair.PairedServiceBusClient.from_connection_strings(*both, primary_name=NAME)
    return pair.ReplicatedClient.from_connection_strings(*both, mode="passive")


def _send_when_asked(pipe: Connection, flavour: str, way: str, place: Place) -> None:
    """Send as often as is asked for, and answer what that cost this process, until nothing more is asked."""
    if flavour == "blocking":
        _blocking(pipe, _client(flavour, way, place), place.queue)
    else:
        asyncio.run(_on_asyncio(pipe, way, place))


def _blocking(pipe: Connection, client: Any, queue: str) -> None:
    message = ServiceBusMessage(BODY)
    with ExitStack() as stack:
        sender = stack.enter_context(stack.enter_context(client).get_queue_sender(queue))
        while asked := pipe.recv():
            count, is_alone = asked
            kind, nothing = azure.servicebus.ServiceBusSender, lambda self, message, **_: None
            with patch.object(kind, "send_messages", nothing) if is_alone else ExitStack():
                began = time.process_time()
                for _ in range(count):
                    sender.send_messages(message)
                pipe.send(time.process_time() - began)


async def _on_asyncio(pipe: Connection, way: str, place: Place) -> None:
    message, loop = ServiceBusMessage(BODY), asyncio.get_running_loop()

    async def nothing(_sender: Any, _message: Any, **_: Any) -> None:
        return

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client("asyncio", way, place))
        sender = await stack.enter_async_context(client.get_queue_sender(place.queue))
        while asked := await loop.run_in_executor(None, pipe.recv):
            count, is_alone = asked
            kind = azure.servicebus.aio.ServiceBusSender
            with patch.object(kind, "send_messages", nothing) if is_alone else ExitStack():
                began = time.process_time()
                for _ in range(count):
                    await sender.send_messages(message)
                pipe.send(time.process_time() - began)


# In the process that compares


@contextmanager
def _senders(flavour: str, place: Place) -> Iterator[dict[str, Callable[[int, bool], float]]]:
    """A process for each way; what so many sends cost there, or what is the pair's own alone."""
    context = get_context("spawn")
    started = []
    try:
        found = {}
        for way in (BARE, PAIRED, PASSIVE):
            here, there = context.Pipe()
            process = context.Process(target=_send_when_asked, args=(there, flavour, way, place), daemon=True)
            process.start()
            there.close()
            started.append((process, here))
            found[way] = _asking(here)
        yield found
    finally:
        for process, here in started:
            if process.is_alive():
                here.send(None)
            process.join()


def _asking(pipe: Connection) -> Callable[[int, bool], float]:
    def ask(count: int, is_alone: bool) -> float:
        pipe.send((count, is_alone))
        taken: float = pipe.recv()
        return taken / count

    return ask


def compare(flavour: str, place: Place, rounds: int, sends: int) -> list[Cost]:
    """The costs of all ways of a flavour."""
    with _senders(flavour, place) as senders:

        def measure(count: int, is_alone: bool) -> dict[str, list[float]]:
            taken: dict[str, list[float]] = {way: [] for way in senders}
            for _ in range(rounds):
                there = {way: ask(count, is_alone) for way, ask in senders.items()}
                back = {way: ask(count, is_alone) for way, ask in reversed(senders.items())}
                for way in senders:
                    taken[way].append((there[way] + back[way]) / 2)
            return taken

        for ask in senders.values():
            ask(sends, False)  # Opens the links.
        return costs(flavour, measure(sends, False), measure(sends * OWN_FACTOR, True))


def costs(flavour: str, rounds: dict[str, list[float]], own: dict[str, list[float]]) -> list[Cost]:
    """What the rounds come to. A call that does nothing is none of the pair's cost."""
    found = []
    bare = statistics.median(rounds[BARE])
    for way, taken in rounds.items():
        times = [each / same for each, same in zip(taken, rounds[BARE], strict=True)]
        low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
        alone = statistics.median(each - call for each, call in zip(own[way], own[BARE], strict=True))
        cpu_us = statistics.median(taken) * 1e6
        found.append(Cost(flavour, way, cpu_us, middle, low, high, alone * 1e6, alone / bare * 100))
    return found
