"""A syphon that has a process of its own, as Prometheus sees it; a paired client's numbers are in tests/pair."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from twinbus.pair.metrics import SyphonMetrics
from twinbus.pair.syphon.home import Progress


def test_a_syphon_tells_what_it_has_moved_once_the_pair_is_made() -> None:
    progress = Progress(moved=Counter(orders=5, carts=1), dead=1, doubled=2)
    syphon: Any = SimpleNamespace(paired=None, progress=progress)
    registry = CollectorRegistry()
    registry.register(SyphonMetrics(syphon))
    assert generate_latest(registry) == b""
    syphon.paired = SimpleNamespace(primary="contoso")
    told = [
        registry.get_sample_value(f"twinbus_syphon_{name}_total", {"pair": "contoso"})
        for name in ("moved", "deadlettered", "duplicates")
    ]
    assert told == [6.0, 1.0, 2.0]
