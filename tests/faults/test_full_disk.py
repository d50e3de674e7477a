"""A broker that is killed on a disk that is full to the last byte: it starts, is drained, and takes messages again.

The disk is a small file system in memory, mounted for the test; where that is not permitted, the tests are left out.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from support.broker import BrokerProcess, HttpError, wait_for
from support.repetition import times

BODY = b"x" * 50_000
ERRORS_MAX = 5
SIZE_MIB = 20  # So small that moving the log cannot free the 16 that a full store waits for: it has to be drained.
QUEUES = ["first", "second"]
CONFIG = "".join(f'[[queues]]\nName = "{name}"\nLockDuration = "PT5M"\n' for name in QUEUES)
LATER = f'{CONFIG}[[queues]]\nName = "later"\n[[policies]]\nName = "later"\nRights = ["Send"]\n'


class SmallDisk:
    """A file system of a few megabytes, and somebody who takes what is left of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    def clear(self) -> None:
        self._filler.unlink()

    def remove(self, pattern: str) -> None:
        for path in self.path.glob(pattern):
            path.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(mounting, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def broker(tmp_path: Path, disk: SmallDisk) -> Iterator[BrokerProcess]:
    """Not started yet, and its data not yet on the small disk."""
    process = BrokerProcess(tmp_path, namespace="full", config=CONFIG, options=("--stores", "1"))
    try:
        yield process
    finally:
        process.kill()


def client(broker: BrokerProcess) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0)


def send(broker: BrokerProcess, queue: str, first: int, count: int) -> int:
    """Send messages one by one until one is refused; how many were accepted."""
    with client(broker) as connection, connection.get_queue_sender(queue) as sender:
        for number in range(first, first + count):
            try:
                sender.send_messages(ServiceBusMessage(BODY, message_id=str(number)))
            except ServiceBusError as error:
                if "disk is full: messages can be received, but not sent" not in str(error):
                    raise
                return number - first
    return count


def peeked(broker: BrokerProcess, queue: str) -> list[str]:
    with client(broker) as connection, connection.get_queue_receiver(queue) as receiver:
        return [str(message.message_id) for message in receiver.peek_messages(5)]


def drained(broker: BrokerProcess, queue: str) -> list[str]:
    """Everything in a queue, received and completed. What a transient error kept from that comes again."""
    found: list[str] = []
    for _ in range(ERRORS_MAX):
        with suppress(ServiceBusError), client(broker) as connection, connection.get_queue_receiver(queue) as receiver:
            while broker.count(queue):
                for message in receiver.receive_messages(50, max_wait_time=5):
                    receiver.complete_message(message)
                    found.append(str(message.message_id))
            return sorted(found, key=int)
    raise AssertionError(f"only {len(found)} were received:\n{broker.log[-4000:]}")


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def has_room(broker: BrokerProcess) -> bool:
    return send(broker, "first", 9_000, 1) == 1


@pytest.mark.parametrize("is_used_up", [False, True][: times(1, 2)])
def test_everything_is_on_it(broker: BrokerProcess, disk: SmallDisk, is_used_up: bool) -> None:
    broker.data = disk.path
    broker.start()
    accepted = {"first": send(broker, "first", 0, 10), "second": send(broker, "second", 0, 1_000)}
    sent = {queue: numbers(count) for queue, count in accepted.items()}
    assert 0 < sum(accepted.values()) < 1_000
    disk.fill()
    broker.kill()
    if is_used_up:
        disk.remove("*.reserve")
    disk.fill()
    (broker.directory / "broker.toml").write_text(LATER)  # A start with something to write.
    before = len(broker.log)
    broker.start()
    log = broker.log[before:]
    assert "CRITICAL store.full store 0: the disk is full" in log
    assert "namespace.undeclared what the settings declare of 'full' cannot be made yet" in log
    status, checks = broker.request("GET", "/healthz")
    assert status == 503
    assert "store 0 of 'full' is full" in checks
    assert '"state": "full"' in broker.request("GET", "/$api/stores")[1]
    for queue in QUEUES:
        assert send(broker, queue, 5_000, 1) == 0
        assert peeked(broker, queue) == numbers(5)
    if not is_used_up:
        assert {queue: drained(broker, queue) for queue in QUEUES} == sent
        broker.delete_queue("second")  # That makes room, so it must be possible.
    disk.clear()
    if is_used_up:  # Nothing can be locked before. Now it can, and nothing was lost.
        assert {queue: drained(broker, queue) for queue in QUEUES} == sent
    wait_for(lambda: has_room(broker), "room")
    wait_for(lambda: "namespace.declared" in broker.log[before:], "what the settings declare")
    assert send(broker, "later", 0, 1) == 1


def test_not_even_opened(broker: BrokerProcess, disk: SmallDisk) -> None:
    """SQLite needs a little room to open a store. Nothing is left, so that its state is told, and it is tried again."""
    broker.data = disk.path
    broker.start()
    assert send(broker, "first", 0, 20) == 20
    assert broker.stop() == 0
    disk.remove("*.reserve")
    disk.fill()
    broker.launch()
    wait_for(lambda: answers(broker), "an answer")
    assert broker.request("GET", "/readyz") == (503, "No messaging store is available.\n")
    told = broker.request("GET", "/$api/stores")[1]
    assert told.count("There is no room on its disk to open the messaging store; it is tried again") == 1
    disk.clear()
    broker.until_ready()
    assert drained(broker, "first") == numbers(20)
    assert has_room(broker)


def answers(broker: BrokerProcess) -> bool:
    with suppress(OSError):
        return bool(broker.request("GET", "/readyz"))
    return False


def test_one_store_is_on_it(broker: BrokerProcess, disk: SmallDisk) -> None:
    broker.options = ("--stores", "2")
    broker.data.mkdir()
    (broker.data / "store-0.db").symlink_to(disk.path / "store-0.db")
    broker.start()
    accepted = send(broker, "first", 0, 1_000)
    assert 0 < accepted < 1_000
    broker.kill()
    disk.remove("*.reserve")
    disk.fill()
    broker.start()
    assert send(broker, "first", 5_000, 1) == 0
    assert send(broker, "second", 0, 10) == 10
    assert drained(broker, "first") == numbers(accepted)
    assert drained(broker, "second") == numbers(10)
    disk.clear()
    wait_for(lambda: has_room(broker), "room")


def test_the_catalog_is_on_it(broker: BrokerProcess, disk: SmallDisk) -> None:
    """Messages come and go; entities cannot be made, but they can be deleted."""
    broker.data.mkdir()
    (broker.data / "catalog.db").symlink_to(disk.path / "catalog.db")
    broker.start()
    broker.kill()
    disk.fill()
    (broker.directory / "broker.toml").write_text(LATER)
    broker.start()
    assert send(broker, "first", 0, 10) == 10
    assert drained(broker, "first") == numbers(10)
    with pytest.raises(HttpError, match=r"503: .*The catalog could not be written: database or disk is full"):
        broker.create_queue("more")
    broker.delete_queue("second")
    broker.kill()
    disk.remove("*.reserve")
    disk.remove("*-shm")
    disk.fill()
    broker.start()
    assert send(broker, "first", 0, 1) == 1
    disk.clear()
    wait_for(lambda: broker.request("GET", "/later?api-version=2021-05")[0] == 200, "what the settings declare")
    assert send(broker, "later", 0, 1) == 1


def test_a_new_namespace_cannot_be_made_on_it(broker: BrokerProcess, disk: SmallDisk) -> None:
    broker.data = disk.path / "data"
    broker.data.mkdir()
    disk.fill()
    with pytest.raises(AssertionError, match="exit code 1"):
        broker.start()
    assert "Traceback" not in broker.log
    assert "could not be opened: " in broker.log
