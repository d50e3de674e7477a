"""Spark looks for data sources in modules of this kind of name; this one brings `servicebus`.

There is nothing else in it: the source and the sink are in `twinbus.pipeline`.
"""

from twinbus.pipeline.datasource import ServiceBusDataSource as DefaultSource

__all__ = ["DefaultSource"]
