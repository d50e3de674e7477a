"""`spark.read.format("servicebus")`: a look at queues that takes nothing out of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from support.broker import BrokerProcess
from support.streams import StreamScene
from twinbus.client.messages import build

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), namespace="browsed") as process:
        yield process


@pytest.fixture
def scene(spark: Any, broker: BrokerProcess, tmp_path: Path) -> StreamScene:
    return StreamScene(spark, broker, tmp_path)


def test_a_look_shows_every_message_once_in_several_tasks_and_takes_none(scene: StreamScene) -> None:
    queue = scene.queue()
    ids = [f"m{n}" for n in range(600)]
    scene.send(queue, ids)
    frame = scene.browse(queue=queue, minPartitions=3)
    rows = frame.select("messageId", "sequenceNumber").collect()
    assert sorted(row.sequenceNumber for row in rows) == list(range(1, 601))
    assert Counter(row.messageId for row in rows) == Counter(ids)
    assert frame.rdd.getNumPartitions() == 3
    assert scene.broker.count(queue) == 600


def test_a_row_tells_what_the_message_says(scene: StreamScene) -> None:
    queue = scene.queue()
    payload = build(
        b"\x00body", message_id="m", session_id="s", subject="order", correlation_id="c", content_type="text/plain",
        to="there", reply_to="here", reply_to_session_id="rs", ttl_ms=60_000, properties={"n": 5, "x-ms-path": "dest"},
    )  # fmt: skip
    scene.send_payloads(queue, [payload])
    (row,) = scene.browse(subscribe=queue, payload="true").collect()
    assert (bytes(row.body), row.messageId, row.sessionId, row.subject) == (b"\x00body", "m", "s", "order")
    assert (row.correlationId, row.contentType, row.to, row.replyTo) == ("c", "text/plain", "there", "here")
    assert (row.replyToSessionId, row.timeToLive, row.path) == ("rs", 60_000, "dest")
    assert row.properties == {"n": "5", "x-ms-path": "dest"}
    assert (row.entity, row.state, row.deliveryCount) == (queue, "active", 0)
    assert row.namespace == f"127.0.0.1:{scene.broker.amqp_port}"
    assert isinstance(row.enqueuedTime, datetime)
    assert row.receivedTime is None
    assert b"\x00body" in bytes(row.payload)


def test_numbers_bound_the_look(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, [f"m{n}" for n in range(1, 21)])
    frame = scene.browse(queue=queue, startingSequenceNumber=5, endingSequenceNumber=9)
    assert sorted(row.messageId for row in frame.collect()) == ["m5", "m6", "m7", "m8", "m9"]


def test_a_dead_letter_queue_is_looked_at_by_its_name(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ["a", "b", "c"])
    scene.dead_letter(queue, 2)
    rows = scene.browse(queue=queue, subQueue="deadletter").collect()
    assert sorted((row.messageId, row.deadLetterReason, row.deadLetterDescription) for row in rows) == [
        ("a", "test", "for a look"),
        ("b", "test", "for a look"),
    ]


def test_a_pattern_finds_queues_and_an_empty_one_has_no_rows(scene: StreamScene) -> None:
    first, second, empty = scene.queue(), scene.queue(), scene.queue()
    scene.send(first, ["a"])
    scene.send(second, ["b"])
    frame = scene.browse(subscribePattern=f"({first}|{second}|{empty})")
    assert {(row.entity, row.messageId) for row in frame.collect()} == {(first, "a"), (second, "b")}
    assert scene.browse(queue=empty).count() == 0


def test_all_fragments_of_a_partitioned_queue_are_seen(scene: StreamScene) -> None:
    queue = scene.queue(EnablePartitioning=True)
    ids = [f"m{n}" for n in range(40)]
    for message_id in ids:  # A batch goes to one fragment.
        scene.send(queue, [message_id], partition_key=message_id)
    rows = scene.browse(queue=queue).select("messageId", "sequenceNumber").collect()
    assert Counter(row.messageId for row in rows) == Counter(ids)
    assert len({row.sequenceNumber >> 48 for row in rows}) > 4


def test_sessions_are_looked_at_one_by_one_or_all_together(scene: StreamScene) -> None:
    queue = scene.queue(RequiresSession=True)
    scene.send(queue, ["a1", "a2"], session_id="a")
    scene.send(queue, ["b1"], session_id="b")
    assert scene.browse(queue=queue).count() == 3
    assert sorted(row.messageId for row in scene.browse(queue=queue, sessionId="a").collect()) == ["a1", "a2"]


def test_fewer_columns_may_be_asked_for(scene: StreamScene) -> None:
    queue = scene.queue()
    scene.send(queue, ["a"])
    reader = scene.spark.read.format("servicebus").schema("messageId STRING, body BINARY")
    frame = reader.options(connectionString=scene.broker.connection_string(), queue=queue).load()
    assert [tuple(row) for row in frame.collect()] == [("a", b"a")]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queue": "q", "minPartition": "3"}, "has no option 'minpartition'. Did you mean minPartitions?"),
        ({"queue": "q", "subscribe": "p"}, "Only one of subscribe"),
        ({"queue": "q", "connectionString": None}, "No namespace is named"),
    ],
)
def test_options_that_will_not_do_are_refused_in_a_sentence(
    scene: StreamScene, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        scene.browse(**options)


def test_an_entity_that_is_not_there_is_told(scene: StreamScene) -> None:
    with pytest.raises(Exception, match=r"PipelineError: .*nowhere"):
        scene.browse(queue="nowhere").count()
