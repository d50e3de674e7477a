"""Metrics as `prometheus_client` wants them: one family for each name, as the table in `metrics` describes it.

For the broker's page and for collectors of applications; nobody else needs the package, so this stands apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from twinbus.model.metrics import MEANINGS, Histogram, Labels, Numbers, Samples


def families(numbers: Numbers) -> Iterator[Metric]:
    """One family for each name; only names that the table has can be told."""
    for name, samples in numbers.items():
        yield _family(name, samples)


def _family(name: str, samples: Samples) -> Metric:
    known = MEANINGS[name]
    if known.kind == "histogram":
        spread = HistogramMetricFamily(name, known.meaning, labels=known.labels)
        for key, value in samples.items():
            assert isinstance(value, Histogram)
            spread.add_metric(_labels(known.labels, key), *_buckets(value))
        return spread
    kind = CounterMetricFamily if known.kind == "counter" else GaugeMetricFamily
    family = kind(name, known.meaning, labels=known.labels)
    for key, value in samples.items():
        assert not isinstance(value, Histogram)
        family.add_metric(_labels(known.labels, key), value)
    return family


def _labels(names: tuple[str, ...], key: Labels) -> list[str]:
    given = dict(key)
    return [given[name] for name in names]


def _buckets(value: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Prometheus counts in each bucket what the smaller ones have, too."""
    bounds = [*(str(bound) for bound in value.bounds), "+Inf"]
    return [(bound, float(count)) for bound, count in zip(bounds, accumulate(value.counts), strict=True)], value.sum
