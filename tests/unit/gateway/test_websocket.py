"""The transport over a WebSocket, told what happens by a socket that does nothing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import WSMessage, WSMsgType
from aiohttp.test_utils import make_mocked_request

from twinbus.gateway import websocket
from twinbus.gateway.websocket import WebSocketDoor, WebSocketTransport

MIB = 1024 * 1024


class Wire:
    """The connection under the WebSocket."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.is_cut = False

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"

    def abort(self) -> None:
        self.is_cut = True
        self.socket.may_send.set()
        self.socket.arrive(WSMsgType.CLOSED)


class Socket:
    """A WebSocket: what is sent is kept, and waits while the peer does not read."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.wire = Wire(self)
        self._arrived: asyncio.Queue[WSMessage] = asyncio.Queue()

    def arrive(self, kind: WSMsgType, data: Any = None) -> None:
        self._arrived.put_nowait(WSMessage(kind, data, ""))

    async def __aiter__(self) -> AsyncIterator[WSMessage]:
        while (message := await self._arrived.get()).type not in (WSMsgType.CLOSE, WSMsgType.CLOSED):
            yield message

    async def _send(self, kind: str, data: Any) -> None:
        await self.may_send.wait()
        if self.wire.is_cut:
            raise ConnectionResetError
        self.sent.append((kind, data))

    async def send_bytes(self, data: bytes) -> None:
        await self._send("bytes", data)

    async def pong(self, data: bytes) -> None:
        await self._send("pong", data)

    async def close(self, code: int = 1000, message: bytes = b"") -> None:
        if not self.wire.is_cut:
            self.sent.append(("close", code))
        self.arrive(WSMsgType.CLOSED)


class Protocol(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, problem: Exception | None) -> None:
        self.told.append("lost")


class Line:
    """A transport at work between a socket and a protocol."""

    def __init__(self) -> None:
        self.socket = Socket()
        self.protocol = Protocol()
        self.transport = WebSocketTransport(self.socket, self.socket.wire, self.protocol)  # type: ignore[arg-type]
        self.work = asyncio.create_task(self.transport.carry())

    async def settle(self) -> None:
        """Let everything happen that can happen now."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    one = Line()
    await one.settle()
    yield one
    one.transport.abort()
    await one.work
    assert one.protocol.told[-1] == "lost"
    assert one.protocol.told.count("lost") == 1


async def test_binary_messages_are_received_as_they_come(line: Line) -> None:
    for data in (b"AM", b"", b"QP"):
        line.socket.arrive(WSMsgType.BINARY, data)
    await line.settle()
    assert line.protocol.told == ["made", b"AM", b"", b"QP"]


async def test_what_is_written_in_one_turn_leaves_in_one_message(line: Line) -> None:
    for data in (b"a", b"", bytearray(b"b"), memoryview(b"c")):
        line.transport.write(data)
    await line.settle()
    line.transport.write(b"d")
    await line.settle()
    assert line.socket.sent == [("bytes", b"abc"), ("bytes", b"d")]


async def test_no_message_is_larger_than_clients_expect(line: Line) -> None:
    line.transport.write(b"x" * (websocket.OUTGOING_MESSAGE_BYTES_MAX * 2 + 1))
    await line.settle()
    assert [len(data) for _, data in line.socket.sent] == [65_536, 65_536, 1]


async def test_the_protocol_pauses_while_the_peer_does_not_read(line: Line) -> None:
    line.transport.set_write_buffer_limits(high=MIB)
    line.socket.may_send.clear()
    line.transport.write(b"x" * MIB)
    await line.settle()
    assert line.protocol.told == ["made"]
    line.transport.write(b"y")
    line.transport.write(b"z")
    assert line.protocol.told == ["made", "pause"]
    assert line.transport.get_write_buffer_size() == MIB + 2
    line.socket.may_send.set()
    await line.settle()
    assert line.protocol.told == ["made", "pause", "resume"]
    assert line.transport.get_write_buffer_size() == 0


async def test_reading_does_not_wait_for_writing(line: Line) -> None:
    line.socket.may_send.clear()
    line.transport.write(b"x")
    line.socket.arrive(WSMsgType.PING, b"1")
    line.socket.arrive(WSMsgType.BINARY, b"heard")
    line.socket.arrive(WSMsgType.PING, b"2")
    await line.settle()
    assert line.protocol.told == ["made", b"heard"]
    line.socket.may_send.set()
    await line.settle()
    assert line.socket.sent == [("bytes", b"x"), ("pong", b"2")]


async def test_a_peer_that_leaves_too_much_unread_is_cut_off(line: Line) -> None:
    line.socket.may_send.clear()
    for _ in range(64):
        line.transport.write(bytes(MIB))
    assert not line.socket.wire.is_cut
    line.transport.write(b"x")
    assert line.socket.wire.is_cut
    await line.work
    assert line.socket.sent == []


async def test_a_polite_close_writes_what_is_left_first(line: Line) -> None:
    line.transport.write(b"last words")
    line.transport.close()
    line.transport.write(b"too late")
    assert line.transport.is_closing()
    await line.work
    assert line.socket.sent == [("bytes", b"last words"), ("close", 1000)]
    assert not line.socket.wire.is_cut


async def test_a_close_that_the_peer_holds_up_ends_in_a_cut(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "CLOSE_S", 0)
    line.socket.may_send.clear()
    line.transport.write(b"last words")
    line.transport.close()
    await line.work
    assert line.socket.wire.is_cut


async def test_the_peers_close_ends_the_connection_whatever_is_unsent(line: Line) -> None:
    line.socket.may_send.clear()
    line.transport.write(b"unsent")
    line.socket.arrive(WSMsgType.CLOSE, 1000)
    await line.work
    assert line.socket.sent == []
    assert line.transport.is_closing()


async def test_text_closes_with_unsupported_data(line: Line) -> None:
    line.socket.arrive(WSMsgType.TEXT, b"hello")
    await line.work
    assert line.socket.sent == [("close", 1003)]


@pytest.mark.parametrize(("accepts", "status"), [(False, 503), (True, None)])
def test_no_more_connections_than_the_gateway_accepts(accepts: bool, status: int | None) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "amqp",
    }
    request = make_mocked_request("GET", websocket.PATHS[0], headers=headers)
    refusal = WebSocketDoor(SimpleNamespace(accepts=accepts))._refusal(request)  # type: ignore[arg-type]
    assert (refusal and refusal.status) == status
