"""`twinbus bench-syphon`: the syphon on Spark beside one pump in a process and beside a loop with the official client.

The measuring is done in `twinbus.drill.moving`; this runs it and shows the ratios.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.interruption import temporary_directory
from twinbus.cli.output import Output, Table
from twinbus.cli.pipeline_session import MasterOption, SettingOption, session
from twinbus.cli.running import command


@command
async def bench_syphon(
    messages: Annotated[int, typer.Option(min=1000, help="Messages in each run.")] = 40_000,
    queues: Annotated[int, typer.Option(min=1, max=100, help="Backlog queues.")] = 4,
    runs: Annotated[int, typer.Option(min=1, help="Runs of the pump and of Spark, in turn.")] = 3,
    looped: Annotated[int, typer.Option(min=1, help="Messages that the loop of the official client moves.")] = 500,
    master: MasterOption = None,
    conf: SettingOption = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the brokers are for the time; a temporary directory.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object on each line.")] = False,
) -> None:
    """Measure how fast a backlog is brought home on Spark, by one pump, and by a loop of the official client."""
    output = Output(json)
    with (
        session("twinbus bench-syphon", master, conf) as spark,
        temporary_directory("twinbus-bench-", data) as directory,
    ):
        from twinbus.drill.moving import between_two_brokers

        load = os.getloadavg()[0]
        async with between_two_brokers(directory, queues) as moving:
            rates = await moving.compare(spark, messages, runs, looped)
    spark_rate, pump_rate = statistics.median(rates.spark), statistics.median(rates.pump)
    if json:
        ratios = {"to_pump": round(rates.to_pump, 3), "to_loop": round(rates.to_loop, 1)}
        both = {"spark": [round(rate) for rate in rates.spark], "pump": [round(rate) for rate in rates.pump]}
        output.record({**both, "loop": round(rates.loop, 1), **ratios, "load_before": round(load, 2)})
        return
    table = Table(output, ["WAY", "MESSAGES/S", "SPARK IS"], numbers=("MESSAGES/S", "SPARK IS"))
    table.rows(
        [
            ["Spark, after start-up", f"{spark_rate:,.0f}", "1"],
            ["one pump in a process", f"{pump_rate:,.0f}", f"{rates.to_pump:.2f} times"],
            ["loop with azure-servicebus", f"{rates.loop:,.0f}", f"{rates.to_loop:.1f} times"],
        ]
    )
    output.remark(f"{messages:,} messages, {queues} backlog queues, {runs} runs; load before: {load:.1f}")
