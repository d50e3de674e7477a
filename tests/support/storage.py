"""What a test cannot bring about from outside in reasonable time: a queue that is full, a disk that does not answer.

Touches the embedded store's files directly, and knows of them only what it needs for that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from proton import Message

from support.broker import BrokerProcess
from support.peer import connected

MEGABYTE = 1024 * 1024


def _mark(broker: BrokerProcess, queue: str) -> str:
    """Put one message into a queue, by whose id its store is found."""
    message_id = f"marks {queue}"
    with connected(broker) as connection:
        connection.create_sender(queue).send(Message(id=message_id, body=b"m", inferred=True))
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
    broker.stop()
    path, number = _find(broker, message_id)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE queue SET bytes = ? WHERE id = ?", (megabytes * MEGABYTE, number))
    broker.start()


@contextmanager
def stalled(broker: BrokerProcess, queue: str) -> Iterator[None]:
    """Keep the queue's store from committing anything, as a disk does that does not answer for a while."""
    path, _ = _find(broker, _mark(broker, queue))
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            database.execute("ROLLBACK")
