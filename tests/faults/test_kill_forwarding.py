"""`kill -9` while messages are forwarded between messaging stores: each arrives, and arrives once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import apsw
import pytest

from faults.load import body_of, message, read
from support.broker import BrokerProcess
from support.repetition import times
from twinbus.client import ClientError, connect
from twinbus.model.message import ReceiveMode

KILLS = times(5, 20)
LOT = 50
# They lie on the stores 0, 1, 0, 1, 0: `direct` has one hop across, `third` two, and a dead letter two.
NAMES = ["end", "second", "third", "direct", "dying"]
FORWARDING = {"second": "end", "third": "second", "direct": "end"}


def described(name: str) -> str:
    more = f'ForwardTo = "{FORWARDING[name]}"\n' if name in FORWARDING else ""
    if name == "dying":
        more = 'ForwardDeadLetteredMessagesTo = "second"\nDefaultMessageTimeToLive = "PT1S"\n'
        more += "DeadLetteringOnMessageExpiration = true\n"
    return f'[[queues]]\nName = "{name}"\nLockDuration = "PT5S"\nMaxDeliveryCount = 1\n{more}'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    config = "".join(map(described, NAMES))
    process = BrokerProcess(tmp_path, namespace="faults", config=config, options=("--stores", "2"), log_level="warning")
    try:
        yield process
    finally:
        process.kill()


class Sender:
    """Sends numbered messages to one queue for as long as it is let; knows which were accepted, and which may be."""

    def __init__(self, broker: BrokerProcess, queue: str) -> None:
        self.queue = queue
        self.accepted: set[str] = set()
        self.unknown: set[str] = set()
        self.is_stopping = False
        self._broker = broker
        self._count = 0

    async def run(self) -> None:
        while not self.is_stopping:
            with suppress(ClientError):
                async with connect(self._broker.connection_string(), timeout_s=30) as connection:
                    sender = await connection.sender(self.queue)
                    while not self.is_stopping:
                        sender.check()
                        await self._send(sender)
            await asyncio.sleep(0.02)

    async def _send(self, sender: object) -> None:
        lot = [f"{self.queue}:{number}" for number in range(self._count, self._count + LOT)]
        self._count += LOT
        self.unknown.update(lot)
        outcomes = await asyncio.gather(
            *(sender.send([message(each)]) for each in lot),  # type: ignore[attr-defined]
            return_exceptions=True,
        )
        for each, outcome in zip(lot, outcomes, strict=True):
            if outcome is None or isinstance(outcome, list):
                self.accepted.add(each)
                self.unknown.discard(each)
            elif isinstance(outcome, ClientError) and outcome.definite:
                self.unknown.discard(each)
        await asyncio.sleep(0.01)


async def received(broker: BrokerProcess) -> Counter[str]:
    """Everything that is in the last queue, taken out of it."""
    found: Counter[str] = Counter()
    async with connect(broker.connection_string(), timeout_s=30) as connection:
        receiver = await connection.receiver("end", mode=ReceiveMode.RECEIVE_AND_DELETE, credit=0)
        while broker.count("end"):
            for one in await receiver.receive(500, timeout_s=2.0):
                seen = read(one.payload)
                assert seen.body == body_of(seen.message_id)
                found[seen.message_id] += 1
    return found


def stores_of(broker: BrokerProcess) -> dict[str, int]:
    catalog = apsw.Connection(str(broker.data / "catalog.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return dict(catalog.execute("SELECT name, store FROM entity"))
    finally:
        catalog.close()


@pytest.mark.timeout(300)
async def test_each_message_arrives_once(broker: BrokerProcess, random: Random) -> None:
    broker.start()
    stores = stores_of(broker)
    assert all(stores[source] != stores[target] for source, target in FORWARDING.items())
    assert stores["dying"] != stores["second"]
    senders = [Sender(broker, queue) for queue in ("third", "direct", "dying")]
    tasks = [asyncio.create_task(sender.run()) for sender in senders]
    for _ in range(KILLS):
        await asyncio.sleep(random.uniform(0.2, 0.9))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
    while any(len(sender.accepted) <= KILLS * LOT // 2 for sender in senders):
        await asyncio.sleep(0.05)
    for sender in senders:
        sender.is_stopping = True
    await asyncio.gather(*tasks)
    await settled(broker)
    found = await received(broker)
    accepted = set().union(*(sender.accepted for sender in senders))
    possible = accepted.union(*(sender.unknown for sender in senders))
    print({sender.queue: (len(sender.accepted), len(sender.unknown)) for sender in senders}, found.total())
    assert accepted - found.keys() == set()
    assert found.keys() - possible == set()
    assert {each: count for each, count in found.items() if count > 1} == {}
    assert "Traceback" not in broker.log, broker.log[-8000:]


async def settled(broker: BrokerProcess) -> None:
    """Wait until nothing is left that will be forwarded; messages that were being forwarded have had their locks."""
    for _ in range(1200):
        left = [int(broker.queue(name)["MessageCount"]) for name in NAMES if name != "end"]
        if not any(left):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"messages are left on their way: {left}")
