"""The text of `/metrics`: plain numbers that others count, in the format that Prometheus reads.

Counting happens elsewhere, in integers; a scrape asks for them once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST

Number = int | float
Labels = tuple[tuple[str, str], ...]
# By name, to which `twinbus_` is prefixed: one that ends in `_total` is a counter, any other a gauge. A value is one
# number, or one for each set of labels.
Counters = Callable[[], Mapping[str, Number | Mapping[Labels, Number]]]


class _Numbers(Collector):
    """Turns the numbers of one moment into metrics."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def describe(self) -> list[Metric]:
        """Nothing in advance: names are known when they are counted."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One metric for each name."""
        for given_name, value in self._counters().items():
            name = f"twinbus_{re.sub('[^A-Za-z0-9_]', '_', given_name)}"
            samples = value if isinstance(value, Mapping) else {(): value}
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            labels = sorted({label for key in samples for label, _ in key})
            metric = kind(name, given_name.replace("_", " "), labels=labels)
            for key, number in samples.items():
                given = dict(key)
                metric.add_metric([given.get(label, "") for label in labels], number)
            yield metric


class MetricsPage:
    """What a scrape gets."""

    def __init__(self, counters: Counters) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Numbers(counters))
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """The numbers of this moment, and those of the process."""
        return generate_latest(self._registry)
