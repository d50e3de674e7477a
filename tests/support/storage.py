"""What a test cannot bring about from outside in reasonable time: a queue that is full, a disk that does not answer.

Touches the stores' files or rows directly, and knows of them only what it needs for that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from support.broker import BrokerProcess
from support.gateways import Gateways
from support.queues import put
from twinbus.client.messages import build

MEGABYTE = 1024 * 1024


def _mark(broker: BrokerProcess, queue: str) -> str:
    """Put one message into a queue, by whose id its store is found."""
    message_id = f"marks {queue}"
    put(broker, queue, [build(b"m", message_id=message_id)])
    return message_id


def _find(broker: BrokerProcess, message_id: str) -> tuple[Path, int]:
    """The file that holds a message, and the number that its queue has there."""
    for path in sorted(broker.data.glob("store-*.db")):
        with closing(sqlite3.connect(path)) as database:
            row = database.execute("SELECT queue FROM message WHERE message_id = ?", (message_id,)).fetchone()
            if row is not None:
                return path, int(row[0])
    raise AssertionError(f"no store holds the message {message_id!r}")


def fill(broker: BrokerProcess, queue: str, megabytes: int = 1024) -> None:
    """Make the broker believe that a queue holds so much; it holds one message, and the broker is restarted."""
    message_id = _mark(broker, queue)
    if isinstance(broker, Gateways):
        _fill_rows(broker, message_id, megabytes * MEGABYTE)
        return
    broker.stop()
    path, number = _find(broker, message_id)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE queue SET bytes = ? WHERE id = ?", (megabytes * MEGABYTE, number))
    broker.start()


def _fill_rows(gateways: Gateways, message_id: str, size: int) -> None:
    """The same in PostgreSQL, where a queue's counts are in its entity's row and nobody need be restarted."""
    with psycopg.connect(gateways.stores[0]) as connection:
        changed = connection.execute(
            "UPDATE twinbus_compat_0.entity SET counts[6] = %s"
            " WHERE id = (SELECT queue / 4 FROM twinbus_compat_0.message WHERE message_id = %s)",
            (size, message_id),
        )
    assert changed.rowcount == 1


@contextmanager
def stalled(broker: BrokerProcess, queue: str) -> Iterator[None]:
    """Keep the queue's store from committing anything, as a disk does that does not answer for a while."""
    if isinstance(broker, Gateways):
        pytest.skip("a database that does not answer concerns all gateways at once: tests/faults has tests for it")
    path, _ = _find(broker, _mark(broker, queue))
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            database.execute("ROLLBACK")
