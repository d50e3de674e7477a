"""The test that matters most: a lost answer, the backlog, and an outage longer than the broker remembers ids.

The send arrived, its acknowledgement was lost, and it was sent again to the backlog. When the syphon brings it home,
the destination's duplicate window is long over, so that two copies are in the queue. The work is done once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.accounts import settle
from support.broker import BrokerProcess, running
from support.pair_scene import Scene, until
from twinbus.drill.history import SendLog
from twinbus.faults.frames import Says
from twinbus.faults.proxy import FaultProxy, Mode, Toward
from twinbus.pair import Ledger as SyncLedger
from twinbus.pair import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.aio import Ledger


@pytest.fixture(scope="module")
def clocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Two brokers whose clocks can be moved."""
    primary, secondary = (
        BrokerProcess(tmp_path_factory.mktemp(name), namespace=name, options=("--test-clock",))
        for name in ("contoso", "fabrikam")
    )
    with running(primary, secondary):
        yield primary, secondary


@pytest_asyncio.fixture
async def pair(
    clocked: tuple[BrokerProcess, BrokerProcess], request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Scene]:
    async with FaultProxy(clocked[0].amqp_port) as proxy:
        with SendLog(tmp_path / "sent.jsonl") as log:
            yield Scene(*clocked, proxy, f"window-{abs(hash(request.node.name)) % 10000}", log)


def advance(broker: BrokerProcess, duration: str) -> None:
    status, text = broker.request(
        "POST", "/$api/clock", json.dumps({"advance": duration}), {"Content-Type": "application/json"}
    )
    assert status == 200, text


async def lose_the_answer_and_divert(pair: Scene, queue: str) -> None:
    """`m` is stored by the primary and, because nobody heard of it, sent to the backlog too; then two hours pass."""
    async with pair.client(failover_interval=0, attempts=1) as client:
        sender = client.get_queue_sender(queue)
        assert await pair.send(sender, "before")
        pair.proxy.cut(Says.DISPOSITION, Toward.CLIENT)
        assert await pair.send(sender, "m")
        assert pair.diverted == {"m"}
        pair.proxy.set(Mode.REFUSE)
    for broker in (pair.primary, pair.secondary):
        advance(broker, "PT2H")
    pair.proxy.set(Mode.PASS)


async def bring_home(pair: Scene) -> None:
    async with pair.client(enable_syphon=True, poll=1) as client:
        pump = client._core.background.syphon
        assert pump is not None
        await until(lambda: pump.progress.moved.total() == 1, "draining")


async def test_worked_on_once_with_the_copies_apart_by_a_restart(pair: Scene) -> None:
    """The first copy is worked on before the second comes home, by a process that has ended meanwhile."""
    queue = pair.queue(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT10M")
    worked: Counter[str] = Counter()
    where = pair.log.path.parent / "ledger.db"

    async def work(expected_suppressed: int) -> None:
        async with Ledger(where) as ledger, pair.client() as client:
            async with client.get_queue_receiver(queue, ledger=ledger) as receiver:
                while pair.primary.count(queue):
                    for message in await receiver.receive_messages(5, max_wait_time=1):
                        worked[str(message.message_id)] += 1
                        await receiver.complete_message(message)
            assert ledger.metrics()["suppressed"] == expected_suppressed

    await lose_the_answer_and_divert(pair, queue)
    await work(0)
    assert worked == {"before": 1, "m": 1}
    await bring_home(pair)
    assert pair.primary.count(queue) == 1  # The broker itself has forgotten the id.
    await work(1)

    assert worked == {"before": 1, "m": 1}
    settle(pair.log.path, worked, received=worked + Counter(suppressed=1))
    assert pair.primary.count(queue) == 0


async def test_worked_on_once_with_both_copies_in_the_queue(pair: Scene) -> None:
    """Both copies are received together; the second is held until the first is done."""
    queue = pair.queue(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT10M")
    worked: Counter[str] = Counter()
    await lose_the_answer_and_divert(pair, queue)
    await bring_home(pair)
    assert pair.primary.count(queue) == 3

    async with (
        Ledger(pair.log.path.parent / "ledger.db") as ledger,
        pair.client() as client,
        client.get_queue_receiver(queue, ledger=ledger) as receiver,
    ):
        messages: list[Any] = []
        while len(messages) < 2:
            messages += await receiver.receive_messages(10, max_wait_time=2)
        while not ledger.metrics()["held"]:
            assert await receiver.receive_messages(10, max_wait_time=1) == []
        assert await receiver.receive_messages(10, max_wait_time=1) == []
        for message in messages:
            worked[str(message.message_id)] += 1
            await receiver.complete_message(message)
        await until(lambda: pair.primary.count(queue) == 0, "the second copy's completion")
    assert worked == {"before": 1, "m": 1}


def test_a_synchronous_receiver_does_the_same(clocked: tuple[BrokerProcess, BrokerProcess], tmp_path: Path) -> None:
    primary, secondary = clocked
    queue = primary.create_queue("sync-window")
    pair = PairedServiceBusClient.from_connection_strings(
        primary.connection_string(), secondary.connection_string(), SendAvailabilityOptions(backlog_queue_count=1)
    )
    worked: Counter[str] = Counter()
    with pair as client, SyncLedger(tmp_path / "ledger.db") as ledger:
        with client.get_queue_sender(queue) as sender:
            for body in (b"first", b"second"):
                sender.send_messages({"body": body, "message_id": "m"})  # type: ignore[arg-type]
        with client.get_queue_receiver(queue, ledger=ledger) as receiver:
            while primary.count(queue):
                for message in receiver.receive_messages(5, max_wait_time=1):
                    worked[str(message.message_id)] += 1
                    receiver.complete_message(message)
        assert ledger.metrics()["suppressed"] == 1
    assert worked == {"m": 1}
    assert primary.count(queue) == 0
