"""Gateways on PostgreSQL are replaced one after the other by those of this version, while clients send and receive.

TWINBUS_RELEASED names the `src` of a checkout of the version to come from; without it, the gateways that are replaced
are of this version too, and what a release has left in a database (`support.released`) is opened instead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from pathlib import Path
from random import Random

import psycopg
import pytest
from psycopg import sql

from faults.load import Load, contradictions
from faults.remains import look_at_all
from support.broker import BrokerProcess
from support.gateways import Gateways, new_database
from support.postgres import PostgresServer
from support.released import KEY, NAMESPACE, Release, is_all_there, releases
from support.repetition import IS_LONG
from twinbus.client import connect
from twinbus.model.message import Outcome
from twinbus.wire import outgoing

SOURCE = os.environ.get("TWINBUS_RELEASED")
SESSIONS = ["s0", "s1"]
CONFIG = """
[[queues]]
Name = "plain"
LockDuration = "PT5S"
MaxDeliveryCount = 100000
[[queues]]
Name = "sessions"
RequiresSession = true
LockDuration = "PT5M"
MaxDeliveryCount = 100000
"""


class ReleasedGateway(BrokerProcess):
    """A gateway of another version; the settings are those of the one that it stands for."""

    def __init__(self, like: BrokerProcess) -> None:
        config = None if like._config_file is None else like._config_file.read_text()
        super().__init__(like.directory, config=config, options=like.options, log_level=like.log_level)
        self.amqp_port, self.http_port = like.amqp_port, like.http_port

    @property
    def command(self) -> list[str]:
        python, _, _, *words = super().command
        begin = f"import runpy, sys\nsys.path.insert(0, {SOURCE!r})\nsys.argv[0] = 'twinbus'\n"
        return [python, "-c", f"{begin}runpy.run_module('twinbus', run_name='__main__')\n", *words]


async def progress(load: Load, amount: int, stall_s: float = 45.0) -> None:
    goal, deadline = load.progress + amount, time.monotonic() + stall_s
    while load.progress < goal:
        assert time.monotonic() < deadline, f"nothing is answered any more: {load.problems()}"
        await asyncio.sleep(0.01)


async def use(sends: BrokerProcess, receives: BrokerProcess, queue: str) -> None:
    """What is made and sent through one gateway is there through another."""
    await asyncio.to_thread(sends.create_queue, queue)
    async with connect(sends.connection_string()) as connection:
        await (await connection.sender(queue)).send([outgoing.build(b"body", message_id=queue)])
    async with connect(receives.connection_string()) as connection:
        receiver = await connection.receiver(queue, credit=0)
        [message] = await receiver.receive(1, timeout_s=30)
        await receiver.settle([message], Outcome.COMPLETE)
    await asyncio.to_thread(receives.delete_queue, queue)


@pytest.mark.timeout(180)
async def test_nothing_is_lost_while_gateways_are_replaced(postgres: PostgresServer, tmp_path: Path) -> None:
    both = Gateways(tmp_path, [new_database(postgres)] * 2, config=CONFIG, log_level="warning")
    newer = list(both.members)
    if SOURCE:
        both.members = [ReleasedGateway(each) for each in newer]
    with both:
        load = Load(both.connection_string(), Random(7))
        plain = ["plain"] if SOURCE or IS_LONG else []
        for queue in plain:
            load.plain(queue)
        load.sessions("sessions", SESSIONS)
        await progress(load, 200)
        for number in range(2):
            assert await asyncio.to_thread(both.members[number].stop) == 0
            await progress(load, 50)
            both.members[number] = newer[number]
            await asyncio.to_thread(newer[number].start)
            first, second = both.members
            await use(first, second, f"made-by-{number}")
            await use(second, first, f"made-beside-{number}")
            await progress(load, 200)
        await load.stop()
        if plain:
            await asyncio.sleep(6)  # What the load's receivers held when they were stopped.
        found = await asyncio.to_thread(look_at_all, both, plain, "sessions", SESSIONS)
        for queue, history in load.histories.items():
            history.judge(found[queue])
        assert contradictions(load) == []
        assert both.stop() == 0
    assert "Traceback" not in both.log, both.log[-8000:]


async def test_a_gateway_that_stops_answers_what_it_has_taken(postgres: PostgresServer, tmp_path: Path) -> None:
    """Told goodbye instead, a sender would go on at another gateway, where its next message could be stored before."""
    url = new_database(postgres)
    broker = BrokerProcess(tmp_path, config=CONFIG, options=("--store", url), log_level="warning")
    with broker, psycopg.connect(url) as other:
        async with connect(broker.connection_string()) as connection:
            sender = await connection.sender("plain")
            await sender.send([outgoing.build(b"x", message_id="before")])
            schemas = other.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'message'").fetchall()
            for (schema,) in schemas:
                other.execute(sql.SQL("LOCK TABLE {}.message IN EXCLUSIVE MODE").format(sql.Identifier(schema)))
            sending = asyncio.create_task(sender.send([outgoing.build(b"x", message_id="under way")]))
            while not is_waited_for(url):
                await asyncio.sleep(0.01)
            assert broker.process is not None
            broker.process.send_signal(signal.SIGTERM)
            while is_taking_connections(broker):
                await asyncio.sleep(0.01)
            assert not sending.done()
            other.rollback()
            await sending
        assert broker.process.wait(30) == 0


def is_waited_for(url: str) -> bool:
    """Whether a statement waits for a table that another one holds."""
    with psycopg.connect(url, autocommit=True) as connection:
        return bool(connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted LIMIT 1").fetchall())


def is_taking_connections(broker: BrokerProcess) -> bool:
    try:
        socket.create_connection((broker.host, broker.amqp_port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("release", list(releases()), ids=lambda release: release.name)
async def test_what_a_release_left_is_served(release: Release, postgres: PostgresServer, tmp_path: Path) -> None:
    url = new_database(postgres)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(release.dump.encode())
    broker = BrokerProcess(tmp_path, namespace=NAMESPACE, key=KEY, options=("--store", url))
    with broker:
        await is_all_there(broker)
        assert broker.stop() == 0
    assert "Traceback" not in broker.log
