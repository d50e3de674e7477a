"""The journal as files: the columns of an exported operation, their types and meaning, under a version.

This is a public contract, told once: whoever writes the files and whoever reads them take the columns from here. How a
store keeps its journal until then is the store's business.
"""

from __future__ import annotations

from typing import NamedTuple

VERSION = 1
VERSION_KEY = "twinbus.journal.version"  # In the metadata of every file.
DAY = "day"  # The partition: a directory `day=2026-11-16` in UTC, not a column of the file.


class Column(NamedTuple):
    """One column. Types are Arrow's names; a timestamp is in microseconds, UTC."""

    name: str
    type: str
    meaning: str


COLUMNS = (
    Column("namespace", "string", "whose journal it is"),
    Column("store", "int32", "the messaging store's number"),
    Column("writer", "int32", "the gateway's stream within the store; 0 where one process has the store to itself"),
    Column("batch", "int64", "the transaction's number in its stream; without gaps"),
    Column("place", "int32", "the operation's place in its transaction; with the four before it, the row's key"),
    Column("at", "timestamp", "the instant of the commit"),
    Column("operation", "string", "what was done; the words are in docs/journal.md"),
    Column("entity", "string", "the path, as in `orders` or `events/Subscriptions/audit`"),
    Column("kind", "string", "queue, topic, subscription or hybrid"),
    Column("sub_queue", "string", "empty, `$DeadLetterQueue` or `$Transfer/$DeadLetterQueue`"),
    Column("queue", "int64", "the number of entity and sub-queue; an entity that is made anew has another"),
    Column("outcome", "string", "what became of it, where the operation leaves that open"),
    Column("message_id", "string", "the message; empty where an operation concerned none"),
    Column("session_id", "string", "of what creates a copy (send, copy, schedule) in a session; else empty"),
    Column("sequence_number", "int64", "the copy's number in its queue, as receivers see it"),
    Column("delivery_count", "int32", "as it was when the operation began"),
    Column("bytes", "int64", "the message's size, or what passed"),
    Column("count", "int64", "1, or how many operations the row stands for"),
    Column("connection", "string", "who asked"),
    Column("client", "string", "what it called itself; `broker` where time or the store did it"),
    Column("tracking_id", "string", "of a refusal, as the client was told"),
)
