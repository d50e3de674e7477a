"""The outbox itself: limits, a full disk, the application's own transactions, two dispatchers, and speed."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from azure.servicebus import ServiceBusMessage

from support.pair_scene import until
from support.postgres import PostgresServer
from twinbus.client.errors import ClientError, of_several
from twinbus.client.messages import build, read
from twinbus.pair.errors import OutboxError, OutboxFullError
from twinbus.pair.outbox.client import OutboxClient
from twinbus.pair.outbox.dispatcher import Dispatcher
from twinbus.pair.outbox.outbox import Outbox

SPEED = 5_000  # Durable messages a second, from one process in lists of 100.


def message(message_id: str | None = None, key: str | None = None, body: bytes = b"x") -> ServiceBusMessage:
    return ServiceBusMessage(body, message_id=message_id, session_id=key)


class Clock:
    def __init__(self) -> None:
        self.at_ms = 1_000_000

    def now_ms(self) -> int:
        return self.at_ms


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox(tmp_path / "outbox.db") as opened:
        yield opened


def ids(outbox: Outbox, aside: bool | None = None) -> list[str]:
    return [entry.message_id for entry in outbox.look(aside=aside)]


def test_what_was_put_is_there_for_the_next_process_and_for_nobody_else(tmp_path: Path) -> None:
    with Outbox(tmp_path / "outbox.db") as first:
        payloads = [build(b"x", message_id="a"), build(b"x"), build(b"x", message_id="c", session_id="k")]
        told = first.put(payloads, "orders", encoded=True)
        assert told.message_ids[::2] == ["a", "c"]
        assert len(told.message_ids[1]) == 32  # One without an id gets one, and keeps it.
        assert told.numbers == [1, 2, 3]
    with Outbox(tmp_path / "outbox.db") as second:
        assert ids(second) == told.message_ids
        assert [read(entry.payload).message_id for entry in second.look()] == told.message_ids
        assert [entry.key for entry in second.look()] == [None, None, "k"]
    assert stat.S_IMODE((tmp_path / "outbox.db").stat().st_mode) == 0o600


def test_each_limit_is_told_in_words_and_nothing_of_the_list_is_kept(tmp_path: Path) -> None:
    clock = Clock()
    limits: list[tuple[dict[str, Any], str]] = [
        ({"max_messages": 2}, "holds 1 messages and may hold 2: 2 more"),
        ({"max_bytes": 100}, "bytes and may hold 100"),
        ({"max_age": 60}, "has waited for 61 s, longer than the 60 s"),
    ]
    for number, (limit, words) in enumerate(limits):
        with Outbox(tmp_path / f"{number}.db", clock=clock, **limit) as outbox:
            outbox.put(message("first"), "orders")
            clock.at_ms += 61_000
            with pytest.raises(OutboxFullError, match=words):
                outbox.put([message("second", body=b"y" * 50), message("third", body=b"y" * 50)], "orders")
            assert ids(outbox) == ["first"]
            outbox.drop([1])
            outbox.put([message("fourth"), message("fifth")], "orders") if number != 1 else None


def test_a_full_disk_is_told_and_does_not_harm_what_is_there(small_disk: Path) -> None:
    with Outbox(small_disk / "outbox.db") as outbox:
        kept = 0

        def put_all() -> None:
            nonlocal kept
            while True:
                outbox.put(message(f"m{kept}", body=b"x" * 100_000), "orders")
                kept += 1

        with pytest.raises(OutboxFullError, match="no room left on the disk"):
            put_all()
        assert kept > 5
        assert outbox.counts().messages == kept
    with Outbox(small_disk / "outbox.db") as again:
        assert ids(again) == [f"m{number}" for number in range(kept)]


def test_a_disk_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(OutboxError, match="cannot be opened"):
        Outbox(tmp_path)


# The application's own transaction


def with_sqlite3(directory: Path, _: PostgresServer) -> tuple[Any, str]:
    connection = sqlite3.connect(directory / "application.db")
    connection.row_factory = sqlite3.Row
    return connection, str(directory / "application.db")


def with_psycopg(_: Path, server: PostgresServer) -> tuple[Any, str]:
    schema = server.new_schema()
    server.execute(f"CREATE SCHEMA {schema}")
    address = f"{server.connection_url}?options=-csearch_path%3D{schema}"
    return psycopg.connect(address, row_factory=psycopg.rows.dict_row), address


def test_the_transactions_of_another_sqlite_library_are_refused(tmp_path: Path, outbox: Outbox) -> None:
    with pytest.raises(TypeError, match="two SQLite libraries"):
        outbox.put([message("a", "k")], "orders", connection=apsw.Connection(str(tmp_path / "application.db")))


@pytest.mark.parametrize("connect", [with_sqlite3, with_psycopg])
async def test_a_message_is_put_with_the_applications_own_work_or_not_at_all(
    tmp_path: Path, postgres: PostgresServer, connect: Callable[[Path, PostgresServer], tuple[Any, str]]
) -> None:
    connection, where = connect(tmp_path, postgres)
    transaction = connection.transaction if isinstance(connection, psycopg.Connection) else lambda: connection
    with Outbox(where) as outbox:
        with transaction():
            connection.execute("CREATE TABLE work (name TEXT)")
            Outbox.create_tables(connection)

        def work(name: str, *put: ServiceBusMessage, fails: bool = False) -> None:
            with transaction():
                connection.execute(f"INSERT INTO work VALUES ('{name}')")
                outbox.put(put, "orders", connection=connection)
                if fails:
                    raise ZeroDivisionError

        work("one", message("a", "k"), message("b", "k"))
        with pytest.raises(ZeroDivisionError):
            work("two", message("c", "k"), fails=True)
        work("three", message("d", "k"))
        assert ids(outbox) == ["a", "b", "d"]

        arrived: list[str] = []

        async def deliver(path: str, payloads: Sequence[bytes], key: str | None) -> None:
            arrived.extend(read(payload).message_id or "" for payload in payloads)

        assert await Dispatcher(outbox, deliver).drain() == 0
        assert arrived == ["a", "b", "d"]
        assert outbox.counts()[:3] == (0, 0, 0)
    connection.close()


def test_another_kind_of_connection_is_refused(outbox: Outbox) -> None:
    with pytest.raises(TypeError, match=r"not of a builtins\.str"):
        outbox.put(message("a"), "orders", connection="postgresql://")


# Dispatchers


async def test_a_message_refused_for_good_is_set_aside_and_can_be_tried_again_or_given_up(outbox: Outbox) -> None:
    refuses = True

    async def deliver(path: str, payloads: Sequence[bytes], key: str | None) -> None:
        ids = [read(payload).message_id or "" for payload in payloads]
        error = ClientError("amqp:link:message-size-exceeded", "too large")
        if failed := {at: error for at, each in enumerate(ids) if refuses and each.startswith("bad")}:
            raise of_several(failed, len(payloads))

    outbox.put([message("bad-1", "k"), message("good", "k"), message("bad-2"), message("bad-3", "j")], "orders")
    seen: list[str] = []
    dispatcher = Dispatcher(outbox, deliver, on_refused=lambda entry, reason: seen.append(entry.message_id))
    assert await dispatcher.drain() == 0
    assert sorted(seen) == ids(outbox, aside=True) == ["bad-1", "bad-2", "bad-3"]
    words = "'orders' refuses the message: amqp:link:message-size-exceeded: too large"
    assert {entry.reason for entry in outbox.look()} == {words}
    assert outbox.counts().oldest_put_at_ms is None

    assert outbox.drop([3]) == 1
    assert outbox.retry([1]) == 1
    refuses = False
    assert await Dispatcher(outbox, deliver).drain() == 0
    assert ids(outbox) == ["bad-3"]
    assert outbox.retry() == 1
    assert await Dispatcher(outbox, deliver).drain() == 0
    assert outbox.counts()[:3] == (0, 0, 0)


async def test_an_entity_that_takes_nothing_is_named_while_others_take_theirs(outbox: Outbox) -> None:
    async def deliver(path: str, payloads: Sequence[bytes], key: str | None) -> None:
        if path == "full":
            raise ClientError("amqp:resource-limit-exceeded", "it is full")

    outbox.put([message("one")], "full")
    outbox.put([message("two")], "orders")
    dispatcher = Dispatcher(outbox, deliver)
    assert await dispatcher.drain(patience_s=0.2) == 1
    assert (dispatcher.progress.sent, "it is full" in (dispatcher.progress.problem or "")) == (1, True)
    outbox.put([message("three")], "orders")
    assert await dispatcher.drain(patience_s=0.2) == 1
    assert (dispatcher.progress.sent, "it is full" in (dispatcher.progress.problem or "")) == (2, True)


async def test_two_dispatchers_at_once_send_nothing_twice(tmp_path: Path) -> None:
    """The second stands by, and takes over when the first ends."""
    arrived: list[tuple[str, str]] = []

    def way(name: str) -> Any:
        async def deliver(path: str, payloads: Sequence[bytes], key: str | None) -> None:
            await asyncio.sleep(0.001)
            arrived.extend((name, read(payload).message_id or "") for payload in payloads)

        return deliver

    with Outbox(tmp_path / "outbox.db") as one, Outbox(tmp_path / "outbox.db") as other:
        first = asyncio.create_task(Dispatcher(one, way("first")).run())
        one.put([message(f"a{number}", f"k{number % 3}") for number in range(30)], "orders")
        await until(lambda: len(arrived) == 30, "the first")
        second = asyncio.create_task(Dispatcher(other, way("second")).run())
        other.put([message(f"b{number}") for number in range(30)], "orders")
        await until(lambda: len(arrived) == 60, "the first again")
        assert {name for name, _ in arrived} == {"first"}
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        other.put([message(f"c{number}") for number in range(30)], "orders")
        await until(lambda: len(arrived) == 90, "the second")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    assert len({message_id for _, message_id in arrived}) == len(arrived) == 90
    assert [name for name, _ in arrived[60:]] == ["second"] * 30


WRITER = """
import sys
from azure.servicebus import ServiceBusMessage
from twinbus.pair.outbox.outbox import Outbox
outbox = Outbox(sys.argv[1])
number = 0
while True:
    outbox.put([ServiceBusMessage(b"x", message_id=f"m{number + each}") for each in range(5)], "orders")
    number += 5
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_has_lost_nothing_that_it_was_told_is_safe(tmp_path: Path) -> None:
    where = tmp_path / "outbox.db"
    for _ in range(3):
        where.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-c", WRITER, where], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        told = 0
        for line in process.stdout:
            told = int(line)
            if told >= 200:
                process.send_signal(signal.SIGKILL)
                break
        told = max([told, *(int(line) for line in process.stdout if line.strip().isdigit())])
        process.wait()
        process.stdout.close()
        with Outbox(where) as outbox:
            found = [entry.message_id for entry in outbox.look(limit=100_000)]
        assert found == [f"m{number}" for number in range(len(found))]
        assert told <= len(found) <= told + 5  # Whole lists only.


@pytest.mark.alone
def test_five_thousand_durable_messages_a_second_in_lists_of_a_hundred(outbox: Outbox) -> None:
    lists = [[message(f"{each}-{number}", body=b"x" * 200) for number in range(100)] for each in range(100)]
    rates = []
    for part in range(0, 100, 20):
        began = time.perf_counter()
        for each in lists[part : part + 20]:
            outbox.put(each, "orders")
        rates.append(2000 / (time.perf_counter() - began))
    assert outbox.counts().messages == 10_000
    assert max(rates) >= SPEED, f"{max(rates):,.0f} messages a second"


def test_the_synchronous_client_dispatches_beside_the_application(tmp_path: Path) -> None:
    """Nobody answers at that address: what is sent is safe all the same, and the client ends at once."""
    nowhere = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
    with OutboxClient(nowhere, tmp_path / "outbox.db") as client, client.get_queue_sender("orders") as sender:
        assert sender.send_messages(message("a")).message_ids == ["a"]
        assert client.outbox.counts().messages == 1
    with Outbox(tmp_path / "outbox.db") as outbox:
        assert ids(outbox) == ["a"]
