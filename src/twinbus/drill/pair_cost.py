"""What sending through a pair costs while all is well: CPU of this process beside that of the bare SDK, send by send.

The ways take turns in short rounds, so that whatever else runs on the machine meets all of them; the median counts.
Still, the SDK polls while it waits for its answer, more or less each time, and on a busy machine that is most of the
difference. So what is not the SDK's is measured alone, too. `twinbus bench-pair` starts brokers and shows figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
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


class Cost(NamedTuple):
    """Microseconds of CPU for a send, in the median round of each way."""

    flavour: str
    way: str
    cpu_us: float
    times_bare: float
    own_us: float  # What is left of it when the SDK's own sender does nothing.
    own_percent: float  # Of a send with the bare SDK.


def costs(flavour: str, rounds: dict[str, list[float]], own: dict[str, list[float]]) -> list[Cost]:
    """What the rounds come to. A call that does nothing is none of the pair's cost."""
    whole = {way: statistics.median(found) for way, found in rounds.items()}
    alone = {way: statistics.median(found) for way, found in own.items()}
    return [
        Cost(
            flavour,
            way,
            found * 1e6,
            found / whole[BARE],
            (alone[way] - alone[BARE]) * 1e6,
            (alone[way] - alone[BARE]) / whole[BARE] * 100,
        )
        for way, found in whole.items()
    ]


def blocking(primary: str, secondary: str, queue: str, rounds: int, sends: int) -> list[Cost]:
    """The blocking client."""
    message = ServiceBusMessage(BODY)
    with ExitStack() as stack:
        senders = {
            way: stack.enter_context(stack.enter_context(client).get_queue_sender(queue))
            for way, client in _clients(azure.servicebus, twinbus.pair, primary, secondary).items()
        }

        def measure(sender: Any) -> float:
            began = time.process_time()
            for _ in range(sends):
                sender.send_messages(message)
            return (time.process_time() - began) / sends

        def measure_all() -> dict[str, list[float]]:
            taken: dict[str, list[float]] = {way: [] for way in senders}
            for number in range(rounds):
                for way in _turns(list(senders), number):
                    taken[way].append(measure(senders[way]))
            return taken

        for sender in senders.values():
            measure(sender)  # Opens the links.
        whole = measure_all()
        with patch.object(azure.servicebus.ServiceBusSender, "send_messages", lambda self, message, **_: None):
            own = measure_all()
    return costs("blocking", whole, own)


async def on_asyncio(primary: str, secondary: str, queue: str, rounds: int, sends: int) -> list[Cost]:
    """The client for asyncio."""
    message = ServiceBusMessage(BODY)
    async with AsyncExitStack() as stack:
        senders = {}
        for way, client in _clients(azure.servicebus.aio, twinbus.pair.aio, primary, secondary).items():
            opened = await stack.enter_async_context(client)
            senders[way] = await stack.enter_async_context(opened.get_queue_sender(queue))

        async def measure(sender: Any) -> float:
            began = time.process_time()
            for _ in range(sends):
                await sender.send_messages(message)
            return (time.process_time() - began) / sends

        async def measure_all() -> dict[str, list[float]]:
            taken: dict[str, list[float]] = {way: [] for way in senders}
            for number in range(rounds):
                for way in _turns(list(senders), number):
                    taken[way].append(await measure(senders[way]))
            return taken

        async def nothing(_sender: Any, _message: Any, **_: Any) -> None:
            return

        for sender in senders.values():
            await measure(sender)
        whole = await measure_all()
        with patch.object(azure.servicebus.aio.ServiceBusSender, "send_messages", nothing):
            own = await measure_all()
    return costs("asyncio", whole, own)


def _clients(sdk: Any, pair: Any, primary: str, secondary: str) -> dict[str, Any]:
    made: dict[str, Callable[[], Any]] = {
        BARE: lambda: sdk.ServiceBusClient.from_connection_string(primary),
        PAIRED: lambda: pair.PairedServiceBusClient.from_connection_strings(
            primary, secondary, pair.SendAvailabilityOptions(backlog_queue_count=1), primary_name=NAME
        ),
        PASSIVE: lambda: pair.ReplicatedClient.from_connection_strings(primary, secondary, mode="passive"),
    }
    return {way: make() for way, make in made.items()}


def _turns(ways: list[str], number: int) -> list[str]:
    """Each way is first, second and last equally often."""
    first = number % len(ways)
    return ways[first:] + ways[:first]
