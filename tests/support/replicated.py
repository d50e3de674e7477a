"""Two namespaces that hold the same entities, a fault proxy before each, a ledger, and what was sent and worked on."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from support.accounts import settle
from support.broker import BrokerProcess
from twinbus.drill.history import SendLog, Verdict, judge
from twinbus.faults.proxy import FaultProxy
from twinbus.pair.aio import Ledger, ReplicatedClient
from twinbus.pair.replication.sender import Sent

_numbers = itertools.count(1)
QUICK: dict[str, Any] = {"attempts": 1, "attempt_timeout": 20.0}


@dataclass
class Twins:
    """One test's two namespaces."""

    primary: BrokerProcess
    secondary: BrokerProcess
    proxies: tuple[FaultProxy, FaultProxy]
    name: str
    path: Path
    log: SendLog
    sent: list[Sent] = field(default_factory=list)
    swaps: list[tuple[str, str]] = field(default_factory=list)
    worked: Counter[str] = field(default_factory=Counter)
    kept: set[str] = field(default_factory=set)  # What an outage shuts in: if it arrives after all, it was recovered.
    _ledgers: list[Ledger] = field(default_factory=list)

    @property
    def brokers(self) -> tuple[BrokerProcess, BrokerProcess]:
        return self.primary, self.secondary

    def queue(self, **settings: Any) -> str:
        """A queue in both namespaces that no other test has."""
        name = f"{self.name}-{next(_numbers)}"
        for broker in self.brokers:
            broker.create_queue(name, **settings)
        return name

    def ledger(self, **settings: Any) -> Ledger:
        """A ledger in a file of this test; opened again, it is the same one."""
        ledger = Ledger(self.path / "ledger.db", **settings)
        self._ledgers.append(ledger)
        return ledger

    def client(self, mode: str, **settings: Any) -> ReplicatedClient:
        """A replicated client, through the proxies."""
        strings = [
            broker.connection_string().replace(f":{broker.amqp_port};", f":{proxy.port};")
            for broker, proxy in zip(self.brokers, self.proxies, strict=True)
        ]
        return ReplicatedClient.from_connection_strings(
            *strings,
            mode=mode,
            on_sent=self.sent.append,
            on_swap=lambda path, name: self.swaps.append((path, name)),
            names=("contoso", "fabrikam"),
            **{**QUICK, **settings},
        )

    async def send(self, sender: Any, *message_ids: str, **settings: Any) -> bool:
        """Messages one by one, written down before and after; whether the last one was acknowledged."""
        took = False
        for message_id in message_ids:
            self.log.attempted(message_id, "", 0)
            try:
                await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id, **settings))
            except ServiceBusError as error:
                self.log.failed(message_id, 0, str(error))
                took = False
            else:
                self.log.acknowledged(message_id, 0, message_id in self.kept)
                took = True
        return took

    async def work(self, receiver: Any, expected: int, queue: str | None = None, timeout_s: float = 40.0) -> None:
        """Work on messages until so many different ones have come, and the queues are empty or nothing else comes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while loop.time() < deadline:
            messages = await receiver.receive_messages(20, max_wait_time=0.6)
            for message in messages:
                self.worked[str(message.message_id)] += 1
                await receiver.complete_message(message)
            if len(self.worked) >= expected and (not messages if queue is None else self.left(queue) == (0, 0)):
                return

    async def settled(self, receiver: Any, queue: str, left: int = 0, timeout_s: float = 40.0) -> None:
        """Go on receiving, which brings nothing: on the way second copies are settled, until so many are left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while sum(self.left(queue)) > left:
            assert loop.time() < deadline, f"{self.left(queue)} are left"
            assert await receiver.receive_messages(1, max_wait_time=0.6) == []

    def verdict(self) -> Verdict:
        """What became of everything."""
        return judge(self.log.path, self.worked)

    def settle(self, **expected: Any) -> Verdict:
        """The account at the end of a test that kills something."""
        return settle(self.log.path, self.worked, **expected)

    def left(self, queue: str) -> tuple[int, int]:
        """How many messages are still in the queue of each namespace."""
        return self.primary.count(queue), self.secondary.count(queue)


@pytest_asyncio.fixture
async def twins(
    brokers: tuple[BrokerProcess, BrokerProcess], request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Twins]:
    primary, secondary = brokers
    words = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_").lower())[:30].strip("-")
    async with FaultProxy(primary.amqp_port) as first, FaultProxy(secondary.amqp_port) as second:
        with SendLog(tmp_path / "sent.jsonl") as log:
            twins = Twins(primary, secondary, (first, second), f"{words}-{next(_numbers)}", tmp_path, log)
            yield twins
            for ledger in twins._ledgers:
                await ledger.close()
    for broker in brokers:
        if broker.process is None:
            broker.start()
    await asyncio.sleep(0)
    gc.collect()
