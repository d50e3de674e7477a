"""Two namespaces' copies of the same messages, merged by Spark: each message once, and an account of both sides."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from support import merge_worker
from support.broker import BrokerProcess, wait_for
from support.queues import contents, numbered, put
from twinbus.client import connect
from twinbus.client.messages import build
from twinbus.model.message import Outcome
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.ledger.tags import Tag
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.merging.sightings import PRIMARY, SECONDARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.pipeline.merging.merge import Merge, Progress

pytestmark = pytest.mark.timeout(500)  # The first test waits for Java.

_numbers = itertools.count(1)
Brokers = tuple[BrokerProcess, BrokerProcess]
SOON_MS = 3600 * 1000


@pytest.fixture(autouse=True)
def one_of_each(spark: SparkSession) -> Iterator[None]:
    """A single state store: what is tested here does not depend on their number, and each takes its time."""
    usual = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", usual or "4")


@pytest.fixture
def entity(brokers: Brokers) -> str:
    name = f"merged-{next(_numbers)}"
    for broker in brokers:
        broker.create_queue(name, LockDuration="PT5M")
    return name


@pytest.fixture
def make(brokers: Brokers, entity: str, tmp_path: Path) -> Callable[..., Merge]:
    """A merge of the test's queue into files, unless it is told otherwise."""

    def make(**settings: Any) -> Merge:
        from twinbus.pipeline.merging.merge import Merge

        pair = PairDescription(*(NamespaceDescription(broker.connection_string()) for broker in brokers))
        where = {"checkpoint": tmp_path / "checkpoint", "staging": tmp_path / "staging"}
        if "sink" not in settings:
            settings["files"] = tmp_path / "out"
        reading = {"receiveTimeout": "200ms"}
        return Merge(pair=pair, entities={entity: entity}, reading=reading, **where, **settings)

    return make


def merge(spark: SparkSession, job: Merge, **settings: Any) -> Progress:
    from twinbus.pipeline.merging import merge

    return merge.merge(spark, job, **settings)


def ids(files: Path) -> Counter[str]:
    """What a reader finds who knows nothing of Spark."""
    return Counter(ds.dataset(files, partitioning="hive").to_table(["messageId"])["messageId"].to_pylist())


def test_each_message_is_delivered_once_and_the_account_is_right(
    spark: SparkSession, brokers: Brokers, entity: str, make: Callable[..., Merge]
) -> None:
    primary, secondary = brokers
    put(primary, entity, numbered(60))
    put(secondary, entity, [*numbered(50), build(b"x", message_id="only-b")])
    job = make()
    progress = merge(spark, job, now_ms=lambda: time.time_ns() // 1_000_000 + SOON_MS)
    assert job.files is not None
    expected = {f"m{n}" for n in range(60)} | {"only-b"}
    assert ids(job.files) == Counter(dict.fromkeys(expected, 1))
    totals = progress.totals
    assert totals.copies == {PRIMARY: 60, SECONDARY: 51}
    assert sum(totals.first.values()) == 50
    assert totals.alone == {PRIMARY: 10, SECONDARY: 1}
    assert (totals.untagged, totals.late, totals.dropped, totals.open) == (0, 0, 0, 0)
    assert {each.tag for each in progress.alone} == {"only-b", *(f"m{n}" for n in range(50, 60))}
    assert progress.is_alarming
    assert (contents(primary, entity), contents(secondary, entity)) == ([], [])  # Settled, all of them.


def test_a_second_copy_in_a_later_run_is_dropped(
    spark: SparkSession, brokers: Brokers, entity: str, make: Callable[..., Merge]
) -> None:
    primary, secondary = brokers
    job = make()
    put(primary, entity, numbered(20))
    assert not merge(spark, job).is_alarming  # Their window is not over.
    put(secondary, entity, numbered(30))
    progress = merge(spark, job)
    assert job.files is not None
    assert ids(job.files) == Counter({f"m{n}": 1 for n in range(30)})
    assert progress.delivered == {SECONDARY: 10}
    assert progress.totals.copies == {PRIMARY: 20, SECONDARY: 30}


def test_a_late_sole_copy_is_kept(
    spark: SparkSession, brokers: Brokers, entity: str, make: Callable[..., Merge]
) -> None:
    """Enqueued long before what has been merged since, by the measure of the window: its other copy died."""
    primary, secondary = brokers
    job = make(window_s=0.5)
    put(secondary, entity, [build(b"x", message_id="sole")])
    put(primary, entity, numbered(5))
    asyncio.run(_while_locked(secondary, entity, lambda: merge(spark, job)))
    progress = merge(spark, job)
    assert job.files is not None
    assert ids(job.files)["sole"] == 1
    assert progress.dropped == progress.totals.dropped == 0


async def _while_locked(broker: BrokerProcess, entity: str, work: Callable[[], object]) -> None:
    """Nobody else gets the first message meanwhile; afterwards it is given back."""
    async with connect(broker.connection_string()) as connection:
        receiver = await connection.receiver(entity, credit=0)
        (message,) = await receiver.receive(1, 5.0)
        await asyncio.to_thread(work)
        await receiver.settle([message], Outcome.ABANDON)


def test_a_run_that_failed_half_way_is_repeated_without_duplicates(
    spark: SparkSession, brokers: Brokers, entity: str, make: Callable[..., Merge], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are there, the account is not written, and Spark runs the batch again."""
    from twinbus.pipeline.merging import merge as module

    put(brokers[0], entity, numbered(20))
    put(brokers[1], entity, numbered(20))
    job = make()

    def fail(*_: object) -> bool:
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(module.Sightings, "record", fail)
        with pytest.raises(PipelineError, match="disk is full"):
            merge(spark, job)
    progress = merge(spark, job)
    assert job.files is not None
    assert ids(job.files) == Counter({f"m{n}": 1 for n in range(20)})
    assert progress.totals.copies == {PRIMARY: 20, SECONDARY: 20}


def test_to_a_queue_messages_arrive_as_they_were_sent(
    spark: SparkSession, brokers: Brokers, entity: str, make: Callable[..., Merge]
) -> None:
    primary, secondary = brokers
    target = primary.create_queue(f"{entity}-target", RequiresDuplicateDetection=True)
    whole = build(b"body", message_id="a", session_id="s", subject="job-1", ttl_ms=90_000, properties={"n": 7})
    put(primary, entity, [whole, build(b"untagged")])
    put(secondary, entity, [build(b"body", message_id="another id", subject="job-1"), build(b"untagged")])
    sink = {"connectionString": primary.connection_string(), "queue": target}
    job = make(sink=sink, tag=Tag.parse("subject"))
    assert merge(spark, job).totals.untagged == 2
    *others, first = sorted(contents(primary, target), key=lambda message: message.subject or "")
    assert [message.body for message in others] == [b"untagged"] * 2  # Nothing can be said about them.
    if first.message_id == "a":
        assert (first.session_id, first.ttl_ms, first.properties) == ("s", 90_000, {"n": 7})
    # A driver that was killed before Spark wrote the batch down runs it again: the destination knows the ids.
    shutil.rmtree(job.checkpoint / "commits")
    merge(spark, job)
    assert len(contents(primary, target)) == 3


def test_a_merge_starts_and_goes_on_while_one_namespace_is_dead(
    spark: SparkSession, brokers: Brokers, entity: str, make: Callable[..., Merge]
) -> None:
    primary, secondary = brokers
    job, until = make(), threading.Event()
    files = job.files
    assert files is not None
    away: list[set[str]] = [set()]  # As it changed.
    copies: dict[str, int] = {}

    def told(progress: Progress) -> None:
        if set(progress.away) != away[-1]:
            away.append(set(progress.away))
        copies.update(progress.totals.copies)

    put(secondary, entity, numbered(10))
    secondary.kill()
    put(primary, entity, numbered(10))
    with ThreadPoolExecutor() as beside:
        merging = beside.submit(merge, spark, job, watch=True, until=until, told=told)
        try:
            _wait_for_rows(files, 10, merging)
            wait_for(lambda: away[-1] == {SECONDARY}, "an alarm", 120)
            secondary.start()
            put(secondary, entity, [build(b"x", message_id="from-b")])
            _wait_for_rows(files, 11, merging)
            wait_for(lambda: away[-1] == set(), "the end of the alarm", 120)
            secondary.kill()
            put(primary, entity, numbered(10, first=10))
            _wait_for_rows(files, 21, merging)
            secondary.start()
            put(secondary, entity, numbered(15, first=10))
            _wait_for_rows(files, 26, merging)
            # Files are there before their batch is counted.
            wait_for(lambda: copies == {PRIMARY: 20, SECONDARY: 26}, "the count of all copies", 120)
        finally:
            until.set()
            if secondary.process is None:
                secondary.start()
        progress = merging.result(120)
    assert ids(files) == Counter({"from-b": 1, **{f"m{n}": 1 for n in range(25)}})
    assert progress.totals.copies == {PRIMARY: 20, SECONDARY: 26}


def test_a_merge_of_what_is_there_ends_without_a_namespace_that_is_away_and_says_so(
    spark: SparkSession, brokers: Brokers, entity: str, make: Callable[..., Merge]
) -> None:
    primary, secondary = brokers
    job = make()
    put(primary, entity, numbered(5))
    put(secondary, entity, numbered(8))
    secondary.kill()
    try:
        progress = merge(spark, job)
    finally:
        secondary.start()
    assert list(progress.away) == [SECONDARY]
    assert progress.is_alarming
    assert progress.delivered == {PRIMARY: 5}
    progress = merge(spark, job)
    assert (progress.delivered, progress.is_alarming) == ({SECONDARY: 3}, False)


@pytest.mark.timeout(500)  # A second Java.
def test_a_merge_that_is_killed_in_a_batch_loses_and_doubles_nothing(
    spark: SparkSession, brokers: Brokers, entity: str, tmp_path: Path
) -> None:
    for broker in brokers:
        put(broker, entity, numbered(60))
    strings = dict(
        zip(("TWINBUS_PRIMARY", "TWINBUS_SECONDARY"), (each.connection_string() for each in brokers), strict=True)
    )
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
    killed = subprocess.run(
        [sys.executable, merge_worker.__file__, str(tmp_path), entity, "1"],
        env={**os.environ, **strings, "PYTHONPATH": path},
        start_new_session=True,
        timeout=300,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-4000:]
    assert ids(tmp_path / "out").total() > 30  # A batch, and one that Spark knows nothing of.
    progress = merge(spark, merge_worker.job(tmp_path, PairDescription.read(environment=strings), entity))
    assert ids(tmp_path / "out") == Counter({f"m{n}": 1 for n in range(60)})
    assert progress.totals.copies == {PRIMARY: 60, SECONDARY: 60}
    assert [contents(broker, entity) for broker in brokers] == [[], []]


def _wait_for_rows(files: Path, count: int, merging: Future[Progress]) -> None:
    def there() -> bool:
        return merging.done() or sum(pq.read_metadata(path).num_rows for path in files.glob("day=*/*")) >= count

    wait_for(there, f"{count} rows", 120)
    if merging.done():
        merging.result()
