"""The syphon on Spark between two real brokers: everything comes home, once, whatever happens on the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.filled_backlog import FilledBacklog
from support.journals import entries
from support.pair_scene import Scene, until
from support.prompt import Prompt
from twinbus.client import connect, messages
from twinbus.client.diverting import divert
from twinbus.faults.proxy import Mode
from twinbus.model.message import Outcome
from twinbus.pair.aio import Ledger
from twinbus.pair.description import PairDescription
from twinbus.pipeline.syphoning.rounds import Share

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.pipeline.syphoning.progress import Progress

PATIENCE_S = 60.0
ROUND_S = 120.0  # Spark and its workers on a busy machine.
pytestmark = pytest.mark.timeout(400)  # The first test waits for Java.


async def drain(
    spark: SparkSession, backlog: FilledBacklog, patience_s: float = PATIENCE_S, **options: float
) -> Progress:
    from twinbus.pipeline.syphoning.syphon import SparkSyphon

    async with SparkSyphon(spark, backlog.description(), **options) as run:
        await run.pair()
        return await run.drain(patience_s)


async def test_several_backlog_queues_come_home_to_several_destinations(scene: Scene, spark: SparkSession) -> None:
    backlog = FilledBacklog(scene, queues=4)
    destinations = [scene.queue() for _ in range(5)]
    ids = [f"m{number}" for number in range(4_000)]
    await backlog.fill(ids, destinations)

    found = await drain(spark, backlog)

    assert (found.moved, found.dead, found.left, found.problem) == (4_000, 0, 0, None)
    assert found.lost_tasks == found.doubled == 0
    assert [len(await backlog.arrived(destination)) for destination in destinations] == [800] * 5
    assert scene.verdict().holds


async def test_queues_are_found_however_the_name_of_the_primary_is_spelt(scene: Scene, spark: SparkSession) -> None:
    backlog = FilledBacklog(scene, queues=2)
    destination = scene.queue()
    await backlog.fill([f"m{number}" for number in range(100)], [destination])
    backlog.name = scene.name.upper()

    found = await drain(spark, backlog)

    assert (found.moved, found.left) == (100, 0)
    assert scene.primary.count(destination) == 100


async def test_a_deep_queue_is_emptied_by_several_receivers_at_once(scene: Scene, spark: SparkSession) -> None:
    backlog = FilledBacklog(scene, queues=2)
    destination = scene.queue()
    await backlog.fill([f"m{number}" for number in range(3_000)], [destination], queues=1)

    # At this rate, of which each task has its share, one that begins late finds something to do, too.
    found = await drain(spark, backlog, receivers=6, rate_limit=600)

    assert (found.moved, found.left) == (3_000, 0)
    connections = {
        entry.connection for entry in entries(scene.secondary, backlog.paths[0]) if entry.operation == "complete"
    }
    assert len(connections) >= 2  # Two tasks, each with a connection.
    await backlog.arrived(destination)
    assert scene.verdict().holds


async def test_what_cannot_be_delivered_ends_in_the_dead_letters_with_a_reason(
    scene: Scene, spark: SparkSession
) -> None:
    """An entity that is not there is waited for over several rounds, up to the limit."""
    backlog = FilledBacklog(scene, queues=1, missing_entity_wait=1)
    destination = scene.queue()
    await backlog.fill([f"m{number}" for number in range(200)], [destination])
    unknown = divert(messages.build(b"x", message_id="unroutable"), "nowhere")
    await backlog.put(
        backlog.paths[0], ["unroutable", "stranger"], [unknown, messages.build(b"x", message_id="stranger")]
    )

    found = await drain(spark, backlog)

    assert (found.moved, found.dead, found.left) == (200, 2, 0)
    async with connect(scene.secondary.connection_string()) as connection:
        management = await connection.management(f"{backlog.paths[0]}/$DeadLetterQueue")
        dead = [messages.read(payload) for payload in await management.peek(0, 10)]
    reasons = {str(each.message_id): str(each.properties["DeadLetterReason"]) for each in dead}
    assert reasons["unroutable"] == "NotRetryable"
    assert "'nowhere' was not made within 1 s" in " ".join(str(each.dead_letter_description) for each in dead)
    assert set(reasons) == {"unroutable", "stranger"}


async def test_a_destination_that_takes_nothing_holds_up_nobody_else(scene: Scene, spark: SparkSession) -> None:
    closed, destination = scene.queue(), scene.queue()
    backlog = FilledBacklog(scene, queues=2)
    await backlog.fill([f"m{number}" for number in range(1_000)], [closed, destination])
    (made,) = await asyncio.to_thread(
        Prompt(scene.primary).json, "keys", "add", destination, "home", "--right", "send", "--show"
    )
    backlog.key = ("home", made["primary_key"])

    found = await drain(spark, backlog, patience_s=0)

    assert len(await backlog.arrived(destination)) == 500
    assert (found.moved, found.dead, found.left) == (500, 0, 500)
    assert found.problem is not None
    assert closed in found.problem
    assert await receivable(scene, backlog.paths) == 500


async def test_when_the_primary_is_lost_again_locks_go_back_and_it_waits(scene: Scene, spark: SparkSession) -> None:
    from twinbus.pipeline.syphoning.syphon import SparkSyphon

    backlog = FilledBacklog(scene, queues=2)
    destination = scene.queue(RequiresDuplicateDetection=True)
    ids = [f"m{number}" for number in range(2_000)]
    await backlog.fill(ids, [destination])
    async with SparkSyphon(spark, backlog.description(), rate_limit=1_000) as run:
        await run.pair()
        draining = asyncio.create_task(run.drain(PATIENCE_S))
        await until(lambda: run.progress().moved > 100, "the first messages", ROUND_S)
        await asyncio.to_thread(scene.primary.kill)
        await until(lambda: "the primary is gone:" in (run.progress().problem or ""), "notice of the loss", ROUND_S)
        # Nothing is locked while it waits, so that somebody else gets all of it.
        left = backlog.left()
        assert left > 0
        assert await receivable(scene, backlog.paths) == left
        await asyncio.to_thread(scene.primary.start)
        found = await draining

    assert (found.left, found.problem) == (0, None)
    await backlog.arrived(destination)
    assert scene.verdict().holds


async def receivable(scene: Scene, paths: list[str]) -> int:
    """How many messages another receiver gets; they are given back at once."""
    count = 0
    async with connect(scene.secondary.connection_string()) as connection:
        for path in paths:
            receiver = await connection.receiver(path, credit=0)
            lot = await receiver.receive(5_000, 1)
            count += len(lot)
            await receiver.settle(lot, Outcome.RELEASE)
            await receiver.close()
    return count


async def test_when_the_secondary_is_lost_in_the_midst_it_goes_on_where_that_left_off(
    scene: Scene, spark: SparkSession
) -> None:
    from twinbus.pipeline.syphoning.syphon import SparkSyphon

    backlog = FilledBacklog(scene, queues=2)
    destination = scene.queue(RequiresDuplicateDetection=True)
    await backlog.fill([f"m{number}" for number in range(2_000)], [destination])
    async with SparkSyphon(spark, backlog.description(), rate_limit=1_000) as run:
        await run.pair()
        draining = asyncio.create_task(run.drain(PATIENCE_S))
        await until(lambda: run.progress().moved > 100, "the first messages", ROUND_S)
        await asyncio.to_thread(scene.secondary.kill)
        await until(
            lambda: "the secondary does not tell" in (run.progress().problem or ""), "notice of the loss", ROUND_S
        )
        await asyncio.to_thread(scene.secondary.start)
        found = await draining

    assert (found.left, found.problem) == (0, None)
    await backlog.arrived(destination)
    assert scene.verdict().holds


async def test_answers_of_the_primary_that_are_lost_double_nothing_where_duplicates_are_detected(
    scene: Scene, spark: SparkSession
) -> None:
    """The connection breaks again and again while messages are on their way: which have arrived, nobody knows."""
    from twinbus.pipeline.syphoning.syphon import SparkSyphon

    backlog = FilledBacklog(scene, queues=2, by_proxy=True)
    destination = scene.queue(RequiresDuplicateDetection=True)
    await backlog.fill([f"m{number}" for number in range(2_000)], [destination])
    async with SparkSyphon(spark, backlog.description(), rate_limit=1_500, round_s=1.0) as run:
        await run.pair()
        draining = asyncio.create_task(run.drain(PATIENCE_S))
        for _ in range(3):
            before = run.progress().moved
            await until(lambda before=before: run.progress().moved > before or draining.done(), "progress", ROUND_S)
            scene.proxy.set(Mode.REFUSE)
            await asyncio.sleep(0.05)
            scene.proxy.set(Mode.PASS)
        found = await draining

    assert found.left == 0
    await backlog.arrived(destination)
    assert scene.verdict().holds


async def test_a_primary_that_falls_silent_holds_no_round_for_ever(scene: Scene, spark: SparkSession) -> None:
    from twinbus.pipeline.syphoning.syphon import SparkSyphon

    backlog = FilledBacklog(scene, queues=2, by_proxy=True, attempt_timeout=4)
    destination = scene.queue(RequiresDuplicateDetection=True)
    await backlog.fill([f"m{number}" for number in range(1_000)], [destination])
    async with SparkSyphon(spark, backlog.description(), rate_limit=500, round_s=1.0) as run:
        await run.pair()
        draining = asyncio.create_task(run.drain(PATIENCE_S))
        await until(lambda: run.progress().moved > 50, "the first messages", ROUND_S)
        scene.proxy.set(Mode.BLACKHOLE)
        await until(lambda: "the primary is gone" in (run.progress().problem or ""), "notice of the silence", ROUND_S)
        scene.proxy.set(Mode.PASS)
        found = await draining

    assert (found.left, found.problem) == (0, None)
    await backlog.arrived(destination)
    assert scene.verdict().holds


async def test_sessions_come_home_in_order_over_many_short_rounds(scene: Scene, spark: SparkSession) -> None:
    backlog = FilledBacklog(scene, queues=2)
    destination = scene.queue(RequiresSession=True)
    plain = scene.queue()
    sessions = [f"s{number}" for number in range(12)]
    await backlog.fill_in_order(destination, sessions, 60)
    await backlog.fill([f"m{number}" for number in range(500)], [plain])

    found = await drain(spark, backlog, round_s=0.5)

    assert (found.moved, found.left, found.problem) == (12 * 60 + 500, 0, None)
    arrived = await backlog.arrived(destination)
    for session in sessions:
        mine = [each for each in arrived if each.startswith(f"{session}.")]
        assert mine == [f"{session}.{number}" for number in range(60)]
    await backlog.arrived(plain)
    assert scene.verdict().holds


async def test_the_rate_is_kept_by_all_tasks_together(scene: Scene, spark: SparkSession) -> None:
    backlog = FilledBacklog(scene, queues=4)
    destination = scene.queue()
    await backlog.fill([f"m{number}" for number in range(900)], [destination])
    began = time.monotonic()

    found = await drain(spark, backlog, rate_limit=400)

    assert found.moved == 900
    assert time.monotonic() - began >= 900 / 400


async def test_ordered_messages_keep_the_rate_too(scene: Scene, spark: SparkSession) -> None:
    backlog = FilledBacklog(scene, queues=1)
    destination = scene.queue(RequiresSession=True)
    await backlog.fill_in_order(destination, ["a", "b", "c"], 40)
    began = time.monotonic()

    found = await drain(spark, backlog, rate_limit=60)

    assert (found.moved, found.left) == (120, 0)
    assert time.monotonic() - began >= 120 / 60


async def test_two_syphons_at_once_share_the_work(scene: Scene, spark: SparkSession) -> None:
    backlog = FilledBacklog(scene, queues=2)
    destination = scene.queue()
    await backlog.fill([f"m{number}" for number in range(3_000)], [destination])

    both = await asyncio.gather(drain(spark, backlog), drain(spark, backlog))

    assert sum(found.moved for found in both) == 3_000
    assert [found.left for found in both] == [0, 0]
    await backlog.arrived(destination)
    assert scene.verdict().holds


async def test_watching_brings_home_what_comes_later_until_it_is_told_to_stop(
    scene: Scene, spark: SparkSession
) -> None:
    from twinbus.pipeline.syphoning.syphon import SparkSyphon

    backlog = FilledBacklog(scene, queues=2)
    destination = scene.queue()
    async with SparkSyphon(spark, backlog.description(), round_s=1.0) as run:
        await run.pair()
        watching = asyncio.create_task(run.watch())
        for number in range(2):
            await backlog.fill([f"{number}.{each}" for each in range(100)], [destination])
            await until(
                lambda number=number: scene.primary.count(destination) == (number + 1) * 100, "arrival", ROUND_S
            )
        run.stop()
        found = await asyncio.wait_for(watching, ROUND_S)
    assert (found.moved, found.left) == (200, 0)


def killed_between(description: PairDescription, share: Share) -> object:
    """What a task does whose first attempt is killed after the primary has acknowledged, before it completes."""

    def task(shares: Iterator[Share]) -> Iterator[object]:
        import os

        from pyspark import TaskContext

        from twinbus.client.receiver import Receiver
        from twinbus.pipeline.syphoning import movement

        if TaskContext.get().attemptNumber() == 0:
            Receiver.settle = lambda *args, **options: os._exit(9)
        for each in shares:
            yield movement.run(description, 10.0, each)

    return task


async def moved_twice(spark: SparkSession, backlog: FilledBacklog) -> None:
    """Run a task that is killed between send and complete, and its second attempt."""
    share = Share(0, tuple(backlog.paths))
    task = killed_between(backlog.description(), share)
    (done,) = await asyncio.to_thread(lambda: spark.sparkContext.parallelize([share], 1).mapPartitions(task).collect())
    assert done.moved.total() == 300
    assert backlog.left() == 0


async def test_a_task_killed_between_send_and_complete_doubles_nothing_where_duplicates_are_detected(
    scene: Scene, spark: SparkSession
) -> None:
    backlog = FilledBacklog(scene, queues=1)
    destination = scene.queue(RequiresDuplicateDetection=True)
    await backlog.fill([f"m{number}" for number in range(300)], [destination])
    await moved_twice(spark, backlog)
    assert len(await backlog.arrived(destination)) == 300
    assert scene.verdict().holds


async def test_a_task_killed_between_send_and_complete_doubles_nothing_for_a_receiver_with_a_ledger(
    scene: Scene, spark: SparkSession, tmp_path: Path
) -> None:
    backlog = FilledBacklog(scene, queues=1)
    destination = scene.queue()
    await backlog.fill([f"m{number}" for number in range(300)], [destination])
    await moved_twice(spark, backlog)
    assert scene.primary.count(destination) > 300  # There are two copies of what the killed one had sent.

    async with Ledger(tmp_path / "ledger.db") as ledger, scene.client() as client:
        receiver = client.get_queue_receiver(destination, ledger=ledger)
        async with receiver:
            while scene.primary.count(destination):
                for message in await receiver.receive_messages(100, max_wait_time=1):
                    scene.received[str(message.message_id)] += 1
                    await receiver.complete_message(message)
    assert scene.verdict().holds
