"""Two namespaces and a syphon in one directory: their settings, keys, data, logs, and which processes serve them.

Everything a person might want to look at or change is a file there; nothing is overwritten that exists.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
import sys
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from twinbus.local.processes import Running, StartError, start

HOST = "127.0.0.1"
POLICY = "RootManageSharedAccessKey"
NAMESPACES = ("primary", "secondary")
SYPHON = "syphon"
PARTS = (*NAMESPACES, SYPHON)
DATACENTERS = {"primary": "north", "secondary": "south"}
PROBE_S = 1.0
_RUN, _LOCK = "run.json", "lock"
_SETTINGS = """# The {role} namespace of the local pair. What is declared here is made at the next `twinbus up`, and
# nothing is ever removed because it is missing here. All settings: docs/config.md
namespace = "{role}"
datacenter = "{datacenter}"
amqp_port = {amqp}
http_port = {http}
key = "{key}"
"""
_PAIR = """# The local pair, for PairedServiceBusClient.from_description and for --pair of the commands: docs/pairing.md
[primary]
connection_string_file = "primary.connection"

[secondary]
connection_string_file = "secondary.connection"

[options]
# Quicker than in earnest, so that one can watch it.
failover_interval = 10
ping_primary_interval = 5
backlog_queue_count = 3
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a namespace listens, and to whom."""

    amqp: int
    http: int
    key: str = ""  # Of its policy with all rights; made with the first start.


FIXED = {"primary": Ports(5672, 5300), "secondary": Ports(5772, 5400)}


class LocalPair:
    """The pair in a directory."""

    def __init__(self, directory: Path, ports: dict[str, Ports] | None = None) -> None:
        """`ports` are for a pair that is made anew; one that is there has its own."""
        self.directory = directory
        self._ports = {role: self._settings(role) or (ports or FIXED)[role] for role in NAMESPACES}

    @property
    def description(self) -> Path:
        """The file that describes the pair."""
        return self.directory / "pair.toml"

    def connection_string(self, role: str) -> str | None:
        """What applications use; None before the first start."""
        with suppress(OSError):
            return (self.directory / f"{role}.connection").read_text().strip()
        return None

    def http_address(self, role: str) -> str:
        """Where a namespace is administered."""
        return f"http://{HOST}:{self._ports[role].http}"

    def log(self, part: str) -> Path:
        """Where a process writes what it has to say."""
        return self.directory / f"{part}.log"

    def running(self) -> dict[str, Running]:
        """The processes that are there."""
        with suppress(OSError, ValueError, TypeError):
            found = [Running(**entry) for entry in json.loads((self.directory / _RUN).read_text())]
            return {process.name: process for process in found if process.is_alive}
        return {}

    # Up and down

    def up(self, options: tuple[str, ...] = (), tell: Callable[[str], None] = lambda _: None) -> dict[str, Running]:
        """Start what is not running yet; `options` go to both brokers. What was started stays if a later part fails."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._alone():
            self._prepare()
            running = self.running()
            for part in PARTS:
                if part not in running:
                    tell(part)
                    running[part] = self._start(part, options)
                    self._remember(running)
            return running

    def down(self, tell: Callable[[str], None] = lambda _: None) -> list[str]:
        """End everything, the syphon first, and keep the data; what was running."""
        if not self.directory.exists():
            return []
        with self._alone():
            running = self.running()
            stopped = []
            for part in reversed(PARTS):
                if part in running:
                    tell(part)
                    running.pop(part).stop()
                    self._remember(running)
                    stopped.append(part)
            return stopped

    def _start(self, part: str, options: tuple[str, ...]) -> Running:
        twinbus = [sys.executable, "-m", "twinbus"]
        if part == SYPHON:
            command = [*twinbus, "syphon", "--pair", str(self.description)]
            return start(part, command, self.log(part), self._is_watching(self._size(part)))
        ports = self._ports[part]
        if _answers(self.http_address(part)):
            raise StartError(f"Port {ports.http} is taken by another broker: end it first, or choose other ports.")
        command = [*twinbus, "serve", str(self.directory / f"{part}.toml"), "--data", str(self.directory / part)]
        command += ["--host", HOST, "--console-pair", str(self.description), *options]
        return start(part, command, self.log(part), lambda: _answers(self.http_address(part)))

    def _size(self, part: str) -> int:
        return self.log(part).stat().st_size if self.log(part).exists() else 0

    def _is_watching(self, after: int) -> Callable[[], bool]:
        """The syphon says so when it has found its queues; what an earlier one said does not count."""

        def ready() -> bool:
            with self.log(SYPHON).open("rb") as file:
                file.seek(after)
                return b"watches" in file.read()

        return ready

    # Files

    def _settings(self, role: str) -> Ports | None:
        """What its settings say, which a person may have changed; None if there are none yet."""
        path = self.directory / f"{role}.toml"
        try:
            found = tomllib.loads(path.read_text())
            return Ports(found["amqp_port"], found["http_port"], found["key"])
        except FileNotFoundError:
            return None
        except (OSError, tomllib.TOMLDecodeError) as problem:
            raise StartError(f"{path} cannot be read: {problem}") from None
        except KeyError as missing:
            raise StartError(f"{path} must say {missing}, or be removed to be made anew.") from None

    def _prepare(self) -> None:
        for role in NAMESPACES:
            ports = self._ports[role]
            if not ports.key:
                ports = self._ports[role] = replace(ports, key=base64.b64encode(secrets.token_bytes(32)).decode())
                told = {"role": role, "datacenter": DATACENTERS[role], **asdict(ports)}
                _write(self.directory / f"{role}.toml", _SETTINGS.format(**told))
            # Made anew each time, since ports and keys may have been changed in the settings.
            name = f"SharedAccessKeyName={POLICY};SharedAccessKey={ports.key};UseDevelopmentEmulator=true"
            _write(self.directory / f"{role}.connection", f"Endpoint=sb://localhost:{ports.amqp};{name}\n")
        if not self.description.exists():
            _write(self.description, _PAIR)

    def _remember(self, running: dict[str, Running]) -> None:
        _write(self.directory / _RUN, json.dumps([asdict(process) for process in running.values()]))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Two commands at once would start everything twice."""
        with (self.directory / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StartError(f"Another command is starting or ending the pair in {self.directory}.") from None
            yield


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=PROBE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and for the owner alone: there are keys in it."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)
