"""A command of `twinbus` in a process of its own that is told to end by a signal, and what it leaves behind.

Everything below it carries a mark in its environment, by which it is found even if its parent is gone.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from support.broker import wait_for

MARK = "TWINBUS_TEST_MARK"
PATIENCE_S = 60.0  # For what a command does before it is told to end.
GONE_S = 1.0  # What was killed is gone soon, and not at once.


class Signalled:
    """A command that is running; ends with the block, and so does all that it started."""

    def __init__(self, directory: Path, *words: str, environment: dict[str, str] | None = None) -> None:
        """`directory` gets what it says, and its temporary files."""
        self._said = directory / "said"
        self.temporary = directory / "tmp"
        self.temporary.mkdir(parents=True)
        self._mark = secrets.token_hex(16)
        own = {MARK: self._mark, "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"}
        with self._said.open("wb") as output:
            # A group of its own, which the terminal would interrupt as a whole.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "twinbus", *words],
                env={**os.environ, **(environment or {}), **own},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Signalled:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self._said.read_text(errors="replace")

    # Moments

    def until_begun(self) -> None:
        """It has begun to hear signals, which is before it imports anything that takes time."""
        self._until(lambda: self._catches(signal.SIGTERM), "the first line of the command")

    def until_it_says(self, text: str) -> None:
        """It has printed this."""
        self._until(lambda: text in self.said, f"'{text}'")

    def until_it_runs(self, program: str) -> None:
        """A process below it runs this."""
        self._until(lambda: any(program in _command(pid) for pid in self.alive()), f"a process of {program}")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            assert self.process.poll() is None or condition(), f"it ended before {what}:\n{self.said}"
            return condition()

        wait_for(is_so, what, PATIENCE_S, 0.005)

    def _catches(self, number: signal.Signals) -> bool:
        try:
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        except OSError:
            return False
        caught = next((line for line in lines if line.startswith("SigCgt:")), "SigCgt: 0")
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)

    # The end

    def signal(self, number: signal.Signals, *, group: bool, times: int = 1) -> None:
        """Send a signal to it alone, as `kill` does, or to all below it too, as Ctrl-C at a terminal."""
        for _ in range(times):
            if self.process.poll() is None:
                (os.killpg if group else os.kill)(self.process.pid, number)

    def end(self, number: signal.Signals, within_s: float, *, group: bool = False, times: int = 1) -> int:
        """Have it end; its exit code. An AssertionError if that takes longer, or if it leaves anything behind."""
        self.signal(number, group=group, times=times)
        began = time.monotonic()
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended after {within_s} s:\n{self.said}") from None
        self.check_remains()
        assert "Traceback" not in self.said, self.said
        assert "Exception ignored" not in self.said, self.said
        assert time.monotonic() - began < within_s + GONE_S
        return code

    def check_remains(self) -> None:
        """No process and no temporary file."""
        deadline = time.monotonic() + GONE_S
        while (left := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not left, f"left behind: {[_command(pid) for pid in left]}\n{self.said}"
        left_files = [str(path) for path in self.temporary.rglob("*")]
        assert not left_files, f"left behind: {left_files}"

    def alive(self) -> list[int]:
        """The processes that carry its mark."""
        found = []
        wanted = f"{MARK}={self._mark}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    is_ours = wanted in (entry / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue  # Somebody else's, or gone.
                if is_ours:
                    found.append(int(entry.name))
        return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
