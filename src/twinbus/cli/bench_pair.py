"""`twinbus bench-pair`: what a send costs through a pair and through passive replication, next to the bare SDK.

The measuring is done in `twinbus.drill.pair_cost`; this starts two brokers and shows the ratios.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.benchmark.broker import OwnBroker
from twinbus.cli.interruption import temporary_directory
from twinbus.cli.output import Output, Table
from twinbus.cli.running import blocking_command

QUEUE = "bench"


@blocking_command
def bench_pair(
    rounds: Annotated[int, typer.Option(min=3, help="Rounds, in each of which all processes are started anew.")] = 9,
    sends: Annotated[int, typer.Option(min=1, help="Sends of each way in one of 20 turns of a round.")] = 20,
    data: Annotated[
        Path | None, typer.Option(help="Where the brokers are for the time; a temporary directory.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object on each line.")] = False,
) -> None:
    """Measure the CPU of a send through a healthy pair, next to one with the bare SDK."""
    from twinbus.drill import pair_cost  # The SDK takes half a second, and few commands need it.

    output, load = Output(json), os.getloadavg()[0]
    with temporary_directory("twinbus-bench-", data) as directory:
        brokers: list[OwnBroker] = []
        try:
            for name in ("primary", "secondary"):
                (directory / name).mkdir()
                brokers.append(OwnBroker(directory / name, QUEUE))
            place = pair_cost.Place(brokers[0].connection_string, brokers[1].connection_string, QUEUE)
            found = [
                cost for flavour in pair_cost.FLAVOURS for cost in pair_cost.compare(flavour, place, rounds, sends)
            ]
        finally:
            for broker in brokers:
                broker.stop()
    if json:
        for cost in found:
            output.record({**cost._asdict(), "load_before": round(load, 2)})
        return
    numbers = ("CPU", "TIMES BARE", "HALF OF ALL", "CALLS", "OWN PART", "OF BARE")
    table = Table(output, ["CLIENT", "SEND", *numbers], numbers=numbers)
    rows = []
    for each in found:
        whole = (f"{each.cpu_us:.0f} µs", f"{each.times_bare:.3f}", f"{each.low:.3f} to {each.high:.3f}")
        own = (f"{each.own_us:.1f} µs", f"{each.own_percent:.1f} %")
        rows.append([each.flavour, each.way, *whole, f"{each.calls:.0f}", *own])
    table.rows(rows)
    output.remark(f"the median of {rounds} rounds; load before: {load:.1f}")
