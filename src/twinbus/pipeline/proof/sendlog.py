"""A sender's own log of what it sent, a public format: read whole or for one message, also when its end is cut off.

Writing it is the sender's business (`twinbus.drill.history.SendLog` does), and judging by it `reconcile`'s. The format
is told in docs/reconcile.md.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.model.extras import needing
from twinbus.pipeline.errors import PipelineError

with needing("pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

EVENTS = ("attempted", "acknowledged", "failed")

SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("entity", pa.string()),
        ("log", pa.int32()),  # Which of the logs; only within one is there an order.
        ("attempted_line", pa.int64()),  # The first attempt's.
        ("attempted_us", pa.int64()),  # None if the log's clock does not count from 1970.
        ("acknowledged_line", pa.int64()),  # The first one's; None if there was none.
        ("attempts", pa.int32()),
        ("acknowledgements", pa.int32()),
        ("diverted", pa.bool_()),
        ("tag", pa.string()),  # What all copies of the message share, if the log says so.
    ]
)
# Logs may count their seconds from anywhere; what is later than 2001 counts from 1970.
_EPOCH_S = 1_000_000_000
_NEVER = -1


class Line(NamedTuple):
    """One line of a log."""

    number: int
    event: str
    message_id: str
    entity: str
    at: float
    diverted: bool
    why: str
    tag: str


class SendLogs(NamedTuple):
    """What several logs say, a row for each message, and how many lines made no sense."""

    table: pa.Table
    damaged: int


class _Sent:
    """The messages of one log, in columns: there may be millions, and an object for each would be too much."""

    def __init__(self, log: int) -> None:
        self._log = log
        self._places: dict[str, int] = {}
        self._entities: list[str] = []
        self._tags: list[str | None] = []
        self._attempted_line, self._attempted_us, self._acknowledged_line = array("q"), array("q"), array("q")
        self._attempts, self._acknowledgements, self._diverted = array("i"), array("i"), array("b")

    def take(self, line: Line) -> None:
        """One more line."""
        place = self._places.get(line.message_id)
        if place is None:
            place = self._places[line.message_id] = len(self._entities)
            self._entities.append("")
            self._tags.append(None)
            for column in (self._attempted_line, self._attempted_us, self._acknowledged_line):
                column.append(_NEVER)
            for column in (self._attempts, self._acknowledgements, self._diverted):
                column.append(0)
        self._entities[place] = self._entities[place] or line.entity
        self._tags[place] = self._tags[place] or line.tag or None
        if line.event == "attempted":
            self._attempts[place] += 1
            if self._attempted_line[place] == _NEVER:
                self._attempted_line[place] = line.number
                told = epoch_us(line.at)
                self._attempted_us[place] = _NEVER if told is None else told
        elif line.event == "acknowledged":
            self._acknowledgements[place] += 1
            self._diverted[place] |= line.diverted
            if self._acknowledged_line[place] == _NEVER:
                self._acknowledged_line[place] = line.number

    def table(self) -> pa.Table:
        """A row for each message."""

        def instants(column: array[int]) -> pa.Array:
            whole = pa.array(column, pa.int64())
            return pc.if_else(pc.equal(whole, _NEVER), pa.scalar(None, pa.int64()), whole)

        columns = [
            pa.array(self._places, pa.string()),
            pa.array(self._entities, pa.string()),
            pa.repeat(pa.scalar(self._log, pa.int32()), len(self._entities)),
            instants(self._attempted_line),
            instants(self._attempted_us),
            instants(self._acknowledged_line),
            pa.array(self._attempts, pa.int32()),
            pa.array(self._acknowledgements, pa.int32()),
            pc.equal(pa.array(self._diverted, pa.int8()), 1),
            pa.array(self._tags, pa.string()),
        ]
        return pa.table(columns, schema=SCHEMA)


def read(paths: Sequence[Path]) -> SendLogs:
    """All messages of all logs; a message that is in two of them has two rows."""
    tables: list[pa.Table] = []
    damaged = 0
    for log, path in enumerate(paths):
        sent = _Sent(log)
        for line in lines(path):
            if line is None:
                damaged += 1
            else:
                sent.take(line)
        tables.append(sent.table())
    return SendLogs(pa.concat_tables(tables) if tables else SCHEMA.empty_table(), damaged)


def told_by(table: pa.Table, by_tag: bool) -> pa.Table:
    """The same, without tags if copies are told by the MessageId."""
    if by_tag:
        return table
    return table.set_column(SCHEMA.get_field_index("tag"), SCHEMA.field("tag"), pa.nulls(len(table), pa.string()))


def epoch_us(at: float) -> int | None:
    """An instant of a log in microseconds since 1970, if that is what it counts from."""
    return int(at * 1_000_000) if at > _EPOCH_S else None


def lines(path: Path, about: str = "") -> Iterator[Line | None]:
    """The lines of a log in order, or those that may be about a message; None for one that cannot be read.

    The last one is cut off if its sender was killed. If another sender then went on in the same file, its first line
    stands behind the torn one, and is found there.
    """
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError as problem:
        raise PipelineError(f"The send log {path} cannot be read: {problem.strerror}.") from problem
    spelt = json.dumps(about)[1:-1]
    with file:
        for number, text in enumerate(file):
            if not text.strip() or (spelt not in text and about not in text):
                continue
            found = _entry(text)
            if found is None:
                yield None
                start = text.rfind('{"', 1)
                found = _entry(text[start:]) if start > 0 else None
            if found is not None:
                yield _line(number, found)


def _entry(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or not any(isinstance(found.get(event), str) for event in EVENTS):
        return None
    return found


def _line(number: int, entry: dict[str, Any]) -> Line:
    event = next(event for event in EVENTS if isinstance(entry.get(event), str))
    at = entry.get("at")
    return Line(
        number,
        event,
        entry[event],
        str(entry.get("entity") or ""),
        float(at) if isinstance(at, int | float) else 0.0,
        bool(entry.get("diverted")),
        str(entry.get("why") or ""),
        str(entry.get("tag") or ""),
    )
