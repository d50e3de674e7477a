"""`spark.readStream.format("servicebus")`: what comes in, what is completed when, and what a restart finds."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import faulty_source
from support.broker import KEY, BrokerProcess, wait_for
from support.streams import StreamScene
from twinbus.pipeline.options import Subscribed, Target
from twinbus.pipeline.reading.deferring import release

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), namespace="streamed") as process:
        yield process


@pytest.fixture
def scene(spark: Any, broker: BrokerProcess, tmp_path: Path) -> StreamScene:
    return StreamScene(spark, broker, tmp_path)


@pytest.fixture
def faulty(scene: StreamScene) -> StreamScene:
    """The same with a source that dies where it is told; workers cannot import it, so that it goes to them whole."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(faulty_source)
    scene.spark.dataSource.register(faulty_source.FaultySource)
    scene.format = "servicebus-faulty"
    return scene


def ids(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_available_now_drains_two_queues_ends_and_completes_its_last_batch(scene: StreamScene) -> None:
    first, second = scene.queue(), scene.queue()
    scene.send(first, ids(70, "a"))
    scene.send(second, ids(20, "b"))
    query = scene.drain(subscribe=f"{first},{second}", maxMessagesPerTrigger=40)
    assert Counter(scene.ids) == Counter(ids(70, "a") + ids(20, "b"))
    assert max(len(rows) for rows in scene.batches.values()) <= 40
    assert (scene.broker.count(first), scene.broker.count(second)) == (0, 0)
    progress = [json.loads(each.json) for each in query.recentProgress]
    assert sum(each["numInputRows"] for each in progress) == 90
    # A row says when it was received, and the progress how many waited.
    assert all(row.receivedTime is not None and row.lockedUntil is not None for row in scene.rows)
    assert any(each["sources"][0]["latestOffset"] for each in progress)
    assert sorted(path.name for path in (scene.directory / "staging").iterdir()) == ["finished", "lock", "source.json"]


def test_what_arrives_after_the_start_of_available_now_is_left(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ids(3))

    def another(batch: int) -> None:
        if batch == 0:
            scene.send(queue, ["late"])

    scene.each = another
    scene.drain(queue=queue)
    assert sorted(scene.ids) == ids(3)
    assert scene.broker.count(queue) == 1
    scene.each = None
    scene.drain(queue=queue)
    assert sorted(scene.ids) == sorted([*ids(3), "late"])
    assert scene.broker.count(queue) == 0


def test_a_running_query_completes_its_last_batch_without_another_message(scene: StreamScene) -> None:
    queue = scene.queue()
    query = scene.start(queue=queue, available_now=False)
    try:
        scene.send(queue, ids(5))
        wait_for(lambda: scene.broker.count(queue) == 0, "the last batch completed", 120)
        assert sorted(scene.ids) == ids(5)
        batches = len(scene.batches)
        time.sleep(1.5)  # Nothing more to do is no reason for another batch.
        assert len(scene.batches) <= batches + 1
    finally:
        query.stop()


def test_a_batch_that_is_longer_than_the_lock_keeps_its_messages_and_sessions(scene: StreamScene) -> None:
    queue = scene.queue(LockDuration="PT9S", MaxDeliveryCount=1)
    sessions = scene.queue(LockDuration="PT9S", MaxDeliveryCount=1, RequiresSession=True)
    scene.send(queue, ids(4))
    scene.send(sessions, ["s"], session_id="s")
    scene.each = lambda batch: time.sleep(10) if batch == 0 else None  # The renewal is by the real clock.
    scene.drain(subscribe=f"{queue},{sessions}")
    assert sorted(scene.ids) == [*ids(4), "s"]
    for name in (queue, sessions):
        assert scene.broker.count(name) == 0
        assert scene.broker.count(name, "DeadLetterMessageCount") == 0


def test_the_order_within_each_session_is_kept(scene: StreamScene) -> None:
    queue = scene.queue(RequiresSession=True)
    for number in range(12):
        for session in ("a", "b", "c"):
            scene.send(queue, [f"{session}{number:02}"], session_id=session)
    scene.drain(queue=queue, maxMessagesPerTrigger=10, minPartitions=2)
    seen = defaultdict(list)
    for row in scene.rows:
        seen[row.sessionId].append(row.messageId)
    assert seen == {name: [f"{name}{number:02}" for number in range(12)] for name in "abc"}
    assert scene.broker.count(queue) == 0


def test_a_dead_letter_queue_is_drained_by_its_name(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ids(5))
    scene.dead_letter(queue, 3)
    scene.drain(queue=queue, subQueue="deadletter")
    assert len(scene.ids) == 3
    assert scene.rows[0].deadLetterReason == "test"
    assert scene.broker.count(queue, "DeadLetterMessageCount") == 0
    assert scene.broker.count(queue) == 2


def test_a_process_that_dies_after_staging_or_while_committing_loses_and_doubles_nothing(faulty: StreamScene) -> None:
    scene = faulty
    queue = scene.queue()
    scene.send(queue, ids(60))
    (scene.directory / faulty_source.AFTER_STAGING).touch()
    (scene.directory / faulty_source.IN_COMMIT).touch()
    failures = 0
    for _ in range(3):
        query = scene.start(queue=queue, maxMessagesPerTrigger=20)
        try:
            query.awaitTermination(120)
        except Exception:
            failures += 1
    assert failures == 2
    assert not list(scene.directory.glob("*-*"))
    assert Counter(scene.ids) == Counter(ids(60))
    assert scene.broker.count(queue) == 0


def test_a_query_whose_batch_failed_does_the_same_batch_again(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ids(5))

    def fail(batch: int) -> None:
        raise RuntimeError("the sink is away")

    scene.each = fail
    with pytest.raises(Exception, match="the sink is away"):
        scene.drain(queue=queue)
    assert scene.broker.count(queue) == 5
    scene.each = None
    scene.drain(queue=queue)
    assert Counter(scene.ids) == Counter(ids(5))
    assert scene.broker.count(queue) == 0


def test_losing_the_checkpoint_loses_no_message(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ids(5))
    scene.each = lambda batch: (_ for _ in ()).throw(RuntimeError("stop"))
    with pytest.raises(Exception, match="stop"):
        scene.drain(queue=queue)
    shutil.rmtree(scene.directory / "checkpoint")
    scene.each = None
    scene.drain(queue=queue)
    assert Counter(scene.ids) == Counter(ids(5))
    assert scene.broker.count(queue) == 0


def test_losing_the_staging_directory_is_told_and_loses_no_message(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ids(5))
    scene.each = lambda batch: (_ for _ in ()).throw(RuntimeError("stop"))
    with pytest.raises(Exception, match="stop"):
        scene.drain(queue=queue)
    shutil.rmtree(scene.directory / "staging")
    scene.each = None
    with pytest.raises(Exception, match="Segment 1, which the checkpoint asks for, is not in the staging directory"):
        scene.drain(queue=queue)
    scene.drain(queue=queue, failOnDataLoss="false")
    assert Counter(scene.ids) == Counter(ids(5))
    assert scene.broker.count(queue) == 0


def test_settling_at_once_empties_the_queue_before_the_batch_is_done(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ids(5))
    left: list[int] = []
    scene.each = lambda batch: left.append(scene.broker.count(queue))
    scene.drain(queue=queue, settleOn="stage")
    assert left[0] == 0
    assert sorted(scene.ids) == ids(5)


def test_deferral_claims_without_a_directory_and_completes(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ids(30), properties={"n": 5})
    options = {"queue": queue, "claimMode": "defer", "claimName": "mine", "stagingLocation": None}
    scene.each = lambda batch: (_ for _ in ()).throw(RuntimeError("stop")) if batch == 1 else None
    with pytest.raises(Exception, match="stop"):
        scene.drain(**options, maxMessagesPerTrigger=10)
    scene.each = None
    scene.drain(**options, maxMessagesPerTrigger=10)
    assert Counter(scene.ids) == Counter(ids(30))
    assert scene.rows[0].properties == {"n": "5"}
    assert scene.rows[0].receivedTime is not None
    assert scene.browse(queue=queue).count() == 0


async def test_what_an_abandoned_query_set_aside_is_given_back(scene: StreamScene) -> None:
    queue = scene.queue()

    def fail() -> None:
        scene.send(queue, ids(4))
        scene.each = lambda batch: (_ for _ in ()).throw(RuntimeError("stop"))
        with pytest.raises(Exception, match="stop"):
            scene.drain(queue=queue, claimMode="defer", claimName="gone", stagingLocation=None)

    await asyncio.to_thread(fail)
    rows = await asyncio.to_thread(lambda: scene.browse(queue=queue).collect())
    assert {row.state for row in rows} == {"deferred"}
    target = Target(connection_string=scene.broker.connection_string())
    assert await release(target, Subscribed(names=(queue,)), "another") == {queue: 0}
    assert await release(target, Subscribed(names=(queue,)), "gone") == {queue: 4}
    rows = await asyncio.to_thread(lambda: scene.browse(queue=queue).collect())
    assert {(row.messageId, row.state) for row in rows} == {(each, "active") for each in ids(4)}


def test_the_secret_is_in_no_plan_checkpoint_or_progress(
    scene: StreamScene, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = scene.queue()
    scene.send(queue, ids(3))
    scene.browse(queue=queue).explain(extended=True)
    query = scene.drain(queue=queue)
    query.explain(extended=True)
    told = capsys.readouterr().out + "".join(each.json for each in query.recentProgress)
    assert "servicebus" in told.lower()
    assert KEY not in told
    kept = [path for path in scene.directory.rglob("*") if path.is_file()]
    assert len(kept) > 5
    assert [path for path in kept if KEY.encode() in path.read_bytes()] == []


def test_what_a_stream_needs_is_asked_for_in_a_sentence(scene: StreamScene) -> None:
    with pytest.raises(Exception, match="A stream needs stagingLocation"):
        scene.drain(queue="q", stagingLocation=None)


def test_what_is_wrong_is_told_of_a_stream_with_columns_of_its_own(scene: StreamScene) -> None:
    reader = scene.spark.readStream.format("servicebus").schema("body STRING")
    frame = reader.options(connectionStringEnv="X", queue="q", stagingLocation=str(scene.directory / "s")).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(scene.directory / "c")).start()
    with pytest.raises(Exception, match="The column 'body' is binary, not string"):
        query.awaitTermination(60)
