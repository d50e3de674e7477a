"""Processes that outlive the command that started them: each is known by its id and the instant of its birth.

So that nobody is ended who merely has the same number. What is run, and when it counts as ready, the caller says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

READY_S = 30.0
STOP_S = 15.0
LOOK_S = 0.05
TAIL_CHARS = 2000


class StartError(Exception):
    """A process did not become ready; the text has the end of its log."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process that was started."""

    name: str
    pid: int
    born: str  # As the system tells it, so that a later process with the same number is another.

    @property
    def is_alive(self) -> bool:
        """Whether it is still there."""
        return _born(self.pid) == self.born

    def stop(self) -> bool:
        """Ask it to end, and end it if it does not; False if it was gone already."""
        if not self.is_alive:
            return False
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while self.is_alive and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        if self.is_alive:
            os.kill(self.pid, signal.SIGKILL)
        return True


def start(name: str, command: Sequence[str], log: Path, ready: Callable[[], bool]) -> Running:
    """Start a process that goes on when this one ends, and wait until it is ready."""
    before = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
        # A session of its own: an interrupt at the prompt is not meant for it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    born = _born(process.pid) or ""
    deadline = time.monotonic() + READY_S
    while not ready():
        if process.poll() is not None:
            raise StartError(f"'{name}' ended at once. The end of {log}:\n{_tail(log, before)}")
        if time.monotonic() > deadline:
            process.terminate()
            process.wait()
            raise StartError(f"'{name}' was not ready within {READY_S:g} s. The end of {log}:\n{_tail(log, before)}")
        time.sleep(LOOK_S)
    return Running(name, process.pid, born)


def _tail(log: Path, after: int) -> str:
    with log.open("rb") as file:
        file.seek(after)
        return file.read().decode(errors="replace").strip()[-TAIL_CHARS:]


def _born(pid: int) -> str | None:
    """When a process began, in the system's own count; None if there is none of that number, or only its remains."""
    try:
        # The name in parentheses may contain anything, and the fields follow it: proc(5).
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else fields[18]
