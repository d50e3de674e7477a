"""Journals of a pair that never was: an hour of traffic with an outage in it, ordinary fates, and faults on purpose.

Everything is made column by column, so that ten million rows take seconds; a seed makes the same files again. What was
planted is told in `Planted`, for those who are to find it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from twinbus.model.journal import COLUMNS, DAY, VERSION, VERSION_KEY

START_MS = 1_794_787_200_000  # 2026-11-16, midnight in UTC.
HOUR_MS = 3_600_000
SLO_S = 7_200.0  # Longer than the outage; what is planted as late takes two hours more.
BACKLOG_QUEUES = 3  # The fourth is a surplus one.
SESSION_RUN = 40  # So many messages in a row belong to one session.

Numbers = np.ndarray[Any, np.dtype[np.int64]]

# Ordinary fates and how often they come; the rest is sent to a queue, received and completed.
FATES = {
    "in_session": 0.12,
    "published": 0.10,
    "received_deleted": 0.04,
    "redelivered": 0.01,
    "dead": 0.01,
    "expired": 0.005,
    "expired_dead": 0.005,
    "purged": 0.005,
    "cancelled": 0.005,
    "scheduled": 0.01,
    "waiting_scheduled": 0.003,
    "deferred": 0.005,
    "forwarded": 0.02,
    "forwarded_far": 0.01,
    "redriven": 0.005,
    "dropped": 0.005,
    "twice_dropped": 0.005,
    "active": 0.005,
    "locked": 0.002,
    "suppressed": 0.005,
    "unwanted": 0.002,
}
# What `faults` may name, and what each is.
FAULTS = (
    "lost_whole",  # Acknowledged, and no trace of it.
    "lost_message",  # Its journal says that it is there, and it is not.
    "lost_in_move",  # It left the backlog and never arrived.
    "stuck",  # In a surplus backlog queue.
    "duplicated",  # Two copies were worked on.
    "late",
    "out_of_order",  # Each takes two messages of one session; the second overtook the first.
    "unexplained",  # It is there, and its journal knows nothing of it.
    "ended_twice",
    "unborn",  # It ended and was never made.
    "created_twice",
    "risen",  # It is there, and its journal says that it ended before.
    "gap",  # A transaction is missing from the journal; nothing of this one is wrong otherwise.
)


class Place(NamedTuple):
    """A queue of an entity, as the journal names it."""

    entity: str
    number: int
    kind: str = "queue"
    sub_queue: str = ""

    @property
    def dead(self) -> Place:
        """Its dead-letter queue."""
        return Place(self.entity, self.number + 1, self.kind, "$DeadLetterQueue")


ORDERS, CARTS, METRICS, INBOX, FAR, DOOMED, LATER = (
    Place(name, 4 * number)
    for number, name in enumerate(("orders", "carts", "metrics", "inbox", "far", "doomed", "later"), 1)
)
EVENTS = Place("events", 40, "topic")
AUDIT = Place("events/Subscriptions/audit", 44, "subscription")
BILLING = Place("events/Subscriptions/billing", 48, "subscription")


@dataclass
class Planted:
    """Where the files are, and what is in them."""

    journals: list[Path]
    residents: Path
    send_log: Path
    ledger: Path
    slo_s: float = SLO_S
    backlog_queues: int = BACKLOG_QUEUES
    faults: dict[str, list[str]] = field(default_factory=dict)  # Ids, by the names of FAULTS.
    fates: dict[str, list[str]] = field(default_factory=dict)  # Ids, by the names of FATES.
    rows: int = 0

    def ids(self, *kinds: str) -> set[str]:
        """The messages that were planted under these names."""
        return {name for kind in kinds for name in self.faults.get(kind, []) + self.fates.get(kind, [])}


class _Journal:
    """The rows of one namespace, as they are thought up; sorted and numbered when they are written."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._blocks: list[dict[str, Any]] = []
        self._next: dict[int, int] = {}

    def numbers(self, place: Place, count: int) -> Numbers:
        """The next sequence numbers of a queue."""
        first = self._next.get(place.number, 1)
        self._next[place.number] = first + count
        return np.arange(first, first + count, dtype=np.int64)

    def add(self, operation: str, place: Place, who: Numbers, at_ms: Numbers, numbers: Numbers, **more: Any) -> None:
        """An operation on these messages; `more` are other columns, each one value or one for each message."""
        if len(who):
            self._blocks.append(
                {"operation": operation, "place": place, "who": who, "at": at_ms, "numbers": numbers, **more}
            )

    def table(self, ids: pa.Array, gaps: int, rng: np.random.Generator) -> pa.Table:
        """All rows in order of time; a commit is a millisecond."""
        blocks = self._blocks
        at = _joined(blocks, "at")
        order = np.argsort(at, kind="stable")
        at = at[order]
        news = np.concatenate(([True], at[1:] != at[:-1])) if len(at) else np.empty(0, bool)
        batch = np.cumsum(news)
        starts = np.flatnonzero(news)
        place = np.arange(len(at)) - np.repeat(starts, np.diff(np.append(starts, len(at))))
        for cut in sorted(rng.choice(np.arange(1, max(len(starts), 2)), min(gaps, max(len(starts) - 1, 0)), False)):
            batch = batch + (np.arange(len(at)) >= starts[cut])
        lengths = [len(block["who"]) for block in blocks]

        def told(value: Callable[[dict[str, Any]], Any], type_: pa.DataType) -> pa.Array:
            """One value for each block."""
            values = pa.array([value(block) for block in blocks], type_)
            return values.take(pa.array(np.repeat(np.arange(len(blocks)), lengths)[order]))

        def each(name: str, default: int) -> pa.Array:
            found = [
                np.broadcast_to(np.asarray(block.get(name, default), dtype=np.int64), length)
                for block, length in zip(blocks, lengths, strict=True)
            ]
            return pa.array((np.concatenate(found) if found else np.empty(0, np.int64))[order])

        who = pa.array(_joined(blocks, "who")[order])
        named = pc.if_else(pc.less(who, 0), pa.scalar(""), ids.take(pc.max_element_wise(who, 0)))
        sessions = _texts(blocks, "session", lengths, order)
        outcomes = _texts(blocks, "outcome", lengths, order)
        columns = {
            "namespace": pa.array([self.namespace]).take(pa.array(np.zeros(len(at), np.int64))),
            "store": pa.array(np.zeros(len(at), np.int32)),
            "writer": pa.array(np.zeros(len(at), np.int32)),
            "batch": pa.array(batch),
            "place": pa.array(place.astype(np.int32)),
            "at": pa.array(at * 1000, pa.timestamp("us", "UTC")),
            "operation": told(lambda block: block["operation"], pa.string()),
            "entity": told(lambda block: block["place"].entity, pa.string()),
            "kind": told(lambda block: block["place"].kind, pa.string()),
            "sub_queue": told(lambda block: block["place"].sub_queue, pa.string()),
            "queue": told(lambda block: block["place"].number, pa.int64()),
            "outcome": outcomes,
            "message_id": named,
            "session_id": sessions,
            "sequence_number": pa.array(_joined(blocks, "numbers")[order]),
            "delivery_count": each("delivery_count", 0).cast(pa.int32()),
            "bytes": each("bytes", 512),
            "count": each("count", 1),
            "connection": told(lambda block: block.get("connection", "c-1"), pa.string()),
            "client": told(lambda block: block.get("client", "link-1"), pa.string()),
            "tracking_id": told(lambda block: "", pa.string()),
        }
        return pa.table({column.name: columns[column.name] for column in COLUMNS})

    def write(self, table: pa.Table, directory: Path) -> None:
        """Day by day, as the broker's exporter does."""
        table = table.replace_schema_metadata({VERSION_KEY: str(VERSION)})
        days = pc.strftime(table["at"], "%Y-%m-%d")
        for day in pc.unique(days).to_pylist():
            folder = directory / f"{DAY}={day}"
            folder.mkdir(parents=True, exist_ok=True)
            part = table.filter(pc.equal(days, day)) if len(pc.unique(days)) > 1 else table
            first, last = part["batch"][0].as_py(), part["batch"][-1].as_py()
            name = f"{self.namespace}-s0-w0-{first}-{last}.parquet"
            pq.write_table(part, folder / name, compression="zstd", row_group_size=1 << 20)


def _joined(blocks: list[dict[str, Any]], name: str) -> Numbers:
    found = [np.asarray(block[name], dtype=np.int64) for block in blocks]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _texts(blocks: list[dict[str, Any]], name: str, lengths: list[int], order: Numbers) -> pa.Array:
    """A column of texts: of each block none, one, or one for each message."""
    pieces = []
    for block, length in zip(blocks, lengths, strict=True):
        value = block.get(name, "")
        if isinstance(value, str):
            value = pa.array([value]).take(pa.array(np.zeros(length, np.int64)))
        pieces.append(value)
    whole = pa.concat_arrays(pieces) if pieces else pa.array([], pa.string())
    return whole.take(pa.array(order))


def _text(numbers: Numbers, before: str) -> pa.Array:
    texts = pc.cast(pa.array(numbers), pa.string())
    return pc.binary_join_element_wise(pa.scalar(before), texts, "")


def generate(
    directory: Path,
    seed: int,
    messages: int,
    faults: Mapping[str, int] | None = None,
    *,
    primary: str = "contoso",
    secondary: str = "fabrikam",
    prefix: str = "m-",
    span_ms: int = HOUR_MS,
    fates: Mapping[str, float] = FATES,
) -> Planted:
    """Journals of two namespaces, what is still in them, a send log and a ledger's export, below `directory`.

    `faults` says how many of each kind of FAULTS; ids begin with `prefix`, so that several runs can be put together.
    `fates` are the shares of what else happens.
    """
    from support.generated_lives import Run

    unknown = set(faults or {}) - set(FAULTS)
    if unknown:
        raise ValueError(f"There are no faults {sorted(unknown)}.")
    run = Run(seed, messages, dict(faults or {}), dict(fates), primary, secondary, prefix, span_ms)
    run.live()
    directory.mkdir(parents=True, exist_ok=True)
    planted = Planted(
        journals=[directory / primary, directory / secondary],
        residents=directory / "residents.parquet",
        send_log=directory / "sent.jsonl",
        ledger=directory / "ledger.jsonl",
        faults={kind: run.ids.take(pa.array(who)).to_pylist() for kind, who in run.victims.items()},
        fates={kind: run.ids.take(pa.array(who)).to_pylist() for kind, who in run.fates.items()},
    )
    for journal, folder in zip((run.primary, run.secondary), planted.journals, strict=True):
        gaps = len(run.victims.get("gap", ())) if journal is run.primary else 0
        table = journal.table(run.ids, gaps, run.rng)
        planted.rows += len(table)
        journal.write(table, folder)
    run.write_residents(planted.residents)
    run.write_send_log(planted.send_log)
    run.write_ledger(planted.ledger)
    return planted


def iso(at_ms: int) -> str:
    """An instant as `twinbus ledger export` writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """A JSON object on each line."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
