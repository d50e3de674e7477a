"""`twinbus bench-outbox`: how many messages a second an outbox takes durably, from one process.

Putting is `twinbus.pair.outbox.outbox`'s work; this measures it on the disk that it is given.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.interruption import temporary_directory
from twinbus.cli.output import Output, Table
from twinbus.cli.running import blocking_command

BODY_BYTES = 200
LISTS = (1, 10, 100, 1000)


@blocking_command
def bench_outbox(
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each length of list is measured.")] = 2.0,
    data: Annotated[
        Path | None, typer.Option(help="Where the outbox is for the time; a temporary directory.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object on each line.")] = False,
) -> None:
    """Measure how many messages a second are put safely on disk, in lists of several lengths."""
    output = Output(json)
    table = Table(output, ["LIST", "MESSAGES/S", "LISTS/S", "CPU/MESSAGE"], numbers=("LIST", "MESSAGES/S", "LISTS/S"))
    with temporary_directory("twinbus-bench-", data) as directory:
        for length in LISTS:
            rate, cpu_us = _measure(directory / f"{length}.db", length, seconds)
            if json:
                output.record({"list": length, "messages_per_s": round(rate), "cpu_us": round(cpu_us, 1)})
            else:
                table.rows([[f"{length:,}", f"{rate:,.0f}", f"{rate / length:,.0f}", f"{cpu_us:.0f} µs"]])


def _measure(where: Path, length: int, seconds: float) -> tuple[float, float]:
    """Messages a second, and microseconds of CPU for each."""
    from twinbus.pair.outbox.outbox import Outbox  # The SDK takes half a second, and few commands need it.

    messages = [{"body": b"x" * BODY_BYTES, "message_id": f"m{number}"} for number in range(length)]
    count = 0
    with Outbox(where) as outbox:
        outbox.put(messages, "orders")  # Pages that grow for the first time are not measured.
        began, cpu = time.perf_counter(), time.process_time()
        while (elapsed := time.perf_counter() - began) < seconds:
            outbox.put(messages, "orders")
            count += length
        return count / elapsed, (time.process_time() - cpu) / max(count, 1) * 1e6
