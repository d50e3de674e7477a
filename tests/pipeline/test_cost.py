"""The bill on Spark: the same as DuckDB's on generated journals, and that of a real pair through a real outage."""

from __future__ import annotations

import json
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from support import small_journal
from support.generated_journal import generate
from support.small_journal import Answers, moved, row
from twinbus.cli import app, pipeline_cost
from twinbus.pipeline.costs.cost import Bill, as_html, cost
from twinbus.pipeline.costs.metering import Meter, metering_sql
from twinbus.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # Whoever is first waits for Spark to start.

# Metering told in another way: what each row is comes from a table of words, and what came home is found by asking for
# each send whether somebody else's backlog gave the message out before.
ORACLE = """
WITH words(operation, word, sized) AS (VALUES
  ('send', 'send', true), ('schedule', 'schedule', true), ('receive', 'receive', true),
  ('receive_delete', 'receive', true), ('complete', 'settle', false), ('abandon', 'settle', false),
  ('release', 'settle', false), ('defer', 'settle', false), ('deadletter', 'settle', false),
  ('forward', 'settle', false), ('cancel', 'cancel', false), ('delete', 'delete', false)
),
each AS (
  SELECT journal.*, instr(entity, '/x-servicebus-transfer/') > 0 AS aside,
    CASE WHEN connection = '' THEN if(client = 'forward' AND journal.operation = 'send', 'forward', 'own')
      WHEN outcome IN ('ping', 'empty') THEN outcome ELSE coalesce(word, 'own') END AS what, sized
  FROM journal LEFT JOIN words USING (operation)
)
SELECT namespace, entity, strftime(day, '%Y-%m-%d'), what,
  CASE WHEN what NOT IN ('send', 'schedule') THEN ''
    WHEN aside THEN 'diverted'
    WHEN EXISTS (
      SELECT 1 FROM each AS other
      WHERE other.aside AND other.operation = 'receive' AND other.outcome <> 'empty'
      AND other.message_id = each.message_id AND other.namespace <> each.namespace AND other.at <= each.at
    ) THEN 'moved' ELSE 'sent' END AS stage,
  sum(count), sum(count * if(sized AND what NOT IN ('own', 'empty') AND bytes > 0, (bytes + 65535) // 65536, 1)),
  sum(bytes)
FROM each GROUP BY ALL
"""
WORDS = {"ping": "ping", "empty": "empty_receive"}


def with_sizes(journals: list[Path]) -> None:
    """Messages of many sizes, the same at every place that has them."""
    for path in (path for place in journals for path in place.glob("day=*/*.parquet")):
        table = pq.ParquetFile(path).read()
        ids = table["message_id"].to_pylist()
        sizes = pa.array([zlib.crc32(one.encode()) % 250_000 if one else 0 for one in ids], pa.int64())
        pq.write_table(table.set_column(table.schema.get_field_index("bytes"), "bytes", sizes), path)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The journals of a pair that had an outage."""
    planted = generate(tmp_path_factory.mktemp("generated"), 7, 20_000)
    with_sizes(planted.journals)
    return planted.journals


@pytest.fixture(scope="module")
def billed(spark: SparkSession, generated: list[Path]) -> Bill:
    return cost(spark, generated)


def test_spark_counts_as_duckdb_does_by_another_query(billed: Bill, generated: list[Path]) -> None:
    told = {
        (namespace, entity, day, WORDS.get(what, what), stage): (times, units, size)
        for namespace, entity, day, what, stage, times, units, size in Answers(generated).ask(ORACLE)
    }
    found = {}
    for meter in billed.meters:
        stage = meter.stage if meter.stage in ("sent", "moved", "diverted") else ""
        found[*meter[:4], stage] = meter
    assert found.keys() == told.keys()
    assert {key: (meter.times, meter.units) for key, meter in found.items()} == {
        key: (times, units) for key, (times, units, _) in told.items()
    }
    assert {key: meter.bytes for key, meter in found.items() if meter.stage} == {
        key: size for key, (_, _, size) in told.items() if found[key].stage
    }
    assert {"diverted", "fetched", "moved", "sent", "delivered", "forwarded", "pinged"} <= {
        meter.stage for meter in billed.meters
    }


def test_the_query_means_the_same_to_both_engines(billed: Bill, generated: list[Path]) -> None:
    assert list(billed.meters) == [Meter(*told) for told in Answers(generated).ask(metering_sql("journal"))]


def test_a_period_is_counted_over_the_border_of_days(spark: SparkSession, tmp_path: Path) -> None:
    day_s = 86_400
    rows = [*moved("early", at_s=-100), *moved("late", at_s=day_s - 3), row("send", at_s=2 * day_s)]
    place = small_journal.write(tmp_path, rows)
    since_ms = 1_794_787_200_000
    found = cost(spark, [place], "messages", since_ms=since_ms, until_ms=since_ms + 2 * day_s * 1000)
    assert [(share.key, share.messages, share.operations) for share in found.by("day")] == [
        (("2026-11-16",), 3, 3),
        (("2026-11-17",), 1, 3),
    ]
    assert found.operations == 4


def test_what_is_no_journal_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="holds no exported journal"):
        cost(spark, [tmp_path])
    pq.write_table(pa.table({"message_id": ["m"]}), tmp_path / "other.parquet")
    with pytest.raises(PipelineError, match="does not say its version"):
        cost(spark, [tmp_path])
    with pytest.raises(PipelineError, match="--journal"):
        cost(spark, [])


def test_a_bill_fits_into_a_page(billed: Bill) -> None:
    assert as_html(billed, ["entity"]).count("<tr>") > 10


@pytest.fixture
def prompt(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command with the tests' own session."""
    monkeypatch.setattr(pipeline_cost, "session", lambda *_: nullcontext(spark))

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, ["pipeline", "cost", *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_the_command_shows_the_bill_and_counts_a_range_once_that_two_gateways_exported(
    prompt: Any, tmp_path: Path
) -> None:
    both = [small_journal.write(tmp_path / name, moved("m"), "contoso-s0-w0-1-6.parquet") for name in ("a", "b")]
    shown = prompt("--journal", str(both[0]), "--journal", str(both[1]), "--by", "entity", "--prices", "2014-08")
    backlog, *_ = [line.split() for line in shown.splitlines() if "x-servicebus-transfer" in line]
    assert backlog == ["fabrikam", "contoso/x-servicebus-transfer/0", "3", "2", "3", "100", "100"]
    assert "0.000004" in shown  # Four messages, at a cent for ten thousand.


def test_the_command_compares_set_ups_for_the_journals_traffic(prompt: Any, tmp_path: Path) -> None:
    place = str(small_journal.write(tmp_path, moved("m")))
    told = prompt("--journal", place, "--what-if", "--json", "--model", "messages")
    shapes = {line["shape"]: line["operations"] for line in map(json.loads, told.splitlines())}
    assert shapes == {"unpaired": 2, "paired": 4 + 40, "passive": 2, "active": 4 - 1 - 1}
