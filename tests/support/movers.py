"""Everything that uses the mover, each as one call that ends when nothing is left to move; a test stops it in between.

As a program (`python -m support.movers USE FAILPOINT N PLACE`) it is killed at the n-th time that it comes by.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from twinbus.client import connect
from twinbus.client.connection import Connection
from twinbus.client.redrive import Redrive
from twinbus.model.failpoints import arm
from twinbus.pair import Outbox, PairDescription, SendAvailabilityOptions
from twinbus.pair.core import PairCore
from twinbus.pair.description import NamespaceDescription
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.outbox.behind_pair import through
from twinbus.pair.outbox.dispatcher import Dispatcher, alone
from twinbus.pair.syphon.standalone import StandaloneSyphon
from twinbus.pair.syphon.syphon import Syphon
from twinbus.pipeline.syphoning.movement import Mover
from twinbus.pipeline.syphoning.rounds import Share

BATCH = 5
LOOK_S = 0.05


class Place(NamedTuple):
    """Where a use of the mover is at work; all of it can be written down."""

    primary: str
    secondary: str
    name: str
    destination: str
    backlog: str
    ordered: str
    dead_letters: str
    outbox: str

    def description(self) -> PairDescription:
        options = SendAvailabilityOptions(
            backlog_queue_count=1,
            failover_interval=60,
            syphon_batch=BATCH,
            poll=1,
            announce=False,
            missing_entity_wait=0,
        )
        return PairDescription(
            NamespaceDescription(self.primary, name=self.name), NamespaceDescription(self.secondary), options
        )


class Lines:
    """The connections of a run, to be cut as those of a process that dies are."""

    def __init__(self) -> None:
        self.namespaces: list[OwnClientNamespace] = []
        self.connections: list[Connection] = []

    def cut(self) -> None:
        """End them without a word."""
        for namespace in self.namespaces:
            if namespace._connection is not None:
                self.connections.append(namespace._connection)
        for connection in self.connections:
            connection._stream.abort()


async def once(place: Place, lines: Lines) -> None:
    async with StandaloneSyphon(place.description()) as run:
        lines.namespaces += [run.primary, run.secondary]  # type: ignore[list-item]
        await run.pair()
        await run.drain()


async def pump(place: Place, lines: Lines) -> None:
    description = place.description()
    primary, secondary = description.namespaces()
    lines.namespaces += [primary, secondary]  # type: ignore[list-item]
    syphon = Syphon(primary, secondary, place.name, [place.backlog], description.options)
    syphon.start()
    try:
        async with await secondary.administer() as administration:
            while (await administration.entity(place.backlog)).counts.active:
                await asyncio.sleep(LOOK_S)
    finally:
        await syphon.stop()
        await asyncio.gather(primary.close(), secondary.close())


async def spark(place: Place, lines: Lines) -> None:
    """What one task of the Spark job does, without Spark."""
    mover = Mover(place.description(), Share(0, (place.backlog,)), 10.0)
    lines.namespaces += [mover._primary, mover._secondary]  # type: ignore[list-item]
    await mover.run()


async def outbox(place: Place, lines: Lines) -> None:
    namespace = OwnClientNamespace("primary", place.description().namespaces()[0].target)
    lines.namespaces.append(namespace)
    with Outbox(place.outbox) as box:
        try:
            await Dispatcher(box, alone(namespace)).drain()
        finally:
            await namespace.close()


async def outbox_of_a_pair(place: Place, lines: Lines) -> None:
    description = place.description()
    primary, secondary = description.namespaces()
    lines.namespaces += [primary, secondary]  # type: ignore[list-item]
    core = PairCore(primary, secondary, description.options, primary_name=place.name)
    await core.open()
    with Outbox(place.outbox) as box:
        try:
            await through(core.carrier, box).drain()
        finally:
            await core.close()


async def redrive(place: Place, lines: Lines) -> None:
    async with connect(place.primary) as connection:
        lines.connections.append(connection)
        letters = f"{place.dead_letters}/$DeadLetterQueue"

        async def source() -> object:
            return await connection.receiver(letters, credit=0)

        destination = await connection.sender(place.destination)
        run = Redrive(source, destination, until=2**63, leave=lambda message: None)  # type: ignore[arg-type]
        await run.run()


USES: dict[str, Callable[[Place, Lines], Awaitable[None]]] = {
    "pump": pump,
    "once": once,
    "ordered": once,  # The backlog makes the difference.
    "spark": spark,
    "outbox": outbox,
    "outbox of a pair": outbox_of_a_pair,
    "redrive": redrive,
}


def main(use: str, failpoint: str, nth: str, place: str) -> None:
    arm(failpoint, lambda: os.kill(os.getpid(), signal.SIGKILL), int(nth))
    asyncio.run(_run(USES[use], Place(*json.loads(Path(place).read_text()))))


async def _run(use: Callable[[Place, Lines], Awaitable[None]], place: Place) -> None:
    await use(place, Lines())


if __name__ == "__main__":
    main(*sys.argv[1:])
