"""What is in the queues of a test's broker, looked at or put there with our own client, from ordinary functions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from support.broker import BrokerProcess
from twinbus.client import connect
from twinbus.client.messages import Message, build, read

T = TypeVar("T")


def contents(broker: BrokerProcess, path: str) -> list[Message]:
    """Every message of a queue, in order; none is taken out."""
    return _finished(_contents(broker.connection_string(), path))


def put(broker: BrokerProcess, path: str, payloads: Iterable[bytes]) -> None:
    """Send encoded messages."""
    _finished(_put(broker.connection_string(), path, list(payloads)))


def numbered(count: int, prefix: str = "m", first: int = 0) -> list[bytes]:
    """Encoded messages whose ids and bodies are numbers."""
    return [build(str(n).encode(), message_id=f"{prefix}{n}") for n in range(first, first + count)]


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Its result; on a thread, because the caller may be a coroutine, which waits for it then."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _contents(connection_string: str, path: str) -> list[Message]:
    async with connect(connection_string) as connection:
        management = await connection.management(path)
        return [read(payload) async for page in management.peek_all() for payload in page]


async def _put(connection_string: str, path: str, payloads: list[bytes]) -> None:
    async with connect(connection_string) as connection:
        await (await connection.sender(path)).send(payloads)
