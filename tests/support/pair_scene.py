"""Two broker processes for each module of tests, a fault proxy before the primary, and backlog queues for each test.

A test that takes a broker away gets it back before the next one begins.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from support.accounts import settle
from support.broker import BrokerProcess, running
from twinbus.drill.history import SendLog, Verdict, judge
from twinbus.faults.proxy import FaultProxy
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.backlog.diversion import Diverted
from twinbus.pair.outbox.rows import Queued
from twinbus.pair.route.health_board import Change

_numbers = itertools.count(1)

QUICK: dict[str, Any] = {
    "backlog_queue_count": 2,
    "failover_interval": 0.5,
    "ping_primary_interval": 1.0,
    "attempts": 2,
    # A namespace that is gone refuses at once; only one that is silent is waited for, and its tests say how long.
    "attempt_timeout": 20.0,
    "divert_timeout": 20.0,
    "state_directory": "",  # One test is nothing to the next.
}


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Wait for something; an AssertionError that names what never came."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline, f"{what}: not within {timeout_s} s"
        await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """The primary and the secondary."""
    primary = BrokerProcess(tmp_path_factory.mktemp("primary"), namespace="contoso")
    secondary = BrokerProcess(tmp_path_factory.mktemp("secondary"), namespace="fabrikam")
    with running(primary, secondary):
        yield primary, secondary


@dataclass
class Scene:
    """One test's pair: the brokers, a proxy before the primary, names of its own, and what was seen."""

    primary: BrokerProcess
    secondary: BrokerProcess
    proxy: FaultProxy
    name: str
    log: SendLog
    changes: list[Change] = field(default_factory=list)
    diverted: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    queued: list[Queued] = field(default_factory=list)

    def queue(self, **settings: Any) -> str:
        """A queue of the primary that no other test has."""
        return self.primary.create_queue(f"{self.name}-{next(_numbers)}", **settings)

    def connection_string(self) -> str:
        """The primary's, through the proxy."""
        direct = self.primary.connection_string()
        return direct.replace(f":{self.primary.amqp_port};", f":{self.proxy.port};")

    def client(self, **options: Any) -> PairedServiceBusClient:
        """A paired client whose way to the primary is through the proxy."""
        return PairedServiceBusClient.from_connection_strings(
            self.connection_string(),
            self.secondary.connection_string(),
            SendAvailabilityOptions(**{**QUICK, **options}),
            primary_name=self.name,
            on_change=self.changes.append,
            on_diverted=self._was_diverted,
        )

    def _was_diverted(self, diverted: Diverted) -> None:
        self.diverted.update(diverted.message_ids)

    async def send(self, sender: Any, message_id: str, **settings: Any) -> bool:
        """One message, written down before and after; whether it was acknowledged."""
        self.log.attempted(message_id, "", 0)
        try:
            await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id, **settings))
        except ServiceBusError as error:
            self.log.failed(message_id, 0, str(error))
            return False
        self.log.acknowledged(message_id, 0, message_id in self.diverted)
        return True

    async def receive(self, queue: str, expected: int, timeout_s: float = 40.0) -> None:
        """Receive from the primary, past the proxy, until so many different messages have come and none is left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        async with (
            ServiceBusClient.from_connection_string(self.primary.connection_string()) as client,
            client.get_queue_receiver(queue) as receiver,
        ):
            while len(self.received) < expected or self.primary.count(queue) > 0:
                assert loop.time() < deadline, f"{len(self.received)} of {expected} came, or some are left"
                for message in await receiver.receive_messages(100, max_wait_time=1):
                    self.received[str(message.message_id)] += 1
                    await receiver.complete_message(message)

    def verdict(self) -> Verdict:
        """What became of everything."""
        return judge(self.log.path, self.received)

    def settle(self, log: Path | None = None, **expected: Any) -> Verdict:
        """The account at the end of a test that kills something; another process may have a log of its own."""
        return settle(log or self.log.path, self.received, **expected)

    def backlog(self) -> dict[str, int]:
        """How many messages wait in each backlog queue of this test."""
        names = [f"{self.name}/x-servicebus-transfer/{index}" for index in range(2)]
        return {name: self.secondary.count(name) for name in names}


@pytest_asyncio.fixture
async def scene(
    brokers: tuple[BrokerProcess, BrokerProcess], request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Scene]:
    primary, secondary = brokers
    words = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_").lower())[:30].strip("-")
    async with FaultProxy(primary.amqp_port) as proxy:
        with SendLog(tmp_path / "sent.jsonl") as log:
            yield Scene(primary, secondary, proxy, f"{words}-{next(_numbers)}", log)
    for broker in brokers:
        if broker.process is None:
            broker.start()
    await asyncio.sleep(0)
    gc.collect()
