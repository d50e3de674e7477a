"""`twinbus bench-source`: how many rows a second Spark reads from queues, beside clients that know no Spark.

The measuring is done in `twinbus.drill.reading`; this runs it and shows the ratios.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.interruption import temporary_directory
from twinbus.cli.output import Output, Table
from twinbus.cli.pipeline_session import MasterOption, SettingOption, session
from twinbus.cli.running import command

WARM = 2_000
STAGED, DEFERRED, BROWSED = "stream, claimMode=stage", "stream, claimMode=defer", "batch, browsing"
CLIENT, LOOP = "client without Spark", "loop with azure-servicebus"


@command
async def bench_source(
    messages: Annotated[int, typer.Option(min=1000, help="Messages in each run.")] = 40_000,
    queues: Annotated[int, typer.Option(min=1, max=100, help="Queues that are read.")] = 4,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each way, in turn.")] = 3,
    looped: Annotated[int, typer.Option(min=1, help="Messages that the loop of the official client takes.")] = 1000,
    master: MasterOption = None,
    conf: SettingOption = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the broker is for the time; a temporary directory.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object on each line.")] = False,
) -> None:
    """Measure how fast queues are read on Spark into nothing, by our client, and by a loop of the official client."""
    output, load = Output(json), os.getloadavg()[0]
    rates: dict[str, list[float]] = {}
    with (
        session("twinbus bench-source", master, conf) as spark,
        temporary_directory("twinbus-bench-", data) as directory,
    ):
        from twinbus.drill.reading import over_a_broker

        async with over_a_broker(directory, queues) as reading:
            await reading.fill(WARM)
            await asyncio.to_thread(reading.by_stream, spark, WARM, "stage")  # Workers start, modules are loaded.
            for _ in range(runs):
                await reading.fill(messages)
                browsed = await asyncio.to_thread(reading.by_browse, spark, messages)
                rates.setdefault(BROWSED, []).append(browsed)
                staged = await asyncio.to_thread(reading.by_stream, spark, messages, "stage")
                rates.setdefault(STAGED, []).append(staged)
                await reading.fill(messages)
                deferred = await asyncio.to_thread(reading.by_stream, spark, messages, "defer")
                rates.setdefault(DEFERRED, []).append(deferred)
                await reading.fill(messages)
                rates.setdefault(CLIENT, []).append(await reading.by_client(messages))
            await reading.fill(looped * queues)
            rates[LOOP] = [await reading.by_loop(looped)]
    found = {way: statistics.median(rates[way]) for way in (STAGED, DEFERRED, BROWSED, CLIENT, LOOP)}
    if json:
        output.record({**{way: round(rate) for way, rate in found.items()}, "load_before": round(load, 2)})
        return
    table = Table(output, ["WAY", "ROWS/S", "THE STAGED STREAM IS"], numbers=("ROWS/S", "THE STAGED STREAM IS"))
    table.rows([[way, f"{rate:,.0f}", f"{found[STAGED] / rate:.2f} times"] for way, rate in found.items()])
    output.remark(f"{messages:,} messages of 200 bytes, {queues} queues, {runs} runs; load before: {load:.1f}")
