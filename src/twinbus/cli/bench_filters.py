"""`twinbus bench-filters`: what filters cost for 1, 100 and 2,000 subscriptions.

Measuring is `benchmark.filters`' work; this reads the options, runs it, and shows the figures.
"""

from __future__ import annotations

import json as json_format
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.benchmark.broker import BrokerFailedError, OwnBroker
from twinbus.cli.benchmark.filters import COUNTS, PUBLISHED, Evaluation, Publishing, evaluate, publish, subscribe
from twinbus.cli.interruption import temporary_directory
from twinbus.cli.output import Output, Table, progress_bar
from twinbus.cli.running import blocking_command, run_to_end
from twinbus.client import ClientError, ConnectionString, connect

EVALUATION_S, PUBLISHING_S = 0.4, 2.0
SHORT_EVALUATION_S, SHORT_PUBLISHING_S = 0.02, 0.2
SHORT_COUNTS = (1, 100)
ADMINISTRATION_S = 120.0


@blocking_command
def bench_filters(
    short: Annotated[bool, typer.Option("--short", help="A few seconds, without the largest topics.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Where the broker keeps its data for the time; a temporary directory.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure what filters cost: deciding alone, and publishing through a broker with its fan-out."""
    output = Output(json)
    evaluations = list(evaluate(SHORT_EVALUATION_S if short else EVALUATION_S))
    if not json:
        _show_evaluations(output, evaluations)
    try:
        with ExitStack() as stack:
            directory = stack.enter_context(temporary_directory("twinbus-bench-", data))
            broker = OwnBroker(directory, "bench")
            stack.callback(broker.stop)
            found = run_to_end(_publish_all(broker, short))
    except (ClientError, BrokerFailedError, OSError) as problem:
        typer.echo(f"twinbus: {problem}", err=True)
        raise typer.Exit(1) from None
    if json:
        told = [asdict(one) | {"rule_us": one.rule_us} for one in evaluations]
        typer.echo(json_format.dumps({"evaluation": told, "publishing": [asdict(one) for one in found]}, indent=2))
    else:
        _show_publishing(output, found)


async def _publish_all(broker: OwnBroker, short: bool) -> list[Publishing]:
    from twinbus.client.atom import administer  # aiohttp takes a quarter of a second, and few commands need it.

    counts = SHORT_COUNTS if short else COUNTS
    target = ConnectionString.parse(broker.connection_string)
    found = []
    with progress_bar("creating subscriptions, publishing", len(PUBLISHED) * sum(counts)) as progress:
        advance = partial(progress.advance, progress.task_ids[0])
        for name in PUBLISHED:
            for count in counts:
                async with administer(target, broker.http, timeout_s=ADMINISTRATION_S) as administration:
                    topic = await subscribe(administration, name, count, advance)
                    cpu_s = broker.cpu_s()
                    seconds = SHORT_PUBLISHING_S if short else PUBLISHING_S
                    sent, took_s = await publish(partial(connect, target), topic, seconds)
                    spent_us = (broker.cpu_s() - cpu_s) * 1e6 / sent
                    copies = count if name == "true" else 1
                    found.append(Publishing(name, count, copies, sent / took_s, spent_us))
    return found


def _show_evaluations(output: Output, found: list[Evaluation]) -> None:
    headings = ("DECIDING ALONE", *(f"{count:,}" for count in COUNTS), "µs/RULE OF 2,000")
    table = Table(output, headings, numbers=headings[1:])
    by_name: dict[str, list[Evaluation]] = {}
    for one in found:
        by_name.setdefault(one.filters, []).append(one)
    table.rows(
        [
            [name, *(f"{one.message_us:.1f} µs" for one in ones), f"{ones[-1].rule_us:.3f}"]
            for name, ones in by_name.items()
        ]
    )
    output.line("µs a message, its properties read, by the number of subscriptions with one rule each.\n")


def _show_publishing(output: Output, found: list[Publishing]) -> None:
    headings = ("PUBLISHING", "SUBSCRIPTIONS", "COPIES", "MESSAGES/s", "COPIES/s", "BROKER µs/MESSAGE", "OF ONE")
    table = Table(output, headings, numbers=headings[1:])
    rows, alone = [], 1.0
    for one in found:
        if one.subscriptions == 1:
            alone = one.per_s
        figures = (one.subscriptions, one.copies, one.per_s, one.per_s * one.copies, one.broker_us)
        rows.append([one.filters, *(f"{figure:,.0f}" for figure in figures), f"{one.per_s / alone:.3f}"])
    table.rows(rows)
    output.line("1 KiB, durable, a window of 200; OF ONE is the rate beside that with one subscription.")
    output.remark("Compare only what was measured in one run.")
