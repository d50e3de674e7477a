"""The proof: journals, residents, send logs and ledgers into one Spark session, and out of it what became of it all.

The SQL is in `custody` and `judgement`, the plain results in `findings`. Gathering the evidence is `residents`' work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinbus.model.extras import needing
from twinbus.model.journal import COLUMNS, Column
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.proof import custody, judgement, kinship, timing
from twinbus.pipeline.proof.balancing import balances
from twinbus.pipeline.proof.evidence import RESIDENT_COLUMNS, Evidence, Window
from twinbus.pipeline.proof.findings import TITLES, Balance, Delay, Findings, Found, Series, Timeline

with needing("pyarrow", "pyspark"):
    import pyarrow.compute as pc
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

    from twinbus.pipeline.proof import sendlog
    from twinbus.pipeline.proof.versions import check_journal, check_residents, journal_files, operations_in
    from twinbus.pipeline.session import is_local

BINS = 240
_TYPES = {"string": "STRING", "int32": "INT", "int64": "BIGINT", "timestamp": "TIMESTAMP"}
_LEDGER = "scope STRING, tag STRING, state STRING, namespace STRING, sequence_number BIGINT, suppressed BIGINT"

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024 * 1024),
    # A method of more bytes the JVM never compiles, and to interpret it takes many times as long.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A file of a kept view is smaller than its rows are in memory, and what is small enough is judged by its file.
    "spark.sql.sources.fileCompressionFactor": "4.0",
}
# Compiling a plan takes longer than running it over so few rows.
SMALL = 200_000
_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}

NO_SEND_LOG = "There is no send log: what was lost together with its journal cannot be seen."
NO_RESIDENTS = "Nobody looked into the entities: what is there is taken from the journals' word alone."

Tell = Callable[[str], None]


def reconcile(
    spark: SparkSession, evidence: Evidence, window: Window | None = None, tell: Tell = lambda step: None
) -> Findings:
    """Judge what happened. `tell` hears of each step before it begins."""
    session = spark.newSession()  # Views of ours shall meet nobody else's.
    files = journal_files(evidence.journals)
    check_journal(files)
    is_small = operations_in(files) < SMALL
    for key, value in {**_SETTINGS, **(_SMALL if is_small else {})}.items():
        session.conf.set(key, value)
    with tempfile.TemporaryDirectory(prefix="twinbus-proof-") as scratch:
        shelf = None if is_small or not is_local(spark.sparkContext.master or "") else Path(scratch)
        return _Run(session, evidence, files, shelf, is_small, window or Window(), tell).findings()


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        evidence: Evidence,
        files: Sequence[Path],
        shelf: Path | None,
        is_small: bool,
        window: Window,
        tell: Tell,
    ) -> None:
        self._spark = spark
        self._evidence = evidence
        self._files = files
        self._shelf = shelf
        self._is_small = is_small
        self._window = window
        self._tell = tell
        self._kept: list[DataFrame] = []
        self._limits: list[str] = []

    def findings(self) -> Findings:
        try:
            return self._findings()
        except PySparkException as problem:
            raise PipelineError(f"The evidence cannot be read: {str(problem).splitlines()[0]}") from problem
        finally:
            for frame in self._kept:
                frame.unpersist()

    def _findings(self) -> Findings:
        slack_us = self._window.slack_ms * 1000
        self._tell("reading the evidence")
        acknowledged = self._load()
        self._tell("following every copy")
        for name, text in (dict(custody.views(slack_us)) | dict(judgement.views(self._window.by_tag))).items():
            self._view(name, text, keep=name in judgement.KEPT)
        if self._window.by_tag:
            self._limits.append(nameless(self._rows(kinship.NAMELESS)[0]["nameless"], self._window.tag))
        streams = self._rows("SELECT namespace, first, first_us, last_us FROM streams")
        looked = self._rows(
            "SELECT namespace, min(began_us) AS began_us, max(looked_us) AS looked_us FROM looked GROUP BY namespace"
        )
        end_us = max([row["last_us"] for row in streams] + [row["looked_us"] for row in looked], default=0)
        without = {row["namespace"] for row in looked} - {row["namespace"] for row in streams}
        without |= set(self._evidence.without_journal)
        queries = dict(judgement.tables(self._window, slack_us, end_us, all_have_journals=not without))
        fates, delays = queries.pop("fates"), queries.pop("delays")
        self._tell("striking the balance")
        struck = balances(self._rows(judgement.BALANCE))
        tables = {}
        for name, text in queries.items():
            self._tell(f"looking for: {TITLES[name]}")
            tables[name] = self._found(name, text)
        self._tell("measuring delays")
        told = self._rows(fates)
        timeline, latencies = self._pictures()
        return Findings(
            balances=struck,
            tables=tables,
            fates={row["fate"]: row["messages"] for row in told if row["messages"]},
            delays=[Delay(row["what"], row["messages"], *_seconds(row)) for row in self._rows(delays)],
            timeline=timeline,
            latencies=latencies,
            limits=[*self._limits, *limits(self._evidence, struck, streams, looked, sorted(without))],
            window=self._window,
            operations=operations_in(self._files),
            acknowledged=acknowledged,
        )

    # The evidence

    def _load(self) -> int | None:
        """Make the views that all others stand on; how many messages were acknowledged."""
        evidence = self._evidence
        journal = self._parquet(self._files, COLUMNS)
        journal.selectExpr("*", "unix_micros(at) AS at_us").createOrReplaceTempView("journal")
        if evidence.residents is not None:
            check_residents(evidence.residents)
        residents = self._parquet([evidence.residents] if evidence.residents else [], RESIDENT_COLUMNS)
        instants = [f"unix_micros({name}) AS {name}_us" for name in ("began", "ended")]
        residents = residents.selectExpr("*", *instants, "unix_micros(enqueued_at) AS enqueued_us")
        self._keep("residents", residents)
        ledger = self._spark.createDataFrame([], _LEDGER)
        if evidence.ledgers:
            ledger = self._spark.read.schema(_LEDGER).json([str(path) for path in evidence.ledgers])
        ledger.createOrReplaceTempView("ledger")
        sent = sendlog.read(evidence.send_logs)
        if sent.damaged:
            self._limits.append(f"{sent.damaged:,} lines of the send logs are damaged or cut off.")
        self._keep("sent", self._spark.createDataFrame(sendlog.told_by(sent.table, self._window.by_tag)))
        if not evidence.send_logs:
            return None
        acknowledged = sent.table.filter(pc.greater(sent.table["acknowledgements"], 0))
        return int(pc.count_distinct(acknowledged["message_id"]).as_py())

    def _parquet(self, files: Sequence[Path], columns: Sequence[Column]) -> DataFrame:
        schema = ", ".join(f"`{column.name}` {_TYPES[column.type]}" for column in columns)
        if not files:
            return self._spark.createDataFrame([], schema)
        paths = [f"file://{path.absolute()}" for path in files]
        return self._spark.read.schema(schema).parquet(*paths).select(*[column.name for column in columns])

    # Asking

    def _view(self, name: str, text: str, keep: bool = False) -> None:
        frame = self._spark.sql(text)
        if keep:
            self._keep(name, frame)
        else:
            frame.createOrReplaceTempView(name)

    def _keep(self, name: str, frame: DataFrame) -> None:
        """Make a view once. As a file, it also ends the plan: what stands on it does not begin with the journal again.

        On a cluster there may be no directory that all can see, so that it is kept by those who made it.
        """
        if self._shelf is not None:
            path = f"file://{self._shelf / name}"
            frame.write.parquet(path)
            frame = self._spark.read.schema(frame.schema).parquet(path)
        else:
            frame = frame.persist()
            self._kept.append(frame)
            if not self._is_small:
                frame.count()
        frame.createOrReplaceTempView(name)

    def _rows(self, text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._spark.sql(text).toArrow().to_pylist()
        return found

    def _found(self, name: str, text: str) -> Found:
        """The first rows of a table, and how many there are; few are counted as they come."""
        most = self._window.rows
        first = f"SELECT * FROM ({text}) AS found ORDER BY at_us, message_id LIMIT {most + 1}"
        table = self._spark.sql(first).toArrow()
        count = len(table)
        if count > most:
            count = self._rows(f"SELECT count(*) AS found FROM ({text}) AS found")[0]["found"]
        rows = table.slice(0, most).to_pylist()
        names = tuple(table.column_names)
        return Found(name, count, names, tuple(tuple(row[name] for name in names) for row in rows))

    def _pictures(self) -> tuple[Timeline, list[Series]]:
        [span] = self._rows(timing.SPAN)
        first_us, last_us = span["first_us"] or 0, span["last_us"] or 0
        width_us = max((last_us - first_us) // BINS + 1, 1)
        rows = self._rows(timing.PICTURES.format(first_us=first_us, width_us=width_us))
        timeline, latencies = ([row for row in rows if row["picture"] == name] for name in ("timeline", "latency"))
        return Timeline(first_us, width_us, _series(timeline)), _series(latencies)


def limits(
    evidence: Evidence,
    struck: Sequence[Balance],
    streams: Sequence[Mapping[str, Any]],
    looked: Sequence[Mapping[str, Any]],
    without: Sequence[str],
) -> list[str]:
    """What could not be seen, in sentences."""
    told = [] if evidence.send_logs else [NO_SEND_LOG]
    told += [] if evidence.residents is not None else [NO_RESIDENTS]
    told += [
        f"'{name}' has no journal: what was completed there is known from ledgers alone, and its copies cannot be"
        " balanced."
        for name in without
    ]
    told += [
        f"The journal of '{name}' does not begin at its beginning: copies from before are carried over."
        for name in sorted({row["namespace"] for row in streams if row["first"] > 1})
    ]
    began = {row["namespace"]: row["began_us"] for row in looked}
    ended = {row["namespace"]: 0 for row in streams}
    for row in streams:
        ended[row["namespace"]] = max(ended[row["namespace"]], row["last_us"])
    for balance in struck:
        name = balance.namespace
        if balance.told and evidence.residents is not None:
            told.append(
                f"{balance.told:,} copies in '{name}' came after the browse began, or where nobody looked: they are"
                " known from the journal alone."
            )
        if balance.difference and ended.get(name, 0) < began.get(name, 0):
            told.append(
                f"The last operation in the journal of '{name}' is older than the browse: if the journal was not"
                " exported after it, export it and repeat."
            )
    return told


def nameless(count: int, tag: str) -> str:
    """What copies are told by, and how many messages could not be told by it."""
    return f"Copies are told by {tag}, as the send logs give it; {count:,} messages have none there, and stand alone."


def _series(rows: Sequence[Mapping[str, Any]]) -> list[Series]:
    found: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        found.setdefault(row["what"], []).append((row["bin"], row["messages"]))
    return [Series(what, tuple(sorted(bins))) for what, bins in sorted(found.items())]


def _seconds(row: Mapping[str, Any]) -> list[float]:
    return [row[name] / 1_000_000 for name in ("p50", "p95", "p99", "most")]
