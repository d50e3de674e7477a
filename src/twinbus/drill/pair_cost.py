"""What sending through a pair costs while all is well: CPU of a process with a paired client next to a bare SDK's.

Each way has a process of its own, with all that runs there: threads, tasks in the background, what is collected. In a
round all processes are started anew and take short turns, in a new order each time. Of a process the turns count that
were disturbed least, since others only ever make a piece of work longer; of the rounds the median, since two processes
that do the same differ by some percent. So the bare SDK is also compared with itself: that is what the machine adds.
What is not the SDK's is measured alone, and calls are counted, too. `twinbus bench-pair` starts brokers and shows
figures.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from enum import Enum
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
BARE, AGAIN, PAIRED, PASSIVE = "the bare SDK", "the bare SDK again", "paired", "passive replication"
WAYS = (BARE, AGAIN, PAIRED, PASSIVE)
FLAVOURS = ("blocking", "asyncio")
TURNS = 20  # Of each process in a round.
UNDISTURBED = 0.1  # So many of them count: the last of these does.
COUNTED = 100  # Sends whose calls are counted.
WARM_UP = 5  # Sends at the beginning of a turn that are not counted: another process had the processor.
OWN_FACTOR = 20  # What is not the SDK's takes so little that more of it makes a round.


class Measured(Enum):
    """What a process is asked for."""

    CPU = "the CPU of sends"
    OWN = "the same, while the SDK's own sender does nothing"
    CALLS = "calls of functions"


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
    times_bare: float  # The median of the rounds, as the others.
    low: float  # A quarter of the rounds are below.
    high: float  # And a quarter above.
    calls: float  # Of functions, Python's and C's, which no other process disturbs; in the thread that sends.
    own_us: float  # What is left of it when the SDK's own sender does nothing.
    own_percent: float  # Of a send with the bare SDK.


# In the process of one way


def _client(flavour: str, way: str, place: Place) -> Any:
    """The client that a process has; the paired ones as they are without options."""
    sdk, pair = (azure.servicebus, twinbus.pair) if flavour == "blocking" else (azure.servicebus.aio, twinbus.pair.aio)
    if way in (BARE, AGAIN):
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
    message = ServiceBusMessage(BODY, message_id=NAME)
    with ExitStack() as stack:
        sender = stack.enter_context(stack.enter_context(client).get_queue_sender(queue))
        while asked := pipe.recv():
            what, count = asked
            with (
                _without_sdk(azure.servicebus, lambda self, message, **_: None) if what is Measured.OWN else ExitStack()
            ):
                for _ in range(WARM_UP):
                    sender.send_messages(message)
                measured = _calls() if what is Measured.CALLS else _cpu()
                for _ in range(count):
                    sender.send_messages(message)
                pipe.send(measured())


async def _on_asyncio(pipe: Connection, way: str, place: Place) -> None:
    message, loop = ServiceBusMessage(BODY, message_id=NAME), asyncio.get_running_loop()

    async def nothing(_sender: Any, _message: Any, **_: Any) -> None:
        return

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client("asyncio", way, place))
        sender = await stack.enter_async_context(client.get_queue_sender(place.queue))
        while asked := await loop.run_in_executor(None, pipe.recv):
            what, count = asked
            with _without_sdk(azure.servicebus.aio, nothing) if what is Measured.OWN else ExitStack():
                for _ in range(WARM_UP):
                    await sender.send_messages(message)
                measured = _calls() if what is Measured.CALLS else _cpu()
                for _ in range(count):
                    await sender.send_messages(message)
                pipe.send(measured())


def _without_sdk(sdk: Any, nothing: Callable[..., Any]) -> AbstractContextManager[Any]:
    """The SDK's own sender does nothing for the time of a block."""
    return patch.object(sdk.ServiceBusSender, "send_messages", nothing)


def _cpu() -> Callable[[], float]:
    """From now on, until the answer is asked for: seconds of CPU of all threads."""
    began = time.process_time()
    return lambda: time.process_time() - began


def _calls() -> Callable[[], float]:
    """The same: calls of functions, Python's and C's, in this thread."""
    count = 0

    def called(_frame: Any, event: str, _what: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    def stop() -> float:
        sys.setprofile(None)
        return count

    sys.setprofile(called)
    return stop


# In the process that compares


Ask = Callable[[Measured, int], float]


@contextmanager
def _senders(flavour: str, place: Place) -> Iterator[dict[str, Ask]]:
    """A process for each way, and how to ask it what so many sends cost, each."""
    context = get_context("spawn")
    started = []
    try:
        found = {}
        for way in WAYS:
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


def _asking(pipe: Connection) -> Ask:
    def ask(what: Measured, count: int) -> float:
        pipe.send((what, count))
        taken: float = pipe.recv()
        return taken / count

    return ask


def compare(flavour: str, place: Place, rounds: int, sends: int) -> list[Cost]:
    """The costs of all ways of a flavour."""
    chance = random.Random(flavour)
    found: dict[Measured, dict[str, list[float]]] = {what: {way: [] for way in WAYS} for what in Measured}
    for _ in range(rounds):
        with _senders(flavour, place) as senders:
            for what, count in ((Measured.CPU, sends), (Measured.OWN, sends * OWN_FACTOR)):
                turns: dict[str, list[float]] = {way: [] for way in WAYS}
                for _ in range(TURNS):
                    for way in chance.sample(WAYS, len(WAYS)):
                        turns[way].append(senders[way](what, count))
                for way, taken in turns.items():
                    found[what][way].append(sorted(taken)[int(TURNS * UNDISTURBED) - 1])
            for way, ask in senders.items():
                found[Measured.CALLS][way].append(ask(Measured.CALLS, COUNTED))
    return costs(flavour, found)


def costs(flavour: str, found: dict[Measured, dict[str, list[float]]]) -> list[Cost]:
    """What the rounds come to. A call that does nothing is none of the pair's cost."""
    whole, own, calls = found[Measured.CPU], found[Measured.OWN], found[Measured.CALLS]
    bare = statistics.median(whole[BARE])
    made = []
    for way, taken in whole.items():
        times = [each / same for each, same in zip(taken, whole[BARE], strict=True)]
        low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
        alone = statistics.median(each - call for each, call in zip(own[way], own[BARE], strict=True))
        cpu_us, called = statistics.median(taken) * 1e6, statistics.median(calls[way])
        made.append(Cost(flavour, way, cpu_us, middle, low, high, called, alone * 1e6, alone / bare * 100))
    return made
