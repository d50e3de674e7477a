"""A partitioned entity of the primary that has lost one fragment: its keys are diverted, and nothing else."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from support.broker import BrokerProcess, running
from support.pair_scene import Scene, until
from twinbus.model.partition import fragment_of
from twinbus.pair import State
from twinbus.pair.aio import PairedServiceBusClient
from twinbus.store.journal import JournalRow, read

STORES = 16
KEYS = [f"key-{number}" for number in range(64)]
DEAD = KEYS[0]
WELL = [key for key in KEYS if fragment_of(key) != fragment_of(DEAD)][:5]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Here every fragment has a store of its own."""
    stores = ("--stores", str(STORES))
    primary = BrokerProcess(tmp_path_factory.mktemp("primary"), namespace="contoso", options=stores)
    secondary = BrokerProcess(tmp_path_factory.mktemp("secondary"), namespace="fabrikam")
    with running(primary, secondary):
        yield primary, secondary


def store_with(broker: BrokerProcess, message_id: str) -> int:
    """The store whose journal knows a message."""
    for number in range(STORES):
        if any(found == message_id for _, found in sends(broker, number)):
            return number
    raise AssertionError(f"no store has '{message_id}'")


def sends(broker: BrokerProcess, store: int) -> list[tuple[str, str]]:
    """Outcome and message id of every send in a store's journal."""
    with closing(sqlite3.connect(f"file:{broker.data / f'store-{store}.db'}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT id, at_ms, ops FROM journal ORDER BY id").fetchall()
    entries = [entry for row in rows for entry in read(JournalRow(*row), store)]
    return [(entry.outcome, entry.message_id) for entry in entries if entry.operation == "send"]


def turn(broker: BrokerProcess, store: int, way: str) -> None:
    """Take a store down, or bring it up."""
    status, text = broker.request("POST", f"/$api/stores/{store}/{way}", "{}")
    assert (status, json.loads(text)["state"]) == (200, way)


async def knows(client: PairedServiceBusClient, queue: str) -> None:
    """The client has found out that the entity is partitioned, without a send having waited for it."""
    await until(lambda: client._core.carrier.is_partitioned(queue), "what the queue is like")


async def test_keys_of_a_dead_fragment_are_diverted_alone_and_come_home(scene: Scene) -> None:
    queue = scene.queue(EnablePartitioning=True)
    ill = f"{queue} (fragment {fragment_of(DEAD)})"
    options = {"failover_interval": 0, "ping_primary_interval": 1, "backlog_queue_count": 1, "enable_syphon": True}
    async with scene.client(**options, poll=1) as client:
        sender = client.get_queue_sender(queue)
        await knows(client, queue)
        assert await scene.send(sender, "first", partition_key=DEAD)
        store = store_with(scene.primary, "first")
        turn(scene.primary, store, "down")
        assert await scene.send(sender, "diverted", partition_key=DEAD)
        assert client.status().ill == {ill: "failed over"}
        for number, key in enumerate(WELL):
            assert await scene.send(sender, f"well-{number}", partition_key=key)
            assert await scene.send(sender, f"unkeyed-{number}")
        assert scene.diverted == {"diverted"}
        await until(lambda: client.status().pings >= 1, "a ping")
        assert client.status().ill == {ill: "failed over"}  # It went to the dead fragment, and failed there.
        turn(scene.primary, store, "up")
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        assert await scene.send(sender, "after", partition_key=DEAD)
        await scene.receive(queue, 13)

    assert scene.diverted == {"diverted"}
    verdict = scene.verdict()
    assert (verdict.acknowledged, verdict.received, verdict.lost, verdict.duplicated) == (13, 13, (), ())
    told = sends(scene.primary, store)
    assert "ping" in [outcome for outcome, _ in told]
    assert {message for outcome, message in told if not outcome} == {"first", "diverted", "after"}
    assert [(change.scope.path, change.scope.fragment, change.after) for change in scene.changes] == [
        (queue, fragment_of(DEAD), State.FAILED_OVER),
        (queue, fragment_of(DEAD), State.HEALTHY),
    ]


async def test_where_duplicates_are_detected_the_id_is_the_key(scene: Scene) -> None:
    queue = scene.queue(EnablePartitioning=True, RequiresDuplicateDetection=True)
    same = [key for key in KEYS if fragment_of(key) == fragment_of(DEAD)]
    async with scene.client(failover_interval=0, ping_primary_interval=60, backlog_queue_count=1) as client:
        sender = client.get_queue_sender(queue)
        await knows(client, queue)
        assert await scene.send(sender, same[0])
        store = store_with(scene.primary, same[0])
        turn(scene.primary, store, "down")
        try:
            assert await scene.send(sender, same[1])
            assert all([await scene.send(sender, key) for key in WELL])
        finally:
            turn(scene.primary, store, "up")

    assert scene.diverted == {same[1]}


async def test_a_send_does_not_wait_for_an_administration_that_cannot_be_asked(scene: Scene) -> None:
    queue = scene.queue(EnablePartitioning=True)
    async with scene.client(failover_interval=0) as client:
        client._core.primary._http_address = "http://127.0.0.1:9"
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "m", partition_key=DEAD)
        assert not client._core.carrier.is_partitioned(queue)
