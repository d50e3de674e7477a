"""The published JavaScript clients of Hybrid Connections as listeners: a node process (compat/js/relay_listener.mjs).

It serves `http-service` with hyco-https and `ws-service` with hyco-ws. What comes of it is judged by the tests.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading

from support import optional
from support.broker import ROOT_POLICY, BrokerProcess
from support.optional import JS

WAIT_S = 40


def relay_environment(broker: BrokerProcess) -> dict[str, str]:
    """What the scripts in js are told about a relay."""
    return {
        **os.environ,
        "TWINBUS_RELAY": f"http://{broker.host}:{broker.http_port}",
        "TWINBUS_POLICY": ROOT_POLICY,
        "TWINBUS_KEY": broker.key,
    }


class NodeListener:
    """The listeners of js/relay_listener.mjs, which say when they listen."""

    def __init__(self, environment: dict[str, str]) -> None:
        optional.needs("node")
        self.process = subprocess.Popen(
            ["node", "relay_listener.mjs"],
            cwd=JS,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def forget(self) -> None:
        """What was said so far was about the relay before."""
        while not self._lines.empty():
            self._lines.get()

    def wait_until_both_listen(self) -> None:
        missing = {"http listening", "ws listening"}
        while missing:
            missing.discard(self._lines.get(timeout=WAIT_S))

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reading.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
