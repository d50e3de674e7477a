"""Metering: what the journals say was done, counted by namespace, entity, day, kind and stage, in units of 64 KB.

Two documents count differently, so the counting stops short of choosing: which kinds are billed is said by a `Model`,
and what an operation costs by `prices`. The queries are SQL that Spark runs and DuckDB too; no JVM is needed to import
this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from twinbus.model.address import BACKLOG_PART, ORDERED_BACKLOG_PART
from twinbus.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNIT_BYTES = 65_536


class Kind(NamedTuple):
    """A kind of operation: what it is called, and which rows of the journal are of it (the first that fits)."""

    name: str
    condition: str
    sized: bool = False  # Counts once for each 64 KB that it carries; everything else counts once.
    meaning: str = ""


_SETTLED = "operation IN ('complete', 'abandon', 'release', 'defer', 'deadletter')"
_SESSION = "'get_session_state', 'set_session_state', 'list_sessions'"
_OWN = (
    "'expire_lock', 'drop_lock', 'ttl_expire', 'activate', 'damaged', 'disconnect', 'drop', 'fault',"
    " 'transfer_deadletter'"
)
KINDS = (
    Kind("relayed", "operation IN ('relay_connect', 'relay_request', 'relay_response')", True, "passed by the relay"),
    Kind("listener", "operation = 'relay_listen'", meaning="a listener of the relay registered"),
    Kind("forward", "connection = '' AND client = 'forward' AND operation = 'send'", True, "arrived by forwarding"),
    Kind("own", "connection = '' AND client IN ('broker', 'forward', 'topic')", meaning="done by the broker itself"),
    Kind("own", "operation = 'copy' OR outcome IN ('MaxDeliveryCountExceeded', 'published')"),
    Kind("ping", "operation = 'send' AND outcome = 'ping'", True, "a ping of a paired client"),
    Kind("refused", "operation = 'send' AND tracking_id <> ''", meaning="a pre-settled send that was refused"),
    Kind("send", "operation = 'send'", True, "a message was sent, or dropped as a duplicate"),
    Kind("schedule", "operation = 'schedule'", True, "a message was sent for later"),
    Kind("cancel", "operation = 'cancel'", meaning="a scheduled message was cancelled"),
    Kind("empty_receive", "operation = 'receive' AND outcome = 'empty'", meaning="a receive that found nothing"),
    Kind("receive", "operation IN ('receive', 'receive_delete')", True, "a message was handed out"),
    Kind("settle", f"{_SETTLED} OR operation = 'forward'", meaning="completed, abandoned, deferred, dead-lettered"),
    Kind("renew", "operation IN ('renew', 'renew_session')", meaning="a lock was renewed"),
    Kind("session", f"operation IN ({_SESSION})", meaning="a session's state, or which sessions there are"),
    Kind("peek", "operation = 'peek'", meaning="messages were looked at"),
    Kind("delete", "operation = 'delete'", meaning="a message was removed by a batch delete"),
    Kind("connect", "operation = 'connect'", meaning="a connection was opened; what is billed is how many there are"),
    Kind("manage", "operation = 'manage'", meaning="an entity or a rule was made, read, changed or deleted"),
    Kind("own", f"operation IN ({_OWN})"),
)
SIZED = frozenset(kind.name for kind in KINDS if kind.sized)
OTHER = "other"  # What this version does not know is shown, and billed by nobody.

# Where a message is on its way, by what carries its bytes into a namespace and out of one.
STAGES_IN = ("sent", "diverted", "moved", "forwarded", "pinged")
STAGES_OUT = ("fetched", "delivered")
STAGES = (*STAGES_IN, *STAGES_OUT, "relayed")


class Model(NamedTuple):
    """A way of counting, as one of the documents has it."""

    name: str
    billed: frozenset[str]
    poll_s: int  # How long an idle syphon's receive lasts.
    source: str


_BOTH = frozenset({"send", "schedule", "ping", "receive", "empty_receive", "forward"})
MESSAGES = Model(
    "messages",
    _BOTH,
    900,
    "what is sent and what is delivered, empty deliveries included: the article on paired namespaces (2012 to 2017) and"
    " the pricing FAQ of August 2014; a receive of the syphon lasts 15 minutes",
)
OPERATIONS = Model(
    "operations",
    _BOTH | {"settle", "renew", "session", "peek", "delete", "manage", "cancel"},
    120,
    "every call, so that a complete is one more: Service Bus pricing and billing (December 2017) and the price page's"
    " FAQ; a receive of the client of 2013 lasts two minutes",
)
MODELS = {model.name: model for model in (MESSAGES, OPERATIONS)}


class Meter(NamedTuple):
    """One reading: how often something was done on a day, in units of 64 KB, and the bytes that it carried."""

    namespace: str
    entity: str
    day: str
    kind: str
    stage: str
    times: int
    units: int
    bytes: int

    def billed(self, model: Model) -> int:
        """So many operations, as this model counts."""
        return self.units if self.kind in model.billed else 0


class Hour(NamedTuple):
    """How many connections a namespace had in an hour, at most."""

    namespace: str
    hour: str
    connections: int


def units_of(size: int) -> int:
    """How many operations carry so many bytes."""
    return max(1, -(-size // UNIT_BYTES))


def metering_sql(journal: str = "{journal}", since_ms: int | None = None, until_ms: int | None = None) -> str:
    """The query; `journal` is a table's name, or the place where Spark puts one in."""
    kinds = "\n".join(f"      WHEN {kind.condition} THEN '{kind.name}'" for kind in KINDS)
    sized = ", ".join(f"'{name}'" for name in sorted(SIZED))
    # A message that comes home was sent to another namespace than its backlog's, and not before it was fetched there.
    return f"""
WITH told AS (
  SELECT namespace, entity, CAST(CAST(journal.at AS DATE) AS STRING) AS day, journal.at AS moment, message_id, bytes,
    count AS times,
    sub_queue = '' AND (lower(entity) LIKE '%{BACKLOG_PART}%' OR lower(entity) LIKE '%{ORDERED_BACKLOG_PART}%')
      AS in_backlog,
    CASE
{kinds}
      ELSE '{OTHER}' END AS kind
  FROM {journal} AS journal
),
fetched AS (
  SELECT message_id, min(namespace) AS namespace, min(moment) AS moment
  FROM told WHERE in_backlog AND kind = 'receive' AND message_id <> '' GROUP BY message_id
),
staged AS (
  SELECT told.namespace, told.entity, told.day, told.kind, told.times, told.bytes,
    CASE
      WHEN told.kind IN ('send', 'schedule') AND told.in_backlog THEN 'diverted'
      WHEN told.kind IN ('send', 'schedule') AND fetched.message_id IS NOT NULL THEN 'moved'
      WHEN told.kind IN ('send', 'schedule') THEN 'sent'
      WHEN told.kind = 'receive' AND told.in_backlog THEN 'fetched'
      WHEN told.kind = 'receive' THEN 'delivered'
      WHEN told.kind = 'forward' THEN 'forwarded'
      WHEN told.kind = 'ping' THEN 'pinged'
      WHEN told.kind = 'relayed' THEN 'relayed'
      ELSE '' END AS stage
  FROM told LEFT JOIN fetched
    ON told.kind IN ('send', 'schedule') AND NOT told.in_backlog AND told.message_id = fetched.message_id
    AND told.namespace <> fetched.namespace AND told.moment >= fetched.moment
  WHERE {_within("told.moment", since_ms, until_ms)}
)
SELECT namespace, entity, day, kind, stage, CAST(sum(times) AS BIGINT) AS times,
  CAST(sum(times * CASE WHEN kind IN ({sized}) THEN greatest(1, ceil(bytes / {UNIT_BYTES}.0)) ELSE 1 END) AS BIGINT)
    AS units,
  CAST(sum(CASE WHEN stage = '' THEN 0 ELSE bytes END) AS BIGINT) AS bytes
FROM staged GROUP BY namespace, entity, day, kind, stage
ORDER BY namespace, entity, day, kind, stage
"""


def hours_sql(journal: str = "{journal}", since_ms: int | None = None, until_ms: int | None = None) -> str:
    """For each hour in which something happened, the most connections after any change, and how many more at its end.

    A connection is there from the first row that names it until it ended; where a broker was killed and did not write
    that down, until the last row.
    """
    return f"""
WITH told AS (
  SELECT namespace, connection, operation, journal.at AS moment
  FROM {journal} AS journal WHERE {_within("journal.at", since_ms, until_ms)}
),
lasted AS (
  SELECT namespace, min(moment) AS began, max(moment) AS ended
  FROM told WHERE connection NOT IN ('', 'http') GROUP BY namespace, connection
),
changes AS (
  SELECT namespace, began AS moment, 1 AS more FROM lasted
  UNION ALL SELECT namespace, ended, -1 FROM lasted
  UNION ALL SELECT namespace, min(moment), 0 FROM told GROUP BY namespace, date_trunc('hour', moment)
),
running AS (
  SELECT namespace, moment, more, sum(more) OVER (
    PARTITION BY namespace ORDER BY moment, more DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS there
  FROM changes
)
SELECT namespace, CAST(date_trunc('hour', moment) AS STRING) AS hour, CAST(max(there) AS BIGINT) AS most,
  CAST(sum(more) AS BIGINT) AS more
FROM running GROUP BY namespace, date_trunc('hour', moment) ORDER BY namespace, hour
"""


def peaks(changes: Iterable[tuple[str, str, int, int]]) -> list[Hour]:
    """The most connections at once in every hour, from the first one to the last, also where nothing changed."""
    found: list[Hour] = []
    for namespace, some in groupby(changes, key=lambda change: change[0]):
        told = {_hour(text): (most, more) for _, text, most, more in some}
        there, hour, last = 0, min(told), max(told)
        while hour <= last:
            most, more = told.get(hour, (0, 0))
            found.append(Hour(namespace, hour.isoformat(" "), max(there, most)))
            there += more
            hour += timedelta(hours=1)
    return found


def _hour(text: str) -> datetime:
    return datetime.fromisoformat(text[:13])  # Engines differ in how they write the rest.


def _within(column: str, since_ms: int | None, until_ms: int | None) -> str:
    bounds = [(">=", since_ms), ("<", until_ms)]
    told = [f"{column} {sign} TIMESTAMP '{_moment(at_ms)}'" for sign, at_ms in bounds if at_ms is not None]
    return " AND ".join(told) or "true"


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None).isoformat(' ', 'milliseconds')}Z"


def open_journals(spark: SparkSession, journals: Sequence[Path | str]) -> DataFrame:
    """The exported journals of several namespaces as one table, each file once."""
    from twinbus.pipeline.proof.versions import check_journal, journal_files

    if not journals:
        raise PipelineError("No journal was named: give the directory that a broker exports to (`--journal DIR`).")
    for place in map(Path, journals):
        if not journal_files([place]):
            raise PipelineError(f"'{place}' holds no exported journal: there is no Parquet file in it.")
    files = journal_files([Path(place) for place in journals])
    check_journal(files)
    # The days in the paths are those of `at`; Spark would look for them in directories of one root only.
    return spark.read.option("recursiveFileLookup", "true").parquet(*map(str, files))


def meter(
    spark: SparkSession, journals: Sequence[Path | str], since_ms: int | None = None, until_ms: int | None = None
) -> tuple[list[Meter], list[Hour]]:
    """What was done, and over how many connections."""
    journal = open_journals(spark, journals)
    counted = spark.sql(metering_sql("{journal}", since_ms, until_ms), journal=journal).collect()
    changes = spark.sql(hours_sql("{journal}", since_ms, until_ms), journal=journal).collect()
    return [Meter(*row) for row in counted], peaks((row[0], row[1], row[2], row[3]) for row in changes)
