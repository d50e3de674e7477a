"""A pair of real brokers to which everything happens that can happen to a message, with an outage in the middle.

What was sent is written down as a sender does; what it all adds up to is for the tests to judge.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from support.broker import BrokerProcess, wait_for
from support.pair_scene import QUICK
from twinbus.client import Connection, connect, messages
from twinbus.drill.history import SendLog
from twinbus.model.message import Outcome, ReceiveMode
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.backlog.diversion import Diverted
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.syphon.standalone import StandaloneSyphon
from twinbus.wire.sessions import WantedSession

CONFIG = """
[[queues]]
Name = "orders"

[[queues]]
Name = "carts"
RequiresSession = true

[[queues]]
Name = "once"
RequiresDuplicateDetection = true

[[queues]]
Name = "wide"
EnablePartitioning = true

[[queues]]
Name = "poison"
MaxDeliveryCount = 1

[[queues]]
Name = "brief"
DefaultMessageTimeToLive = "PT5S"

[[queues]]
Name = "mourned"
DefaultMessageTimeToLive = "PT5S"
DeadLetteringOnMessageExpiration = true

[[queues]]
Name = "inbox"
ForwardTo = "orders"

[[queues]]
Name = "astray"
ForwardTo = "nowhere"

[[queues]]
Name = "nowhere"

[[topics]]
Name = "events"

[[topics.subscriptions]]
Name = "audit"

[[topics.subscriptions]]
Name = "copies"
ForwardTo = "orders"

[[topics]]
Name = "silence"
"""


class EventfulRun:
    """Two brokers with journals; use it with `with`."""

    def __init__(self, directory: Path) -> None:
        options = ("--journal", "default", "--test-clock", "--stores", "2")
        self.primary = BrokerProcess(directory / "north", namespace="contoso", config=CONFIG, options=options)
        self.secondary = BrokerProcess(
            directory / "south", namespace="fabrikam", options=("--journal", "default", "--stores", "1")
        )
        self.log = SendLog(directory / "sent.jsonl")
        self.diverted: set[str] = set()

    def __enter__(self) -> EventfulRun:
        self.primary.start()
        self.secondary.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.log.__exit__(None, None, None)
        self.primary.kill()
        self.secondary.kill()

    @property
    def environment(self) -> dict[str, str]:
        """The pair, for commands."""
        return {
            "TWINBUS_PRIMARY": self.primary.connection_string(),
            "TWINBUS_SECONDARY": self.secondary.connection_string(),
            "TWINBUS_PAIR_BACKLOG_QUEUE_COUNT": "2",
        }

    @property
    def description(self) -> PairDescription:
        """The pair, for a syphon."""
        return PairDescription(
            NamespaceDescription(self.primary.connection_string()),
            NamespaceDescription(self.secondary.connection_string()),
            SendAvailabilityOptions(**{**QUICK, "announce": False}),
        )

    # What happens

    async def everything(self) -> None:
        """From empty brokers to full journals."""
        await self.outage()
        async with connect(self.primary.connection_string()) as connection:
            await self.settle(connection)
            await self.sessions(connection)
            await self.schedule(connection)
            await self.forward_and_publish(connection)
            await self.expire_and_remove(connection)

    async def outage(self) -> None:
        """Sends before, during and after; what was diverted comes home."""
        client = PairedServiceBusClient.from_connection_strings(
            self.primary.connection_string(),
            self.secondary.connection_string(),
            SendAvailabilityOptions(**{**QUICK, "announce": False, "failover_interval": 0.0}),
            on_diverted=self._was_diverted,
        )
        async with client, client.get_queue_sender("orders") as sender:
            for number in range(5):
                await self._send(sender, f"before-{number}")
            self.primary.kill()
            for number in range(6):
                while not await self._send(sender, f"during-{number}"):
                    pass
            self.primary.start()
        assert self.diverted
        async with StandaloneSyphon(self.description) as syphon:
            await syphon.pair()
            await syphon.drain()

    async def _send(self, sender: Any, message_id: str) -> bool:
        self.log.attempted(message_id, "orders", time.time())
        try:
            await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))
        except ServiceBusError as error:
            self.log.failed(message_id, time.time(), str(error))
            return False
        self.log.acknowledged(message_id, time.time(), message_id in self.diverted)
        return True

    def _was_diverted(self, diverted: Diverted) -> None:
        self.diverted.update(diverted.message_ids)

    async def send(self, connection: Connection, entity: str, *ids: str, **settings: Any) -> None:
        """One by one, written down before and after."""
        sender = await connection.sender(entity)
        for message_id in ids:
            self.log.attempted(message_id, entity, time.time())
            await sender.send([messages.build(b"x", message_id=message_id, **settings)])
            self.log.acknowledged(message_id, time.time(), diverted=False)
        await sender.close()

    async def settle(self, connection: Connection) -> None:
        """Completed, abandoned, dead-lettered, deferred, redriven, handed out and removed; some stay."""
        await self.send(connection, "wide", *(f"wide-{number}" for number in range(8)))
        await self.send(connection, "once", "twin", "twin")
        await self.send(connection, "poison", "bitter")
        receiver = await connection.receiver("poison", credit=1)
        await receiver.settle(await receiver.receive(1, 5), Outcome.ABANDON)
        receiver = await connection.receiver("wide", credit=4)
        await receiver.settle(await receiver.receive(3, 5))
        receiver = await connection.receiver("orders", credit=0)
        first, second, third, fourth, *rest = await self._take(receiver, 11)
        await receiver.settle([first], Outcome.ABANDON)
        await receiver.settle([second], Outcome.DEFER)
        await receiver.settle([third, fourth], Outcome.DEAD_LETTER)
        await receiver.settle(rest)
        [again] = await self._take(receiver, 1)
        await receiver.settle([again])
        await receiver.close()
        status, text = self.primary.request(
            "POST", "/$api/redrive", json.dumps({"entity": "orders", "limit": 1}), {"Content-Type": "application/json"}
        )
        assert (status, json.loads(text)["moved"]) == (200, 1)
        taker = await connection.receiver("once", mode=ReceiveMode.RECEIVE_AND_DELETE, credit=1)
        assert len(await taker.receive(1, 5)) == 1
        await taker.close()

    async def _take(self, receiver: Any, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            lot = await receiver.receive(count - len(found), 5)
            assert lot, f"only {len(found)} of {count} came"
            found += lot
        return found

    async def sessions(self, connection: Connection) -> None:
        """Two sessions, one of them received."""
        for session in ("red", "blue"):
            await self.send(connection, "carts", *(f"{session}-{number}" for number in range(4)), session_id=session)
        receiver = await connection.receiver("carts", credit=0, session=WantedSession("red"))
        await receiver.settle(await self._take(receiver, 4))
        await receiver.close()

    async def schedule(self, connection: Connection) -> None:
        """One becomes active, one is cancelled, one waits; and one in a topic is published when its time comes."""
        now_ms = int(time.time() * 1000)
        node = await connection.management("orders")
        soon, never, _ = await node.schedule(
            [
                messages.build(b"x", message_id=name, due_at_ms=now_ms + delay_ms)
                for name, delay_ms in (("soon", 60_000), ("never", 600_000), ("someday", 6_000_000))
            ]
        )
        assert soon < never
        await node.cancel([never])
        await node.close()
        await self.send(connection, "events", "announced", due_at_ms=now_ms + 60_000)
        self.advance("PT2M")

    def advance(self, by: str) -> None:
        """Move the primary's clock."""
        status, text = self.primary.request(
            "POST", "/$api/clock", json.dumps({"advance": by}), {"Content-Type": "application/json"}
        )
        assert status == 200, text

    async def forward_and_publish(self, connection: Connection) -> None:
        """Within a store and between stores, from a subscription, to nobody, and to a queue that takes nothing."""
        self.primary.update_queue("nowhere", Status="Disabled")
        await self.send(connection, "inbox", *(f"through-{number}" for number in range(3)))
        await self.send(connection, "astray", "stranded")
        await self.send(connection, "events", *(f"news-{number}" for number in range(3)))
        await self.send(connection, "silence", "unheard")
        receiver = await connection.receiver("events/Subscriptions/audit", credit=0)
        await receiver.settle(await self._take(receiver, 4))
        await receiver.close()
        wait_for(lambda: self.primary.count("inbox") == 0, "the forwarding of inbox")
        wait_for(
            lambda: self.primary.count("astray", "TransferDeadLetterMessageCount") == 1, "the end of what went astray"
        )

    async def expire_and_remove(self, connection: Connection) -> None:
        """Time to live, purge, and an entity that is deleted with all that is in it."""
        await self.send(connection, "brief", "brief-1")
        await self.send(connection, "mourned", "mourned-1")
        self.advance("PT1M")
        self.primary.create_queue("rubbish")
        await self.send(connection, "rubbish", "rubbish-1", "rubbish-2")
        status, text = self.primary.request(
            "POST", "/$api/purge", json.dumps({"entity": "rubbish"}), {"Content-Type": "application/json"}
        )
        assert (status, json.loads(text)["removed"]) == (200, 2)
        self.primary.create_queue("doomed")
        await self.send(connection, "doomed", "doomed-1", "doomed-2")
        self.primary.delete_queue("doomed")
        self.primary.create_queue("doomed")  # Another one of the same name.
        await self.send(connection, "doomed", "reborn")

    # Harm on purpose

    def lose_whole(self, message_id: str) -> None:
        """The primary loses power: of the last transaction nothing is left, nor a note of it, as if never synced."""
        self.primary.kill()
        os.truncate(self.primary.data / "lock", 0)
        for path in sorted(self.primary.data.glob("store-*.db")):
            with closing(sqlite3.connect(path)) as database, database:
                found = database.execute(
                    "SELECT queue, seq FROM message WHERE message_id = ?", (message_id,)
                ).fetchone()
                if found is None:
                    continue
                last, ops = database.execute("SELECT id, ops FROM journal ORDER BY id DESC LIMIT 1").fetchone()
                assert message_id.encode() in ops, "another transaction came after it"
                database.execute("DELETE FROM journal WHERE id = ?", (last,))
                _remove(database, *found)
        self.primary.start()

    def lose_message(self, message_id: str) -> None:
        """A message is taken out of the primary's file, and the journal is left as it is."""
        self.primary.kill()
        for path in sorted(self.primary.data.glob("store-*.db")):
            with closing(sqlite3.connect(path)) as database, database:
                for found in database.execute(
                    "SELECT queue, seq FROM message WHERE message_id = ?", (message_id,)
                ).fetchall():
                    _remove(database, *found)
        self.primary.start()


def _remove(database: sqlite3.Connection, queue: int, seq: int) -> None:
    database.execute("DELETE FROM message WHERE queue = ? AND seq = ?", (queue, seq))
    database.execute("UPDATE queue SET active = active - 1 WHERE id = ?", (queue,))
