"""What replication and the ledger cost."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from support.replicated import Twins
from twinbus.cli.bench_ledger import measure, prepare
from twinbus.pair.ledger_sqlite import SqliteStorage

pytestmark = pytest.mark.alone

LATENCY_S = 0.03


async def test_an_active_send_takes_no_longer_than_the_slower_of_the_two_and_a_tenth(twins: Twins) -> None:
    """With a network between, as two datacenters have; the two sends are compared in the same run, interleaved."""
    queue = twins.queue()
    for proxy, latency_s in zip(twins.proxies, (LATENCY_S, LATENCY_S * 1.5), strict=True):
        proxy.latency_s = latency_s
    took: dict[str, list[float]] = {"both": [], "first": [], "second": []}

    async def timed(name: str, sender: Any) -> None:
        began = time.perf_counter()
        await sender.send_messages(ServiceBusMessage(b"x" * 200))
        took[name].append(time.perf_counter() - began)

    async with twins.client("active", attempt_timeout=10.0) as client:
        senders = {
            "both": client.get_queue_sender(queue),
            "first": client.primary.get_queue_sender(queue),
            "second": client.secondary.get_queue_sender(queue),
        }
        for round_ in range(16):
            for name, sender in senders.items():
                await timed(name, sender)
            if round_ == 0:
                for times in took.values():
                    times.clear()  # The links were opened.
        for sender in senders.values():
            await sender.close()
    slower = max(median(took["first"]), median(took["second"]))
    assert median(took["both"]) <= slower * 1.1


def test_a_look_up_and_a_mark_cost_less_than_fifty_microseconds_each(tmp_path: Path) -> None:
    """In a ledger of 200,000, as marks come together from a busy receiver; `make bench-ledger` has ten million."""
    prepare(tmp_path / "ledger.db", 200_000)
    storage = SqliteStorage(str(tmp_path / "ledger.db"))
    best = {"look_up_us": 1e9, "mark_us": 1e9}
    for attempt in range(3):
        cpu_us = measure(storage, 200_000 + attempt * 10_000, 20, 2000)
        best = {name: min(best[name], cpu_us[name]) for name in best}
    storage.close()
    assert best["look_up_us"] < 50
    assert best["mark_us"] < 50
