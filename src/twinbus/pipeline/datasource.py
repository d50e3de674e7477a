"""The data source `servicebus`: what Spark is told it can read and write, and whom it asks for that.

Reading is done in `source` and `streaming`, writing in `sink`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.model.extras import needing
from twinbus.pipeline import rows
from twinbus.pipeline.options import SourceOptions
from twinbus.pipeline.rows import RowMaker

with needing("pyspark"):
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class ServiceBusDataSource(DataSource):
    """Queues and subscriptions of a Service Bus namespace, ours or Azure's."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "servicebus"

    def schema(self) -> str:
        """The columns. Asked first of a read, so that options which will not do are refused here, in so many words."""
        return rows.ddl(SourceOptions.parse(self.options).payload)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Browses; nothing is consumed."""
        from twinbus.pipeline.reading.source import BrowsingReader

        return BrowsingReader(SourceOptions.parse(self.options), RowMaker(_types(schema)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Receives, and completes what Spark has committed."""
        from twinbus.pipeline.reading.streaming import stream_reader

        return stream_reader(self.options, _types(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Sends rows."""
        from twinbus.pipeline.writing import sink

        return sink.writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Sends the rows of each batch."""
        from twinbus.pipeline.writing import sink

        return sink.stream_writer(self.options, schema, overwrite)


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
