"""Messages and journals in Parquet files by day: all of them, once, whatever happens to the capture."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from support.broker import BrokerProcess, wait_for
from support.queues import contents, numbered, put
from twinbus.cli import app
from twinbus.client import connect
from twinbus.client.messages import build, read
from twinbus.model.message import Outcome
from twinbus.pipeline.capturing import archive as archive_module
from twinbus.pipeline.capturing.archive import Archive
from twinbus.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.pipeline.capturing.captured import Captured

pytestmark = pytest.mark.timeout(400)  # The first test waits for Java.

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), namespace="contoso") as broker:
        yield broker


@pytest.fixture
def queue(broker: BrokerProcess) -> str:
    return broker.create_queue(f"captured-{next(_numbers)}")


def options(broker: BrokerProcess, *queues: str, **more: str) -> dict[str, str]:
    told = {"connectionString": broker.connection_string(), "subscribe": ",".join(queues)}
    return {**told, "receiveTimeout": "200ms", **more}


def consume(spark: SparkSession, broker: BrokerProcess, queue: str, out: Path, **settings: Any) -> Captured:
    from twinbus.pipeline.capturing import capture

    told = options(broker, queue, stagingLocation=str(out / "_staging"), maxMessagesPerTrigger="40")
    with Archive(out).open() as archive:
        return capture.consume(spark, archive, told, out / "_checkpoint", **settings)


def browse(spark: SparkSession, broker: BrokerProcess, queue: str, out: Path, **more: str) -> Captured:
    from twinbus.pipeline.capturing import capture

    with Archive(out).open() as archive:
        return capture.browse(spark, archive, options(broker, queue, **more))


def ids(out: Path) -> Counter[str]:
    """What a reader finds who knows nothing of Spark."""
    return Counter(ds.dataset(out, partitioning="hive").to_table(["messageId"])["messageId"].to_pylist())


def all_of(count: int, prefix: str = "m") -> Counter[str]:
    return Counter({f"{prefix}{n}": 1 for n in range(count)})


def test_consumed_messages_are_in_files_of_their_day_and_gone_from_the_queue(
    spark: SparkSession, broker: BrokerProcess, queue: str, tmp_path: Path
) -> None:
    put(broker, queue, numbered(99))
    put(broker, queue, [build(b"whole", message_id="m99", session_id="s", properties={"a": "b"})])
    done = consume(spark, broker, queue, tmp_path, compact_every=0)
    assert (done.rows, done.batches >= 3) == (100, True)
    assert ids(tmp_path) == all_of(100)
    assert contents(broker, queue) == []
    days = {path.name for path in tmp_path.glob("day=*")}
    assert days <= {f"day={datetime.now(UTC):%Y-%m-%d}", *days}
    whole = spark.read.parquet(str(tmp_path)).where("messageId = 'm99'").first()
    assert whole is not None
    assert (bytes(whole["body"]), whole["sessionId"], whole["properties"]) == (b"whole", "s", {"a": "b"})
    assert f"{whole['day']}" == f"{whole['enqueuedTime']:%Y-%m-%d}"
    # A third reader agrees, who goes by the names of files alone.
    query = f"SELECT count(*), count(DISTINCT messageId) FROM '{tmp_path}/day=*/*.parquet'"
    assert duckdb.sql(query).fetchall() == [(100, 100)]


def test_a_capture_that_fails_half_way_goes_on_without_loss_or_duplicates(
    spark: SparkSession, broker: BrokerProcess, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk fails at different points of publishing; each time it is started again."""
    put(broker, queue, numbered(100))
    real = archive_module.sync
    left = [7]

    def sometimes(path: Path) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError("the disk is gone")
        real(path)

    monkeypatch.setattr(archive_module, "sync", sometimes)
    for again in (12, 17):
        with pytest.raises(PipelineError, match="the disk is gone"):
            consume(spark, broker, queue, tmp_path, compact_every=1)
        left[0] = again
    monkeypatch.setattr(archive_module, "sync", real)
    consume(spark, broker, queue, tmp_path)
    assert ids(tmp_path) == all_of(100)
    assert contents(broker, queue) == []


def test_small_files_are_joined_and_spark_reads_them(
    spark: SparkSession, broker: BrokerProcess, queue: str, tmp_path: Path
) -> None:
    put(broker, queue, numbered(200))
    done = consume(spark, broker, queue, tmp_path, compact_every=100)
    assert done.problem is None
    assert done.joined >= 4
    assert len(list(tmp_path.glob("day=*/*.parquet"))) == len(list(tmp_path.glob("day=*")))
    frame = spark.read.parquet(str(tmp_path))
    assert frame.count() == frame.select("messageId").distinct().count() == 200
    assert dict(frame.dtypes)["enqueuedTime"] == "timestamp"


@pytest.mark.timeout(400)
def test_killed_without_notice_nothing_is_lost_and_nothing_twice(
    spark: SparkSession, broker: BrokerProcess, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole tree of processes, Java and workers included, as soon as a batch can be seen.

    The run that goes on where it ended is on the session that is there.
    """
    put(broker, queue, numbered(3000))
    out = tmp_path / "out"
    words = ["pipeline", "capture", queue, "--consume", "--to", str(out)]
    told = {**os.environ, "TWINBUS_CONNECTION_STRING": broker.connection_string()}
    running = subprocess.Popen(
        [sys.executable, "-m", "twinbus", *words, "--watch"],
        env=told,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: bool(list(out.glob("day=*/*.parquet"))) or running.poll() is not None, "a file", 120)
        put(broker, queue, numbered(3000, first=3000))  # It may be anywhere with these.
        time.sleep(0.3)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    seen = ids(out)
    assert set(seen.values()) == {1}
    monkeypatch.setattr("twinbus.cli.pipeline_capture.session", lambda *options: nullcontext(spark))
    done = CliRunner().invoke(app, [*words, "--json"], env=told)
    assert done.exit_code == 0, done.stderr[-2000:]
    # On a quick machine everything may be in files already, and only the settling is left.
    assert (json.loads(done.stdout.splitlines()[-1])["files"] >= 1) == (len(seen) < 6000)
    assert ids(out) == all_of(6000)
    assert contents(broker, queue) == []


def test_a_look_keeps_what_is_new_and_takes_nothing(
    spark: SparkSession, broker: BrokerProcess, queue: str, tmp_path: Path
) -> None:
    put(broker, queue, numbered(30))
    assert browse(spark, broker, queue, tmp_path).rows == 30
    assert browse(spark, broker, queue, tmp_path).rows == 0
    put(broker, queue, numbered(10, first=30))
    assert browse(spark, broker, queue, tmp_path).rows == 10
    assert ids(tmp_path) == all_of(40)
    assert len(contents(broker, queue)) == 40


def test_dead_letters_are_known_by_their_numbers(
    spark: SparkSession, broker: BrokerProcess, queue: str, tmp_path: Path
) -> None:
    """A message that dies later may have the lower number."""
    put(broker, queue, numbered(2))
    _kill(broker, queue, "m1")
    assert browse(spark, broker, queue, tmp_path, subQueue="deadletter").rows == 1
    _kill(broker, queue, "m0")
    assert browse(spark, broker, queue, tmp_path, subQueue="deadletter").rows == 1
    assert browse(spark, broker, queue, tmp_path, subQueue="deadletter").rows == 0
    assert ids(tmp_path) == all_of(2)


def _kill(broker: BrokerProcess, queue: str, message_id: str) -> None:
    async def kill() -> None:
        async with connect(broker.connection_string()) as connection:
            receiver = await connection.receiver(queue, credit=0)
            held = await receiver.receive(10, 1.0)
            for message in held:
                dies = read(message.payload).message_id == message_id
                await receiver.settle([message], Outcome.DEAD_LETTER if dies else Outcome.ABANDON)

    asyncio.run(kill())
