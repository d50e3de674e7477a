"""Ends and starts of a broker: politely under load, on a full queue, and where it must refuse to start."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import apsw
import pytest

from faults.load import BATCH_FORMAT, Load, noticed
from faults.remains import look_at_all
from support.broker import BrokerProcess
from twinbus.broker.certs import make_certificates
from twinbus.client import connect
from twinbus.wire import outgoing

pytestmark = pytest.mark.alone

PATIENT = 'LockDuration = "PT5M"\nMaxDeliveryCount = 100000\n'
PLAIN = [f"plain-{n}" for n in range(4)]
SESSIONS = ["a", "b", "c"]
CONFIG = (
    "".join(f'[[queues]]\nName = "{name}"\n{PATIENT}' for name in PLAIN)
    + f'[[queues]]\nName = "sessions"\nRequiresSession = true\n{PATIENT}'
)
STOP_S = 5.0
READY_S = 2.0
REFUSED_S = 20.0
MANY = 100_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, namespace="faults", config=CONFIG, log_level="warning", forked=False)
    try:
        yield process.start()
    finally:
        process.kill()


def refusal(broker: BrokerProcess) -> str:
    """What a process says that cannot start; the last line of it, which is for people."""
    ended = subprocess.run(
        broker.command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=REFUSED_S, check=False
    )
    assert ended.returncode not in (0, -9), ended
    assert "Traceback" not in ended.stderr
    assert "ready" not in ended.stdout
    return ended.stderr.strip().splitlines()[-1]


async def test_sigterm_under_load_ends_with_zero_in_five_seconds_and_loses_nothing(
    broker: BrokerProcess, random: Random
) -> None:
    load = Load(broker.connection_string(), random)
    for queue in PLAIN:
        load.plain(queue)
    load.sessions("sessions", SESSIONS)
    for _ in range(3):
        goal = load.progress + random.randrange(100, 1000)
        async with asyncio.timeout(15):
            while load.progress < goal:
                await asyncio.sleep(0.005)
        code = await asyncio.to_thread(broker.stop, STOP_S)
        assert code == 0, broker.log[-4000:]
        await asyncio.to_thread(broker.start)
    await load.stop()
    assert load.problems() == []
    assert "Traceback" not in broker.log, broker.log[-4000:]
    await asyncio.to_thread(broker.restart)
    found = await asyncio.to_thread(look_at_all, broker, PLAIN, "sessions", SESSIONS)
    assert [problem for queue in found for problem in load.histories[queue].judge(found[queue])] == []


def test_a_second_process_on_the_same_data_is_refused_and_the_first_goes_on(broker: BrokerProcess) -> None:
    second = BrokerProcess(broker.directory / "second", namespace="faults")
    second.data = broker.data
    assert refusal(second) == f"twinbus: Another process is using the data directory {broker.data}."
    assert broker.is_ready()
    broker.kill()
    assert broker.start().is_ready()


def test_two_processes_on_the_same_port_are_refused_with_a_sentence(broker: BrokerProcess) -> None:
    second = BrokerProcess(broker.directory / "second", namespace="faults")
    second.amqp_port = broker.amqp_port
    taken = f"Port {second.amqp_port} (AMQP) is in use; choose another with --amqp-port."
    assert refusal(second) == f"twinbus: {taken}"
    assert broker.is_ready()


def test_all_ports_that_are_taken_are_named_at_once(broker: BrokerProcess) -> None:
    """By whatever process, this one here."""
    certificates = make_certificates(broker.directory / "tls", [])
    doors = {"http": "HTTP", "amqp": "AMQP", "https": "HTTPS", "amqps": "AMQP with TLS"}
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in doors]
        ports = dict(zip(doors, held, strict=True))
        second = BrokerProcess(broker.directory / "second", namespace="faults")
        second.amqp_port, second.http_port = ports["amqp"], ports["http"]
        second.options = ("--tls", str(certificates.ca.parent), "--amqps-port", str(ports["amqps"]))
        second.options += ("--https-port", str(ports["https"]))
        ended = subprocess.run(second.command, capture_output=True, text=True, timeout=REFUSED_S, check=False)
    named = [
        f"Port {ports[door]} ({what}) is in use; choose another with --{door}-port." for door, what in doors.items()
    ]
    assert (ended.returncode, ended.stderr) == (1, "twinbus: " + "\n".join([*named, ""]))


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("store-1.db", "UPDATE meta SET value = '999' WHERE key = 'schema_version'"),
        ("catalog.db", "UPDATE meta SET value = '999' WHERE key = 'catalog_version'"),
    ],
)
def test_a_file_that_a_newer_version_wrote_is_refused_and_left_alone(
    broker: BrokerProcess, file: str, change: str
) -> None:
    assert broker.stop() == 0
    path = broker.data / file
    database = apsw.Connection(str(path))
    database.execute(change)
    database.close()
    before = path.read_bytes()
    words = refusal(broker)
    assert words.startswith("twinbus: ")
    assert "version 999" in words
    assert "newer Twinbus" in words
    assert path.read_bytes() == before


def test_a_store_that_is_no_database_is_left_alone_and_the_others_serve(broker: BrokerProcess) -> None:
    assert broker.stop() == 0
    path = broker.data / "store-2.db"
    path.write_bytes(b"not a database" * 1000)
    broker.start()
    assert "store 2 could not be opened" in broker.log
    stores = json.loads(broker.request("GET", "/$api/stores")[1])["stores"]
    assert [store["state"] for store in stores] == ["up", "up", "failed", "up"]
    assert path.name in stores[2]["reason"]
    assert broker.stop() == 0
    assert path.read_bytes() == b"not a database" * 1000


def test_a_start_that_was_refused_does_not_keep_the_directory(broker: BrokerProcess) -> None:
    """The first refusal must not be the reason for the second."""
    assert broker.stop() == 0
    broker.options = ("--stores", "1")
    assert "holds 4 messaging stores" in refusal(broker)
    broker.options = ()
    assert broker.start().is_ready()


@pytest.mark.timeout(90)
async def test_a_queue_of_a_hundred_thousand_messages_is_ready_in_two_seconds(broker: BrokerProcess) -> None:
    async with connect(broker.connection_string()) as connection:
        sender = await connection.sender("plain-0", window=8)
        body = b"x" * 1024
        batches = [
            outgoing.batch(outgoing.build(body, message_id=f"m{first + n}") for n in range(100))
            for first in range(0, MANY, 100)
        ]
        await sender.send(batches, BATCH_FORMAT)
        receiver = await connection.receiver("plain-0", credit=1000)
        locked = await receiver.receive(1000, timeout_s=10)
        assert locked
        broker.kill()
        await noticed(connection)
    assert await started_in_s(broker) < READY_S  # The log of the database is still to be read.
    assert broker.count("plain-0") == MANY
    assert broker.stop() == 0
    assert await started_in_s(broker) < READY_S
    assert broker.count("plain-0") == MANY
    async with connect(broker.connection_string()) as connection:
        receiver = await connection.receiver("plain-0", credit=1)
        (first,) = await receiver.receive(1, timeout_s=10)
        assert b"m0" in first.payload


async def started_in_s(broker: BrokerProcess) -> float:
    began = time.monotonic()
    await asyncio.to_thread(broker.start)
    return time.monotonic() - began
