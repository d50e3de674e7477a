"""`twinbus pipeline reconcile`: the proof, from files or from a pair that is running, shown and written as a report.

The judging is done in `twinbus.pipeline`; how findings are shown at the prompt is told here.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.evidence import (
    JournalsOption,
    LedgersOption,
    OfflineOption,
    ResidentsOption,
    SendLogsOption,
    evidence_of,
    namespaces,
    readable,
)
from twinbus.cli.output import Output, Table, progress_bar
from twinbus.cli.pairing import PairOption, PrimaryOption, SecondaryOption, described, parsed_tag
from twinbus.cli.pipeline_session import MasterOption, SettingOption, session
from twinbus.cli.running import FAILED, PromptError, command
from twinbus.cli.showing import clean
from twinbus.cli.values import Duration, Instant, parse_duration, parse_instant
from twinbus.pipeline.java import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.pipeline.proof.evidence import Evidence, Window
    from twinbus.pipeline.proof.findings import Findings, Found

UNPROVEN = 3
PRICES = "2026-11"
SHOWN = 10  # So many rows of each table at the prompt.


def _option(name: str, text: str, **more: Any) -> Any:
    return typer.Option(name, help=text, show_default=False, **more)


SinceOption = Annotated[
    Instant | None,
    _option(
        "--since",
        "Judge only messages first heard of from then on; 2h is two hours ago.",
        parser=parse_instant,
        metavar="TIME",
    ),
]
UntilOption = Annotated[
    Instant | None,
    _option(
        "--until",
        "Judge only messages first heard of before then; 2h is two hours ago.",
        parser=parse_instant,
        metavar="TIME",
    ),
]
SloOption = Annotated[
    Duration | None,
    _option(
        "--slo", "What takes longer from accepted to completed is late.", parser=parse_duration, metavar="DURATION"
    ),
]
QueuesOption = Annotated[
    int | None,
    _option("--backlog-queues", "Backlog queues that are in use; what is in one beyond them is stuck.", min=1),
]
ReportOption = Annotated[
    Path | None, _option("--report", "Write a report with plots, one HTML file, here.", metavar="FILE")
]
KeepOption = Annotated[
    Path | None, _option("--keep", "Keep what was browsed in this directory, for another run.", metavar="DIR")
]
TagOption = Annotated[
    str | None,
    _option(
        "--tag",
        "What copies share: message_id, or subject or property:NAME as the send logs give it; as the pair has it.",
        metavar="TAG",
    ),
]
CostOption = Annotated[
    bool, typer.Option("--cost", help="What the journals' operations cost, too: at the prompt and in the report.")
]
PricesOption = Annotated[
    str | None,
    _option("--prices", "With --cost: a price table that comes along, or your own TOML file.", metavar="TABLE"),
]
RowsOption = Annotated[int, typer.Option("--rows", min=1, help="Bring so many rows of each table; all are counted.")]


@command
async def reconcile(
    journal: JournalsOption = None,
    residents: ResidentsOption = None,
    send_log: SendLogsOption = None,
    ledger: LedgersOption = None,
    pair: PairOption = None,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    offline: OfflineOption = False,
    keep: KeepOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    slo: SloOption = None,
    backlog_queues: QueuesOption = None,
    tag: TagOption = None,
    rows: RowsOption = 100,
    report: ReportOption = None,
    cost: CostOption = False,
    prices: PricesOption = None,
    master: MasterOption = None,
    conf: SettingOption = None,
    json: JsonOption = False,
) -> None:
    """Account for every message: lost, stuck, doubled, late, out of order; and a balance of all copies."""
    output = Output(json)
    evidence = evidence_of(journal, residents, send_log, ledger)
    asked = not offline and residents is None and bool(pair or primary or secondary)
    if not asked and not evidence.journals:
        raise PromptError("Name journals with --journal, or a pair that can be asked with --pair or --primary.")
    require_spark(os.environ, *(["matplotlib"] if report is not None else []))
    told_by = parsed_tag(tag)
    if asked and (pair or secondary):
        description = described(pair, primary, secondary)
        told_by = parsed_tag(tag, description)
        backlog_queues = backlog_queues or description.options.backlog_queue_count
    with readable():
        window = replace(_window(since, until, slo, backlog_queues, rows), tag=str(told_by))
        with tempfile.TemporaryDirectory(prefix="twinbus-reconcile-") as scratch, _telling() as tell:
            if asked:
                evidence = await _gathered(evidence, pair, primary, secondary, keep or Path(scratch), output, tell)
            priced = (prices or PRICES) if cost or prices else None
            tell("starting Spark")
            with session("twinbus pipeline reconcile", master, conf) as spark:
                findings, bill = _judged(spark, evidence, window, priced, tell)
            if report is not None:
                from twinbus.pipeline.proof.report import write_report

                tell("drawing the report")
                write_report(findings, report, bill)
    if json:
        output.record(findings.document() | ({"cost": bill} if bill else {}))
    else:
        _show(output, findings)
        if bill:
            output.line(f"cost: {'; '.join(f'{what} {text}' for what, text in bill.items())}")
        if report is not None:
            output.line(f"\nThe report is in {report}.")
    if not (findings.holds and findings.is_proven):
        raise typer.Exit(UNPROVEN if findings.holds else FAILED)


def _judged(
    spark: SparkSession, evidence: Evidence, window: Window, prices: str | None, tell: Callable[[str], None]
) -> tuple[Findings, Mapping[str, str]]:
    """What was found, and in short what it cost by these prices; nothing without."""
    from twinbus.pipeline.costs.cost import cost, in_short
    from twinbus.pipeline.proof.reconcile import reconcile as judge

    findings = judge(spark, evidence, window, tell)
    if prices is None:
        return findings, {}
    tell("reckoning the cost")
    return findings, in_short(cost(spark, evidence.journals, prices=prices))


async def _gathered(
    evidence: Evidence,
    pair: Path | None,
    primary: str | None,
    secondary: str | None,
    directory: Path,
    output: Output,
    tell: Callable[[str], None],
) -> Evidence:
    from twinbus.pipeline.proof.gathering import gather

    async with namespaces(pair, primary, secondary) as asked:
        found, remarks = await gather(asked, evidence, directory, tell)
    for remark in remarks:
        output.remark(clean(remark))
    return found


def _window(
    since: Instant | None, until: Instant | None, slo: Duration | None, backlog_queues: int | None, rows: int
) -> Window:
    from twinbus.pipeline.proof.evidence import Window

    return replace(
        Window(since_ms=_moment(since), until_ms=_moment(until), backlog_queues=backlog_queues, rows=rows),
        slo_s=None if slo is None else int(slo) / 1000,
    )


def _moment(at: Instant | None) -> int | None:
    """A duration is a time ago: what is judged is over."""
    if at is None:
        return None
    return int(time.time() * 1000) - int(at) if at.relative else int(at)


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """A line at a terminal that says what is being done."""
    bar = progress_bar("beginning", None)
    with bar:
        yield lambda step: bar.update(bar.task_ids[0], description=clean(step))


# At the prompt


def _show(output: Output, findings: Findings) -> None:
    from twinbus.pipeline.proof.findings import HARMLESS, SUSPICIOUS
    from twinbus.pipeline.proof.report import seconds

    for name in SUSPICIOUS:
        found = findings.tables.get(name)
        if found is not None and found.count:
            _show_table(output, found)
    if findings.delays:
        table = Table(output, ["DELAY", "MESSAGES", "50 %", "95 %", "99 %", "LONGEST"], numbers=_DELAYS)
        table.rows([[delay.what, f"{delay.messages:,}", *map(seconds, delay[2:])] for delay in findings.delays])
        output.line()
    kept = [name for name in (*SUSPICIOUS, *HARMLESS) if name in findings.tables]
    output.line("; ".join(f"{findings.tables[name].title} {findings.count(name):,}" for name in kept))
    fates = (f"{name.replace('_', ' ')} {count:,}" for name, count in findings.fates.items() if name != "suppressed")
    output.line(f"messages: {'; '.join(fates)}")
    output.line()
    for balance in findings.balances:
        output.line(clean(balance.line()))
    if len(findings.balances) > 1:
        output.line(findings.pair_line())
    for limit in findings.limits:
        output.line(f"note: {clean(limit)}")
    output.line()
    output.line(findings.verdict())


_DELAYS = ("MESSAGES", "50 %", "95 %", "99 %", "LONGEST")


def _show_table(output: Output, found: Found) -> None:
    from twinbus.pipeline.proof.report import shown

    output.line(f"{found.title}: {found.count:,}")
    filled = [place for place in range(len(found.columns)) if any(row[place] not in (None, "") for row in found.rows)]
    headings = [_HEADINGS.get(found.columns[place], found.columns[place].replace("_", " ")).upper() for place in filled]
    table = Table(output, headings, numbers=("NUMBER", "TOOK"))
    table.rows([[shown(found.columns[place], row[place]) for place in filled] for row in found.rows[:SHOWN]])
    if found.count > SHOWN:
        output.line(f"… and {found.count - SHOWN:,} more")
    output.line()


_HEADINGS = {"message_id": "message", "at_us": "when", "delay_us": "took", "last_us": "last", "session_id": "session"}
