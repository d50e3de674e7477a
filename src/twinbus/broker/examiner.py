"""A process of the broker that looks at its data, or copies them, at one instant: the broker itself goes on meanwhile.

Told on standard input what to do, it answers in lines of JSON: `ready` when everything is open, `begun` when it has the
instant (between them the broker holds all commits), how far it is, and at last a `result` or an `error`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from twinbus.model.errors import BusError

TELL_S = 0.2  # So often it says how far it is.
NICENESS = 10
REST = 2.0  # For each second of copying, so many of rest, because commits come first.


class Telling:
    """Says on standard output how far it is."""

    def __init__(self) -> None:
        self._told_at = 0.0
        self._state: dict[str, Any] = {}

    def begin(self, what: str, total: int) -> None:
        """The next part of the work begins."""
        self._state = {"step": what, "total": total, "done": 0}
        self._tell()

    def advance(self, by: int) -> None:
        """So much more is done."""
        self._state["done"] += by
        if time.monotonic() - self._told_at >= TELL_S:
            self._tell()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        say({"progress": self._state})


def say(document: dict[str, Any]) -> None:
    """One line for the broker."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def await_instant() -> None:
    """Everything is open: the broker holds its commits and says so."""
    say({"ready": True})
    if not sys.stdin.readline():
        raise SystemExit(1)  # The broker is gone.


def have_instant() -> None:
    """What is there now is what will be seen."""
    say({"begun": True})


def step_back() -> None:
    """Nobody waits for the rest, so it is done when nothing else is to be done."""
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def examine(task: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked; the result."""
    # Imported here, because even that takes its time, and the broker comes first.
    from twinbus.broker.copying import Source, back_up
    from twinbus.broker.verifying import files_in, opened_files, verify

    if "databases" in task:
        from twinbus.broker.verifying_shared import verify_databases  # psycopg is for those who use it.

        await_instant()
        have_instant()
        return verify_databases(task["databases"], task["namespace"], Telling()).document()
    directory = Path(task["directory"])
    files = files_in(directory)
    with opened_files(files, is_in_use=True, at_once=await_instant) as opened:
        have_instant()
        if "destination" not in task:
            return verify(opened, Telling()).document()
        source = Source(task["name"], files, opened)
        return back_up(
            source, Path(task["destination"]), Telling(), lambda took_s: time.sleep(took_s * REST), step_back
        )


def main() -> NoReturn:
    """The process. It has less of the machine than the broker, whenever both want something."""
    with suppress(OSError):
        os.nice(NICENESS)
    from twinbus.broker.copying import CopyFailedError
    from twinbus.broker.settings import SettingsError

    try:
        say({"result": examine(json.loads(sys.stdin.readline()))})
    except BusError as error:
        say({"error": error.text})
    except (SettingsError, CopyFailedError) as problem:
        say({"error": str(problem)})
    raise SystemExit(0)


if __name__ == "__main__":
    main()
