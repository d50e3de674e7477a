"""The batch reader of `servicebus`: a look at what is in the entities, in ranges of their numbers.

How one looks is `browsing`'s business; nothing is locked and nothing is consumed, however often it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from twinbus.model.extras import needing
from twinbus.pipeline.namespace import namespace_of
from twinbus.pipeline.options import SourceOptions
from twinbus.pipeline.reading.browsing import Browser, Span, plan
from twinbus.pipeline.rows import RowMaker

with needing("pyspark"):
    from pyspark.sql.datasource import DataSourceReader, InputPartition


class BrowsingReader(DataSourceReader):
    """Looks at messages."""

    def __init__(self, options: SourceOptions, make: RowMaker) -> None:
        self._options = options
        self._make = make

    def partitions(self) -> Sequence[InputPartition]:
        """What each task looks at."""
        # With no partition at all Spark would ask for one that is None.
        return [InputPartition(span) for span in plan(self._options)] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of one task."""
        span: Span | None = partition.value
        if span is None:
            return
        options = self._options
        namespace = namespace_of(options.target.resolve())
        with Browser(options.target, options.subscribed) as browser:
            for seen in browser.span(span, options.session_id):
                yield self._make(seen.payload, span.entity, namespace, None)
