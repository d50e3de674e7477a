"""What two real brokers' journals say that a pair cost: an idle hour of its syphon, and an outage with `kill -9`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.broker import BrokerProcess, running
from support.hurried import hurried, patient
from support.pair_scene import QUICK, Scene, until
from twinbus.pair import State
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.syphon.drain import Drain
from twinbus.pipeline.costs.cost import cost
from twinbus.pipeline.costs.metering import MESSAGES, OPERATIONS, Meter
from twinbus.pipeline.costs.whatif import Setting, Traffic, paired

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # Whoever is first waits for Spark to start.


def exported(broker: BrokerProcess) -> Path:
    return broker.directory / "journal"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """The primary and the secondary, which export their journals when they stop, if not before."""
    found = []
    for name in ("contoso", "fabrikam"):
        directory = tmp_path_factory.mktemp(name)
        options = ("--journal", str(directory / "journal"))
        found.append(BrokerProcess(directory, namespace=name, options=options))
    primary, secondary = found
    with running(primary, secondary):
        yield primary, secondary


def test_an_idle_hour_with_ten_backlog_queues_is_billed_as_forty_receives(
    spark: SparkSession, brokers: tuple[BrokerProcess, BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the broker answers at once; one that is slow to answer is asked more seldom, and billed so."""
    primary, secondary = brokers
    asked: list[str] = []
    step = Drain.step

    async def noted(drain: Drain, limit: int, wait_s: float) -> Any:
        asked.append(drain._receiver.path)
        return await step(drain, limit, wait_s)

    monkeypatch.setattr(Drain, "step", noted)

    async def hour() -> None:
        wanted = {"backlog_queue_count": 10, "poll": 900, "enable_syphon": True}
        client = PairedServiceBusClient.from_connection_strings(
            primary.connection_string(),
            secondary.connection_string(),
            SendAvailabilityOptions(**{**QUICK, **wanted}),
            primary_name="idle",
        )
        async with patient(client):
            await asyncio.sleep(3600 - 60)

    hurried(hour)
    assert secondary.stop() == 0
    found = cost(spark, [exported(secondary)], "messages")
    secondary.start()

    polled = [share for share in found.by("entity") if share.key[1].startswith("idle/x-servicebus-transfer/")]
    assert len(polled) == 10
    assert 20 <= len(asked) <= 40
    assert sum(share.messages for share in polled) == len(asked)


async def test_a_diverted_and_moved_message_costs_what_the_model_says(spark: SparkSession, scene: Scene) -> None:
    queue = scene.queue(RequiresDuplicateDetection=True)
    direct = await _through_an_outage(scene, queue)
    away = len(scene.diverted)
    for broker in (scene.primary, scene.secondary):
        assert await asyncio.to_thread(broker.stop) == 0
    found = await asyncio.to_thread(cost, spark, [exported(scene.primary), exported(scene.secondary)], OPERATIONS)
    meters = [meter for meter in found.meters if meter.entity == queue or meter.entity.startswith(f"{scene.name}/")]

    stages = ("sent", "diverted", "fetched", "moved", "delivered")
    assert {stage: _times(meters, stage) for stage in stages} == {
        "sent": direct,
        "diverted": away,
        "fetched": away,
        "moved": away,
        "delivered": direct + away,
    }
    carried = [meter for meter in meters if meter.kind in ("send", "receive", "settle")]
    assert sum(meter.billed(MESSAGES) for meter in carried) == 2 * direct + 4 * away
    assert sum(meter.billed(OPERATIONS) for meter in carried) == 3 * direct + 6 * away
    assert sum(meter.times for meter in meters if meter.kind == "ping") >= 1
    # The SDK's and our own to the primary, our own to the secondary.
    assert max(hour.connections for hour in found.hours if hour.namespace == "contoso") >= 2
    assert max(hour.connections for hour in found.hours if hour.namespace == "fabrikam") >= 1

    # The estimate for such traffic, made without looking at what the backlog did, agrees with the bill.
    traffic = Traffic.metered(carried)
    for model in (MESSAGES, OPERATIONS):
        estimate = paired(traffic, Setting(diverted=away, pings=0, syphons=0), model)
        assert estimate.operations == sum(meter.billed(model) for meter in carried)


def _times(meters: list[Meter], stage: str) -> int:
    return sum(meter.times for meter in meters if meter.stage == stage)


async def _through_an_outage(scene: Scene, queue: str) -> int:
    """Sends before, during and after; receives everything. How many messages went straight to the primary.

    The syphon begins when the primary is back: one that runs before fetches in vain, which is charged as well.
    """
    async with scene.client() as client:
        sender = client.get_queue_sender(queue)
        for number in range(3):
            assert await scene.send(sender, f"before-{number}")
        scene.primary.kill()
        for number in range(200):
            await scene.send(sender, f"during-{number}")
            if len(scene.diverted) >= 5:
                break
        await asyncio.to_thread(scene.primary.start)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        for number in range(3):
            assert await scene.send(sender, f"after-{number}")
    async with scene.client(enable_syphon=True, poll=2) as client:
        pump = client._core.background.syphon
        assert pump is not None
        await until(lambda: pump.progress.moved.total() >= len(scene.diverted), "draining")
    await scene.receive(queue, scene.verdict().acknowledged)
    assert scene.verdict().lost == ()
    return scene.verdict().acknowledged - len(scene.diverted)
