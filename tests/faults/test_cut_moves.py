"""`twinbus store migrate` that is cut off: killed at any step, or the server's disk full in the middle.

What is left in the database is never served, the directory stays as it is, and the same command finishes the move.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from faults.test_cut_copies import Log, prepared
from faults.test_files import contents, is_all_there
from support.broker import BrokerProcess
from support.gateways import new_database
from support.postgres import PostgresServer
from support.repetition import IS_LONG, times
from twinbus.broker.addresses import DatabaseAddress
from twinbus.broker.migrating import Migration, Step
from twinbus.model.errors import BusError
from twinbus.sql.postgres import connect
from twinbus.store.postgres.catalog import CatalogDatabase

__all__ = ["prepared"]

NAMESPACE = "compat"


def move(directory: Path, url: str, killed_at: int = 0) -> bool:
    """Move in a process of its own, which kills itself at a step; whether it came so far."""
    pid = os.fork()
    if pid == 0:
        left = killed_at

        def watch(step: Step, store: int, rows: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        code = 1
        try:
            with Migration(directory, [DatabaseAddress(url)], NAMESPACE) as migration:
                migration.run(watch)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def is_unfinished(url: str) -> None:
    with pytest.raises(BusError, match="unfinished `twinbus store migrate`"):
        CatalogDatabase(partial(connect, url), NAMESPACE)


def served(url: str, place: Path) -> BrokerProcess:
    return BrokerProcess(place, namespace=NAMESPACE, options=("--no-console", "--store", url, "--stores", "4"))


def test_a_move_that_is_killed_is_never_served(
    prepared: tuple[BrokerProcess, Log], postgres: PostgresServer, tmp_path: Path
) -> None:
    old, log = prepared
    before, url = contents(old), new_database(postgres)
    step = 1
    while move(old.data, url, step):
        is_unfinished(url)
        step += times(40, 3)
    assert step > 20
    assert contents(old) == before
    with served(url, tmp_path) as broker:
        is_all_there(broker, log)


@pytest.fixture
def small_server() -> Iterator[tuple[PostgresServer, Path]]:
    """A server on a disk of its own, where that can be mounted."""
    with tempfile.TemporaryDirectory(prefix="twinbus-small-") as name:
        disk = Path(name)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", disk], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
        server = None
        try:
            disk.chmod(0o755)
            place = disk / "server"
            place.mkdir()
            server = PostgresServer(place)
            if server.account.options:
                os.chown(place, server.account.options["user"], server.account.options["group"])
            yield server.start(), disk
        finally:
            if server is not None:
                server.remove()
            subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.skipif(not IS_LONG, reason="it needs a server of its own; `make test-long` has it")
def test_a_server_whose_disk_is_full_is_named_and_the_move_can_be_repeated(
    small_server: tuple[PostgresServer, Path], tmp_path: Path
) -> None:
    server, disk = small_server
    with (
        BrokerProcess(tmp_path / "old", options=("--no-console",)) as old,
        ServiceBusClient.from_connection_string(old.connection_string()) as client,
    ):
        names = [f"{number}" for number in range(400)]
        old.create_queue("queue")
        with client.get_queue_sender("queue") as sender:
            for first in range(0, 400, 10):
                lot = names[first : first + 10]
                sender.send_messages([ServiceBusMessage(os.urandom(20_000), message_id=name) for name in lot])
        old.kill()
    before, url = contents(old), new_database(server)
    filler = disk / "filler"
    filler.write_bytes(b"x" * (shutil.disk_usage(disk).free - 6_000_000))
    with (
        Migration(old.data, [DatabaseAddress(url)], NAMESPACE) as migration,
        pytest.raises(BusError, match="No space left on device"),
    ):
        migration.run(lambda step, store, rows: None)
    filler.unlink()
    is_unfinished(url)
    assert contents(old) == before
    assert not move(old.data, url)
    with served(url, tmp_path / "new") as broker:
        is_all_there(broker, {"queue": names})
