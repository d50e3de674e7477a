"""Two namespaces and a syphon in one directory: their settings, keys, data, logs, and which processes serve them.

Everything a person might want to look at or change is a file there; nothing is overwritten that exists, but for ports
that somebody wants to be others.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import secrets
import socket
import sys
import tomllib
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from errno import EACCES, EADDRINUSE
from pathlib import Path

from twinbus.local.processes import TAKE_BACK_S, Running, StartError, start, stop_all

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

# [options] are in docs/pairing.md; none is needed.
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a namespace listens, and to whom."""

    amqp: int
    http: int
    key: str = ""  # Of its policy with all rights; made with the first start.


PORT_STEP = 100  # From a port of the primary to the secondary's.
AMQP_PORT, HTTP_PORT = 5672, 5300


class LocalPair:
    """The pair in a directory."""

    def __init__(self, directory: Path, amqp_port: int | None = None, http_port: int | None = None) -> None:
        """The primary's ports, if they are to be others than so far, for the next `up`."""
        self.directory = directory
        self._kept = {role: self._settings(role) for role in NAMESPACES}
        self._ports = {}
        for role, step in zip(NAMESPACES, (0, PORT_STEP), strict=True):
            ports = self._kept[role] or Ports(AMQP_PORT + step, HTTP_PORT + step)
            amqp = ports.amqp if amqp_port is None else amqp_port + step
            self._ports[role] = replace(ports, amqp=amqp, http=ports.http if http_port is None else http_port + step)

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

    def up(
        self,
        options: tuple[str, ...] = (),
        tell: Callable[[str], None] = lambda _: None,
        go_on: Callable[[], None] = lambda: None,
    ) -> dict[str, Running]:
        """Start what is not running yet; `options` go to both brokers.

        What was started stays if a later part fails, and is ended again if somebody interrupts: `go_on` is asked often,
        and raises KeyboardInterrupt then.
        """
        if not self.directory.exists():
            self._demand_ports(NAMESPACES)  # Nothing is made for what cannot be.
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._alone():
            running = self.running()
            self._demand_same_ports(running)
            self._demand_ports(role for role in NAMESPACES if role not in running)
            self._prepare()
            there = dict(running)
            try:
                for part in PARTS:
                    if part not in there:
                        tell(part)
                        self._start(part, options, running, go_on)
            except KeyboardInterrupt:
                stop_all([process for part, process in running.items() if part not in there], TAKE_BACK_S)
                self._remember(there)
                raise
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

    def _start(
        self, part: str, options: tuple[str, ...], running: dict[str, Running], go_on: Callable[[], None]
    ) -> None:
        """Start a part and wait for it; it is added to what is running, on disk too, as soon as there is a process."""

        def known(process: Running) -> None:
            running[part] = process
            self._remember(running)

        twinbus = [sys.executable, "-m", "twinbus"]
        if part == SYPHON:
            command = [*twinbus, "syphon", "--pair", str(self.description)]
            start(part, command, self.log(part), self._is_watching(self._size(part)), known, go_on)
            return
        command = [*twinbus, "serve", str(self.directory / f"{part}.toml"), "--data", str(self.directory / part)]
        command += ["--host", HOST, "--console-pair", str(self.description), *options]
        start(part, command, self.log(part), lambda: _answers(self.http_address(part)), known, go_on)

    def _demand_same_ports(self, running: dict[str, Running]) -> None:
        if running and any(self._kept[role] not in (None, self._ports[role]) for role in NAMESPACES):
            raise StartError(
                "The pair is running, at other ports. `twinbus down` ends it; then `twinbus up` can have these."
            )

    def _demand_ports(self, roles: Iterable[str]) -> None:
        """Say of all ports at once which cannot be had."""
        taken = [_refusal(role, door, port) for role in roles for door, port in self._doors(role)]
        problems = [problem for problem in taken if problem is not None]
        all_ports = [port for role in NAMESPACES for _, port in self._doors(role)]
        if len(set(all_ports)) < len(all_ports):
            problems = [f"The ports {', '.join(map(str, all_ports))} are not four: choose --amqp-port and --http-port."]
        if problems:
            raise StartError("\n".join(problems))

    def _doors(self, role: str) -> list[tuple[str, int]]:
        return [("amqp", self._ports[role].amqp), ("http", self._ports[role].http)]

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
            return _read(path.read_text())
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
            elif ports != self._kept[role]:
                self._move(role, ports)
            # Made anew each time, since ports and keys may have been changed in the settings.
            name = f"SharedAccessKeyName={POLICY};SharedAccessKey={ports.key};UseDevelopmentEmulator=true"
            _write(self.directory / f"{role}.connection", f"Endpoint=sb://localhost:{ports.amqp};{name}\n")
        if not self.description.exists():
            _write(self.description, _PAIR)

    def _move(self, role: str, ports: Ports) -> None:
        """Write other ports into its settings, and leave everything else there as it is."""
        path = self.directory / f"{role}.toml"
        text = path.read_text()
        for name, port in (("amqp_port", ports.amqp), ("http_port", ports.http)):
            text = re.sub(rf"(?m)^({name}\s*=\s*)[0-9_]+", rf"\g<1>{port}", text, count=1)
        if _read(text) != ports:
            raise StartError(f"{path} is written in a way that only its author can change: put the ports there.")
        _write(path, text)

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


def _read(text: str) -> Ports:
    found = tomllib.loads(text)
    return Ports(found["amqp_port"], found["http_port"], found["key"])


def _refusal(role: str, door: str, port: int) -> str | None:
    """Why a port of this machine cannot be had, and the option that helps; None if it can."""
    try:
        with socket.create_server((HOST, port)):
            return None
    except OSError as problem:
        named = f"Port {port} ({door.upper()} of the {role})"
        why = {EADDRINUSE: "is in use", EACCES: "is for privileged processes"}.get(problem.errno or 0)
        step = f" The secondary's is {PORT_STEP} higher." if role == "secondary" else ""
        return f"{named} {why or f'cannot be opened ({problem.strerror})'}; choose another with --{door}-port.{step}"


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
