"""What the sink may be told, and which frames it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.rows import COLUMNS
from twinbus.pipeline.writing.sink_options import Columns, SinkOptions

NAMESPACE = {"connectionString": "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b"}
PAIR = """
[primary]
connection_string = "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b"
[secondary]
connection_string = "Endpoint=sb://localhost:2;SharedAccessKeyName=a;SharedAccessKey=b"
[options]
failover_interval = 30
attempts = 2
attempt_timeout = 5
divert_timeout = 20
"""


def parse(**options: str) -> SinkOptions:
    return SinkOptions.parse({**NAMESPACE, **options})


def columns(*names: str, options: SinkOptions | None = None) -> Columns:
    kinds = {**COLUMNS, "payload": "BINARY", "where": "STRING"}
    told = [(name, kinds.get(name, "string").lower().replace(" ", "")) for name in names]
    return Columns.check(told, options or parse(queue="orders"))


def test_a_queue_or_a_topic_is_the_destination_of_all() -> None:
    assert parse(queue="orders").destination == "orders"
    assert parse(TOPIC="events").destination == "events"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "a", "topic": "b"}, "Only one of queue and topic"),
        ({"queu": "a"}, "no option 'queu'. Did you mean queue"),
        ({"queue": "a", "onUnroutable": "drop"}, "onUnroutable is 'drop', and should be fail or deadletter"),
        ({"queue": "a", "onUnroutable": "deadletter"}, "belong together"),
        ({"queue": "a", "deadLetterQueue": "b"}, "belong together"),
        ({"queue": "a", "batchSize": "0"}, "batchSize is 0"),
        ({"queue": "a", "sendTimeout": "soon"}, "sendTimeout is 'soon'"),
        ({"path": "orders"}, "takes no path"),
    ],
)
def test_what_will_not_do_is_said_in_a_sentence(options: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        parse(**options)


def test_a_pair_is_enough_and_gives_the_time_for_a_failover(tmp_path: Path) -> None:
    file = tmp_path / "pair.toml"
    file.write_text(PAIR)
    found = SinkOptions.parse({"pair": str(file), "queue": "orders"})
    assert found.target is None
    assert found.pair is not None
    assert found.send_timeout_s == 30 + 2 * 5 + 20
    with pytest.raises(PipelineError, match="no other connection"):
        parse(pair=str(file), queue="orders")


def test_a_pair_that_keeps_order_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pair.toml"
    file.write_text(f"{PAIR}ordered = true\n")
    with pytest.raises(PipelineError, match="keeps order"):
        SinkOptions.parse({"pair": str(file), "queue": "orders"})


def test_what_the_source_reads_can_be_written() -> None:
    assert columns(*COLUMNS).destination is None
    assert columns(*COLUMNS, "payload", options=parse()).destination == "path"


def test_the_destination_column_is_the_one_that_is_named() -> None:
    assert columns("body", "where", options=parse(destinationColumn="where")).destination == "where"
    with pytest.raises(PipelineError, match="There is no column 'wher', which destinationColumn names; did you mean"):
        columns("body", "where", options=parse(destinationColumn="wher"))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([("id", "string")], "There is no column 'body'"),
        (
            [("body", "binary"), ("messageID", "string")],
            "does not know the column 'messageID'; did you mean 'messageId'",
        ),
        ([("body", "int")], "The column 'body' is int, and should be binary or string"),
        ([("body", "binary"), ("timeToLive", "string")], "'timeToLive' is string, and should be bigint"),
        ([("body", "binary"), ("sessionId", "bigint")], "'sessionId' is bigint, and should be string"),
        ([("body", "binary"), ("properties", "map<int,string>")], "'properties' is map<int,string>"),
    ],
)
def test_columns_are_strict(told: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        Columns.check(told, parse(queue="orders"))


def test_a_column_of_nothing_but_null_will_do() -> None:
    assert Columns.check([("body", "string"), ("sessionId", "void")], parse(queue="q")).names == ("body", "sessionId")
