"""The page about metrics has every metric that there is, as it is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from twinbus.model.metrics import BROKER, PAIR, Metric

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `(twinbus_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", re.MULTILINE)


def described() -> list[Metric]:
    return [
        Metric(name, kind, tuple(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, labels, meaning in ROW.findall((DOCS / "metrics.md").read_text())
    ]


def test_the_page_has_every_metric_as_it_is() -> None:
    assert described() == [*BROKER, *PAIR]


def test_names_tell_what_they_are() -> None:
    for metric in (*BROKER, *PAIR):
        assert re.fullmatch(r"twinbus_[a-z_]+", metric.name), metric
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric
        assert metric.kind in ("counter", "gauge", "histogram"), metric
        assert metric.meaning.endswith("."), metric


def test_no_metric_is_there_twice() -> None:
    names = [metric.name for metric in (*BROKER, *PAIR)]
    assert len(names) == len(set(names))
