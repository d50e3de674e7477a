"""A real PostgreSQL server for tests, from the `pgserver` wheel alone: no root needed, no package of the system.

Only the wheel's programs are used; the server is a child of the test process, on a free port of the loopback, with
fsync on as the store demands.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from support import optional
from support.ports import free_ports
from support.processes import children_of

READY_S = 60
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 4 * 2**30
USER = "twinbus"

# Small, and quick to start; everything that durability rests on keeps its default, which is the safe one.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "10s",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "dynamic_shared_memory_type": "mmap",  # With its data: what is in /dev/shm stays there when it is killed.
    "log_min_messages": "warning",
}
_schemas = itertools.count(1)


def _programs() -> Path:
    optional.needs("postgres")
    spec = importlib.util.find_spec("pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall"


def _memory() -> Path | None:
    """A file system in memory that has room enough: hundreds of databases are made, and nothing outlives the tests."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES else None


class Account:
    """Who runs the server: the user of the tests, or nobody if that is root, whom PostgreSQL refuses."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.install = _programs()
        self._copied: str | None = None
        if os.geteuid() != 0:
            return
        entry = pwd.getpwnam("nobody")
        self.options = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        try:
            subprocess.run(
                [self.install / "bin" / "postgres", "--version"], check=True, stdout=subprocess.DEVNULL, **self.options
            )
        except (PermissionError, subprocess.CalledProcessError):
            # The environment is in a folder that only root may enter.
            self._copied = self.folder("programs")
            package = self.install.parent
            shutil.copytree(self.install, f"{self._copied}/{package.name}/{self.install.name}")
            # The programs look for these libraries beside their package.
            shutil.copytree(package.with_name("pgserver.libs"), f"{self._copied}/pgserver.libs")
            self.install = Path(self._copied) / package.name / self.install.name

    def folder(self, name: str) -> str:
        """A new folder that the server's user owns and can reach, unlike those of pytest; for data, in memory."""
        path = tempfile.mkdtemp(prefix=f"twinbus-{name}-", dir=_memory() if name == "postgres" else None)
        if self.options:
            os.chown(path, self.options["user"], self.options["group"])
            os.chmod(path, 0o755 if name == "programs" else 0o700)
        return path

    def command(self, program: str, arguments: Sequence[str]) -> list[str]:
        """A command line that calls one of PostgreSQL's programs."""
        return [str(self.install / "bin" / program), *arguments]

    def run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs to its end; what it printed."""
        done = subprocess.run(
            self.command(program, arguments), capture_output=True, text=True, cwd="/", timeout=120, **self.options
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def close(self) -> None:
        """Remove what was copied."""
        if self._copied is not None:
            shutil.rmtree(self._copied, ignore_errors=True)


class PostgresServer:
    """One server. It can be stopped, killed and started again on the same data and port.

    `directory` holds the data and must be reachable for the server's user; without one, a folder of its own is made
    and removed by `remove`. A directory that has data already (a base backup) is started as it is.
    """

    def __init__(self, directory: str | Path | None = None, port: int | None = None, **settings: str) -> None:
        self.account = Account()
        self._own = directory is None
        self.directory = Path(self.account.folder("postgres")) if directory is None else Path(directory)
        self.data = self.directory / "data"
        self.port = port or free_ports(1)[0]
        self.settings = {**_SETTINGS, **settings}
        self.process: subprocess.Popen[bytes] | None = None
        self._kept: dict[str, psycopg.Connection] = {}

    @property
    def connection_url(self) -> str:
        """Where the server's database is, for psycopg and for `--store`."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> PostgresServer:
        """Start the server, on new data if there is none, and wait until it answers."""
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        deadline = time.monotonic() + READY_S
        while True:
            self._launch()
            if self._ready(deadline):
                return self
            # After a kill, processes of the old server may be alive for a moment, and the new one then refuses.
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}")
            time.sleep(0.1)

    def _initialise(self) -> None:
        self.account.run(
            "initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write("host replication all 127.0.0.1/32 trust\n")

    def _launch(self) -> None:
        options = [f"-c{name}={value}" for name, value in self.settings.items()]
        options += [f"-cport={self.port}", f"-cunix_socket_directories={self.directory}"]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.account.command("postgres", ["-D", str(self.data), *options]),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd="/",
                **self.account.options,
            )

    def _ready(self, deadline: float) -> bool:
        """Wait for the answer to a connection; False when the process ended instead."""
        assert self.process is not None
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            try:
                psycopg.connect(self.connection_url, connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return True
        return False

    def stop(self) -> None:
        """End it politely: connections are cut, everything is written."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a power cut of its machine would, as far as a process can tell.

        Its children end with it: by themselves they would notice only after what they are doing, and answer till then.
        """
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGSTOP)  # So that it has no more children than those that are found.
        children = children_of(self.process.pid)
        self._end(signal.SIGKILL)
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.send_signal(number)
            process.wait(timeout=60)

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def log(self) -> str:
        """The end of what the server wrote."""
        path = self.directory / "log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own; its rows."""
        with psycopg.connect(self.connection_url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description is not None else []

    def kept_connection(self, options: str) -> psycopg.Connection:
        """One for all who ask for the same: thousands of stores are opened in some tests. It ends with the server."""
        if options not in self._kept:
            self._kept[options] = psycopg.connect(self.connection_url, autocommit=True, options=options)
        return self._kept[options]

    def execute_at(self, url: str, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement in another database of the server; its rows."""
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description is not None else []

    def new_schema(self) -> str:
        """A schema name that no other test uses; whoever opens a store in it creates it."""
        return f"test_{os.getpid()}_{next(_schemas)}"

    def remove(self) -> None:
        """Stop it and remove its data, unless the directory is the caller's."""
        while self._kept:
            self._kept.popitem()[1].close()
        if not self._own:
            self.stop()
        else:
            self._end(signal.SIGQUIT)  # At once: nobody reads its data again, so that nothing need be on the disk.
            shutil.rmtree(self.directory, ignore_errors=True)
        self.account.close()
