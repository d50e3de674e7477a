"""The drill `outage`: the primary is killed under a sender, comes back, and everything reaches its destination.

Messages go to a queue, a session queue and a topic at a steady rate; receivers read the primary the whole time. What
failed is sent again under its id, and no destination detects duplicates: that nothing is worked on twice is the
ledger's doing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from twinbus.drill.brokers import Broker
from twinbus.drill.history import SendLog, Verdict, judge
from twinbus.drill.proof import Proof, Prover
from twinbus.faults.frames import Says
from twinbus.faults.proxy import FaultProxy, Toward
from twinbus.pair import State
from twinbus.pair.aio import Ledger, PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.board import Change
from twinbus.pair.diversion import Diverted

CONFIG = """
[[queues]]
Name = "orders"

[[queues]]
Name = "carts"
RequiresSession = true

[[topics]]
Name = "events"

[[topics.subscriptions]]
Name = "audit"
"""
CALM_S = 3.0  # The primary is healthy for so long before it goes.
SETTLE_S = 60.0  # How long everything may take to arrive afterwards.
SESSION_WAIT_S = 0.2  # How long a session that gives nothing is kept from the others.
AGAIN_S = 0.1  # Before a message that failed is sent again.
DESTINATIONS = ("orders", "carts", "events")


@dataclass(frozen=True, slots=True)
class Plan:
    """What the drill does."""

    outage_s: float = 10.0
    rate: float = 50.0  # Messages in a second, over all destinations.
    failover_interval_s: float = 2.0
    ping_interval_s: float = 1.0
    lost_answers: int = 0  # So many times before the outage, a primary's answer is lost with its connection.


class Outage:
    """One run; `say` gets a line for people whenever something happens."""

    def __init__(self, directory: Path, plan: Plan, say: Callable[[str], None], prover: Prover | None = None) -> None:
        """With a prover, Spark drains the backlog and proves the rest; else the client's own syphon drains."""
        self._directory = directory
        self._plan = plan
        self._say = say
        self._prover = prover
        self.proof: Proof | None = None
        self._began = time.monotonic()
        self._received: Counter[str] = Counter()
        self._moments: dict[str, float] = {}
        self._diverted: set[str] = set()
        self._ill: set[str] = set()
        self._enough = asyncio.Event()
        self.acknowledged = 0
        self.suppressed = 0  # Second copies that the ledger kept from being worked on.

    @property
    def received(self) -> int:
        """How many different messages have arrived."""
        return len(self._received)

    @property
    def diverted(self) -> int:
        """How many messages went to a backlog queue."""
        return len(self._diverted)

    async def run(self) -> Verdict:
        """The whole drill, from empty namespaces to the verdict."""
        async with AsyncExitStack() as stack:
            journal = () if self._prover is None else ("--journal", "default")
            primary = Broker("primary", self._directory, CONFIG, "--datacenter", "north", *journal)
            secondary = Broker("secondary", self._directory, "", "--datacenter", "south", *journal)
            for broker in (primary, secondary):
                stack.push_async_callback(broker.stop)
                await broker.start()
            self._say("two namespaces are up")
            proxy = await stack.enter_async_context(FaultProxy(primary.amqp_port))
            ledger = await stack.enter_async_context(Ledger(self._directory / "ledger.db"))
            options = SendAvailabilityOptions(
                backlog_queue_count=3,
                failover_interval=self._plan.failover_interval_s,
                ping_primary_interval=self._plan.ping_interval_s,
                enable_syphon=self._prover is None,
                attempts=1,
                attempt_timeout=5,
            )
            client = await stack.enter_async_context(
                PairedServiceBusClient.from_connection_strings(
                    primary.connection_string.replace(f":{primary.amqp_port};", f":{proxy.port};"),
                    secondary.connection_string,
                    options,
                    primary_name=primary.namespace,
                    on_change=self._changed,
                    on_diverted=self._was_diverted,
                )
            )
            if self._prover is not None:
                self._prover.describe(primary, secondary, options)
            log = stack.enter_context(SendLog(self._directory / "sent.jsonl"))
            receivers = [asyncio.create_task(self._receive(client, ledger, name)) for name in DESTINATIONS]
            stack.push_async_callback(_cancel, receivers)
            senders = [asyncio.create_task(self._send(client, log, name)) for name in DESTINATIONS]
            stack.push_async_callback(_cancel, senders)
            await self._lose_answers(proxy)
            await self._break(primary, client)
            self._enough.set()
            await asyncio.gather(*senders)  # What was begun gets its outcome, or the count would not be right.
            await self._settle(log.path)
            self.suppressed = ledger.metrics()["suppressed"]
            if self._prover is not None:
                self._say("reconciling")
                self.proof = await self._prover.prove(log.path, self._directory / "ledger.db")
        times = self._times()
        verdict = judge(log.path, self._received)
        return replace(verdict, divert_s=times.get("divert"), heal_s=times.get("heal"), drain_s=times.get("drain"))

    async def _lose_answers(self, proxy: FaultProxy) -> None:
        """What the primary has taken is not heard of, and sent again."""
        for _ in range(self._plan.lost_answers):
            await asyncio.sleep(AGAIN_S * 5)
            proxy.cut(Says.DISPOSITION, Toward.CLIENT)

    async def _break(self, primary: Broker, client: PairedServiceBusClient) -> None:
        """Take the primary away and bring it back; ends when everything is home again and a while has passed."""
        await asyncio.sleep(CALM_S)
        await primary.kill()
        self._mark("killed")
        self._say("the primary is gone")
        await asyncio.sleep(self._plan.outage_s)
        await primary.start()
        self._mark("restarted")
        self._say("the primary is back")
        deadline = time.monotonic() + SETTLE_S
        while "drained" not in self._moments and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            if "healed" in self._moments and await self._is_home(client):
                self._mark("drained")
        await asyncio.sleep(CALM_S)

    async def _is_home(self, client: PairedServiceBusClient) -> bool:
        """Whether the backlog is empty; with Spark, after having emptied it."""
        if self._prover is None:
            syphon = client.status().syphon or {"moved": {}}
            return bool(sum(syphon["moved"].values()) >= self.diverted)
        self._say("draining the backlog with Spark")
        return await self._prover.drain() == 0

    # Sending and receiving

    async def _send(self, client: PairedServiceBusClient, log: SendLog, name: str) -> None:
        """Messages to one destination at a steady rate; one that failed is sent again, until there is enough."""
        sender = client.get_topic_sender(name) if name == "events" else client.get_queue_sender(name)
        pause_s = len(DESTINATIONS) / self._plan.rate
        number = 0
        while not self._enough.is_set():
            session = f"cart-{number % 5}" if name == "carts" else None
            message = ServiceBusMessage(f"message {number}", message_id=f"{name}-{number:06}", session_id=session)
            while not await self._send_one(sender, name, message, log) and not self._enough.is_set():
                await asyncio.sleep(AGAIN_S)
            number += 1
            await asyncio.sleep(pause_s)

    async def _send_one(self, sender: Any, name: str, message: ServiceBusMessage, log: SendLog) -> bool:
        message_id = str(message.message_id)
        log.attempted(message_id, name, time.time())
        try:
            await sender.send_messages(message)
        except ServiceBusError as error:
            log.failed(message_id, time.time(), str(error))
            return False
        diverted = message_id in self._diverted
        log.acknowledged(message_id, time.time(), diverted)
        self.acknowledged += 1
        return True

    async def _receive(self, client: PairedServiceBusClient, ledger: Ledger, name: str) -> None:
        """Read the primary for ever; a receiver that breaks is made anew."""
        wait_s = SESSION_WAIT_S if name == "carts" else 1.0
        while True:
            with suppress(ServiceBusError, OSError):
                async with self._receiver(client, ledger, name) as receiver:
                    while True:
                        messages = await receiver.receive_messages(max_message_count=100, max_wait_time=wait_s)
                        for message in messages:
                            self._received[str(message.message_id)] += 1  # The work.
                            await receiver.complete_message(message)
                        if name == "carts" and not messages:
                            break  # Another session may have what this one has not.
            await asyncio.sleep(0.1)

    def _receiver(self, client: PairedServiceBusClient, ledger: Ledger, name: str) -> Any:
        if name == "events":
            return client.get_subscription_receiver("events", "audit", ledger=ledger)
        if name == "carts":
            session: Any = NEXT_AVAILABLE_SESSION
            return client.get_queue_receiver("carts", ledger=ledger, session_id=session, max_wait_time=2)
        return client.get_queue_receiver("orders", ledger=ledger)

    async def _settle(self, log: Path) -> None:
        """Wait until everything that was acknowledged has come, or cannot be expected to come any more."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            if not judge(log, self._received).lost:
                break
            await asyncio.sleep(0.2)
        await asyncio.sleep(1)  # A second copy would come about now.

    # Moments

    def _changed(self, change: Change) -> None:
        self._say(f"{change.scope}: {change.before.value} -> {change.after.value}")
        self._ill.add(change.scope.path)
        if change.after is State.HEALTHY:
            self._ill.discard(change.scope.path)
            if not self._ill and "restarted" in self._moments:
                self._mark("healed")

    def _was_diverted(self, diverted: Diverted) -> None:
        self._diverted.update(diverted.message_ids)
        self._mark("diverted")

    def _mark(self, moment: str) -> None:
        self._moments.setdefault(moment, self._now())

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _times(self) -> dict[str, float]:
        spans = {
            "divert": ("killed", "diverted"),
            "heal": ("restarted", "healed"),
            "drain": ("restarted", "drained"),
        }
        return {
            name: self._moments[end] - self._moments[start]
            for name, (start, end) in spans.items()
            if start in self._moments and end in self._moments
        }


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
