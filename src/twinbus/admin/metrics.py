"""The text of `/metrics`: plain numbers that others count, in the format that Prometheus reads.

Counting happens elsewhere, in integers; a scrape asks for them once. What each is called and means is `model.metrics`'.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from twinbus.model.exposition import families
from twinbus.model.metrics import Numbers

CONTENT_TYPE = CONTENT_TYPE_LATEST

Read = Callable[[], Awaitable[Numbers]]


class _Given(Collector):
    """The numbers of one scrape."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """One metric for each name."""
        return families(self._numbers)


class MetricsPage:
    """What a scrape gets."""

    def __init__(self, read: Read) -> None:
        self._read = read

    async def render(self) -> bytes:
        """The numbers of this moment, and those of the process."""
        registry = CollectorRegistry()
        registry.register(_Given(await self._read()))
        ProcessCollector(registry=registry)
        return generate_latest(registry)
