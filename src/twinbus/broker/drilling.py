"""Drills that are started through the JSON API: a process each, which writes record and report into a directory.

What happens in a drill is that process' business (`twinbus drill`); here it is started, found again and asked to end.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twinbus.admin.drills import Wanted
from twinbus.admin.faults import HttpError
from twinbus.model.logged import EventLog

COMMAND = (sys.executable, "-m", "twinbus", "drill")
KEPT_MAX = 50
RECORD_BYTES_MAX = 4 * 1024 * 1024
ALIVE_S = 15.0  # A record is replaced about once a second: one that is older has nobody any more who writes it.
ENDING_S = 5.0
ENDED = "ended"  # Of a record that says `running`, and whose process is gone.
_ID = re.compile(r"\d{8}t\d{9}-[0-9a-f]{6}")  # When it began, to the millisecond: so they are in order.

log = EventLog("twinbus.broker")

Document = dict[str, Any]


class Drilling:
    """The drills of one broker process; one at a time."""

    def __init__(self, directory: Path, pair: Path, command: Sequence[str] = COMMAND) -> None:
        """`directory` has one directory for each drill, `pair` is the description of the pair that they try."""
        self._directory = directory
        self._pair = pair
        self._command = command
        self._running: tuple[str, asyncio.subprocess.Process] | None = None
        self._waiting: asyncio.Task[None] | None = None

    # Looking; reads files, and is called on a thread

    def all(self) -> list[Document]:
        """The newest first, without what makes them long."""
        long = ("points", "moments")
        return [
            {key: value for key, value in self._record(drill).items() if key not in long} for drill in self._drills()
        ]

    def one(self, drill: str) -> Document | None:
        """One, whole."""
        return self._record(drill) if self._has(drill) else None

    def report(self, drill: str) -> bytes | None:
        """Its report, once it is written."""
        path = self._directory / drill / "report.html"
        return path.read_bytes() if self._has(drill) and path.is_file() else None

    def _drills(self) -> list[str]:
        if not self._directory.is_dir():
            return []
        found = [each.name for each in self._directory.iterdir() if _ID.fullmatch(each.name)]
        return sorted(found, reverse=True)[:KEPT_MAX]

    def _has(self, drill: str) -> bool:
        return _ID.fullmatch(drill) is not None and (self._directory / drill).is_dir()

    def _record(self, drill: str) -> Document:
        place = self._directory / drill
        asked = _read(place / "asked.json")
        record = _read(place / "record.json")
        told: Document = {"state": "running", "ended_at": None, "verdict": None, "why": None, **asked, **record}
        told |= {"id": drill, "report": (place / "report.html").is_file()}
        if told["state"] == "running" and not self._is_alive(drill):
            told["state"] = ENDED
            told["why"] = told["why"] or _last_line(place / "log") or "Its process is gone."
        return told

    def _is_alive(self, drill: str) -> bool:
        """Whether its process is there: one of ours, or one of an earlier broker's that still writes."""
        if self._running is not None and self._running[0] == drill:
            return True
        try:
            written_s = (self._directory / drill / "record.json").stat().st_mtime
        except OSError:
            return False
        return time.time() - written_s < ALIVE_S

    # Doing

    async def begin(self, wanted: Wanted) -> str:
        """Start one; its id."""
        newest = await asyncio.to_thread(lambda: [self._record(drill) for drill in self._drills()[:1]])
        is_over = all(record["state"] != "running" for record in newest)
        if is_over and self._waiting is not None:
            await asyncio.wait([self._waiting], timeout=ENDING_S)  # Its record is written before it is gone.
        if self._running is not None or not is_over:
            raise HttpError(409, "A drill is running already.")
        now = datetime.now(UTC)
        drill = f"{now:%Y%m%dt%H%M%S}{now.microsecond // 1000:03}-{secrets.token_hex(3)}"
        place = self._directory / drill
        arguments = [
            wanted.scenario, "--pair", str(self._pair), "--for", f"{wanted.for_s:g}", "--rate", f"{wanted.rate:g}",
            "--no-spark", "--record", str(place / "record.json"), "--report", str(place / "report.html"),
        ]  # fmt: skip
        if wanted.dry_run:
            arguments.append("--dry-run")
        asked = {**wanted.document(), "began_at": now.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        await asyncio.to_thread(self._make_place, place, asked)
        with (place / "log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *self._command, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,  # Whoever interrupts the broker does not interrupt its cleaning up.
            )  # fmt: skip
        self._running = drill, process
        self._waiting = asyncio.create_task(self._wait(drill, process))
        log.info("drill.started", "drill {drill} of '{scenario}' is running", drill=drill, scenario=wanted.scenario)
        return drill

    def _make_place(self, place: Path, asked: Document) -> None:
        place.mkdir(parents=True, mode=0o700)
        (place / "asked.json").write_text(json.dumps(asked))
        found = sorted((each for each in self._directory.iterdir() if _ID.fullmatch(each.name)), reverse=True)
        for old in found[KEPT_MAX:]:
            shutil.rmtree(old, ignore_errors=True)

    async def _wait(self, drill: str, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._running = None
        log.info("drill.ended", "drill {drill} has ended with {code}", drill=drill, code=code)

    async def abort(self, drill: str) -> None:
        """Ask a running one to end: it cleans up, and writes its record, a little later."""
        if self._running is None or self._running[0] != drill:
            raise HttpError(409, "This drill is not running, or another broker started it.")
        self._interrupt()

    def _interrupt(self) -> None:
        if self._running is not None and self._running[1].returncode is None:
            self._running[1].send_signal(signal.SIGINT)

    async def close(self) -> None:
        """Ask what is running to end, and do not wait for it: it writes its record by itself."""
        self._interrupt()
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])


def _read(path: Path) -> Document:
    try:
        if path.stat().st_size > RECORD_BYTES_MAX:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _last_line(path: Path) -> str:
    """What a process said last; all that is known of one that ended without a record."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4_096))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip(" ╰─╯│\t")]
    except OSError:
        return ""
    return lines[-1].strip(" │")[:300] if lines else ""
