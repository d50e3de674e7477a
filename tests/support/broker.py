"""A broker as its own process, for tests: start, stop, kill and restart it, read its log, ask its HTTP door.

What a broker must do is judged by the tests; how a queue is described in XML is `support.atom`'s business.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

from support import atom
from support.forking import Forked, fork_twinbus
from support.ports import free_ports
from twinbus.wire.sas import make_token

ROOT_POLICY = "RootManageSharedAccessKey"
KEY = "a-key-for-tests-that-opens-nothing-else"
API_VERSION = "2021-05"
TWINBUS = [sys.executable, "-m", "twinbus"]
# Nobody waits so long on a machine that has nothing else to do; on a busy one, less would be a race.
SOON_S = 30.0
READY_S = STOP_S = SOON_S


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = SOON_S, interval_s: float = 0.05) -> None:
    """Ask until the answer is yes; an AssertionError that names what never came, after the time-out."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(interval_s)


@contextmanager
def running(*brokers: BrokerProcess) -> Iterator[None]:
    """Brokers that start at the same time, which is quicker than one after another, and end with the context."""
    try:
        for broker in brokers:
            broker.launch()
        for broker in brokers:
            broker.until_ready()
        yield
    finally:
        for broker in brokers:
            broker.end_for_good()


class Refusal(NamedTuple):
    """A line of the log about something that was refused."""

    doing: str
    fault: str
    tracking_id: str


_REFUSED = re.compile(
    r" (?:auth|request)\.refused (?P<doing>.+?) refused: (?P<fault>[\w-]+): "
    r".*\(entity '(?P<entity>[^']*)', TrackingId:(?P<id>\w{32})\)"
)


class HttpError(Exception):
    """An answer of the HTTP door other than the one that was asked for."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


class NewQueue(Protocol):
    """Creates a queue with a name that no other test has."""

    def __call__(self, **settings: atom.Setting) -> str: ...


class BrokerProcess:
    """One broker process on its own data directory. Ports, key and log stay the same over a restart."""

    def __init__(
        self,
        directory: Path,
        *,
        namespace: str = "compat",
        key: str = KEY,
        config: str | None = None,
        options: tuple[str, ...] = (),
        log_level: str = "info",
        forked: bool = True,
    ) -> None:
        """`directory` takes data, logs and `config` (the text of a TOML file); `options` go to `serve`.

        Not `forked`, it is started as a person would: for tests that look at the start itself, or at its memory.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.data = directory / "data"
        self.namespace = namespace
        self.key = key
        self.host = "127.0.0.1"
        self.amqp_port, self.http_port = free_ports(2)
        self.options = options
        self.log_level = log_level
        self.forked = forked
        self.environment: dict[str, str] = {}  # Beside that of the tests.
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self._log_file = directory / "broker.log"
        self._output_file = directory / "broker.out"
        self._config_file: Path | None = None
        if config is not None:
            self._config_file = directory / "broker.toml"
            self._config_file.write_text(config)

    # The process

    @property
    def command(self) -> list[str]:
        """What is run."""
        settings = {
            "--namespace": self.namespace,
            "--data": self.data,
            "--host": self.host,
            "--amqp-port": self.amqp_port,
            "--http-port": self.http_port,
            "--key": self.key,
            "--log-level": self.log_level,
        }
        if "--store" in self.options:
            del settings["--data"]
        words = [str(word) for option in settings.items() for word in option]
        config = [str(self._config_file)] if self._config_file else []
        return [*TWINBUS, "serve", *words, *self.options, *config]

    def start(self, timeout_s: float = READY_S) -> BrokerProcess:
        """Start and wait until it is ready; an AssertionError with its log if that does not happen."""
        self.launch()
        return self.until_ready(timeout_s)

    def launch(self) -> None:
        """Start, and wait for nothing: several can be on their way at once."""
        assert self.process is None, "the broker is running"
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment}
        command = self.command
        with (
            Path(os.devnull).open("rb") as nothing,
            self._output_file.open("ab") as output,
            self._log_file.open("ab") as log,
        ):
            streams = {"stdin": nothing, "stdout": output, "stderr": log}
            if self.forked and command[:3] == TWINBUS:
                self.process = fork_twinbus(command[3:], environment, **streams)
            else:
                self.process = subprocess.Popen(command, env=environment, **streams)

    def until_ready(self, timeout_s: float = READY_S) -> BrokerProcess:
        """Wait for one that was launched."""
        assert self.process is not None, "the broker was not launched"
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                code = self.process.poll()
                self.kill()
                raise AssertionError(f"the broker is not ready (exit code {code}):\n{self.log[-4000:]}")
            time.sleep(0.02)
        return self

    def stop(self, timeout_s: float = STOP_S) -> int:
        """Ask it to end (SIGTERM); its exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> int:
        """End it without notice (SIGKILL). Does nothing to one that is not running."""
        return self._end(signal.SIGKILL, STOP_S)

    def end_for_good(self) -> None:
        """End it, and give up what it laid aside for a full disk: there are hundreds of brokers, often in memory."""
        self.kill()
        for reserve in self.data.glob("*.reserve"):
            reserve.unlink()

    def restart(self) -> BrokerProcess:
        """Stop it politely and start it again on the same data and ports."""
        code = self.stop()
        assert code == 0, f"the broker ended with {code}:\n{self.log[-4000:]}"
        return self.start()

    def _end(self, how: signal.Signals, timeout_s: float) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(how)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the broker did not end within {timeout_s} s:\n{self.log[-4000:]}") from None

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_for_good()

    @property
    def log(self) -> str:
        """All it has written to its log (standard error), over restarts."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    @property
    def output(self) -> str:
        """All it has written to standard output, over restarts."""
        return self._output_file.read_text(errors="replace") if self._output_file.exists() else ""

    def refusals(self, entity: str) -> list[Refusal]:
        """What it refused on an entity, in order, as its log tells it."""
        found = _REFUSED.finditer(self.log)
        return [Refusal(line["doing"], line["fault"], line["id"]) for line in found if line["entity"] == entity]

    # Ways in

    def connection_string(
        self, policy: str = ROOT_POLICY, key: str | None = None, *, signature: str | None = None
    ) -> str:
        """What an application is given: with a policy and its key, or with a ready-made signature."""
        proof = f"SharedAccessKeyName={policy};SharedAccessKey={key or self.key}"
        if signature is not None:
            proof = f"SharedAccessSignature={signature}"
        return f"Endpoint=sb://{self.host}:{self.amqp_port};{proof};UseDevelopmentEmulator=true"

    def token(
        self, entity: str = "", *, lifetime_s: float = 3600, policy: str = ROOT_POLICY, key: str | None = None
    ) -> str:
        """A shared access signature for an entity, or for the namespace, good for at least so long."""
        resource = f"sb://{self.host}:{self.amqp_port}/{entity}"
        return make_token(resource, policy, key or self.key, ceil(time.time() + lifetime_s))

    # The HTTP door

    def request(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """One request with the root policy's token; status and body of the answer."""
        token = make_token(f"http://{self.host}:{self.http_port}/", ROOT_POLICY, self.key, int(time.time()) + 300)
        sent = {"Authorization": token, "Content-Type": "application/atom+xml", **(headers or {})}
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=SOON_S)
        try:
            connection.request(method, path, None if body is None else body.encode(), sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    # Its clock

    def now(self) -> datetime:
        """The time, as the broker has it."""
        now: str = json.loads(self.request("GET", "/$api/clock")[1])["now"]
        return datetime.fromisoformat(now)

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass for a broker that was started with --test-clock, and let it do what is due then."""
        status, text = self.request("POST", "/$api/clock", json.dumps({"advance": f"PT{seconds}S"}))
        if status != 200:
            raise HttpError(status, text)

    def is_ready(self) -> bool:
        """Whether it answers that it is ready."""
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def create_queue(self, name: str, **settings: atom.Setting) -> str:
        """Create a queue, its settings under their Service Bus names (LockDuration="PT5S"); its name."""
        self._atom("PUT", name, 201, atom.entry(settings))
        return name

    def update_queue(self, name: str, **settings: atom.Setting) -> None:
        """Replace a queue's settings: what is not given is what a new queue would have."""
        self._atom("PUT", name, 200, atom.entry(settings), {"If-Match": "*"})

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all that is in it."""
        self._atom("DELETE", name, 200)

    def queue(self, name: str) -> dict[str, str]:
        """A queue's settings and counts: the texts of all leaves of its description, by local name."""
        return atom.leaves(self._atom("GET", name, 200))

    def count(self, name: str, kind: str = "ActiveMessageCount") -> int:
        """One of a queue's counts: Active, DeadLetter, Scheduled …MessageCount."""
        return int(self.queue(name)[kind])

    def metric(self, name: str) -> float:
        """One metric over all its labels."""
        return sum(value for key, value in self.metrics().items() if key == name or key.startswith(f"{name}{{"))

    def metrics(self) -> dict[str, float]:
        """All metrics; labels are part of the key as they are printed."""
        status, text = self.request("GET", "/metrics")
        if status != 200:
            raise HttpError(status, text)
        lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def _atom(
        self,
        method: str,
        name: str,
        expected: int,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        path = f"/{name}?api-version={API_VERSION}"
        status, text = self.request(method, path, body, headers)
        if status != expected:
            raise HttpError(status, text)
        return text
