"""One broker process for tests: started, stopped, killed and started again on the same data and ports.

What is asked of the namespace in it is `local`'s business.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_S = 30.0
STOP_S = 30.0
_PORT = re.compile(r"^ +(amqp|http) +\w+://\S+:(\d+)$", re.MULTILINE)
_STRING = re.compile(r"^Connection string of (\S+):\n +(Endpoint=\S+)$", re.MULTILINE)


class BrokerError(Exception):
    """The broker did not do what a test asked it for; the text has its own words."""


def _kept_port() -> socket.socket:
    """A port that the system gives to nobody else while this socket is open, also while the broker is down.

    The broker may listen there all the same, because both say that they reuse the address and only one listens.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept


class BrokerRun:
    """A broker that serves one namespace from a temporary directory. It ends with the process that started it."""

    def __init__(self, name: str, datacenter: str, stores: int, config: Path | None) -> None:
        self._kept = {door: _kept_port() for door in ("amqp", "http")}
        self.ports = {door: int(kept.getsockname()[1]) for door, kept in self._kept.items()}
        self.connection_strings: dict[str, str] = {}
        self._options = ["--namespace", name, "--stores", str(stores), "--test-clock", "--stop-with-stdin"]
        if datacenter:
            self._options += ["--datacenter", datacenter]
        if config is not None:
            self._options.append(str(config))
        self._directory = tempfile.TemporaryDirectory(prefix=f"twinbus-{name}-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._runs = 0

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What it has logged, over all starts."""
        path = Path(self._directory.name, "log")
        return path.read_text(errors="replace") if path.exists() else ""

    def launch(self) -> None:
        """Start it and do not wait: `await_ready` must follow."""
        if self._process is not None:
            raise BrokerError("The broker has been started already.")
        words = [sys.executable, "-m", "twinbus", "serve", "--data", f"{self._directory.name}/data-{self._runs}"]
        for door, port in self.ports.items():
            words += [f"--{door}-port", str(port)]
        with open(Path(self._directory.name, "log"), "ab") as log:
            self._process = subprocess.Popen(
                [*words, *self._options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith("TWINBUS_")},
            )

    def await_ready(self) -> None:
        """Wait until clients can connect, and learn the ports and connection strings that it prints."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        printed, deadline = b"", time.monotonic() + START_S
        while not printed.endswith(b"ready\n"):
            left_s = deadline - time.monotonic()
            is_readable = left_s > 0 and select.select([process.stdout], [], [], left_s)[0]
            chunk = os.read(process.stdout.fileno(), 65_536) if is_readable else b""
            if not chunk:
                self.kill()
                raise BrokerError(f"The broker did not start:\n{printed.decode()}{self.log[-4000:]}")
            printed += chunk
        text = printed.decode()
        self.ports = {door: int(port) for door, port in _PORT.findall(text)}
        self.connection_strings = dict(_STRING.findall(text))

    def stop(self) -> None:
        """End it politely: clients are told, everything is finished."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without notice, as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerError(f"The broker did not end within {STOP_S:.0f} s:\n{self.log[-4000:]}") from None
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def forget(self) -> None:
        """The next start is on an empty directory. Ports stay, so that clients of the old one reach the new one."""
        self._runs += 1

    def remove(self) -> None:
        """End it, delete its data and give its ports up."""
        self.kill()
        for kept in self._kept.values():
            kept.close()
        self._directory.cleanup()
