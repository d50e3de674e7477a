"""The streaming reader of `servicebus`, as Spark calls it: on the driver it claims and settles, on executors it reads.

Everything is decided in `staged` and `deferred`, which know no Spark. The part beside the driver lives as long as a
query runs, and is never told that it ends; the part on an executor is a copy that knows nothing but its options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.model.extras import needing
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.namespace import namespace_of
from twinbus.pipeline.options import DEFER, STAGE, SourceOptions
from twinbus.pipeline.reading import claims
from twinbus.pipeline.reading.browsing import Browser
from twinbus.pipeline.reading.deferred import Claimed, DeferredClaims
from twinbus.pipeline.reading.deferring import Deferring
from twinbus.pipeline.reading.intake import Intake
from twinbus.pipeline.reading.staged import Limit, Offset, StagedClaims
from twinbus.pipeline.reading.staging import Staging, read_range
from twinbus.pipeline.rows import RowMaker

with needing("pyspark"):
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

# Without a limit a first batch would try to hold a whole backlog.
MESSAGES_PER_ENTITY = 10_000
UNLIMITED = 1_000_000


class Segment(NamedTuple):
    """What a task reads: some rows of a file."""

    path: str
    first: int
    rows: int
    namespace: str


class Deferred(NamedTuple):
    """What a task reads: messages by their numbers, as ranges."""

    ranges: dict[str, str]
    claimed_at_ms: int


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What both kinds of reader share. Made wherever Spark needs one; a broker is asked only beside the driver."""

    def __init__(self, options: SourceOptions, make: RowMaker) -> None:
        self._options = options
        self._make = make
        self._intake: Intake | None = None
        self._ending = False

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a trigger takes, unless Spark asks for all."""
        entities = max(len(self._options.subscribed.names), 1)
        return ReadMaxRows(self._options.max_messages or MESSAGES_PER_ENTITY * entities)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on only what is there now counts, and the end is to be reached."""
        self._broker.freeze()
        self._ending = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How many messages wait, for whoever looks at the query's progress."""
        waiting = self._intake.waiting() if self._intake is not None else None
        return None if waiting is None else {"waiting": waiting}

    def stop(self) -> None:
        """The query is over, and somebody says so, which is rare."""
        if self._intake is not None:
            self._intake.close()
            self._intake = None

    @property
    def _broker(self) -> Intake:
        if self._intake is None:
            self._intake = Intake(self._options)
        return self._intake

    def _limit(self, limit: ReadLimit) -> Limit:
        if isinstance(limit, ReadAllAvailable):
            return Limit(UNLIMITED)
        return Limit(limit.max_rows if isinstance(limit, ReadMaxRows) else UNLIMITED, self._options.max_bytes)


class StagedReader(_Reader):
    """A stream that keeps what it receives in files until Spark has committed it."""

    def __init__(self, options: SourceOptions, make: RowMaker) -> None:
        super().__init__(options, make)
        self._staging = Staging(Path(options.staging_location or ""))
        self._opened: StagedClaims | None = None

    @property
    def _claims(self) -> StagedClaims:
        if self._opened is None:
            broker = self._broker
            self._staging.open(broker.namespace)
            self._opened = StagedClaims(
                self._staging,
                broker,
                settle_at_once=self._options.settle_on == STAGE,
                fail_on_data_loss=self._options.fail_on_data_loss,
                least=self._options.min_messages or 1,
                patience_s=self._options.max_trigger_delay_s,
            )
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        return self._claims.initial().told()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Receive what the next batch reads."""
        begin, wait_s = Offset.read(start), self._options.receive_timeout_s
        found = self._claims.next(begin, self._limit(limit), wait_s, ending=self._ending).told()
        self._staging.tell(self._broker.away)
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task reads."""
        namespace = self._broker.namespace
        return [
            InputPartition(Segment(str(self._staging.path(part.segment)), part.first, part.rows, namespace))
            for part in self._claims.parts(Offset.read(start), Offset.read(end), self._options.min_partitions)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything up to here."""
        self._claims.commit(Offset.read(end))

    def stop(self) -> None:
        """Let another query have the directory."""
        super().stop()
        self._staging.close()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of one task."""
        part: Segment = partition.value
        for message in read_range(Path(part.path), part.first, part.rows):
            yield self._make(message.payload, message.entity, part.namespace, message.received_at_ms)


class DeferredReader(_Reader):
    """A stream that sets messages aside in their queues until Spark has committed them."""

    def __init__(self, options: SourceOptions, make: RowMaker) -> None:
        super().__init__(options, make)
        self._opened: DeferredClaims | None = None

    @property
    def _claims(self) -> DeferredClaims:
        if self._opened is None:
            self._opened = DeferredClaims(Deferring(self._broker, self._options.claim_name or ""))
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        return self._claims.initial().told()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Set aside what the next batch reads."""
        return self._claims.next(Claimed.read(start), self._limit(limit), self._options.receive_timeout_s).told()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task reads."""
        if start == end:
            return []
        claimed = Claimed.read(end)
        parts = self._claims.parts(claimed, self._options.min_partitions)
        return [InputPartition(Deferred(part, claimed.at_ms)) for part in parts]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with this batch and all before it."""
        self._claims.commit(Claimed.read(end))

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of one task."""
        part: Deferred = partition.value
        options = self._options
        namespace = namespace_of(options.target.resolve())
        by_entity: dict[str, list[int]] = {}
        for key in claims.read(part.ranges):
            by_entity.setdefault(key.entity, []).append(key.number)
        with Browser(options.target, options.subscribed) as browser:
            for entity, numbers in by_entity.items():
                left = set(numbers)
                for seen in browser.numbers(entity, numbers):
                    left.discard(seen.number)
                    yield self._make(seen.payload, entity, namespace, part.claimed_at_ms)
                if left and options.fail_on_data_loss:
                    raise PipelineError(
                        f"{len(left)} messages that were set aside in '{entity}' are gone, the first of them number"
                        f" {min(left)}: they expired, or somebody took them. failOnDataLoss=false goes on without them."
                    )


class RefusingReader(DataSourceStreamReader):
    """Says what is wrong when it is first asked: a reader that cannot be made is not heard by Spark."""

    def __init__(self, problem: PipelineError) -> None:
        self._problem = problem

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Nothing can be read."""
        raise self._problem

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Nothing can be read."""
        raise self._problem

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Nothing can be read."""
        raise self._problem

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Nothing can be read."""
        raise self._problem


def stream_reader(given: Mapping[str, str], columns: Mapping[str, str]) -> DataSourceStreamReader:
    """The reader for a claim mode."""
    try:
        options = SourceOptions.parse(given)
        options.check_streaming()
        make = RowMaker(columns)
    except PipelineError as problem:
        return RefusingReader(problem)
    return DeferredReader(options, make) if options.claim_mode == DEFER else StagedReader(options, make)
