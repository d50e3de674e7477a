"""The syphon: two at once, one that is idle for an hour, and one destination that takes nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from typing import Any

import pytest

from support import journals
from support.broker import BrokerProcess, wait_for
from support.hurried import hurried, patient
from support.pair_scene import QUICK, Scene, until
from twinbus.client import connect, messages
from twinbus.client.diverting import divert
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.syphon import drain
from twinbus.pair.syphon import pump as pumping
from twinbus.pair.syphon.drain import Drain


async def put(scene: Scene, backlog: str, destination: str, ids: list[str], **settings: Any) -> None:
    """Messages in a backlog queue, as a paired sender would leave them."""
    payloads = [divert(messages.build(b"x", message_id=message_id, **settings), destination) for message_id in ids]
    async with connect(scene.secondary.connection_string()) as connection:
        await (await connection.sender(backlog)).send(payloads)


async def test_two_syphons_at_once_move_everything_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither moves anything before the other has taken a lot, too."""
    taken: dict[Any, int] = {}
    both, move = asyncio.Event(), drain.move

    async def together(source: Any, home: Any, lot: Any, *rest: Any) -> Any:
        taken[home] = taken.get(home, 0) + len(lot)
        if len(taken) == 2:
            both.set()
        await both.wait()
        return await move(source, home, lot, *rest)

    monkeypatch.setattr(drain, "move", together)
    queue = scene.queue(RequiresDuplicateDetection=True)
    ids = [f"m{number}" for number in range(500)]
    async with scene.client() as client:
        backlogs = client.status().backlog_queues
    for index, backlog in enumerate(backlogs):
        await put(scene, backlog, queue, ids[index::2])
    async with (
        scene.client(enable_syphon=True, poll=1, syphon_batch=20) as first,
        scene.client(enable_syphon=True, poll=1, syphon_batch=20) as second,
    ):
        pumps = [client._core.background.syphon for client in (first, second)]
        await until(lambda: sum(pump.progress.moved.total() for pump in pumps if pump) >= 500, "draining")
        assert all(pump is not None and pump.progress.moved.total() > 0 for pump in pumps)
    assert min(taken.values()) >= 20
    await scene.receive(queue, 500)

    assert scene.received == dict.fromkeys(ids, 1)
    assert set(scene.backlog().values()) == {0}


async def test_a_disabled_destination_is_waited_for_and_does_not_stand_in_the_way(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pumping, "BLOCKED_S", 0.5)
    off, fine = scene.queue(), scene.queue()
    async with scene.client(backlog_queue_count=1) as client:
        (backlog,) = client.status().backlog_queues
    await put(scene, backlog, off, [f"waits-{number}" for number in range(150)])
    await put(scene, backlog, "nowhere", ["undeliverable"])
    await put(scene, backlog, fine, ["fine"])
    scene.primary.update_queue(off, Status="SendDisabled")
    options = {"backlog_queue_count": 1, "enable_syphon": True, "poll": 1, "missing_entity_wait": 0}
    async with scene.client(**options) as client:
        pump = client._core.background.syphon
        assert pump is not None
        await until(lambda: pump.progress.moved[fine] == 1, "the way around")
        assert pump.progress.moved[off] == 0
        scene.primary.update_queue(off, Status="Active")
        await until(lambda: pump.progress.moved[off] == 150, "what waited")
        assert pump.progress.dead == 1  # There is no such queue: nobody can enable it.
    assert scene.secondary.count(backlog, "DeadLetterMessageCount") == 1


def test_an_idle_hour_with_ten_queues_is_forty_receives(
    brokers: tuple[BrokerProcess, BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The syphon's loop lives six hundred times as fast as the broker that it asks.

    Four for each queue, where the broker answers at once; none begins before the last one's quarter of an hour is over.
    """
    primary, secondary = brokers
    begun: defaultdict[str, list[float]] = defaultdict(list)
    step = Drain.step

    async def noted(one: Drain, limit: int, wait_s: float) -> Any:
        begun[one._receiver.path].append(asyncio.get_running_loop().time())
        return await step(one, limit, wait_s)

    monkeypatch.setattr(Drain, "step", noted)

    async def hour() -> None:
        wanted = {"backlog_queue_count": 10, "poll": 900, "enable_syphon": True}
        options = SendAvailabilityOptions(**{**QUICK, **wanted})
        client = PairedServiceBusClient.from_connection_strings(
            primary.connection_string(), secondary.connection_string(), options, primary_name="idle"
        )
        async with patient(client):
            await asyncio.sleep(3600 - 60)

    hurried(hour)

    assert len(begun) == 10
    for times in begun.values():
        assert 2 <= len(times) <= 4
        assert all(later - earlier >= 900 for earlier, later in itertools.pairwise(times))
    asked = sum(map(len, begun.values()))
    # The broker writes notes down every half second; it has counted each of them, and nothing else.
    wait_for(lambda: _empty_receives(secondary) >= asked, "the broker's count")
    assert _empty_receives(secondary) == asked


def _empty_receives(broker: BrokerProcess) -> int:
    return sum(
        entry.count
        for index in range(10)
        for entry in _entries(broker, f"idle/x-servicebus-transfer/{index}")
        if (entry.operation, entry.outcome) == ("receive", "empty")
    )


def _entries(broker: BrokerProcess, queue: str) -> list[Any]:
    try:
        return list(journals.entries(broker, queue))
    except AssertionError:
        return []  # Not made yet.


@pytest.mark.parametrize("property_value", [7, ""])
async def test_a_wrong_path_is_buried_and_the_rest_moves(scene: Scene, property_value: object) -> None:
    queue = scene.queue()
    async with scene.client(backlog_queue_count=1) as client:
        (backlog,) = client.status().backlog_queues
    async with connect(scene.secondary.connection_string()) as connection:
        sender = await connection.sender(backlog)
        await sender.send([messages.build(b"", message_id="bad", properties={"x-ms-path": property_value})])
    await put(scene, backlog, queue, ["good"])
    async with scene.client(backlog_queue_count=1, enable_syphon=True, poll=1) as client:
        pump = client._core.background.syphon
        assert pump is not None
        await until(lambda: pump.progress.moved[queue] == 1 and pump.progress.dead == 1, "the burial")

    assert scene.secondary.count(backlog, "DeadLetterMessageCount") == 1
