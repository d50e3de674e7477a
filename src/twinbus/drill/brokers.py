"""Broker processes of a drill: started, killed and started again on the same data, as an operator would.

Ends only what it started.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from twinbus.client import ConnectionString

READY_S = 60.0
STOP_S = 10.0
LOOPBACK = "127.0.0.1"
TAKEN = "is in use; choose another"
PORTS = range(20_000, 32_000)  # Below those that the system gives to whoever connects.


class BrokerFailedError(Exception):
    """A broker did not start; the text says what it said."""


class Broker:
    """One namespace in a process of its own, on ports that stay the same over restarts."""

    def __init__(self, namespace: str, directory: Path, config: str, *options: str) -> None:
        self.namespace = namespace
        self._config = directory / f"{namespace}.toml"
        self._config.write_text(config)
        self._data = directory / namespace
        self._log = directory / f"{namespace}.log"
        self._ports = (free_port(), free_port())
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self.connection_string = ""

    @property
    def amqp_port(self) -> int:
        """Where clients connect."""
        return self._ports[0]

    @property
    def http_address(self) -> str:
        """Where it is administered, and where its relay is."""
        return f"http://{LOOPBACK}:{self._ports[1]}"

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the broker and wait until it is ready."""
        try:
            await self._start()
        except BrokerFailedError:
            if self.connection_string or TAKEN not in self.said():
                raise
            self._ports = (free_port(), free_port())  # Somebody was quicker; nobody knows of these ports yet.
            await self._start()

    async def _start(self) -> None:
        amqp, http = self._ports
        command = [sys.executable, "-m", "twinbus", "serve", str(self._config)]
        command += ["--namespace", self.namespace, "--data", str(self._data), "--host", LOOPBACK]
        command += ["--amqp-port", str(amqp), "--http-port", str(http), "--no-console", *self._options]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        try:
            async with asyncio.timeout(READY_S):
                await self._wait_until_ready()
        except TimeoutError:
            raise BrokerFailedError(f"'{self.namespace}' was not ready within {READY_S:g} s: {self.said()}") from None

    async def _wait_until_ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            found = re.search(rb"Endpoint=\S+", line)
            if found and not self.connection_string:
                self.connection_string = found[0].decode()
            if line.strip() == b"ready":
                return
        raise BrokerFailedError(f"'{self.namespace}' ended before it was ready: {self.said()}")

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""

    async def kill(self) -> None:
        """Take it away as a power cut would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End it politely."""
        await self._end(signal.SIGTERM)

    def lose_disk(self) -> None:
        """While it is down: the next start finds nothing but its configuration. The key stays, as clients have it."""
        self._data.rename(self._data.with_name(f"{self.namespace}-lost"))
        key = ConnectionString.parse(self.connection_string).key or ""
        self._options = (*self._options, "--key", key)

    def freeze(self) -> None:
        """Stop it in its tracks: connections stay, nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running and self._process is not None:
            self._process.send_signal(number)

    async def _end(self, number: signal.Signals) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.send_signal(number)
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def free_port() -> int:
    """A port that nobody listens on at present, and that the system gives to nobody while its broker is down."""
    while True:
        port = random.choice(PORTS)
        with suppress(OSError), socket.create_server((LOOPBACK, port)):
            return port
