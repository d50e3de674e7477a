"""The text of `/metrics`: plain numbers that others count, in the format that Prometheus reads.

Counting happens elsewhere, in integers. What each is called and means is `model.metrics`'. The first scrape imports
this module: what it needs would be a tenth of a broker's start.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from twinbus.model.exposition import families
from twinbus.model.metrics import Numbers

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Given(Collector):
    """The numbers of one scrape."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """One metric for each name."""
        return families(self._numbers)


def page(numbers: Numbers) -> bytes:
    """What a scrape gets: these numbers, and those of the process."""
    registry = CollectorRegistry()
    registry.register(_Given(numbers))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
