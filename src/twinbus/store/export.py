"""Journal rows as a table with the columns of `model.journal`, and what its files are called.

Pure: rows and names in, an Arrow table out. Where rows come from is told by `JournalSource`, which each engine has one
of; files are `store.export_files`' business. pyarrow is imported when it is first needed, since few brokers export.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from twinbus.model.extras import needing
from twinbus.model.journal import COLUMNS, DAY, VERSION, VERSION_KEY
from twinbus.model.partition import NUMBER_BITS
from twinbus.store.commands import EntityName
from twinbus.store.journal import Group, JournalRow, groups
from twinbus.store.range_commands import Range

if TYPE_CHECKING:
    import pyarrow as pa

DAY_MS = 24 * 3600 * 1000
SUB_QUEUES = ("", "$DeadLetterQueue", "$Transfer/$DeadLetterQueue")
NOBODY = EntityName("", "")  # What belongs to no entity, and what nobody remembers the name of.


class Limits(NamedTuple):
    """How much one range may hold."""

    rows: int
    bytes: int


class Stream(NamedTuple):
    """The journal of one writer: how far it is in files, and what is not yet."""

    writer: int
    exported: int  # The last row that is in a file, or was trimmed.
    open: Range | None  # Written down, and its file not known to be there.
    waiting_rows: int
    newest: int
    oldest_ms: int | None  # The instant of the first row that waits.


class JournalSource(Protocol):
    """The journal of one store as its exporter reads it, beside the commits. Used by one thread at a time."""

    def hold(self) -> bool:
        """Be the one that exports this store; False while another gateway is."""
        ...

    def streams(self) -> list[Stream]:
        """All writers that have rows here."""
        ...

    def next_range(self, stream: Stream, limits: Limits) -> Range | None:
        """The next rows that can be one file: as many as the limits allow, and of one day."""
        ...

    def rows(self, part: Range, after: int, most_bytes: int) -> list[JournalRow]:
        """The next rows of a range behind a number, so many bytes of them or one."""
        ...

    def names(self, entities: Sequence[int]) -> dict[int, EntityName]:
        """What entities are called."""
        ...

    def waits_for_drops(self) -> bool:
        """Whether messages of entities that were deleted are still to be journaled."""
        ...

    def stored_bytes(self) -> int:
        """What the journal takes up in the store."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


# Names


def day_of(at_ms: int) -> str:
    """The day of an instant in UTC, as partitions are called."""
    return datetime.fromtimestamp(at_ms // DAY_MS * DAY_MS / 1000, UTC).strftime("%Y-%m-%d")


def path_of(namespace: str, store: int, part: Range) -> str:
    """Where a range's file is, below the directory of the export."""
    name = f"{namespace}-s{store}-w{part.writer}-{part.first}-{part.last}.parquet"
    return f"{DAY}={day_of(part.from_ms)}/{name}"


class Part(NamedTuple):
    """What a file's name tells."""

    store: int
    writer: int
    first: int
    last: int


def part_of(namespace: str, name: str) -> Part | None:
    """What is in the file of that name; None if it was not exported from that namespace."""
    found = re.fullmatch(rf"{re.escape(namespace)}-s(\d+)-w(\d+)-(\d+)-(\d+)\.parquet", name)
    return None if found is None else Part(*map(int, found.groups()))


# Tables


def arrow() -> Any:
    """The package pyarrow."""
    with needing("pyarrow"):
        import pyarrow

    return pyarrow


def schema() -> pa.Schema:
    """The columns, with the version that a file carries in its metadata."""
    pa = arrow()
    types = {"timestamp": pa.timestamp("us", tz="UTC")}
    fields = [
        pa.field(column.name, types.get(column.type) or pa.type_for_alias(column.type), nullable=False)
        for column in COLUMNS
    ]
    return pa.schema(fields, metadata={VERSION_KEY: str(VERSION)})


class Place(NamedTuple):
    """Whose rows they are."""

    namespace: str
    store: int
    writer: int


class _Runs:
    """A column in which neighbours are mostly equal."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.ends: list[int] = []

    def add(self, value: Any, end: int) -> None:
        """The value of all rows from where the last one ended up to `end`."""
        if self.values and self.values[-1] == value:
            self.ends[-1] = end
        else:
            self.values.append(value)
            self.ends.append(end)

    def extend(self, values: list[Any], end: int) -> None:
        """One value for each of the last rows up to `end`."""
        self.values += values
        self.ends += range(end - len(values) + 1, end + 1)


_RUNS = (
    "batch", "at", "operation", "entity", "kind", "sub_queue", "queue", "outcome", "session_id", "delivery_count",
    "bytes", "count", "connection", "client", "tracking_id",
)  # fmt: skip


def table_of(place: Place, rows: Sequence[JournalRow], name_of: Callable[[int], EntityName]) -> pa.Table:
    """The operations of journal rows, in order. `name_of` knows entities by their numbers."""
    pa = arrow()
    from pyarrow import compute

    columns = {name: _Runs() for name in _RUNS}
    ids: list[str] = []
    numbers: list[int] = []
    places: list[int] = []
    for row in rows:
        begin = len(ids)
        for group in groups(row):
            ids += group.ids
            _add(columns, numbers, group, name_of(group.queue >> 2), len(ids))
        columns["batch"].add(row.id, len(ids))
        columns["at"].add(row.at_ms * 1000, len(ids))
        places += range(len(ids) - begin)
    wanted = schema()
    made: dict[str, Any] = {
        name: compute.run_end_decode(
            pa.RunEndEncodedArray.from_arrays(
                pa.array(runs.ends, pa.int32()), pa.array(runs.values, wanted.field(name).type)
            )
        )
        for name, runs in columns.items()
    }
    for name, value in place._asdict().items():
        made[name] = pa.repeat(pa.scalar(value, wanted.field(name).type), len(ids))
    for name, values in (("message_id", ids), ("sequence_number", numbers), ("place", places)):
        made[name] = pa.array(values, wanted.field(name).type)
    return pa.table([made[field.name] for field in wanted], schema=wanted)


def _add(columns: Mapping[str, _Runs], numbers: list[int], group: Group, name: EntityName, end: int) -> None:
    size = len(group.ids)
    for column, value in (
        ("operation", group.operation),
        ("entity", name.path),
        ("kind", name.kind),
        ("sub_queue", SUB_QUEUES[group.queue & 3]),
        ("queue", group.queue),
        ("session_id", group.session_id),
        ("count", group.count),
        ("connection", group.connection),
        ("client", group.client),
        ("tracking_id", group.tracking_id),
    ):
        columns[column].add(value, end)
    outcome = _outward(group, name.fragment)
    for column, values in (("outcome", outcome), ("delivery_count", group.counts), ("bytes", group.sizes)):
        if isinstance(values, list):
            columns[column].extend(values, end)
        else:
            columns[column].add(values, end)
    mark = name.fragment << NUMBER_BITS
    if isinstance(group.numbers, list):
        numbers += [number and mark | number for number in group.numbers] if mark else group.numbers
    elif group.numbers:
        numbers += range(mark | group.numbers, (mark | group.numbers) + size)
    else:
        numbers += [0] * size


def _outward(group: Group, fragment: int) -> str | list[str]:
    """Numbers inside of an outcome are those that clients see, too; a topic's fragment is its subscriptions'."""
    if not fragment:
        return group.outcome
    if isinstance(group.outcome, list):
        pairs = [source.split("/") for source in group.outcome]
        return [f"{queue}/{fragment << NUMBER_BITS | int(number)}" for queue, number in pairs]
    if group.operation == "activate":
        return str(fragment << NUMBER_BITS | int(group.outcome))
    return group.outcome
