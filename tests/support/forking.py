"""Processes that run `twinbus` without starting Python anew: a server that has imported it already forks for each.

A start costs a sixth of what it costs otherwise, and there are hundreds of them in a test run. What runs is a process
of its own as before, with its own arguments, environment, streams and end; only its parent is the server. Tests for
which the start itself matters (memory, imports, signals) use `subprocess`. `python support/forking.py FD` serves.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

REQUEST_BYTES = 1 << 17  # Mostly the environment.
SIGNAL_S = 10.0  # Longer than a server that is there takes to send a signal.
# In the environment: a process obeys the rights of files, root's too. A user who is not root could not read the
# interpreter's own files everywhere.
OBEYS_RIGHTS = "TWINBUS_TEST_OBEYS_RIGHTS"
_MAY_IGNORE_RIGHTS = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION_3 = 0x20080522
PRELOADED = (
    "twinbus.admin.metrics",
    "twinbus.broker.process",
    "twinbus.broker.config",
    "twinbus.broker.shared_data",
    "twinbus.cli.console",
)


class Forked:
    """What `subprocess.Popen` offers, as far as tests use it."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._ended = threading.Event()

    def end(self, code: int) -> None:
        """The server has seen its end."""
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("twinbus", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        self._server.signal(self, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The other end of the server: asks it for processes, and learns from it how they ended."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Whoever ends the tests with Ctrl-C does not mean the server, which ends when we do.
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], start_new_session=True
            )
        self._asking = threading.Lock()
        self._changing = threading.Lock()
        self._answered = threading.Semaphore(0)
        self._signalled = threading.Semaphore(0)
        self._started: list[Forked] = []
        self._running: dict[int, Forked] = {}
        threading.Thread(target=self._read, name="forks", daemon=True).start()

    def start(
        self, words: list[str], environment: Mapping[str, str], stdin: int, stdout: int, stderr: int, directory: Path
    ) -> Forked:
        """Run `twinbus` with these words."""
        request = json.dumps({"words": words, "environment": dict(environment), "directory": str(directory)}).encode()
        assert len(request) < REQUEST_BYTES
        with self._asking:
            socket.send_fds(self._channel, [request], [stdin, stdout, stderr])
            self._answered.acquire()
            return self._started.pop()

    def signal(self, process: Forked, number: int) -> None:
        """As subprocess does: not to somebody else who has got the number since, and it is sent when this returns."""
        request = json.dumps({"pid": process.pid, "signal": number}).encode()
        with self._asking:
            if process.returncode is None:
                self._channel.send(request)
                self._signalled.acquire(timeout=SIGNAL_S)

    def _read(self) -> None:
        while said := self._channel.recv(REQUEST_BYTES):
            told: dict[str, Any] = json.loads(said)
            if "signalled" in told:
                self._signalled.release()
            elif "code" in told:
                self._running.pop(told["pid"]).end(told["code"])
            else:
                started = self._running[told["pid"]] = Forked(self, told["pid"])
                self._started.append(started)
                self._answered.release()


_servers: dict[int, ForkServer] = {}


def fork_twinbus(
    words: list[str],
    environment: Mapping[str, str],
    *,
    stdin: IO[bytes],
    stdout: IO[bytes],
    stderr: IO[bytes],
) -> Forked:
    """Run `twinbus` as a process of its own; the server is started with the first one."""
    server = _servers.get(os.getpid()) or _servers.setdefault(os.getpid(), ForkServer())
    streams = (stdin.fileno(), stdout.fileno(), stderr.fileno())
    return server.start(words, environment, *streams, directory=Path.cwd())


def run_twinbus(
    words: list[str], environment: Mapping[str, str], *, typed: str = "", timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `twinbus` to its end; `typed` is its standard input."""
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
        stdin.write(typed.encode())
        stdin.seek(0)
        process = fork_twinbus(words, environment, stdin=stdin, stdout=stdout, stderr=stderr)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        printed = []
        for stream in (stdout, stderr):
            stream.seek(0)
            printed.append(stream.read().decode())
    return subprocess.CompletedProcess(words, code, *printed)


# The server's own part


def _preload() -> None:
    import importlib

    for name in PRELOADED:
        importlib.import_module(name)
    from twinbus.cli import commands

    for name in commands.MODULES.values():
        importlib.import_module(f"twinbus.cli.{name}")
    gc.collect()
    gc.freeze()


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """In the child: look like a process that was started with this command."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    if OBEYS_RIGHTS in os.environ and os.geteuid() == 0:
        _obey_rights()
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    if "PYTHONUNBUFFERED" in os.environ:
        sys.stdout.reconfigure(line_buffering=True)
    sys.argv = ["twinbus", *request["words"]]
    gc.unfreeze()


def _obey_rights() -> None:
    """Give up root's capabilities, for good and for all that is started from here."""
    library = ctypes.CDLL(None, use_errno=True)
    for capability in _MAY_IGNORE_RIGHTS:
        if library.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if library.capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def _serve(channel: socket.socket) -> bool:
    """Fork until the tests are over; True in a child, which has become what was asked for."""
    ended_read, ended_write = os.pipe()
    os.set_blocking(ended_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended_write, warn_on_full_buffer=False)
    children: set[int] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(ended_read, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if ended_read in ready:
                os.read(ended_read, 4096)
                _reap(channel, children)
            if channel.fileno() not in ready:
                continue
            said, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES, 3)
            if not said:  # The tests are over, or were cut off, and nobody else ends these.
                for child in children:
                    os.kill(child, signal.SIGKILL)
                return False
            request = json.loads(said)
            if "signal" in request:
                if request["pid"] in children:
                    os.kill(request["pid"], request["signal"])
                channel.send(json.dumps({"signalled": request["pid"]}).encode())
                continue
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (ended_read, ended_write, channel.detach()):
                    os.close(descriptor)
                _become(request, descriptors)
                return True
            children.add(pid)
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send(json.dumps({"pid": pid}).encode())


def _reap(channel: socket.socket, children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        channel.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


if __name__ == "__main__":
    _preload()
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        from twinbus.cli import main

        main()
