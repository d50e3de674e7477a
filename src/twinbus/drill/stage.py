"""The stage of a drill: two namespaces behind fault proxies, brokers of its own or a pair that is up already.

Says how a namespace goes away and comes back; when, the scenarios say. The stage on a pair that is up is set by
`standing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.client import ConnectionString, connect, upkeep
from twinbus.client.connection_string import at_endpoint
from twinbus.client.messages import read
from twinbus.drill.brokers import Broker
from twinbus.drill.course import Course
from twinbus.drill.traffic import DESTINATIONS, Destination
from twinbus.faults.proxy import FaultProxy, Mode
from twinbus.pair import State
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.options import SendAvailabilityOptions

if TYPE_CHECKING:
    from twinbus.client.atom import Administration
    from twinbus.drill.proof import Prover

ADMINISTRATION_S = 10.0
REAL_S_MAX = 600.0  # An outage that is longer runs on moved clocks.
PRIMARY, SECONDARY = "primary", "secondary"
DATACENTERS = {PRIMARY: "north", SECONDARY: "south"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for."""

    scenario: str = "outage"
    outage_s: float = 10.0
    rate: float = 50.0  # Messages in a second, over all destinations.
    seed: int = 0
    lost_answers: int = 0  # So many times before the outage, a primary's answer is lost with its connection.
    returns: str | None = None  # Of a disaster: the disk with which the primary comes back later, `old` or `empty`.

    @property
    def moves_clocks(self) -> bool:
        """Whether it lasts so long that nobody would wait."""
        return self.outage_s > REAL_S_MAX


class Site:
    """One namespace on the stage, and the wire to it."""

    def __init__(self, course: Course, name: str, described: NamespaceDescription, broker: Broker | None) -> None:
        self.name = name
        self.broker = broker
        self._course = course
        self._described = described
        target = ConnectionString.parse(described.connection_string)
        self.proxy = FaultProxy(target.port, target.host)
        self._ahead_ms = 0  # How far its clock is set forward.

    @property
    def direct(self) -> NamespaceDescription:
        """The namespace itself."""
        return self._described

    @property
    def wired(self) -> NamespaceDescription:
        """The namespace through the proxy, which is what the drill's clients use."""
        return replace(
            self._described,
            connection_string=at_endpoint(self._described.connection_string, "127.0.0.1", self.proxy.port),
        )

    @asynccontextmanager
    async def administered(self) -> AsyncIterator[Administration]:
        """Its administration, past the proxy, for the time of a block."""
        namespace = self._described.namespace(self.name, ADMINISTRATION_S)
        try:
            async with await namespace.administer() as administration:
                yield administration
        finally:
            await namespace.close()

    async def browse(self, *paths: str) -> dict[str, list[str]]:
        """The ids of the messages in each queue, past the proxy; nothing is locked or taken."""
        found: dict[str, list[str]] = {path: [] for path in paths}
        async with connect(self._described.connection_string) as connection:
            for path, ids in found.items():
                async for page in (await connection.management(path)).peek_all():
                    ids += [read(payload).message_id or "" for payload in page]
        return found

    async def go_away(self) -> None:
        """Be gone: the process is killed, or on a pair that is up the drill's connections are cut and refused."""
        if self.broker is not None:
            await self.broker.kill()
        else:
            self.proxy.set(Mode.REFUSE)
        self.is_gone(f"the {self.name} is gone")

    async def come_back(self) -> None:
        """Be there again, with the same data, and with a clock as far ahead as if it had gone on meanwhile."""
        if self.broker is not None:
            self.proxy.set(Mode.REFUSE)
            await self.broker.start()
            await self._set_clock(self._ahead_ms)
        self.proxy.set(Mode.PASS)
        self.is_back(f"the {self.name} is back")

    async def advance(self, by_ms: int) -> None:
        """Set its clock forward: now, or when it is there again."""
        self._ahead_ms += by_ms
        if self.broker is not None and self.broker.is_running:
            await self._set_clock(by_ms)

    async def _set_clock(self, by_ms: int) -> None:
        if by_ms:
            async with self.administered() as administration:
                await upkeep.clock(administration, by_ms)

    def is_gone(self, words: str) -> None:
        """Note that it cannot be used now, in whatever way."""
        self._course.away.add(self.name)
        self._course.mark("gone")
        self._course.say(words)

    def is_back(self, words: str) -> None:
        """Note that it can be used again."""
        self._course.away.discard(self.name)
        self._course.mark("back")
        self._course.say(words)


@dataclass(slots=True)
class Stage:
    """Where a scenario plays."""

    directory: Path
    plan: Plan
    course: Course
    primary: Site
    secondary: Site
    destinations: tuple[Destination, ...] = DESTINATIONS
    id_prefix: str = ""  # Of message ids, where others use the namespaces too.
    options: SendAvailabilityOptions | None = None  # Of the pair, if they are not the scenario's to choose.
    prover: Prover | None = None

    def all_failed_over(self) -> bool:
        """Whether every destination's sends are diverted now."""
        return [*self.course.ill.values()] == [State.FAILED_OVER.value] * len(self.destinations)

    def described(self, options: SendAvailabilityOptions, *, direct: bool = False) -> PairDescription:
        """The pair as the drill's clients see it, or as it is."""
        namespaces = [site.direct if direct else site.wired for site in (self.primary, self.secondary)]
        return PairDescription(namespaces[0], namespaces[1], options)


@asynccontextmanager
async def on_own_brokers(
    directory: Path,
    plan: Plan,
    course: Course,
    *,
    options: Iterable[str] = (),
    configs: tuple[str, str] | None = None,
    prover: Prover | None = None,
) -> AsyncIterator[Stage]:
    """A stage of two brokers; they get `options` on their command line, and these configurations if they are given."""
    given = [*options, *(() if prover is None else ("--journal", "default"))]
    given += ["--test-clock"] if plan.moves_clocks else []
    names, described = (PRIMARY, SECONDARY), configs or (config_of(DESTINATIONS), "")
    async with AsyncExitStack() as stack:
        brokers = []
        for name, config in zip(names, described, strict=True):
            brokers.append(Broker(name, directory, config, "--datacenter", DATACENTERS[name], *given))
            stack.push_async_callback(brokers[-1].stop)
        await asyncio.gather(*(broker.start() for broker in brokers))
        course.say("two namespaces are up")
        primary, secondary = [
            Site(course, name, NamespaceDescription(broker.connection_string, name=name), broker)
            for name, broker in zip(names, brokers, strict=True)
        ]
        await stack.enter_async_context(primary.proxy)
        await stack.enter_async_context(secondary.proxy)
        yield Stage(directory, plan, course, primary, secondary, prover=prover)


def config_of(destinations: Iterable[Destination]) -> str:
    """The destinations as a broker's configuration."""
    lines = []
    for path, subscription, sessions in destinations:
        if subscription is None:
            lines += ["[[queues]]", f'Name = "{path}"', f"RequiresSession = {str(sessions).lower()}"]
        else:
            lines += ["[[topics]]", f'Name = "{path}"', "[[topics.subscriptions]]", f'Name = "{subscription}"']
        lines.append("DeadLetteringOnMessageExpiration = true")  # What expires can then be told from what is lost.
    return "\n".join([*lines, ""])
