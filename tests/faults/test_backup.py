"""A running broker is verified and backed up while the official client sends; what is restored has it all, once."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from faults.remains import peeked
from support.broker import BrokerProcess, wait_for
from support.disks import fill_up, small_disk
from support.processes import children_of
from support.prompt import Prompt
from support.repetition import times

__all__ = ["small_disk"]

# `source` and `target` lie on different stores, so that what is forwarded is in two commits.
CONFIG = """
[[queues]]
Name = "target"
[[queues]]
Name = "source"
ForwardTo = "target"
[[queues]]
Name = "parts"
EnablePartitioning = true
"""
QUEUES = ("source", "parts")
OPTIONS = ("--stores", "3", "--no-console")
MOMENTS = ["it copies", "it begins", "it verifies"][: times(1, 3)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", config=CONFIG, options=OPTIONS)
    try:
        process.start()
        yield process
    finally:
        process.kill()


@pytest.fixture
def run(broker: BrokerProcess) -> Prompt:
    return Prompt(broker)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests that leave it as it is."""
    with BrokerProcess(tmp_path_factory.mktemp("shared"), config=CONFIG, options=OPTIONS) as process:
        yield process


@pytest.fixture(scope="module")
def made(shared: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of it."""
    place = tmp_path_factory.mktemp("made") / "backup"
    Prompt(shared)("backup", str(place))
    return place


class SendLog:
    """Sends without a pause, and writes down what was acknowledged."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.acknowledged: dict[str, list[str]] = {queue: [] for queue in QUEUES}
        self._broker = broker
        self._ending = threading.Event()

    def send(self, queue: str) -> None:
        with (
            ServiceBusClient.from_connection_string(self._broker.connection_string()) as client,
            client.get_queue_sender(queue) as sender,
        ):
            number = 0
            while not self._ending.is_set():
                lot = [f"{queue}-{number + index}" for index in range(5)]
                sender.send_messages([ServiceBusMessage(name.encode(), message_id=name) for name in lot])
                self.acknowledged[queue] += lot
                number += len(lot)

    def so_far(self) -> dict[str, int]:
        return {queue: len(ids) for queue, ids in self.acknowledged.items()}

    def end(self) -> None:
        self._ending.set()


def everything(broker: BrokerProcess) -> Counter[str]:
    """The ids of all messages that a broker holds, when everything is forwarded."""
    wait_for(lambda: broker.count("source") == 0, "everything to be forwarded")
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        found: Counter[str] = Counter()
        for queue in ("target", "parts"):
            with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
                found.update(str(message.message_id) for message in peeked(receiver))
        return found


def test_what_was_acknowledged_before_a_backup_is_restored_once(
    broker: BrokerProcess, run: Prompt, tmp_path: Path
) -> None:
    log = SendLog(broker)
    with ThreadPoolExecutor(2) as senders:
        sending = [senders.submit(log.send, queue) for queue in QUEUES]
        try:
            wait_for(lambda: min(log.so_far().values()) >= 100, "a hundred messages")
            before = log.so_far()
            (manifest,) = run.json("backup", str(tmp_path / "backup"))
            after = log.so_far()
            assert all(after[queue] > before[queue] for queue in QUEUES), "nothing was sent meanwhile"
            (report,) = run.json("verify")  # Of the broker itself, while it goes on.
            assert report["findings"] == []
        finally:
            log.end()
    assert [task.result() for task in sending] == [None, None]
    broker.kill()

    assert {file["name"] for file in manifest["files"]} == {"catalog.db", *(f"store-{n}.db" for n in range(3))}
    restored = BrokerProcess(tmp_path / "restored", config=CONFIG, options=("--stores", "3"))
    run("restore", str(tmp_path / "backup"), str(restored.data))
    assert "whole." in run("verify", str(restored.data)).stdout
    with restored:
        found = everything(restored)
    assert [name for name, times in found.items() if times > 1] == []
    for queue in QUEUES:
        acknowledged = log.acknowledged[queue]
        assert [name for name in acknowledged[: before[queue]] if name not in found] == []
        # A cut: of each sender's messages all up to one, and none after it.
        there = [name in found for name in acknowledged]
        assert there == sorted(there, reverse=True)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_broker_that_is_killed_while_it_is_backed_up(
    broker: BrokerProcess, run: Prompt, tmp_path: Path, moment: str
) -> None:
    """What is left is refused, or is a whole backup; and the broker has everything."""
    names = {f"{number}" for number in range(60)}
    with (
        ServiceBusClient.from_connection_string(broker.connection_string()) as client,
        client.get_queue_sender("parts") as sender,
    ):
        sender.send_messages([ServiceBusMessage(b"x" * 3_000, message_id=name) for name in names])
    place = tmp_path / "backup"
    assert broker.request("POST", "/$api/backup", json.dumps({"destination": str(place)}))[0] == 200
    steps = {"it begins": "", "it copies": "Copying", "it verifies": "Verifying"}

    def is_now() -> bool:
        told = json.loads(broker.request("GET", "/$api/backup")[1])
        progress = told["progress"] or {"step": ""}
        return told["state"] != "running" or progress["step"] == steps[moment]

    wait_for(is_now, moment, interval_s=0.001)
    assert broker.process is not None
    helpers = children_of(broker.process.pid)
    broker.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in helpers), "the end of what the broker started")
    if (place / "manifest.json").exists():
        run("restore", str(place), str(tmp_path / "new"))
        assert "whole." in run("verify", str(tmp_path / "new")).stdout
    elif place.exists():
        refused = run("restore", str(place), str(tmp_path / "new"), code=1).stderr
        assert "was not finished" in " ".join(refused.split())
        assert not (tmp_path / "new").exists()
    broker.start()
    assert set(everything(broker)) == names
    run("backup", str(tmp_path / "another"))


def test_a_running_broker_tells_what_is_damaged(broker: BrokerProcess, run: Prompt) -> None:
    database = apsw.Connection(str(broker.data / "store-0.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    database.execute("UPDATE queue SET active = 7 WHERE id IN (SELECT min(id) FROM queue)")
    database.close()
    shown = run("verify", code=1).stdout
    assert "active: its row says 7, its messages are 0" in shown
    assert broker.request("GET", "/$api/verify")[0] == 200
    assert "examination.findings" in broker.log


def test_a_stopped_broker_is_backed_up_from_its_files_and_its_generation_raised(
    broker: BrokerProcess, run: Prompt, tmp_path: Path
) -> None:
    refused = run("backup", str(tmp_path / "backup"), "--directory", str(broker.data), code=1)
    assert "A broker is using" in refused.stderr
    broker.kill()
    before = generations(broker.data)
    (manifest,) = run.json("backup", str(tmp_path / "backup"), "--directory", str(broker.data))
    assert (manifest["entities"], generations(broker.data)) == (3, before)
    (told,) = run.json("restore", str(tmp_path / "backup"), str(tmp_path / "new"))
    assert told["restored_generation"] == before["catalog.db"] + 1_000_000
    assert set(generations(tmp_path / "new").values()) == {told["restored_generation"]}
    assert "whole." in run("verify", str(tmp_path / "new")).stdout


def generations(data: Path) -> dict[str, int]:
    """How many changes the catalog has seen, and each store has heard of."""
    found = {}
    for path in data.glob("*.db"):
        with closing(sqlite3.connect(path)) as database:
            where = "WHERE key IN ('catalog-generation', 'catalog_generation')"
            found[path.name] = int(database.execute(f"SELECT value FROM meta {where}").fetchone()[0])
    return found


class TestARestoreIsRefused:
    def test_where_something_is(self, shared: BrokerProcess, made: Path, tmp_path: Path) -> None:
        run = Prompt(shared)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").touch()
        assert "not empty" in run("restore", str(made), str(tmp_path / "full"), code=1).stderr
        assert "not empty" in run("backup", str(tmp_path / "full"), code=1).stderr

    def test_of_what_was_not_finished_or_has_changed(self, shared: BrokerProcess, made: Path, tmp_path: Path) -> None:
        run, backup, target = Prompt(shared), tmp_path / "backup", tmp_path / "new"
        shutil.copytree(made, backup)
        content = bytearray((backup / "store-1.db").read_bytes())
        content[5000] ^= 1
        (backup / "store-1.db").write_bytes(content)
        assert "not as it was backed up" in run("restore", str(backup), str(target), code=1).stderr
        assert not target.exists()
        (backup / "manifest.json").unlink()
        assert "was not finished" in run("restore", str(backup), str(target), code=1).stderr
        assert "is no backup" in run("restore", str(tmp_path), str(target), code=1).stderr
        assert not target.exists()


def test_a_full_disk_is_told_and_harms_nobody(shared: BrokerProcess, small_disk: Path) -> None:
    run = Prompt(shared)
    fill_up(small_disk)
    refused = run("backup", str(small_disk / "backup"), code=1)
    assert "too little room" in refused.stderr
    assert [path.name for path in small_disk.iterdir()] == ["filler"]
    run("send", "parts", "one")


def test_only_whoever_may_manage_can_ask(broker: BrokerProcess) -> None:
    for method, path, body in (("POST", "verify", "{}"), ("POST", "backup", '{"destination": "relative"}')):
        status, text = broker.request(method, f"/$api/{path}", body)
        assert status == (400 if path == "backup" else 200), text
    status, text = broker.request("GET", "/$api/backup")
    assert (status, "No backup was asked for" in text) == (404, True)
    wait_for(lambda: json.loads(broker.request("GET", "/$api/verify")[1])["state"] == "done", "the verification")
