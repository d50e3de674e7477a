"""`twinbus store migrate`, judged by the official client: a namespace killed on SQLite goes on in PostgreSQL."""

from __future__ import annotations

import asyncio
import datetime
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusSubQueue

from support.broker import BrokerProcess
from support.forking import run_twinbus
from support.gateways import new_database
from support.journals import export, exported, missing_batches
from support.postgres import PostgresServer
from support.sdk import Bus, receive, receive_one

READER_KEY = "a-key-of-a-policy-that-moves-with-the-namespace"
ODD = "a mark \ue000, which is written otherwise there"
CONFIG = f"""
[[queues]]
Name = "orders"
MaxDeliveryCount = 2
[[queues]]
Name = "once"
RequiresDuplicateDetection = true
[[queues]]
Name = "talks"
RequiresSession = true
[[queues]]
Name = "spread"
EnablePartitioning = true
[[queues]]
Name = "later"
[[topics]]
Name = "news"
[[topics.subscriptions]]
Name = "all"
[[topics.subscriptions]]
Name = "red"
[[topics.subscriptions.rules]]
Name = "red"
SqlFilter = "colour = 'red'"
Action = "SET seen = 'yes'"
[[policies]]
Name = "reader"
Rights = ["Listen"]
PrimaryKey = "{READER_KEY}"
"""

pytestmark = pytest.mark.feature("SQLite to PostgreSQL")


async def test_a_namespace_moves_with_everything(tmp_path: Path, postgres: PostgresServer) -> None:
    url, files = new_database(postgres), tmp_path / "journal"
    old = BrokerProcess(tmp_path / "old", config=CONFIG, options=("--stores", "2", "--journal", str(files)))
    with old:
        bus = Bus("aio", old)
        async with filled(bus) as numbers:
            old.kill()
        await bus.closed()
    done = run_twinbus(
        ["store", "migrate", str(old.data), url, "--namespace", "compat"], dict(os.environ), timeout_s=60
    )
    assert done.returncode == 0, done.stderr
    assert f"twinbus serve --namespace compat --store {url} --stores 2" in done.stdout
    assert "can be kept as a backup" in done.stdout

    new = BrokerProcess(tmp_path / "new", options=("--store", url, "--stores", "2", "--journal", str(files)))
    with new:
        bus = Bus("aio", new)
        await asyncio.gather(
            plain_and_locked(bus, numbers), duplicates(bus), sessions(bus), partitioned(bus), topics(bus), policies(bus)
        )
        await bus.closed()
        await asyncio.to_thread(export, new)
        assert new.stop() == 0, new.log[-4000:]
    assert "Traceback" not in new.log
    journal_goes_on(files)


@asynccontextmanager
async def filled(bus: Bus) -> AsyncIterator[dict[str, int]]:
    """Something of everything, with a receiver that holds locks; the numbers that are asked for later."""
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    await bus.put("orders", "done", "deferred", "dead", "locked", "tired", "waiting")
    numbers: dict[str, int] = {}
    async with bus.receiver("orders") as orders:
        done, deferred, dead, locked, tired = await receive(orders, 5)
        await orders.abandon_message(tired)
        [tired] = await receive(orders, 1)
        assert (str(locked), str(tired), tired.delivery_count) == ("locked", "tired", 1)
        await orders.complete_message(done)
        await orders.defer_message(deferred)
        numbers["deferred"] = deferred.sequence_number
        await orders.dead_letter_message(dead, reason="the reason", error_description="and more")
        await fill_others(bus, soon)
        yield numbers


async def fill_others(bus: Bus, soon: datetime.datetime) -> None:
    async def talks() -> None:
        await bus.put("talks", "t1", "t2", session_id="talk")
        async with bus.receiver("talks", session_id="talk") as talk:
            await talk.session.set_state("half way")
            await talk.complete_message((await receive(talk, 1))[0])

    async def news() -> None:
        async with bus.client().get_topic_sender("news") as sender:
            for colour in ("red", "blue"):
                await sender.send_messages(ServiceBusMessage(colour, application_properties={"colour": colour}))

    async def later() -> None:
        async with bus.sender("later") as sender:
            await sender.schedule_messages(ServiceBusMessage("far"), soon + datetime.timedelta(hours=1))
            await sender.schedule_messages(ServiceBusMessage("soon"), soon)

    first, odd = ServiceBusMessage("first", message_id="same"), ServiceBusMessage("odd", message_id=ODD)
    spread = [f"s{number}" for number in range(20)]
    await asyncio.gather(bus.send("once", first, odd), talks(), bus.put("spread", *spread), news(), later())


async def plain_and_locked(bus: Bus, numbers: dict[str, int]) -> None:
    """Messages keep their numbers; what was locked counts as delivered, once too often for one of them."""
    await bus.put("orders", "new")
    async with bus.receiver("orders") as orders:
        found = await receive(orders, 3)
        assert [(str(m), m.delivery_count, m.sequence_number) for m in found] == [
            ("locked", 1, 4),
            ("waiting", 0, 6),
            ("new", 0, 7),
        ]
        found += await orders.receive_deferred_messages(numbers["deferred"])
        for message in found:
            await orders.complete_message(message)
    async with bus.receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
        dead = {str(message): message for message in await receive(letters, 2)}
        assert (dead["dead"].dead_letter_reason, dead["dead"].dead_letter_error_description) == (
            "the reason",
            "and more",
        )
        assert dead["tired"].dead_letter_reason == "MaxDeliveryCountExceeded"
    async with bus.receiver("later") as later:
        assert str(await receive_one(later)) == "soon"
        [far] = [m for m in await later.peek_messages(9, sequence_number=1) if str(m) == "far"]
        assert far.state is ServiceBusMessageState.SCHEDULED


async def duplicates(bus: Bus) -> None:
    """An id that was seen before the move is refused after it."""
    again = [ServiceBusMessage("again", message_id=each) for each in ("same", ODD, "other")]
    await bus.send("once", *again)
    async with bus.receiver("once") as once:
        found = await receive(once, 3)
        assert [(str(m), m.message_id) for m in found] == [("first", "same"), ("odd", ODD), ("again", "other")]


async def sessions(bus: Bus) -> None:
    async with bus.receiver("talks", session_id="talk") as talk:
        assert await talk.session.get_state() == b"half way"
        assert str(await receive_one(talk)) == "t2"


async def partitioned(bus: Bus) -> None:
    await bus.put("spread", "s20")
    async with bus.receiver("spread") as spread:
        found = await receive(spread, 21)
        assert sorted(str(message) for message in found) == sorted(f"s{number}" for number in range(21))


async def topics(bus: Bus) -> None:
    """Copies with their shared bodies, what an action changed in them, and rules that still hold."""
    client = bus.client()
    async with client.get_topic_sender("news") as sender:
        await sender.send_messages(ServiceBusMessage("new red", application_properties={"colour": "red"}))
    expected = {"all": ["red", "blue", "new red"], "red": ["red", "new red"]}
    for name, bodies in expected.items():
        async with client.get_subscription_receiver("news", name) as receiver:
            found = await receive(receiver, len(bodies))
            assert [str(message) for message in found] == bodies
            for message in found:
                assert ((message.application_properties or {}).get(b"seen") == b"yes") == (name == "red")
                await receiver.complete_message(message)


async def policies(bus: Bus) -> None:
    """A key that was good is good, for what it was good for."""
    client = bus.client(bus.broker.connection_string("reader", READER_KEY))
    async with client.get_queue_receiver("later") as receiver:
        assert await receiver.peek_messages(max_message_count=1)
    with pytest.raises(Exception, match=r"(?i)claim|unauthorized|right"):
        async with client.get_queue_sender("later") as sender:
            await sender.send_messages(ServiceBusMessage("no"))


def journal_goes_on(files: Path) -> None:
    """One stream before the move and one for each gateway after it, all without gaps."""
    rows: list[dict[str, Any]] = exported(files)
    assert missing_batches(rows) == []
    writers = {row["writer"] for row in rows}
    assert 0 in writers
    assert len(writers) > 1
    sends = [row["message_id"] for row in rows if row["operation"] == "send" and row["entity"] == "once"]
    assert sorted(each for each in sends if each in ("same", ODD)) == sorted(["same", ODD] * 2)  # The second refused.
