"""A broker of the benchmark's own: a process on a directory that nobody else uses, and what it spent.

What a broker does is its own affair; it is started as a user would start it.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

READY_S = 20.0
STOP_S = 10.0
# Commits that waited for the disk, as the broker's metrics name them.
_SYNCED_COMMITS = re.compile(r"^twinbus_synced_commits_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


class BrokerFailedError(Exception):
    """The broker did not start."""


class OwnBroker:
    """A broker process with one queue."""

    def __init__(self, directory: Path, queue: str) -> None:
        config = directory / "bench.toml"
        # A JSON string is a TOML string, too.
        config.write_text(f'[[queues]]\nName = {json.dumps(queue)}\nLockDuration = "PT5M"\nMaxSizeInMegabytes = 5120\n')
        ports = ["--amqp-port", "0", "--http-port", "0"]
        quiet = ("--log-level", "warning")
        where = ("--data", str(directory / "data"), *ports, *quiet, str(config))
        command = [sys.executable, "-m", "twinbus", "serve", *where]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        try:
            said = self._wait_until_ready()
            self.connection_string = _found(r"Endpoint=\S+", said)
            self.http = _found(r"http://\S+", said)
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> str:
        assert self._process.stdout is not None
        said = b""
        deadline = time.monotonic() + READY_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not said.endswith(b"\nready\n"):
                more = b""
                if selector.select(max(0.0, deadline - time.monotonic())):
                    more = os.read(self._process.stdout.fileno(), 65536)
                if not more:
                    raise BrokerFailedError(f"the broker did not become ready within {READY_S:g} s")
                said += more
        return said.decode()

    def cpu_s(self) -> float:
        """What the process has computed so far, all threads, user and system."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def synced_commits(self) -> int | None:
        """Commits that were synced to the disk so far; None when the broker does not say."""
        try:
            with urlopen(f"{self.http.rstrip('/')}/metrics", timeout=5) as answer:
                counted = _SYNCED_COMMITS.search(answer.read().decode())
        except (URLError, OSError):
            return None
        return int(float(counted[1])) if counted else None

    def stop(self) -> None:
        """End it politely, or at once if that does not help."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise BrokerFailedError("the broker did not say where it can be reached")
    return match[0]
