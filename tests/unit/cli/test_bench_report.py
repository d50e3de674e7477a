"""What the benchmark says about its figures."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from twinbus.cli.benchmark.machine import Machine
from twinbus.cli.benchmark.report import Report, Run, remarks, rows, show
from twinbus.client.load import Figures, Load

MACHINE = Machine(2, "Linux", "CPython 3.11", "3.50", "ext4", 5000, 0.1)


def figures(seconds: float, cpu_s: float = 0.1) -> Figures:
    return Figures(1000, seconds, cpu_s, latencies_ms=[1.0, 2.0, 3.0])


def report(*names: str, machine: Machine = MACHINE, cpu_s: float = 0.1) -> Report:
    made = Report(Load(1000), machine, own_broker=True)
    for place, name in enumerate(names, 1):
        made.runs[name] = {"send": Run(figures(0.5 * place, cpu_s), broker_cpu_s=0.02, syncs=10)}
    return made


def test_a_line_tells_rate_latency_and_what_the_broker_spent() -> None:
    assert rows(report("twinbus")) == [("send, window 500", ["2,000", "2.00", "3.00", "20.0", "100.0", "20%"])]


def test_a_peer_makes_ratios() -> None:
    made = report("twinbus", "peer")
    assert made.ratios() == {"send": 2.0}
    assert [title for title, _ in rows(made)] == [
        "twinbus: send, window 500",
        "peer: send, window 500",
        "ratio: send, window 500",
    ]


def test_json_says_the_same() -> None:
    made = report("twinbus", "peer").as_json()
    assert made["results"]["twinbus"]["send"] == {
        "messages": 1000,
        "seconds": 0.5,
        "per_s": 2000.0,
        "p50_ms": 2.0,
        "p99_ms": 3.0,
        "client_cpu_share": 0.2,
        "broker_cpu_us": 20.0,
        "syncs": 10,
    }
    assert made["ratio_to_peer"] == {"send": 2.0}
    assert made["machine"]["file_system"] == "ext4"


def test_memory_is_not_passed_off_as_a_disk() -> None:
    in_memory = Machine(2, "Linux", "CPython 3.11", "3.50", "tmpfs", 500_000, 0.1)
    assert any("memory, not a disk" in remark for remark in remarks(report("twinbus", machine=in_memory)))
    assert not any("warning" in remark for remark in remarks(report("twinbus")))


def test_a_busy_client_is_admitted() -> None:
    assert any("the broker can do more" in remark for remark in remarks(report("twinbus", cpu_s=0.49)))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_a_table_and_a_pipe_gets_lines(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    screen = StringIO()
    show(report("twinbus"), Console(file=screen, force_terminal=terminal, width=160))
    said = screen.getvalue() + capsys.readouterr().out
    assert ("│" in said) is terminal
    assert "send, window 500" in said
    assert "synchronous=FULL" in said
