"""PostgreSQL servers that die under load: a standby takes over with everything that was accepted, and a store alone."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from faults.load import Load, contradictions, message, read
from faults.remains import look_at_all
from support.broker import BrokerProcess, wait_for
from support.gateways import Gateways, new_database
from support.postgres import PostgresServer
from support.standby import address_of_both, promote, synchronous_standby
from twinbus.client import ClientError, Sender, connect

PATIENT = 'LockDuration = "PT5M"\nMaxDeliveryCount = 100000\n'
CONFIG = (
    f'[[queues]]\nName = "plain"\n{PATIENT}[[queues]]\nName = "sessions"\nRequiresSession = true\n{PATIENT}'
    '[[queues]]\nName = "official"\nLockDuration = "PT5S"\nMaxDeliveryCount = 1000\n'
)
SESSIONS = ["s0", "s1", "s2"]
BACK_S = 60.0


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    server = PostgresServer().start()
    yield server
    server.remove()


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    server = synchronous_standby(primary)
    yield server
    server.remove()


class OfficialClient:
    """Sends and receives with the official client, without its own retries, and remembers what it was told."""

    def __init__(self, connection_string: str) -> None:
        self.accepted: dict[str, float] = {}
        self.received: Counter[str] = Counter()
        self.completed: dict[str, float] = {}
        self.problems: list[str] = []
        self.failures = 0
        self._connection_string = connection_string
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._connection_string, retry_total=0, socket_timeout=5)

    def _send(self) -> None:
        numbers = itertools.count(1)
        while not self._stopping.is_set():
            try:
                with self._client() as client, client.get_queue_sender("official") as sender:
                    while not self._stopping.is_set():
                        message_id = f"official-{next(numbers)}"
                        sender.send_messages(ServiceBusMessage(message_id, message_id=message_id))
                        self.accepted[message_id] = time.monotonic()
                        time.sleep(0.002)
            except ServiceBusError:
                self.failures += 1
                time.sleep(0.05)

    def _receive(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._client() as client, client.get_queue_receiver("official") as receiver:
                    while not self._stopping.is_set():
                        for each in receiver.receive_messages(20, max_wait_time=1):
                            message_id = str(each.message_id)
                            self.received[message_id] += 1
                            if message_id in self.completed:
                                self.problems.append(f"{message_id} came again after it was completed")
                            receiver.complete_message(each)
                            self.completed[message_id] = time.monotonic()
            except ServiceBusError:
                self.failures += 1
                time.sleep(0.05)


async def progress(load: Load, amount: int) -> None:
    goal, deadline = load.progress + amount, time.monotonic() + BACK_S
    while load.progress < goal:
        assert time.monotonic() < deadline, f"nothing is answered any more: {load.problems()}"
        await asyncio.sleep(0.01)


def until_after(times: dict[str, float], moment_s: float) -> float:
    """Wait for the first entry after a moment; how long after it that was."""
    wait_for(lambda: any(at_s > moment_s for at_s in list(times.values())), "it goes on", BACK_S)
    return min(at_s for at_s in list(times.values()) if at_s > moment_s) - moment_s


@pytest.mark.timeout(400)
async def test_a_standby_takes_over_with_all_that_was_accepted(
    primary: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> None:
    database = new_database(primary).rpartition("/")[2]
    address = address_of_both(primary, standby, database)
    gateways = Gateways(tmp_path, [address, address], config=CONFIG, log_level="warning")
    with gateways:
        load = Load(gateways.connection_string(), Random(7))
        load.plain("plain")
        load.sessions("sessions", SESSIONS)
        official = OfficialClient(gateways.connection_string())
        await progress(load, 500)
        await asyncio.to_thread(
            wait_for, lambda: len(official.completed) > 50, "the official client is at work", BACK_S
        )

        await asyncio.to_thread(primary.kill)
        killed_at_s = time.monotonic()
        await asyncio.to_thread(promote, standby)
        promoted_s = time.monotonic() - killed_at_s
        await progress(load, 50)
        back_s = time.monotonic() - killed_at_s
        sending_s = await asyncio.to_thread(until_after, official.accepted, killed_at_s + promoted_s)
        receiving_s = await asyncio.to_thread(until_after, official.completed, killed_at_s + promoted_s)
        print(
            f"promoted {promoted_s:.2f} s after the kill; the gateways went on after {back_s:.2f} s, the official"
            f" client sent again {sending_s:.2f} s and received again {receiving_s:.2f} s after the promotion;"
            f" {len(official.accepted)} accepted, {len(official.completed)} completed, {official.failures} failures"
        )
        await progress(load, 300)
        await load.stop()
        official.stop()
        assert contradictions(load) == []
        assert official.problems == []
        gateways.stop()
        gateways.start()
        await asyncio.to_thread(judge, gateways, load, official)
    assert "Traceback" not in gateways.log, gateways.log[-8000:]


def judge(broker: BrokerProcess, load: Load, official: OfficialClient) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string()) as client,
        client.get_queue_receiver("official", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver,
    ):
        left = set()
        # The last locks end after five seconds; what is counted no more may still be on its way.
        while (got := receiver.receive_messages(500, max_wait_time=2)) or broker.count("official"):
            left |= {str(each.message_id) for each in got}
    assert official.accepted.keys() - official.received.keys() - left == set()
    assert left & official.completed.keys() == set()
    found = look_at_all(broker, ["plain"], "sessions", SESSIONS)
    for queue, history in load.histories.items():
        history.judge(found[queue])
    assert contradictions(load) == []


@pytest.mark.timeout(300)
async def test_a_database_server_that_is_down_takes_only_its_own_entities_with_it(tmp_path: Path) -> None:
    servers = [PostgresServer().start() for _ in range(2)]
    broker = BrokerProcess(
        tmp_path,
        config='[[queues]]\nName = "one"\n[[queues]]\nName = "other"\n'
        '[[queues]]\nName = "spread"\nEnablePartitioning = true\n',
        options=tuple(word for server in servers for word in ("--store", server.connection_url)),
    )
    try:
        with broker:
            async with connect(broker.connection_string()) as connection:
                sender = await connection.sender("one")
                await sender.send([message("before")])
                other = await connection.sender("other")
                await other.send([message("before")])
                await asyncio.to_thread(servers[1].kill)
                with pytest.raises(ClientError) as refused:
                    await other.send([message("lost")])
                assert refused.value.transient
                await sender.send([message("meanwhile")])
                receiver = await connection.receiver("one", credit=10)
                seen: list[str] = []
                while len(seen) < 2:
                    seen += [read(each.payload).message_id for each in await receiver.receive(2, timeout_s=30)]
                assert seen == ["before", "meanwhile"]
                spread = await sent_one_by_one(await connection.sender("spread"), 48)
            await asyncio.to_thread(servers[1].start)
            wait_for(lambda: counted(broker, "other") == 1, "the other store is back", BACK_S)
            # It takes a failure to notice that a store is gone; then its fragments are passed over.
            assert [number for number in range(24, 48) if f"spread {number}" not in spread] == []
            assert counted(broker, "spread") == len(spread)
            assert broker.stop() == 0
        # A gateway also starts while one of the servers is down.
        servers[1].stop()
        with broker:
            async with connect(broker.connection_string()) as connection:
                await (await connection.sender("one")).send([message("without the other")])
            servers[1].start()
            wait_for(lambda: counted(broker, "other") == 1, "the other store is back", BACK_S)
    finally:
        broker.kill()
        for server in servers:
            server.remove()


async def sent_one_by_one(sender: Sender, count: int) -> list[str]:
    """The ids of those messages without a key that were accepted."""
    accepted = []
    for number in range(count):
        try:
            await sender.send([message(f"spread {number}")])
        except ClientError as refused:
            if not refused.transient:
                raise
        else:
            accepted.append(f"spread {number}")
    return accepted


def counted(broker: BrokerProcess, queue: str) -> int | None:
    """How many messages a queue holds; None while its store does not answer."""
    status, _ = broker.request("GET", f"/{queue}?api-version=2021-05")
    return broker.count(queue) if status == 200 else None
