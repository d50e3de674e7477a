"""The sink of the data source `servicebus`: rows in, acknowledged messages out, in batches and in streams.

A task returns when a broker has acknowledged every message of it. Encoding is `outgoing`'s, sending `delivery`'s, and
the way `routes`'; these are loaded by the workers that send, not by those that plan.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from twinbus.model.extras import needing
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.writing.sink_options import Columns, SinkOptions

with needing("pyspark"):
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
    from pyspark.sql.types import Row, StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinbus.pipeline.writing.delivery import Sent

_log = logging.getLogger(__name__)

# What Spark tells the tasks of a stream, those of a foreachBatch too.
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class TaskSent(WriterCommitMessage):
    """What one task has sent: acknowledged, every message."""

    messages: Counter[str] = field(default_factory=Counter)  # By destination.
    bytes: int = 0
    set_aside: int = 0


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """What `df.write.format("servicebus")` writes with."""
    return BatchSink(options, schema, overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """What `df.writeStream.format("servicebus")` writes with."""
    return StreamSink(options, schema, overwrite)


class Sink:
    """What both kinds of sink share. Made where the query is planned, and handed to the workers as it is."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError(
                "Messages cannot be overwritten: the sink takes mode('append') and outputMode('append')."
            )
        self._options = SinkOptions.parse(options)
        self._columns = Columns.check([(each.name, each.dataType.simpleString()) for each in schema], self._options)
        self._destination = self._options.destination
        if self._destination is None and self._options.target is not None:
            self._destination = self._options.target.resolve().entity_path
        if self._destination is None and self._columns.destination is None:
            raise PipelineError(
                "Nothing says where to send: give queue or topic, or name a column in destinationColumn."
            )
        # The same for every attempt of a task of this write.
        self._write_id = uuid4().hex

    def write(self, iterator: Iterator[Row]) -> TaskSent:
        """Send the rows of a task; returns when all are acknowledged. Runs on a worker."""
        from twinbus.pipeline.writing.delivery import Delivery, Sent
        from twinbus.pipeline.writing.outgoing import Encoder, rounds
        from twinbus.pipeline.writing.routes import LOOP, route_for

        encoder = Encoder(self._columns, self._destination, self._origin())
        delivery = Delivery(route_for(self._options), self._options)
        messages = (encoder.encode(number, row) for number, row in enumerate(iterator))
        sent = Sent()
        under_way: Future[Sent] | None = None
        try:
            # The next round is encoded while one is under way.
            for each in rounds(messages, self._options.batch):
                if under_way is not None:
                    sent.add(_result(under_way))
                under_way = LOOP.begin(delivery.send(each))
            if under_way is not None:
                sent.add(_result(under_way))
        finally:
            if under_way is not None:
                under_way.cancel()
        return TaskSent(messages=sent.messages, bytes=sent.bytes, set_aside=sent.set_aside)

    def _origin(self) -> str:
        """What the rows of this task are known by, however often Spark runs it."""
        context = TaskContext.get()
        if context is None:
            return self._write_id
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        write = f"{query}/{batch}" if query and batch else self._write_id
        return f"{write}/{context.partitionId()}"


def _result(under_way: Future[Sent]) -> Sent:
    """What came of a round; of several problems the first, as the others are mostly the same."""
    try:
        return under_way.result()
    except BaseExceptionGroup as several:
        first: BaseException = several
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


class BatchSink(Sink, DataSourceWriter):
    """Writes a frame once."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task has its acknowledgements."""
        _log.info("sent %s", _told(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was acknowledged stays where it is: a message cannot be taken back."""
        _log.warning("given up after %s were sent", _told(messages))


class StreamSink(Sink, DataSourceStreamWriter):
    """Writes a stream, batch by batch."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every task has its acknowledgements."""
        _log.info("batch %d: sent %s", batchId, _told(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was acknowledged stays where it is; when the batch is run again its messages have the same ids."""
        _log.warning("batch %d: given up after %s were sent", batchId, _told(messages))


def _told(messages: list[Any]) -> str:
    done = [message for message in messages if isinstance(message, TaskSent)]
    count = sum(message.messages.total() for message in done)
    aside = sum(message.set_aside for message in done)
    return f"{count} messages" + (f", {aside} set aside" if aside else "")
