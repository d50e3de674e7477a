"""Stands in for `twinbus drill` in the console's tests: writes such a record, and ends as its scenario says.

`outage` goes on until it is interrupted, `quick` holds at once, `vanish` is gone without a word.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

EVIL = "<script>window.hit=9</script>"


def write(path: Path, state: str, ticks: int, scenario: str, dry_run: bool) -> None:
    points = [
        {"at_s": at / 10, "acknowledged": at * 3, "diverted": max(0, at - 4), "received": at * 2}
        for at in range(ticks + 1)
    ]
    counts = dict.fromkeys(("attempted", "acknowledged", "received", "diverted", "recovered", "lost", "duplicated"), 0)
    counts |= {"attempted": ticks * 3, "acknowledged": ticks * 3, "received": ticks * 2}
    document = {
        "id": path.parent.name, "scenario": scenario, "state": state, "dry_run": dry_run,
        "began_at": "2026-11-16T06:00:00Z", "ended_at": None if state == "running" else "2026-11-16T06:00:30Z",
        "moments": [{"at_s": 0.5, "what": f"the primary is gone {EVIL}"}], "counts": counts,
        "times": {"divert": 1.5, "heal": None, "drain": None}, "points": points,
        "verdict": "It holds: nothing was lost." if state == "held" else None,
        "why": "Somebody aborted it." if state == "aborted" else None,
    }  # fmt: skip
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document))
    os.replace(fresh, path)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("scenario")
    for name in ("--pair", "--for", "--rate", "--record", "--report"):
        options.add_argument(name, required=True)
    options.add_argument("--no-spark", action="store_true", required=True)
    options.add_argument("--dry-run", action="store_true")
    given = options.parse_args()
    record, interrupted = Path(given.record), []
    signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
    if given.scenario == "vanish":
        print("it could not be: no such scenario", flush=True)
        return
    ticks = 5
    while not interrupted and given.scenario != "quick" and not given.dry_run:
        write(record, "running", ticks, given.scenario, False)
        ticks += 1
        time.sleep(0.1)
    Path(given.report).write_text(f"<!doctype html><title>report</title><h1>The report of {given.scenario}</h1>{EVIL}")
    write(record, "aborted" if interrupted else "held", ticks, given.scenario, given.dry_run)


if __name__ == "__main__":
    main()
