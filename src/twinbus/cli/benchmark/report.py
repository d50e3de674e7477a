"""Figures as people and machines read them: a table at a terminal, plain lines in a pipe, JSON on request.

Measuring is done elsewhere; this only divides and rounds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from twinbus.cli.benchmark.machine import Machine
from twinbus.client.load import Figures, Load

PHASES = {
    "alone": "send, window 1",
    "send": "send, window {window}",
    "receive": "receive and complete",
    "both": "both at once",
}
DURABILITY = "SQLite, WAL, synchronous=FULL: an outcome is told after the commit that holds it is synced"


@dataclass(slots=True)
class Run:
    """One phase at one broker; what the broker spent is known only of our own."""

    figures: Figures
    broker_cpu_s: float | None = None
    syncs: int | None = None

    @property
    def broker_us(self) -> float | None:
        """Processor time of the broker for one message, in microseconds."""
        if self.broker_cpu_s is None or not self.figures.messages:
            return None
        return self.broker_cpu_s * 1e6 / self.figures.messages


@dataclass(slots=True)
class Report:
    """Everything that one run of the benchmark found, by broker and phase."""

    load: Load
    machine: Machine
    own_broker: bool
    runs: dict[str, dict[str, Run]] = field(default_factory=dict)

    def ratios(self) -> dict[str, float]:
        """How many times as fast as the peer we were in this run, by phase."""
        ours, *peers = self.runs.values()
        if not peers:
            return {}
        pairs = {phase: (run.figures.per_s, peers[0][phase].figures.per_s) for phase, run in ours.items()}
        return {phase: round(our / their, 2) for phase, (our, their) in pairs.items() if their}

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "load": asdict(self.load),
            "machine": asdict(self.machine),
            "durability": DURABILITY if self.own_broker else None,
            "results": {
                name: {phase: _numbers(run) for phase, run in phases.items()} for name, phases in self.runs.items()
            },
            "ratio_to_peer": self.ratios(),
        }


def _numbers(run: Run) -> dict[str, float | int | None]:
    figures = run.figures
    return {
        "messages": figures.messages,
        "seconds": round(figures.seconds, 4),
        "per_s": round(figures.per_s, 1),
        "p50_ms": round(figures.percentile_ms(50), 3) if figures.latencies_ms else None,
        "p99_ms": round(figures.percentile_ms(99), 3) if figures.latencies_ms else None,
        "client_cpu_share": round(figures.client_share, 2),
        "broker_cpu_us": None if run.broker_us is None else round(run.broker_us, 1),
        "syncs": run.syncs,
    }


COLUMNS = ("messages/s", "p50 ms", "p99 ms", "broker µs/message", "messages/sync", "client busy")


def rows(report: Report) -> list[tuple[str, list[str]]]:
    """A line for each broker and phase."""
    lines = []
    for name, phases in report.runs.items():
        for phase, run in phases.items():
            title = PHASES[phase].format(window=report.load.window)
            lines.append((f"{name}: {title}" if len(report.runs) > 1 else title, _cells(run)))
    for phase, ratio in report.ratios().items():
        title = PHASES[phase].format(window=report.load.window)
        lines.append((f"ratio: {title}", [f"{ratio:.2f} x", "", "", "", "", ""]))
    return lines


def _cells(run: Run) -> list[str]:
    figures = run.figures
    timed = bool(figures.latencies_ms)
    return [
        f"{figures.per_s:,.0f}",
        f"{figures.percentile_ms(50):.2f}" if timed else "",
        f"{figures.percentile_ms(99):.2f}" if timed else "",
        "" if run.broker_us is None else f"{run.broker_us:.1f}",
        f"{figures.messages / run.syncs:.1f}" if run.syncs else "",
        f"{figures.client_share:.0%}",
    ]


def remarks(report: Report) -> list[str]:
    """What must be known to read the figures."""
    load, machine = report.load, report.machine
    said = [
        f"{load.messages:,} messages of {load.size:,} bytes, {load.connections} connection(s) each way",
        f"{machine.cores} cores, {machine.system}, {machine.python}, load before {machine.load_before}",
    ]
    if report.own_broker:
        disk = f"{machine.file_system}, {machine.syncs_per_s:,} syncs/s of 1 KiB measured just now"
        said += [f"{DURABILITY} (SQLite {machine.sqlite})", f"disk: {disk}"]
        if machine.file_system in ("tmpfs", "ramfs"):
            said.append("warning: this is memory, not a disk; use --data to name a directory on one")
    busiest = max(run.figures.client_share for phases in report.runs.values() for run in phases.values())
    if busiest > 0.9:
        said.append("warning: the client was busy all the time in at least one phase; the broker can do more")
    return said


def show(report: Report, console: Console) -> None:
    """At a terminal a table, elsewhere plain lines."""
    if console.is_terminal:
        table = Table(title="twinbus bench")
        table.add_column("")
        for column in COLUMNS:
            table.add_column(column, justify="right")
        for title, cells in rows(report):
            table.add_row(title, *cells)
        console.print(table)
        for remark in remarks(report):
            console.print(remark, style="dim", highlight=False)
        return
    for title, cells in rows(report):
        said = ", ".join(f"{column} {cell}" for column, cell in zip(COLUMNS, cells, strict=True) if cell)
        print(f"{title}: {said}")
    for remark in remarks(report):
        print(remark)
