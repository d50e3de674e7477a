"""Processes that outlive the command that started them: each is known by its id and the instant of its birth.

So that nobody is ended who merely has the same number. What is run, and when it counts as ready, the caller says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

READY_S = 30.0
STOP_S = 15.0
TAKE_BACK_S = 1.5
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
        stop_all([self], STOP_S)
        return True


def stop_all(processes: Sequence[Running], patience_s: float) -> None:
    """Ask processes to end, all at once, and end those that do not within that time."""
    _signal(processes, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while any(process.is_alive for process in processes) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    _signal(processes, signal.SIGKILL)


def _signal(processes: Sequence[Running], number: signal.Signals) -> None:
    for process in processes:
        if process.is_alive:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


def start(
    name: str,
    command: Sequence[str],
    log: Path,
    ready: Callable[[], bool],
    known: Callable[[Running], None],
    go_on: Callable[[], None],
) -> Running:
    """Start a process that goes on when this one ends, and wait until it is ready.

    `known` hears of it before anything else can happen, so that there is no process which nobody has written down.
    `go_on` is asked all the time, and raises if nobody wants it any more.
    """
    before = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output, undisturbed():
        # A session of its own: an interrupt at the prompt is not meant for it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        running = Running(name, process.pid, _born(process.pid) or "")
        known(running)
    deadline = time.monotonic() + READY_S
    while not ready():
        if process.poll() is not None:
            raise StartError(f"'{name}' ended at once. The end of {log}:\n{_tail(log, before)}")
        if time.monotonic() > deadline:
            process.terminate()
            process.wait()
            raise StartError(f"'{name}' was not ready within {READY_S:g} s. The end of {log}:\n{_tail(log, before)}")
        go_on()
        time.sleep(LOOK_S)
    go_on()
    return running


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that come during the block have their effect after it. Processes that it starts are not concerned."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals never disturb it.
        return
    heard: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    before = [signal.signal(number, lambda number, frame: heard.append(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for first in heard[:1]:
            signal.raise_signal(first)


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
