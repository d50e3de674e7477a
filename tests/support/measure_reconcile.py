"""How long the proof takes on Spark, and the same SQL in DuckDB on the same files, in one run: time, CPU time, memory.

    PYTHONPATH=src:tests python tests/support/measure_reconcile.py --messages 2450000

About ten million rows of journal. Both keep the same views as tables. Nothing is written but the generated files and
what Spark keeps, below the temporary directory.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from support.custody_in_duckdb import Reconciled
from support.generated_journal import FAULTS, generate
from twinbus.pipeline.proof import sendlog
from twinbus.pipeline.proof.evidence import Evidence, Window
from twinbus.pipeline.proof.reconcile import reconcile
from twinbus.pipeline.session import open_session

TABLES = ("lost", "unproven", "stuck", "duplicated", "redelivered", "suppressed", "late", "out_of_order", "imbalances")


def main() -> None:
    """Generate, run both, and compare."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=2_450_000)
    options.add_argument("--memory", default="3g", help="the driver's memory")
    options.add_argument("--send-log", action="store_true", help="with the send log, which is read line by line")
    options.add_argument("--duckdb-memory", help="so much for DuckDB, such as 1GB; without it, as much as it wants")
    options.add_argument("--runs", type=int, default=2, help="how often Spark does it; the first time it is cold")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="twinbus-measure-") as scratch:
        began = time.monotonic()
        planted = generate(Path(scratch), 1, chosen.messages, dict.fromkeys(FAULTS, 7))
        _say(f"{planted.rows:,} rows of journal generated; load {os.getloadavg()[0]:.0f}", began)
        logs = [planted.send_log] if chosen.send_log else []
        evidence = Evidence(planted.journals, planted.residents, logs, [planted.ledger])
        window = Window(slo_s=planted.slo_s, backlog_queues=planted.backlog_queues, rows=1_000_000)
        if logs:
            began = time.monotonic()
            lines = sum(1 for _ in sendlog.lines(planted.send_log))
            _say(f"{lines:,} lines of the send log parsed, {lines / (time.monotonic() - began):,.0f} a second", began)

        before = _resident_mb()
        began, used = time.monotonic(), _cpu_s()
        duck = Reconciled(evidence, window, memory=chosen.duckdb_memory)
        counts = {name: len(duck.ids(name)) for name in TABLES}
        duck.balance()
        duck_s, duck_cpu_s = _say("DuckDB", began, used), _cpu_s() - used
        print(f"DuckDB needed {_most_mb() - before:,} MB beyond the {before:,} MB of this process")
        del duck

        began = time.monotonic()
        spark = open_session("measure", settings={"spark.driver.memory": chosen.memory})
        _say("Spark's start", began)
        for run in range(chosen.runs):
            what = "Spark, again" if run else "Spark, cold"
            began, used = time.monotonic(), _cpu_s()
            found = reconcile(spark, evidence, window)
            took_s, cpu_s = _say(what, began, used), _cpu_s() - used
            assert {name: found.count(name) for name in TABLES} == counts, (found.tables, counts)
            print(f"{what}: {took_s / duck_s:.1f} times DuckDB's time, {cpu_s / duck_cpu_s:.1f} times its CPU time")
        print(f"Java needed {sum(_most_mb(child) for child in _children()):,} MB")
        spark.stop()


def _resident_mb() -> int:
    """What this process has in memory now; from here on the most is counted anew. Linux only."""
    Path("/proc/self/clear_refs").write_text("5")
    return _most_mb()


def _most_mb(process: int | str = "self") -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def _children() -> list[int]:
    return [int(child) for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _cpu_s() -> float:
    """Seconds of CPU that this process and the processes that it started have used so far; Linux only."""
    used = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text().split(" (", 1)
        except OSError:
            continue  # It has ended meanwhile.
        fields = rest.rsplit(") ", 1)[1].split()
        if os.getpid() in (int(name), int(fields[1])):
            used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def _say(what: str, since: float, used: float | None = None) -> float:
    elapsed = time.monotonic() - since
    cpu = "" if used is None else f", {_cpu_s() - used:.1f} s of CPU"
    print(f"{elapsed:8.1f} s  {what}{cpu}", flush=True)
    return elapsed


if __name__ == "__main__":
    main()
