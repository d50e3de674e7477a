"""How a connection ends, and what becomes of its locks: the moments that a real socket brings about only by chance."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.amqp.connection import Connection
from twinbus.amqp.handshake import Role
from twinbus.amqp.settings import Settings
from twinbus.gateway.connection import ClientConnection
from twinbus.model.disturbance import Suffering


class Wire:
    """A transport that keeps what is written, over one end of a real pair of sockets."""

    def __init__(self, end: socket.socket) -> None:
        self.written = b""
        self._extra = {"socket": end}

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, name: str) -> Any:
        return self._extra.get(name)

    def set_write_buffer_limits(self, high: int) -> None: ...


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


@pytest.fixture
def dropped() -> list[int]:
    return []


@pytest.fixture
async def opened(
    sockets: tuple[socket.socket, socket.socket], dropped: list[int]
) -> tuple[ClientConnection, Connection]:
    """A connection up to both opens, and the client's core at its other end."""
    namespace = SimpleNamespace(
        drop_locks=lambda number, origin: dropped.append(number),
        note_connection=lambda operation, outcome, origin: None,
        suffering=Suffering(),
    )
    clock = SimpleNamespace(now_ms=lambda: 0)
    context = SimpleNamespace(namespace=namespace, clock=clock, next_number=lambda: 7, counters=Counter())
    gateway: Any = SimpleNamespace(
        clock=clock,
        choice=SimpleNamespace(entrance=context, only=context, by_host=lambda host: context),
        container_id="broker",
        settings=Settings(mechanisms=("ANONYMOUS",)),
        joined=lambda one: None,
        left=lambda one: None,
    )
    connection = ClientConnection(gateway)
    wire: Any = Wire(sockets[0])
    connection.connection_made(wire)
    client = Connection(Role.CLIENT, "client")
    client.start("ANONYMOUS", b"")
    while data := client.take():
        connection.data_received(data)
        client.receive(wire.written, 0)
        wire.written = b""
    assert client.opened
    return connection, client


async def test_a_close_that_waits_to_be_read_behind_a_failed_write_is_heard(
    opened: tuple[ClientConnection, Connection], sockets: tuple[socket.socket, socket.socket], dropped: list[int]
) -> None:
    connection, client = opened
    client.close()
    sockets[1].sendall(client.take())
    sockets[1].close()
    connection.connection_lost(BrokenPipeError())
    assert dropped == []


async def test_without_a_close_the_locks_fall(
    opened: tuple[ClientConnection, Connection], sockets: tuple[socket.socket, socket.socket], dropped: list[int]
) -> None:
    connection, _ = opened
    sockets[1].close()
    connection.connection_lost(ConnectionResetError())
    assert dropped == [7]


async def test_a_close_in_time_keeps_them(opened: tuple[ClientConnection, Connection], dropped: list[int]) -> None:
    connection, client = opened
    client.close()
    # The transport of this test cannot hang up, and need not: the close was read.
    connection.is_lost = True
    connection.data_received(client.take())
    connection.connection_lost(None)
    assert dropped == []
