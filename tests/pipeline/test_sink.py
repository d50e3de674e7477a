"""The sink `servicebus`, with Spark and real brokers: every row is a message that a broker has acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import Row, StringType, StructField, StructType

from support.broker import BrokerProcess, running, wait_for
from support.queues import contents
from twinbus.pair.description import PairDescription
from twinbus.pair.syphon.standalone import StandaloneSyphon
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.writing import sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(400)  # The first test waits for Java.

_numbers = itertools.count(1)

PAIR = """
[primary]
connection_string = "{primary}"
name = "contoso"
[secondary]
connection_string = "{secondary}"
[options]
backlog_queue_count = 2
failover_interval = 1
ping_primary_interval = 1
attempts = 1
attempt_timeout = 20
divert_timeout = 20
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), namespace="contoso") as broker:
        yield broker


def queue(broker: BrokerProcess, **settings: Any) -> str:
    return broker.create_queue(f"sink-{next(_numbers)}", **settings)


def write(frame: DataFrame, broker: BrokerProcess, **options: str) -> None:
    writing = frame.write.format("servicebus").mode("append").option("connectionString", broker.connection_string())
    writing.options(requireDuplicateDetection="ignore", **options).save()


def streamed(spark: SparkSession, folder: Path, columns: str) -> DataFrame:
    folder.mkdir(exist_ok=True)
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(folder))


def drop(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """A file that a stream finds whole."""
    fresh = folder.parent / f"{name}.fresh"
    fresh.write_text("\n".join(map(json.dumps, rows)))
    fresh.rename(folder / f"{name}.json")


def test_rows_become_messages_with_all_that_they_say(spark: SparkSession, broker: BrokerProcess) -> None:
    plain, other = queue(broker), queue(broker, RequiresSession=True)
    due = datetime(2046, 1, 2, 3, 4, 5, tzinfo=UTC)
    frame = spark.createDataFrame(
        [
            (plain, bytearray(b"one"), "m1", None, {"a": "1"}, 60_000, due),
            (other, bytearray(b"two"), "m2", "s", {}, None, None),
        ],
        "where string, body binary, messageId string, sessionId string, properties map<string,string>,"
        " timeToLive bigint, scheduledEnqueueTime timestamp",
    )
    write(frame, broker, destinationColumn="where")
    (one,), (two,) = contents(broker, plain), contents(broker, other)
    assert (one.body, one.message_id, one.properties, one.ttl_ms) == (b"one", "m1", {"a": "1"}, 60_000)
    assert one.scheduled_at_ms == int(due.timestamp() * 1000)
    assert (two.body, two.message_id, two.session_id) == (b"two", "m2", "s")


def test_every_row_arrives_once_whatever_the_number_of_tasks(spark: SparkSession, broker: BrokerProcess) -> None:
    name = queue(broker)
    frame = spark.range(0, 2500, numPartitions=3).selectExpr("CAST(id AS STRING) AS body")
    write(frame, broker, queue=name, batchSize="400")
    found = contents(broker, name)
    assert sorted(int(message.body) for message in found) == list(range(2500))
    assert len({message.message_id for message in found}) == 2500  # Each has got an id of its own.


def test_what_cannot_be_sent_is_said_by_spark(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = spark.range(1).selectExpr("'x' AS body", "'m1' AS messageId")
    with pytest.raises(Exception, match=r"'nowhere' refuses row 0 \(message 'm1'\) for good"):
        write(frame, broker, queue="nowhere")
    with pytest.raises(Exception, match="does not know the column 'colour'"):
        write(frame.selectExpr("*", "1 AS colour"), broker, queue="nowhere")


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        ({"body": "x"}, {}, "Nothing says where to send"),
        (
            {"body": "x" * 300_000, "messageId": "big"},
            {"queue": "{queue}"},
            r"Row 0 \(message 'big'\) is too large for",
        ),
        ({"body": "x", "sessionId": ""}, {"queue": "nowhere"}, "'nowhere' refuses row 0"),
        ({"body": "x"}, {"queue": "{queue}", "requireDuplicateDetection": "fail"}, "does not detect duplicates"),
        ({"body": "x"}, {"queue": "{queue}", "connectionStringEnv": "X"}, "Only one of"),
        ({"body": "x"}, {"queue": "{queue}", "connectionString": "{wrong}"}, "does not let us send"),
    ],
)
def test_a_task_says_what_cannot_be_sent(
    broker: BrokerProcess, row: dict[str, str], options: dict[str, str], said: str
) -> None:
    """As a worker runs it, and without Spark, which would try four times."""
    name = queue(broker)
    wrong = broker.connection_string(key="not-the-key")
    given = {"requireDuplicateDetection": "ignore", "connectionString": broker.connection_string()}
    given |= {key: text.format(queue=name, wrong=wrong) for key, text in options.items()}
    schema = StructType([StructField(column, StringType()) for column in row])
    with pytest.raises(PipelineError, match=said):
        sink.writer(given, schema, False).write(iter([Row(*row.values())]))
    assert contents(broker, name) == []


def test_a_queue_cannot_be_overwritten(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = spark.range(1).selectExpr("'x' AS body")
    writer = frame.write.format("servicebus").mode("overwrite").option("queue", "q")
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.option("connectionString", broker.connection_string()).save()


def test_what_is_refused_for_good_can_be_set_aside(spark: SparkSession, broker: BrokerProcess) -> None:
    good, aside = queue(broker), queue(broker)
    frame = spark.createDataFrame([(good, "1"), ("nowhere", "2")], "path string, body string")
    write(frame, broker, onUnroutable="deadletter", deadLetterQueue=aside)
    assert [message.body for message in contents(broker, good)] == [b"1"]
    (refused,) = contents(broker, aside)
    assert (refused.body, refused.properties["x-ms-path"]) == (b"2", "nowhere")
    assert "nowhere" in refused.properties["DeadLetterErrorDescription"]


def test_a_batch_that_is_run_again_sends_the_same_ids(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """A driver that is killed after the batch was sent and before Spark wrote it down runs it again."""
    name = queue(broker)
    frame = streamed(spark, tmp_path / "in", "body string")
    drop(tmp_path / "in", "first", [{"body": str(n)} for n in range(20)])
    _run(frame, broker, name, tmp_path / "checkpoint")
    for commit in (tmp_path / "checkpoint" / "commits").iterdir():
        commit.unlink()
    _run(frame, broker, name, tmp_path / "checkpoint")
    found = Counter(message.message_id for message in contents(broker, name))
    assert len(found) == 20
    assert set(found.values()) == {2}


def _run(frame: DataFrame, broker: BrokerProcess, name: str, checkpoint: Path) -> None:
    writing = frame.writeStream.format("servicebus").option("connectionString", broker.connection_string())
    writing = writing.options(queue=name, requireDuplicateDetection="ignore").trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(checkpoint)).start()
    assert query.awaitTermination(120)
    assert query.exception() is None


def test_a_stream_goes_on_while_its_broker_is_dead(spark: SparkSession, tmp_path: Path) -> None:
    primary = BrokerProcess(tmp_path / "primary", namespace="contoso")
    secondary = BrokerProcess(tmp_path / "secondary", namespace="fabrikam")
    with running(primary, secondary):
        name = primary.create_queue("orders")
        pair = tmp_path / "pair.toml"
        pair.write_text(PAIR.format(primary=primary.connection_string(), secondary=secondary.connection_string()))
        frame = streamed(spark, tmp_path / "in", "messageId string, body string")
        drop(tmp_path / "in", "before", [{"messageId": f"before-{n}", "body": "x"} for n in range(200)])
        writing = frame.writeStream.format("servicebus").option("pair", str(pair)).option("queue", name)
        query = (
            writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            wait_for(lambda: primary.count(name) == 200, "the first messages are there", 120)
            primary.kill()
            drop(tmp_path / "in", "during", [{"messageId": f"during-{n}", "body": "x"} for n in range(200)])
            _wait_for_batches(query, tmp_path / "checkpoint", 2)
            primary.start()
            drop(tmp_path / "in", "after", [{"messageId": f"after-{n}", "body": "x"} for n in range(200)])
            _wait_for_batches(query, tmp_path / "checkpoint", 3)
        finally:
            query.stop()
        diverted = sum(secondary.count(f"contoso/x-servicebus-transfer/{index}") for index in range(2))
        assert diverted >= 200
        asyncio.run(_bring_home(pair))
        found = Counter(message.message_id for message in contents(primary, name))
    wanted = {f"{when}-{n}" for when in ("before", "during", "after") for n in range(200)}
    assert wanted - found.keys() == set()  # Lost.
    assert found.keys() - wanted == set()


def _wait_for_batches(query: StreamingQuery, checkpoint: Path, count: int) -> None:
    commits = checkpoint / "commits"
    wait_for(lambda: all((commits / str(n)).exists() for n in range(count)) or not query.isActive, "a batch", 120)
    assert query.exception() is None


async def _bring_home(pair: Path) -> None:
    async with StandaloneSyphon(PairDescription.read(pair)) as syphon:
        await syphon.pair()
        assert (await syphon.drain()).problem is None
